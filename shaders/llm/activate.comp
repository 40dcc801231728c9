// activate.comp - the activation of a feed-forward: kinds as enum llm_activation numbers them.
//
// 256 values a workgroup; also rounds them for the product that follows, where FORM says so.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint SILU_GATED = 0, GELU = 1, GELU_GATED = 2, SIGMOID = 4;
layout(constant_id = 0) const uint FORM = 0;
layout(constant_id = 1) const bool ALIGNED = true; // rows begin at 16 bytes and end there
layout(constant_id = 2) const uint KIND = 0;
const uint THREADS = 64;
layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 x, gate_by, rounded;
    uint width, row_words, rows; // row_words: of `rounded`
};

#include "rounded.glsl"

const bool GATED = KIND != GELU && KIND != SIGMOID;

vec4 load(uvec2 place, uint first, uint at)
{
    if (ALIGNED)
        return Floats4(place).at[(first + at) / 4];
    vec4 four = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (at + j < width)
            four[j] = Floats(place).at[first + at + j];
    return four;
}

void store(uint first, uint at, vec4 four)
{
    if (ALIGNED) {
        Floats4(x).at[(first + at) / 4] = four;
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (at + j < width)
            Floats(x).at[first + at + j] = four[j];
}

float activated(float value, float by)
{
    if (KIND == GELU)
        return gelu(value);
    if (KIND == SILU_GATED)
        return silu(value) * by;
    if (KIND == GELU_GATED)
        return gelu(value) * by;
    if (KIND == SIGMOID)
        return sigmoid(value);
    return silu_clamped(value, by);
}

void main()
{
    uint groups = (width + 4 * THREADS - 1) / (4 * THREADS), id = linear_group();
    uint row = id / groups, at = (id % groups * THREADS + gl_LocalInvocationIndex) * 4;
    if (row >= rows)
        return;
    vec4 value = vec4(0);
    if (at < width) {
        vec4 by = GATED ? load(gate_by, row * width, at) : vec4(0);
        value = load(x, row * width, at);
        [[unroll]] for (uint j = 0; j < 4; j++)
            value[j] = activated(value[j], by[j]);
        store(row * width, at, value);
    }
    put_rounded(rounded, row * row_words, width, at, value, at < width);
}
