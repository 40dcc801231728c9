// mul.comp - weights of F32, F16 or BF16 times binary32 activations.
//
// A lane takes four values of every 4 * LANES, so that a team reads contiguously.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "mul_frame.glsl"

vec4 weights_at(uvec2 weight, uint row_at, uint k)
{
#if defined(TYPE_F32)
    return uintBitsToFloat(Words4(weight).at[row_at + k / 4]);
#else
    uvec2 words = Words2(weight).at[2 * row_at + k / 4];
#if defined(TYPE_F16)
    return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
#else
    return uintBitsToFloat(uvec4(words.x << 16, words.x & 0xffff0000, words.y << 16,
                                 words.y & 0xffff0000));
#endif
#endif
}

vec4 acts_at(uint col, uint k)
{
    vec4 x = vec4(0);
    if (ALIGNED) {
        x = Floats4(acts).at[(col * width + k) / 4];
    } else {
        [[unroll]] for (uint i = 0; i < 4; i++)
            if (k + i < width)
                x[i] = Floats(acts).at[col * width + k + i];
    }
    return ROUNDS ? to_11_bits(x) : x;
}

void add(uint k, bool inside, uint col_at[COLS], vec4 w[ROWS])
{
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        vec4 x = acts_at(col_at[c], k);
        x = inside ? x : vec4(0);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            float sum = fma(w[r].x, x.x, sums[r * COLS + c]);
            sum = fma(w[r].y, x.y, sum);
            sum = fma(w[r].z, x.z, sum);
            sums[r * COLS + c] = fma(w[r].w, x.w, sum);
        }
    }
}

// All loads of a pass are issued before the first product: a lane waits once for AHEAD * ROWS.  So no
// load is behind a branch; past the end the first place is loaded again and ignored.
void multiply(uvec2 weight, uint row_at[ROWS], uint col_at[COLS], uint lane)
{
    const uint PASS = 4 * LANES;
    for (uint k = 4 * lane; k < width; k += AHEAD * PASS) {
        vec4 w[AHEAD * ROWS];
        uint at[AHEAD];
        [[unroll]] for (uint a = 0; a < AHEAD; a++) {
            at[a] = k + a * PASS < width ? k + a * PASS : k;
            [[unroll]] for (uint r = 0; r < ROWS; r++)
                w[a * ROWS + r] = weights_at(weight, row_at[r], at[a]);
        }
        [[unroll]] for (uint a = 0; a < AHEAD; a++) {
            vec4 one[ROWS];
            [[unroll]] for (uint r = 0; r < ROWS; r++)
                one[r] = w[a * ROWS + r];
            add(at[a], k + a * PASS < width, col_at, one);
        }
    }
}
