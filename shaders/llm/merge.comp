// merge.comp - merges attention's chunks of a row and head, in order; one value a thread.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 values, positions, parts;
    uint heads, head_dim, chunks_max, part_floats, count, window;
};

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i >= count)
        return;
    uint dim = i % head_dim, head_row = i / head_dim;
    uint positions_ = Words(positions).at[head_row / heads] + 1;
    uint from = first_seen(positions_, window) / KV_POSITIONS * KV_POSITIONS;
    uint chunks = chunks_of(positions_ - from);
    uint first = head_row * chunks_max * part_floats;
    if (chunks == 1)
        return;
    float most = Floats(parts).at[first + head_dim], total = 0, sum = 0;
    for (uint c = 1; c < chunks; c++)
        most = max(most, Floats(parts).at[first + c * part_floats + head_dim]);
    for (uint c = 0; c < chunks; c++) {
        uint part = first + c * part_floats;
        float shrink = exp(Floats(parts).at[part + head_dim] - most);
        total = fma(Floats(parts).at[part + head_dim + 1], shrink, total);
        sum = fma(Floats(parts).at[part + dim], shrink, sum);
    }
    Floats(values).at[i] = sum / total;
}
