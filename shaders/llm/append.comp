// append.comp - rounds rows of K and V to binary16 and stores them in their sequences' pages.
//
// A row is padded with zeros to a multiple of 8 values; a thread writes two values.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 k, v, positions, page_first, pages;
    uint row_values, row_words, count;
    uint k_words, v_words; // from a page's start to its K and V
};

float value_at(Floats rows, uint row, uint i)
{
    return i < row_values ? rows.at[row * row_values + i] : 0.0;
}

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i >= count)
        return;
    uint word = i % row_words, is_v = i / row_words % 2, row = i / row_words / 2;
    uint position = Words(positions).at[row];
    uint page = Words(page_first).at[row] + position / KV_POSITIONS;
    Floats rows = Floats(is_v != 0 ? v : k);
    uint low = to_half(value_at(rows, row, 2 * word));
    uint high = to_half(value_at(rows, row, 2 * word + 1));
    Words(Words2(pages).at[page]).at[(is_v != 0 ? v_words : k_words) +
                                     position % KV_POSITIONS * row_words + word] = low | high << 16;
}
