// rope.comp - rotates q and k; one pair a thread.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 q, k, angles;
    uint heads, kv_heads, head_dim, pairs, neox, q_count;
    uint q_first, k_first; // rows of angles before those of the table
    uint k_count;
};

#include "rope.glsl"

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i < q_count)
        turn(q, q_first, heads, i);
    else if (i - q_count < k_count)
        turn(k, k_first, kv_heads, i - q_count);
}
