// activate.comp - x = silu(x) * gate_by, or gelu(x).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 x, gate_by;
    uint count, flags;
};

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i >= count)
        return;
    float value = Floats(x).at[i];
    Floats(x).at[i] =
        (flags & FLAG_GELU) != 0 ? gelu(value) : silu(value) * Floats(gate_by).at[i];
}
