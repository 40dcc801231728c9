// round.comp - rows of activations in the form that weights need, where the op before cannot do it:
// 256 values a workgroup.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 0) const uint FORM = 32;
const uint THREADS = 64;
layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 from, to;
    uint width, row_words, rows; // row_words: of `to`
};

#include "rounded.glsl"

void main()
{
    uint groups = (width + 4 * THREADS - 1) / (4 * THREADS), id = linear_group();
    uint row = id / groups, at = (id % groups * THREADS + gl_LocalInvocationIndex) * 4;
    if (row >= rows)
        return;
    vec4 x = vec4(0);
    if (width % 4 == 0 && at < width)
        x = Floats4(from).at[(row * width + at) / 4];
    else
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (at + j < width)
                x[j] = Floats(from).at[row * width + at + j];
    put_rounded(to, row * row_words, width, at, x, at < width);
}
