// weights.glsl - single values of a weight, for every type: TYPE_* names it.
//
// Rows are `stride` quads of 16 bytes apart.  Where a file's blocks are not a multiple of 16 bytes,
// the scales follow the row's values (src/llm/vulkan/weights.c).

float q4_k_value(Words words, uint base, uint i)
{
    uint at = base + i / 256 * 36, sub = i % 256 / 32; // words
    vec2 scales = unpackHalf2x16(words.at[at]);
    uint packed = 4 * (at + 1), scale, low;
    if (sub < 4) {
        scale = ubyte_at(words, packed + sub) & 63;
        low = ubyte_at(words, packed + sub + 4) & 63;
    } else {
        uint both = ubyte_at(words, packed + sub + 4);
        scale = (both & 15) | ubyte_at(words, packed + sub - 4) >> 6 << 4;
        low = both >> 4 | ubyte_at(words, packed + sub) >> 6 << 4;
    }
    uint value = ubyte_at(words, 4 * (at + 4) + i % 256 / 64 * 32 + i % 32);
    value = value >> (4 * (sub & 1)) & 15;
    return scales.x * float(scale) * float(value) - scales.y * float(low);
}

float q6_k_value(Words words, uint base, uint width, uint i)
{
    uint at = 4 * base + i / 256 * 208, within = i % 256, half_ = within / 128; // bytes
    uint run = within % 128 / 32, l = within % 32;
    uint low = ubyte_at(words, at + 64 * half_ + 32 * (run % 2) + l) >> (4 * (run / 2)) & 15;
    uint high = ubyte_at(words, at + 128 + 32 * half_ + l) >> (2 * run) & 3;
    uint scale = ubyte_at(words, at + 192 + within / 16);
    float d = half_at(words, 2 * (base + width / 256 * 52) + i / 256);
    return d * float(byte_of(scale, 0)) * float(int(low | high << 4) - 32);
}

float weight_value(uvec2 weight, uint row, uint stride, uint width, uint i)
{
    Words words = Words(weight);
    uint base = row * stride * 4;
#if defined(TYPE_F32)
    return uintBitsToFloat(words.at[base + i]);
#elif defined(TYPE_F16)
    return half_at(words, 2 * base + i);
#elif defined(TYPE_BF16)
    uint both = words.at[base + i / 2];
    return uintBitsToFloat((i & 1) == 0 ? both << 16 : both & 0xffff0000);
#elif defined(TYPE_Q8_0)
    float d = half_at(words, 2 * (base + width / 4) + i / 32);
    return d * float(byte_of(words.at[base + i / 4], i % 4));
#elif defined(TYPE_Q4_0)
    float d = half_at(words, 2 * (base + width / 8) + i / 32);
    uint both = ubyte_at(words, 4 * base + i / 32 * 16 + i % 16);
    return d * float(int(both >> (i % 32 / 16 * 4) & 15) - 8);
#elif defined(TYPE_Q4_K)
    return q4_k_value(words, base, i);
#elif defined(TYPE_Q6_K)
    return q6_k_value(words, base, width, i);
#endif
}
