// units.glsl - units of quantised weights, for every type: TYPE_* names it.
//
// A unit is 16 bytes of weights: two runs of 16 values (one in Q8_0), each with a whole-number factor,
// and the block's scales.  x = d * factor * value + dmin * min.
//
// Rows are `width` values and begin at quads of 16 bytes.  Where a file's blocks are not a multiple of
// 16 bytes, parts of them follow the row's values (src/llm/vulkan/weights.c).  The including file
// declares `width` before.

struct Unit {
    uvec4 low, high;             // 16 values each, a byte a value
    int low_factor, high_factor; // of products
    int low_min, high_min;       // of sums of activations
    float d, dmin;
};

// Types by the block of activations, and by the places of a unit's values.
#if defined(TYPE_Q4_0) || defined(TYPE_Q4_1) || defined(TYPE_Q5_0) || defined(TYPE_Q5_1) ||              \
    defined(TYPE_IQ4_NL) || defined(TYPE_MXFP4)
#define PLACES_32 // the high values follow the low ones
const uint BLOCK = 32;
#elif defined(TYPE_IQ4_XS)
#define PLACES_32
const uint BLOCK = 256;
#elif defined(TYPE_Q4_K) || defined(TYPE_Q5_K)
#define PLACES_64 // four groups of 64: low and high values are 32 apart
const uint BLOCK = 256;
#elif defined(TYPE_Q8_0)
const uint BLOCK = 32;
#else
#define PLACES_128 // two halves of 128: 64 apart
const uint BLOCK = 256;
#endif

#if defined(TYPE_Q8_0)
const uint UNIT_VALUES = 16;
#else
const uint UNIT_VALUES = 32;
#endif

#if defined(TYPE_Q4_1) || defined(TYPE_Q5_1) || defined(TYPE_Q2_K) || defined(TYPE_Q4_K) ||              \
    defined(TYPE_Q5_K)
const bool TWO_SCALES = true;
#else
const bool TWO_SCALES = false;
#endif

// Where the low values of a unit begin, and the distance to the high ones.
uint low_place(uint u)
{
#if defined(PLACES_32)
    return 32 * u;
#elif defined(PLACES_64)
    return u / 8 * 256 + u % 8 / 2 * 64 + u % 2 * 16;
#elif defined(PLACES_128)
    return u / 4 * 128 + u % 4 * 16;
#else
    return 16 * u;
#endif
}

#if defined(PLACES_32)
const uint HIGH_AFTER = 16;
#elif defined(PLACES_64)
const uint HIGH_AFTER = 32;
#else
const uint HIGH_AFTER = 64;
#endif

// The unit of value i.
uint unit_of(uint i)
{
#if defined(PLACES_32)
    return i / 32;
#elif defined(PLACES_64)
    return i / 64 * 2 + i % 32 / 16;
#elif defined(PLACES_128)
    return i / 128 * 4 + i % 64 / 16;
#else
    return i / 16;
#endif
}

uvec4 low_nibbles(uvec4 q)
{
    return q & 0x0f0f0f0f;
}

uvec4 high_nibbles(uvec4 q)
{
    return q >> 4 & 0x0f0f0f0f;
}

// 16 bits to 16 bytes.
uvec4 spread(uint bits)
{
    uvec4 fours = uvec4(bits, bits >> 4, bits >> 8, bits >> 12) & 15;
    return fours * 0x00204081 & 0x01010101;
}

#if defined(TYPE_IQ4_NL) || defined(TYPE_IQ4_XS)
const uvec4 TABLE = uvec4(0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535);
#else
const uvec4 TABLE = uvec4(0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc); // MXFP4
#endif

// A byte of the table for each byte of nibbles.
uvec4 look_up(uvec4 nibbles)
{
    uvec4 values = uvec4(0);
    [[unroll]] for (uint i = 0; i < 32; i += 8) {
        uvec4 n = nibbles >> i & 15;
        [[unroll]] for (uint w = 0; w < 4; w++) {
            uint four = n[w] < 8 ? (n[w] < 4 ? TABLE.x : TABLE.y) : (n[w] < 12 ? TABLE.z : TABLE.w);
            values[w] |= (four >> (8 * (n[w] & 3)) & 0xff) << i;
        }
    }
    return values;
}

#if defined(PLACES_32) && !defined(TYPE_IQ4_XS)
Unit unit_at(uvec2 weight, uint row_at, uint u)
{
    uvec4 q = Words4(weight).at[row_at + u];
    uint tail = 4 * (row_at + width / 32); // words; what follows the values
    Unit unit = Unit(low_nibbles(q), high_nibbles(q), 1, 1, 0, 0, 0, 0);
#if defined(TYPE_Q4_0)
    unit.low_min = unit.high_min = -8;
    unit.d = half_at(Words(weight), 2 * tail + u);
#elif defined(TYPE_Q4_1) || defined(TYPE_Q5_1)
    unit.low_min = unit.high_min = 1;
#if defined(TYPE_Q4_1)
    vec2 scales = unpackHalf2x16(Words(weight).at[tail + u]);
#else
    vec2 scales = unpackHalf2x16(Words(weight).at[tail + 2 * u]);
    uint fifth = Words(weight).at[tail + 2 * u + 1];
    unit.low |= spread(fifth) << 4;
    unit.high |= spread(fifth >> 16) << 4;
#endif
    unit.d = scales.x;
    unit.dmin = scales.y;
#elif defined(TYPE_Q5_0)
    uint fifth = Words(weight).at[tail + u];
    unit.low |= spread(fifth) << 4;
    unit.high |= spread(fifth >> 16) << 4;
    unit.low_min = unit.high_min = -16;
    unit.d = half_at(Words(weight), 2 * (tail + width / 32) + u);
#else
    unit.low = look_up(unit.low);
    unit.high = look_up(unit.high);
#if defined(TYPE_IQ4_NL)
    unit.d = half_at(Words(weight), 2 * tail + u);
#else
    uint e = ubyte_at(Words(weight), 4 * tail + u); // 2^(e - 128)
    unit.d = uintBitsToFloat(e < 2 ? 0x200000u << e : (e - 1) << 23);
#endif
#endif
    return unit;
}
#elif defined(TYPE_Q8_0)
Unit unit_at(uvec2 weight, uint row_at, uint u)
{
    float d = half_at(Words(weight), 8 * row_at + width / 2 + u / 2);
    return Unit(Words4(weight).at[row_at + u], uvec4(0), 1, 0, 0, 0, d, 0);
}
#elif defined(TYPE_IQ4_XS)
Unit unit_at(uvec2 weight, uint row_at, uint u)
{
    uvec4 q = Words4(weight).at[row_at + u];
    uint tail = 4 * (row_at + width / 32) + u / 8 * 2, sub = u % 8;
    uint head = Words(weight).at[tail];
    int scale = int((Words(weight).at[tail + 1] >> (4 * sub) & 15) |
                    (head >> (16 + 2 * sub) & 3) << 4) - 32;
    return Unit(look_up(low_nibbles(q)), look_up(high_nibbles(q)), scale, scale, 0, 0,
                unpackHalf2x16(head).x, 0);
}
#elif defined(PLACES_64)
// Sub-block `sub` of the eight: its scale, and its minimum with the sign that it is added with.
ivec2 six_bits(uvec4 head, uint sub)
{
    uint at = 8 * (sub % 4), scales = head.y >> at & 0xff, minima = head.z >> at & 0xff;
    if (sub < 4)
        return ivec2(scales & 63, -int(minima & 63));
    uint both = head.w >> at & 0xff;
    return ivec2((both & 15) | scales >> 6 << 4, -int(both >> 4 | minima >> 6 << 4));
}

Unit unit_at(uvec2 weight, uint row_at, uint u)
{
#if defined(TYPE_Q4_K)
    const uint QUADS = 9, VALUES = 1;
#else
    const uint QUADS = 11, VALUES = 3;
#endif
    uint block = row_at + u / 8 * QUADS, sub = u % 8 / 2 * 2;
    uvec4 head = Words4(weight).at[block], q = Words4(weight).at[block + VALUES + u % 8];
    ivec2 low = six_bits(head, sub), high = six_bits(head, sub + 1);
    vec2 scales = unpackHalf2x16(head.x);
    Unit unit = Unit(low_nibbles(q), high_nibbles(q), low.x, high.x, low.y, high.y, scales.x,
                     scales.y);
#if defined(TYPE_Q5_K)
    uvec4 fifth = Words4(weight).at[block + 1 + u % 2] >> sub;
    unit.low |= (fifth & 0x01010101) << 4;
    unit.high |= (fifth >> 1 & 0x01010101) << 4;
#endif
    return unit;
}
#elif defined(TYPE_Q6_K)
Unit unit_at(uvec2 weight, uint row_at, uint u)
{
    uint block = row_at + u / 8 * 13, j = u % 8, run = j % 4 / 2;
    uvec4 q = Words4(weight).at[block + j];
    uvec4 pairs = Words4(weight).at[block + 8 + j / 4 * 2 + j % 2] >> (2 * run);
    uvec4 scales = Words4(weight).at[block + 12];
    uint group = j / 4 * 8 + run * 2 + j % 2; // of 16 values; the high ones' is 4 on
    int low = byte_of(scales[group / 4], group % 4);
    int high = byte_of(scales[group / 4 + 1], group % 4);
    float d = half_at(Words(weight), 8 * (row_at + width / 256 * 13) + u / 8);
    return Unit(low_nibbles(q) | (pairs & 0x03030303) << 4,
                high_nibbles(q) | (pairs >> 4 & 0x03030303) << 4, low, high, -32 * low, -32 * high,
                d, 0);
}
#else
#if defined(TYPE_Q3_K)
int q3_k_scale(uvec4 last, uint group)
{
    uint at = 8 * (group % 4), low = last[group % 8 / 4] >> (at + group / 8 * 4) & 15;
    return int(low | (last.z >> (at + group / 4 * 2) & 3) << 4) - 32;
}
#endif

Unit unit_at(uvec2 weight, uint row_at, uint u)
{
    uint j = u % 8, run = j % 4 / 2, quad = j / 4 * 2 + j % 2;
    uint group = j / 4 * 8 + run * 2 + j % 2; // of 16 values; the high ones' is 4 on
#if defined(TYPE_Q2_K)
    uint block = row_at + u / 8 * 5;
    uvec4 scales = Words4(weight).at[block];
    uvec4 q = Words4(weight).at[block + 1 + quad] >> (2 * run);
    uint low = scales[group / 4] >> (8 * (group % 4)) & 0xff;
    uint high = scales[group / 4 + 1] >> (8 * (group % 4)) & 0xff;
    vec2 d = unpackHalf2x16(Words(weight).at[4 * (row_at + width / 256 * 5) + u / 8]);
    return Unit(q & 0x03030303, q >> 4 & 0x03030303, int(low & 15), int(high & 15), -int(low >> 4),
                -int(high >> 4), d.x, d.y);
#else
    uint block = row_at + u / 8 * 7;
    uvec4 third = Words4(weight).at[block + j % 2] >> (j / 4 * 4 + run);
    uvec4 q = Words4(weight).at[block + 2 + quad] >> (2 * run), last = Words4(weight).at[block + 6];
    int low = q3_k_scale(last, group), high = q3_k_scale(last, group + 4);
    return Unit((q & 0x03030303) | (third & 0x01010101) << 2,
                (q >> 4 & 0x03030303) | (third >> 2 & 0x01010101) << 2, low, high, -4 * low, -4 * high,
                unpackHalf2x16(last.w).x, 0);
#endif
}
#endif
