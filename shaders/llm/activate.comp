// activate.comp - the activation of a feed-forward: kinds as enum llm_activation numbers them.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint SILU_GATED = 0, GELU = 1, GELU_GATED = 2, SIGMOID = 4;
layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 x, gate_by;
    uint count, kind;
};

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i >= count)
        return;
    float value = Floats(x).at[i];
    if (kind == GELU)
        value = gelu(value);
    else if (kind == SILU_GATED)
        value = silu(value) * Floats(gate_by).at[i];
    else if (kind == GELU_GATED)
        value = gelu(value) * Floats(gate_by).at[i];
    else if (kind == SIGMOID)
        value = sigmoid(value);
    else
        value = silu_clamped(value, Floats(gate_by).at[i]);
    Floats(x).at[i] = value;
}
