// rope.comp - rotates pairs of q and k by the batch's angles; one pair a thread.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 q, k, angles;
    uint heads, kv_heads, head_dim, pairs, neox, count;
    uint q_first, k_first; // rows of angles before those of the table
};

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i >= count)
        return;
    uint pair = i % pairs, head = i / pairs % (heads + kv_heads), row = i / pairs / (heads + kv_heads);
    bool is_k = head >= heads;
    uint head_row = is_k ? row * kv_heads + head - heads : row * heads + head;
    uint first = head_row * head_dim + (neox != 0 ? pair : 2 * pair);
    uint second = first + (neox != 0 ? pairs : 1);
    Floats x = Floats(is_k ? k : q);
    uint angle = 2 * ((row + (is_k ? k_first : q_first)) * pairs + pair);
    float cosine = Floats(angles).at[angle], sine = Floats(angles).at[angle + 1];
    float a = x.at[first], b = x.at[second];
    x.at[first] = a * cosine - b * sine;
    x.at[second] = a * sine + b * cosine;
}
