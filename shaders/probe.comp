// probe.comp - the smallest work that tells a working Vulkan driver from a broken one.
//
// Compiled twice: as is, integer arithmetic; with PROBE_F16, every half-precision value to single
// precision and back, which is where broken software drivers die.
#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer Input { uint words_in[]; };
layout(std430, binding = 1) writeonly buffer Output { uint words_out[]; };

void main()
{
    uint i = gl_GlobalInvocationID.x;
    uint word = words_in[i];
#ifdef PROBE_F16
    vec2 pair = unpackHalf2x16(word);
    words_out[3 * i] = floatBitsToUint(pair.x);
    words_out[3 * i + 1] = floatBitsToUint(pair.y);
    words_out[3 * i + 2] = packHalf2x16(pair);
#else
    words_out[3 * i] = word * 2654435761u;
    words_out[3 * i + 1] = word ^ (word >> 7);
    words_out[3 * i + 2] = word + i;
#endif
}
