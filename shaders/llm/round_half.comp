// round_half.comp - activations as binary16 would keep them, for products of many rows: rounding
// whenever a value is loaded would take longer than the product.
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
