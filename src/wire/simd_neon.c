/* NEON is part of every arm64, so nothing is asked at run time.  All loads and stores are of
 * bytes: they take any alignment. */
#include <arm_neon.h>

#include "wire/simd_impl.h"

enum { LANES = 16, HALVES = 8 };

static void shuffle2(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        uint8x16x2_t v = vld2q_u8(s + 2 * i);
        vst1q_u8(d + i, v.val[0]);
        vst1q_u8(d + count + i, v.val[1]);
    }
    wire_ref_shuffle(d, s, count, 2, i);
}

static void shuffle4(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        uint8x16x4_t v = vld4q_u8(s + 4 * i);
        vst1q_u8(d + i, v.val[0]);
        vst1q_u8(d + count + i, v.val[1]);
        vst1q_u8(d + 2 * count + i, v.val[2]);
        vst1q_u8(d + 3 * count + i, v.val[3]);
    }
    wire_ref_shuffle(d, s, count, 4, i);
}

static void unshuffle2(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        uint8x16x2_t v = {{vld1q_u8(s + i), vld1q_u8(s + count + i)}};
        vst2q_u8(d + 2 * i, v);
    }
    wire_ref_unshuffle(d, s, count, 2, i);
}

static void unshuffle4(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        uint8x16x4_t v = {{vld1q_u8(s + i), vld1q_u8(s + count + i), vld1q_u8(s + 2 * count + i),
                           vld1q_u8(s + 3 * count + i)}};
        vst4q_u8(d + 4 * i, v);
    }
    wire_ref_unshuffle(d, s, count, 4, i);
}

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
    .shuffle2 = shuffle2,
    .shuffle4 = shuffle4,
    .unshuffle2 = unshuffle2,
    .unshuffle4 = unshuffle4,
    .half_from_f32 = half_from_f32,
    .half_to_f32 = half_to_f32,
};
