// append.comp - rounds rows of K and V to binary16 and stores them in their sequences' pages.
//
// A row is padded with zeros to a multiple of 8 values; a thread writes two values.  With TURNS keys are
// rotated by the batch's angles on their way, and further threads rotate a pair of q each.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 0) const bool TURNS = false;
layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 q, k, angles;
    uint heads, kv_heads, head_dim, pairs, neox, q_count;
    uint q_first, k_first; // as rope.comp's
    uvec2 v, positions, page_first, pages;
    uint row_values, row_words, count;
    uint k_words, v_words; // from a page's start to its K and V
};

#include "rope.glsl"

float value_at(uint row, uint i, bool is_v)
{
    if (i >= row_values)
        return 0.0;
    return !TURNS || is_v ? Floats(is_v ? v : k).at[row * row_values + i]
                          : turned_k(row, i / head_dim, i % head_dim);
}

void append(uint i)
{
    uint word = i % row_words, row = i / row_words / 2;
    bool is_v = i / row_words % 2 != 0;
    uint position = Words(positions).at[row];
    uint page = Words(page_first).at[row] + position / KV_POSITIONS;
    uint low = to_half(value_at(row, 2 * word, is_v)), high = to_half(value_at(row, 2 * word + 1, is_v));
    Words(Words2(pages).at[page]).at[(is_v ? v_words : k_words) +
                                     position % KV_POSITIONS * row_words + word] = low | high << 16;
}

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i < count)
        append(i);
    else if (TURNS && i - count < q_count)
        turn(q, q_first, heads, i - count);
}
