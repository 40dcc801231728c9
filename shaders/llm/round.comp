// round.comp - activations to 8 bits in blocks, as llm/engine/quantise.h defines, for quantised
// weights.  A row becomes its values, then a scale for each block.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 0) const uint BLOCK = 32; // or 256
layout(local_size_x = 64) in;                  // four values a thread: 256 values a workgroup
layout(push_constant) uniform Push
{
    uvec2 from, to;
    uint width, row_words; // of `to`
};

shared float most_of[64];

// 127 / most, rounded to nearest.  A device's own division may be off in the last bits (Vulkan allows
// 2.5 units), and a value between two steps then rounds to the other one.  The exact remainder, in
// units of the product of both mantissas, tells by how many units; fma may not be fused.
float steps_each(float most)
{
    uint quotient = floatBitsToUint(127.0 / most), divisor = floatBitsToUint(most);
    uint shift = 283 - (quotient >> 23) - (divisor >> 23);
    if (shift != 23 && shift != 24)
        return uintBitsToFloat(quotient); // of a number so small that the other is infinite
    int by = int((divisor & 0x7fffff) | 0x800000);
    int rest = int((127u << 17 << shift) - ((quotient & 0x7fffff) | 0x800000) * uint(by));
    for (; 2 * rest > by; rest -= by)
        quotient++;
    for (; 2 * rest < -by; rest += by)
        quotient--;
    return uintBitsToFloat(quotient);
}

void main()
{
    uint me = gl_LocalInvocationIndex, row = gl_WorkGroupID.y;
    uint at = (gl_WorkGroupID.x * 64 + me) * 4;
    bool inside = at < width;
    vec4 x = inside ? Floats4(from).at[(row * width + at) / 4] : vec4(0);
    vec4 size = abs(x);
    most_of[me] = max(max(size.x, size.y), max(size.z, size.w));
    barrier();
    float most = 0;
    uint first = me / (BLOCK / 4) * (BLOCK / 4);
    for (uint i = 0; i < BLOCK / 4; i++)
        most = max(most, most_of[first + i]);
    if (!inside)
        return;
    float inverse_ = most > 0 ? steps_each(most) : 0.0;
    ivec4 values = ivec4(roundEven(x * inverse_)) & 0xff;
    Words(to).at[row * row_words + at / 4] =
        uint(values.x | values.y << 8 | values.z << 16 | values.w << 24);
    if (me == first)
        Floats(to).at[row * row_words + width / 4 + at / BLOCK] = most / 127.0;
}
