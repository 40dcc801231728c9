/* AVX2 and F16C, compiled for those functions alone and chosen at run time: the build needs no
 * flags and the binary still starts on a CPU without them. */
#include <cpuid.h>
#include <immintrin.h>

#include "wire/simd_impl.h"

#define AVX2 __attribute__((target("avx2,f16c")))

enum { LANES = 32, HALVES = 8 };

bool wire_simd_avx2_runs(void)
{
    unsigned eax, ebx, ecx, edx;
    /* The builtin also asks whether the kernel saves the registers; it does not know F16C. */
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
           (ecx & bit_F16C);
}

AVX2 static __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

AVX2 static void store(uint8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

/* 16 two-byte elements to 16 low bytes, then 16 high bytes. */
AVX2 static __m256i split2(__m256i v)
{
    const __m256i by_byte =
        _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, //
                         0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, by_byte), 0xd8);
}

/* 8 four-byte elements to 8 bytes of each place. */
AVX2 static __m256i split4(__m256i v)
{
    const __m256i by_byte =
        _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, //
                         0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i join_halves = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(v, by_byte), join_halves);
}

AVX2 static void shuffle2(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        __m256i a = split2(load(s + 2 * i));
        __m256i b = split2(load(s + 2 * i + 32));
        store(d + i, _mm256_permute2x128_si256(a, b, 0x20));
        store(d + count + i, _mm256_permute2x128_si256(a, b, 0x31));
    }
    wire_ref_shuffle(d, s, count, 2, i);
}

AVX2 static void shuffle4(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        __m256i v0 = split4(load(s + 4 * i));
        __m256i v1 = split4(load(s + 4 * i + 32));
        __m256i v2 = split4(load(s + 4 * i + 64));
        __m256i v3 = split4(load(s + 4 * i + 96));
        __m256i even01 = _mm256_unpacklo_epi64(v0, v1), odd01 = _mm256_unpackhi_epi64(v0, v1);
        __m256i even23 = _mm256_unpacklo_epi64(v2, v3), odd23 = _mm256_unpackhi_epi64(v2, v3);
        store(d + i, _mm256_permute2x128_si256(even01, even23, 0x20));
        store(d + count + i, _mm256_permute2x128_si256(odd01, odd23, 0x20));
        store(d + 2 * count + i, _mm256_permute2x128_si256(even01, even23, 0x31));
        store(d + 3 * count + i, _mm256_permute2x128_si256(odd01, odd23, 0x31));
    }
    wire_ref_shuffle(d, s, count, 4, i);
}

AVX2 static void unshuffle2(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        __m256i r0 = load(s + i), r1 = load(s + count + i);
        __m256i lo = _mm256_unpacklo_epi8(r0, r1), hi = _mm256_unpackhi_epi8(r0, r1);
        store(d + 2 * i, _mm256_permute2x128_si256(lo, hi, 0x20));
        store(d + 2 * i + 32, _mm256_permute2x128_si256(lo, hi, 0x31));
    }
    wire_ref_unshuffle(d, s, count, 2, i);
}

AVX2 static void unshuffle4(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        __m256i r0 = load(s + i), r1 = load(s + count + i);
        __m256i r2 = load(s + 2 * count + i), r3 = load(s + 3 * count + i);
        __m256i lo01 = _mm256_unpacklo_epi8(r0, r1), hi01 = _mm256_unpackhi_epi8(r0, r1);
        __m256i lo23 = _mm256_unpacklo_epi8(r2, r3), hi23 = _mm256_unpackhi_epi8(r2, r3);
        /* Elements 0-3 and 16-19, 4-7 and 20-23, 8-11 and 24-27, 12-15 and 28-31. */
        __m256i q0 = _mm256_unpacklo_epi16(lo01, lo23), q1 = _mm256_unpackhi_epi16(lo01, lo23);
        __m256i q2 = _mm256_unpacklo_epi16(hi01, hi23), q3 = _mm256_unpackhi_epi16(hi01, hi23);
        store(d + 4 * i, _mm256_permute2x128_si256(q0, q1, 0x20));
        store(d + 4 * i + 32, _mm256_permute2x128_si256(q2, q3, 0x20));
        store(d + 4 * i + 64, _mm256_permute2x128_si256(q0, q1, 0x31));
        store(d + 4 * i + 96, _mm256_permute2x128_si256(q2, q3, 0x31));
    }
    wire_ref_unshuffle(d, s, count, 4, i);
}

AVX2 static void half_from_f32(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= HALVES; i += HALVES) {
        __m256 v = _mm256_castsi256_ps(load(s + 4 * i));
        __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(d + 2 * i), h);
    }
    wire_ref_half_from_f32(d, s, count, i);
}

AVX2 static void half_to_f32(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t i = 0;
    for (; count - i >= HALVES; i += HALVES) {
        __m128i h = _mm_loadu_si128((const __m128i *)(s + 2 * i));
        store(d + 4 * i, _mm256_castps_si256(_mm256_cvtph_ps(h)));
    }
    wire_ref_half_to_f32(d, s, count, i);
}

const struct wire_simd wire_simd_avx2 = {
    .name = "avx2",
    .shuffle2 = shuffle2,
    .shuffle4 = shuffle4,
    .unshuffle2 = unshuffle2,
    .unshuffle4 = unshuffle4,
    .half_from_f32 = half_from_f32,
    .half_to_f32 = half_to_f32,
};
