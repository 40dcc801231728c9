// round_half.comp - rounds activations to binary16 for products of many rows: rounding at each load
// would take longer than the product.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 from, to;
    uint count;
};

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i < count)
        Floats(to).at[i] = to_11_bits(vec4(Floats(from).at[i])).x;
}
