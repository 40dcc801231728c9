// pick.comp - rows by number: values[i] = from[which[i]].
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 from, which, values;
    uint width, count;
};

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i < count)
        Floats(values).at[i] = Floats(from).at[Words(which).at[i / width] * width + i % width];
}
