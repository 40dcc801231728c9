/* AVX2 and F16C, compiled for those functions alone and chosen at run time: the build needs no
 * flags and the binary still starts on a CPU without them. */
#include <cpuid.h>
#include <immintrin.h>

#include "wire/simd_impl.h"

#define AVX2 __attribute__((target("avx2,f16c")))

enum { HALVES = 8 };

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
    .half_from_f32 = half_from_f32,
    .half_to_f32 = half_to_f32,
};
