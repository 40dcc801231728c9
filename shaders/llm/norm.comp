// norm.comp - one workgroup for each row; from and to may be the same place.  Also rounds the row for the
// product that follows, where FORM says so.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 0) const bool ALIGNED = true; // rows begin at 16 bytes and end there
layout(constant_id = 1) const uint FORM = 0;
const uint THREADS = 256;
layout(local_size_x = 256) in;
layout(push_constant) uniform Push
{
    uvec2 from, to, weight, bias;
    uint width, flags, is_rms;
    float eps;
    uint rows, row_words; // row_words: of `rounded`
    uvec2 rounded;
};

#include "rounded.glsl"

shared float sums[THREADS];

float sum_all(float own)
{
    uint me = gl_LocalInvocationIndex;
    barrier(); // other threads may still read the last sum
    sums[me] = own;
    for (uint half_ = THREADS / 2; half_ > 0; half_ /= 2) {
        barrier();
        if (me < half_)
            sums[me] += sums[me + half_];
    }
    barrier();
    return sums[0];
}

// Four values from 4 * i on, those past the row's end as `other`.
vec4 load(uvec2 place, uint first, uint i, float other)
{
    if (ALIGNED)
        return Floats4(place).at[first / 4 + i];
    vec4 x = vec4(other);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (4 * i + j < width)
            x[j] = Floats(place).at[first + 4 * i + j];
    return x;
}

void store(uint first, uint i, vec4 x)
{
    if (ALIGNED) {
        Floats4(to).at[first / 4 + i] = x;
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (4 * i + j < width)
            Floats(to).at[first + 4 * i + j] = x[j];
}

float sum4(vec4 x)
{
    return (x.x + x.y) + (x.z + x.w);
}

void main()
{
    uint row = linear_group(), me = gl_LocalInvocationIndex, quads = (width + 3) / 4;
    uint first = row * width;
    if (row >= rows)
        return;
    float mean = 0, own = 0;
    if (is_rms == 0) {
        for (uint i = me; i < quads; i += THREADS)
            own += sum4(load(from, first, i, 0.0));
        mean = sum_all(own) / float(width);
    }
    own = 0;
    for (uint i = me; i < quads; i += THREADS) {
        vec4 d = load(from, first, i, mean) - mean;
        own += sum4(d * d);
    }
    float scale = 1.0 / sqrt(sum_all(own) / float(width) + eps);
    for (uint done = 0; done < quads; done += THREADS) {
        uint i = done + me;
        vec4 y = vec4(0);
        if (i < quads) {
            y = (load(from, first, i, 0.0) - mean) * scale * load(weight, 0, i, 0.0);
            y = (flags & FLAG_BIAS) != 0 ? y + load(bias, 0, i, 0.0) : y;
            store(first, i, y);
        }
        put_rounded(rounded, row * row_words, width, 4 * i, y, i < quads);
    }
}
