/* NEON is part of every arm64, so nothing is asked at run time.  All loads and stores are of
 * bytes: they take any alignment. */
#include <arm_neon.h>

#include "wire/simd_impl.h"

enum { HALVES = 8 };

static void half_from_f32(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= HALVES; i += HALVES) {
        float32x4_t lo = vreinterpretq_f32_u8(vld1q_u8(s + 4 * i));
        float32x4_t hi = vreinterpretq_f32_u8(vld1q_u8(s + 4 * i + 16));
        float16x8_t h = vcvt_high_f16_f32(vcvt_f16_f32(lo), hi);
        vst1q_u8(d + 2 * i, vreinterpretq_u8_f16(h));
    }
    wire_ref_half_from_f32(d, s, count, i);
}

static void half_to_f32(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= HALVES; i += HALVES) {
        float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(s + 2 * i));
        vst1q_u8(d + 4 * i, vreinterpretq_u8_f32(vcvt_f32_f16(vget_low_f16(h))));
        vst1q_u8(d + 4 * i + 16, vreinterpretq_u8_f32(vcvt_high_f32_f16(h)));
    }
    wire_ref_half_to_f32(d, s, count, i);
}

const struct wire_simd wire_simd_neon = {
    .name = "neon",
    .half_from_f32 = half_from_f32,
    .half_to_f32 = half_to_f32,
};
