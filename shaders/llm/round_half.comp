// round_half.comp - rounds activations to binary16 for products of many rows: rounding at each load
// would take longer than the product.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 0) const bool PACKED = false; // two halves a word, none infinite
layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 from, to;
    uint count; // words
};

uint packed_half(float x)
{
    return to_half(clamp(x, -65504.0, 65504.0));
}

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i >= count)
        return;
    if (PACKED)
        Words(to).at[i] = packed_half(Floats(from).at[2 * i]) |
                          packed_half(Floats(from).at[2 * i + 1]) << 16;
    else
        Floats(to).at[i] = to_11_bits(vec4(Floats(from).at[i])).x;
}
