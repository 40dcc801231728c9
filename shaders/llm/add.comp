// add.comp - x += scale * the sum of a row's terms, each times its weight, in order.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 x, y, weights; // weights 0: none, and one term
    uint width, terms, count;
    float scale;
};

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i >= count)
        return;
    uint row = i / width, column = i % width;
    float sum = 0;
    if (weights == uvec2(0))
        sum = Floats(y).at[i];
    else
        for (uint t = 0; t < terms; t++)
            sum = fma(Floats(weights).at[row * terms + t],
                      Floats(y).at[(row * terms + t) * width + column], sum);
    Floats(x).at[i] += scale * sum;
}
