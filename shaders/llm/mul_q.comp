// mul_q.comp - quantised weights times activations rounded to 8 bits: integers within a block.
//
// A lane takes a quad of every 32: 16 bytes of weights, which are two runs of 16 values (one in
// Q8_0), each with a whole-number factor, and the block's scales.
#version 450
#extension GL_GOOGLE_include_directive : require
#if defined(WITH_DOT)
#extension GL_EXT_spirv_intrinsics : require
#endif
#include "common.glsl"
#include "mul_frame.glsl"

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

struct Unit {
    uvec4 low, high;             // 16 values each, a byte a value
    int low_factor, high_factor; // of products
    int low_min, high_min;       // of sums of activations
    float d, dmin;
};

#if defined(TYPE_Q8_0)
const uint UNIT_VALUES = 16, BLOCK = 32;
#else
const uint UNIT_VALUES = 32;
#if defined(TYPE_Q4_0)
const uint BLOCK = 32;
#else
const uint BLOCK = 256;
#endif
#endif

#if defined(TYPE_Q4_K)
const bool TWO_SCALES = true;
#else
const bool TWO_SCALES = false;
#endif

// Where the activations of the low values begin, and the distance to those of the high ones.
uint low_place(uint u)
{
#if defined(TYPE_Q8_0)
    return 16 * u;
#elif defined(TYPE_Q4_0)
    return 32 * u;
#elif defined(TYPE_Q4_K)
    return u / 8 * 256 + u % 8 / 2 * 64 + u % 2 * 16;
#else
    return u / 4 * 128 + u % 4 * 16;
#endif
}

#if defined(TYPE_Q4_0)
const uint HIGH_AFTER = 16;
#elif defined(TYPE_Q4_K)
const uint HIGH_AFTER = 32;
#else
const uint HIGH_AFTER = 64;
#endif

#if defined(TYPE_Q8_0) || defined(TYPE_Q4_0)
Unit unit_at(uvec2 weight, uint row_at, uint u)
{
    uvec4 q = Words4(weight).at[row_at + u];
    Unit unit;
#if defined(TYPE_Q8_0)
    unit.low = q;
    unit.d = half_at(Words(weight), 8 * row_at + width / 2 + u / 2);
#else
    unit.low = q & 0x0f0f0f0f;
    unit.high = q >> 4 & 0x0f0f0f0f;
    unit.high_factor = 1;
    unit.low_min = unit.high_min = -8;
    unit.d = half_at(Words(weight), 8 * row_at + width / 4 + u);
#endif
    unit.low_factor = 1;
    return unit;
}
#elif defined(TYPE_Q4_K)
// Sub-block `sub` of the eight: its scale, and its minimum with the sign that it is added with.
ivec2 q4_k_factors(uvec4 head, uint sub)
{
    uint at = 8 * (sub % 4), scales = head.y >> at & 0xff, minima = head.z >> at & 0xff;
    if (sub < 4)
        return ivec2(scales & 63, -int(minima & 63));
    uint both = head.w >> at & 0xff;
    return ivec2((both & 15) | scales >> 6 << 4, -int(both >> 4 | minima >> 6 << 4));
}

Unit unit_at(uvec2 weight, uint row_at, uint u)
{
    uint block = row_at + u / 8 * 9, sub = u % 8 / 2 * 2;
    uvec4 head = Words4(weight).at[block], q = Words4(weight).at[block + 1 + u % 8];
    ivec2 low = q4_k_factors(head, sub), high = q4_k_factors(head, sub + 1);
    vec2 scales = unpackHalf2x16(head.x);
    return Unit(q & 0x0f0f0f0f, q >> 4 & 0x0f0f0f0f, low.x, high.x, low.y, high.y, scales.x,
                scales.y);
}
#else
Unit unit_at(uvec2 weight, uint row_at, uint u)
{
    uint block = row_at + u / 8 * 13, j = u % 8, run = j % 4 / 2;
    uvec4 q = Words4(weight).at[block + j];
    uvec4 pairs = Words4(weight).at[block + 8 + j / 4 * 2 + j % 2] >> (2 * run);
    uvec4 scales = Words4(weight).at[block + 12];
    uint group = j / 4 * 8 + run * 2 + j % 2; // of 16 values; the high ones' is 4 on
    int low = byte_of(scales[group / 4], group % 4);
    int high = byte_of(scales[group / 4 + 1], group % 4);
    float d = half_at(Words(weight), 8 * (row_at + width / 256 * 13) + u / 8);
    return Unit((q & 0x0f0f0f0f) | (pairs & 0x03030303) << 4,
                (q >> 4 & 0x0f0f0f0f) | (pairs >> 4 & 0x03030303) << 4, low, high, -32 * low,
                -32 * high, d, d);
}
#endif

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
