// embed.comp - a row of a table for each row of the batch: out = (out +) scale * table[which[row]].
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 table, which, values;
    uint width, stride, count, flags;
    float scale;
};
#include "weights.glsl"

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i >= count)
        return;
    float value = scale * weight_value(table, Words(which).at[i / width], stride, i % width);
    if ((flags & FLAG_ACCUMULATE) != 0)
        value += Floats(values).at[i];
    Floats(values).at[i] = value;
}
