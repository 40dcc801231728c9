// norm.comp - one workgroup for each row; from and to may be the same place.  Also rounds the row for the
// product that follows, where FORM says so.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 0) const bool ALIGNED = true; // rows begin at 16 bytes and end there
layout(constant_id = 1) const uint FORM = 0;
layout(constant_id = 2) const uint PLACES = 1; // fours of a row for a thread
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

const uint FOLDED = 16;
shared float sums[THREADS];
shared vec4 folded[FOLDED / 4];

float sum4(vec4 x)
{
    return (x.x + x.y) + (x.z + x.w);
}

float sum_all(float own)
{
    uint me = gl_LocalInvocationIndex;
    barrier(); // other threads may still read the last sum
    sums[me] = own;
    barrier();
    if (me < FOLDED) {
        float sum = 0;
        [[unroll]] for (uint i = me; i < THREADS; i += FOLDED)
            sum += sums[i];
        folded[me / 4][me % 4] = sum;
    }
    barrier();
    vec4 sum = folded[0];
    [[unroll]] for (uint i = 1; i < FOLDED / 4; i++)
        sum += folded[i];
    return sum4(sum);
}

// Four values from 4 * i on, zeros past the row's end.
vec4 load(uvec2 place, uint first, uint i)
{
    vec4 x = vec4(0);
    if (ALIGNED && 4 * i < width)
        return Floats4(place).at[first / 4 + i];
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

// All is loaded before the first sum is waited for.
void main()
{
    uint row = linear_group(), me = gl_LocalInvocationIndex, first = row * width;
    bool has_bias = (flags & FLAG_BIAS) != 0;
    if (row >= rows)
        return;
    vec4 x[PLACES], w[PLACES], b[PLACES];
    [[unroll]] for (uint p = 0; p < PLACES; p++) {
        x[p] = load(from, first, p * THREADS + me);
        w[p] = load(weight, 0, p * THREADS + me);
        b[p] = has_bias ? load(bias, 0, p * THREADS + me) : vec4(0);
    }
    if (is_rms == 0) {
        float own = 0;
        [[unroll]] for (uint p = 0; p < PLACES; p++)
            own += sum4(x[p]);
        float mean = sum_all(own) / float(width);
        [[unroll]] for (uint p = 0; p < PLACES; p++) {
            uvec4 at = 4 * (p * THREADS + me) + uvec4(0, 1, 2, 3);
            x[p] = mix(vec4(0), x[p] - mean, lessThan(at, uvec4(width)));
        }
    }
    float own = 0;
    [[unroll]] for (uint p = 0; p < PLACES; p++)
        own += sum4(x[p] * x[p]);
    float scale = 1.0 / sqrt(sum_all(own) / float(width) + eps);
    [[unroll]] for (uint p = 0; p < PLACES; p++) {
        uint i = p * THREADS + me;
        vec4 y = x[p] * scale * w[p] + b[p];
        if (4 * i < width)
            store(first, i, y);
        put_rounded(rounded, row * row_words, width, 4 * i, y, 4 * i < width);
    }
}
