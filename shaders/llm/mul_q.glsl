// mul_q.glsl - quantised weights times activations rounded to 8 bits: integers within a block.
//
// A lane takes a unit of every LANES.
#if defined(WITH_DOT)
#extension GL_EXT_spirv_intrinsics : require
#endif
#include "common.glsl"
#include "mul_frame.glsl"
#include "units.glsl"

#if defined(WITH_DOT)
// OpSDot of four packed signed bytes: DotProduct, DotProductInput4x8BitPacked.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018],
                  id = 4450)
int packed_dot(uint a, uint b, spirv_literal int format);
int dot4(uint a, uint b)
{
    return packed_dot(a, b, 0);
}
#else
int dot4(uint a, uint b)
{
    return byte_of(a, 0) * byte_of(b, 0) + byte_of(a, 1) * byte_of(b, 1) +
           byte_of(a, 2) * byte_of(b, 2) + byte_of(a, 3) * byte_of(b, 3);
}
#endif

int dot16(uvec4 a, uvec4 b)
{
    return dot4(a.x, b.x) + dot4(a.y, b.y) + dot4(a.z, b.z) + dot4(a.w, b.w);
}

int sum16(uvec4 a)
{
    return dot16(a, uvec4(0x01010101));
}

// What a unit adds for a row of activations.
float product(Unit w, uint acts_row, uint place, float acc)
{
    uvec4 low = Words4(acts).at[acts_row + place / 16];
    float scale = Floats(acts).at[4 * acts_row + width / 4 + place / BLOCK];
    int sum = w.low_factor * dot16(w.low, low);
#if !defined(TYPE_Q8_0)
    uvec4 high = Words4(acts).at[acts_row + (place + HIGH_AFTER) / 16];
    int minima = w.low_min * sum16(low) + w.high_min * sum16(high);
    sum += w.high_factor * dot16(w.high, high);
    if (TWO_SCALES)
        acc = fma(float(minima), w.dmin * scale, acc);
    else
        sum += minima;
#endif
    return fma(float(sum), w.d * scale, acc);
}

void multiply(uvec2 weight, uint row_at[ROWS], uint col_at[COLS], uint lane)
{
    uint acts_quads = width / 16 + (width / BLOCK + 3) / 4; // of a row
    uint units = width / UNIT_VALUES;
    // No load is behind a branch, as in mul.comp.
    for (uint first = lane; first < units; first += AHEAD * LANES) {
        Unit w[AHEAD * ROWS];
        uint at[AHEAD];
        [[unroll]] for (uint a = 0; a < AHEAD; a++) {
            at[a] = first + a * LANES < units ? first + a * LANES : first;
            [[unroll]] for (uint r = 0; r < ROWS; r++)
                w[a * ROWS + r] = unit_at(weight, row_at[r], at[a]);
        }
        [[unroll]] for (uint a = 0; a < AHEAD; a++)
            [[unroll]] for (uint c = 0; c < COLS; c++)
                [[unroll]] for (uint r = 0; r < ROWS; r++) {
                    float sum = sums[r * COLS + c];
                    float more = product(w[a * ROWS + r], col_at[c] * acts_quads,
                                         low_place(at[a]), sum);
                    sums[r * COLS + c] = first + a * LANES < units ? more : sum;
                }
    }
}
