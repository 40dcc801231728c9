/* llm/cpu/neon_impl.h - private to src/llm: what the sets "neon" and "i8mm" share.
 *
 * Threads: any. */
#ifndef HAWSER_LLM_CPU_NEON_IMPL_H
#define HAWSER_LLM_CPU_NEON_IMPL_H

#include "llm/cpu/elementwise.h"
#include "llm/cpu/kernels_impl.h"

#include <arm_neon.h>

/* Parts of inner loops, some with a parameter that is a constant in each use. */
#define INLINE static inline __attribute__((always_inline))

void llm_neon_prepare(enum llm_act act, void *dst, const float *src, uint32_t width, uint32_t rows);
/* hints: see next_rows. */
void llm_neon_mul(const struct llm_mul *m, bool hints);
void llm_neon_attend(const struct llm_attention *a);
void llm_neon_norm(const struct llm_norm *norm);
void llm_neon_activate(enum llm_activation kind, float *x, const float *gate_by, uint64_t count);

/* The binary16 values at the start of four rows. */
static inline float32x4_t load4_halves(const uint8_t *const w[4], size_t at)
{
    uint64_t bits = 0;
    for (int r = 0; r < 4; r++) { /* assembled in general registers: the vector unit is the limit */
        uint16_t half;
        memcpy(&half, w[r] + at, sizeof half);
        bits |= (uint64_t)half << (16 * r);
    }
    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(bits)));
}

/* Zeros for a sum of `first` and others.  GCC would copy a register that it keeps zero, which takes
 * a vector unit. */
INLINE int32x4_t zeros_for(uint8x16_t first)
{
    int32x4_t zero;
    __asm__("movi %0.4s, #0" : "=w"(zero) : "w"(first));
    return zero;
}

/* The sums of each of four vectors. */
static inline int32x4_t sum4(const int32x4_t v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

/* llm_sum8 of four rows' lanes. */
INLINE float32x4_t reduce4(const float32x4_t lanes[4][2])
{
    float32x4_t s[4];
    for (int r = 0; r < 4; r++)
        s[r] = vaddq_f32(lanes[r][0], lanes[r][1]);
    float32x4_t ab = vaddq_f32(vcombine_f32(vget_low_f32(s[0]), vget_low_f32(s[1])),
                               vcombine_f32(vget_high_f32(s[0]), vget_high_f32(s[1])));
    float32x4_t cd = vaddq_f32(vcombine_f32(vget_low_f32(s[2]), vget_low_f32(s[3])),
                               vcombine_f32(vget_high_f32(s[2]), vget_high_f32(s[3])));
    return vpaddq_f32(ab, cd);
}

static inline void store4(const struct llm_mul *m, uint32_t row, uint32_t col, float32x4_t sums)
{
    float *out = m->out + (size_t)col * m->out_width + row;
    if (row + 4 <= m->rows) {
        if (m->bias)
            sums = vaddq_f32(sums, vld1q_f32(m->bias + row));
        vst1q_f32(out, m->accumulate ? vaddq_f32(vld1q_f32(out), sums) : sums);
        return;
    }
    float values[4];
    vst1q_f32(values, sums);
    for (uint32_t i = 0; row + i < m->rows; i++)
        out[i] = mul_finish(m, row + i, out + i, values[i]);
}

#endif
