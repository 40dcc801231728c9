/* diff_avx2.c - finds changed bytes with AVX2, 32 at a time. */
#include <immintrin.h>

#include "venus/memory/diff_impl.h"

#define AVX2 __attribute__((target("avx2")))

AVX2 VN_RACY static inline __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

AVX2 VN_RACY static inline uint32_t same32(const uint8_t *a, const uint8_t *b)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(load(a), load(b)));
}

AVX2 VN_RACY static uint64_t avx2_page(const uint8_t *now, const uint8_t *shadow,
                                       uint64_t mask[VN_PAGE_BLOCKS])
{
    uint64_t blocks = 0;
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++) {
        const uint8_t *n = now + b * VN_BLOCK_BYTES, *t = shadow + b * VN_BLOCK_BYTES;
        uint64_t same = same32(n, t) | (uint64_t)same32(n + 32, t + 32) << 32;
        if (same == UINT64_MAX)
            continue;
        mask[b] = ~same;
        blocks |= UINT64_C(1) << b;
    }
    return blocks;
}

AVX2 VN_RACY static bool avx2_differs(const uint8_t *now, const uint8_t *shadow)
{
    for (size_t at = 0; at < VN_PAGE_BYTES; at += 128) {
        __m256i any = _mm256_setzero_si256();
        for (size_t i = 0; i < 128; i += 32)
            any = _mm256_or_si256(any, _mm256_xor_si256(load(now + at + i), load(shadow + at + i)));
        if (!_mm256_testz_si256(any, any))
            return true;
    }
    return false;
}

bool vn_diff_avx2_runs(void)
{
    return __builtin_cpu_supports("avx2");
}

const struct vn_diff vn_diff_avx2 = {.name = "avx2", .page = avx2_page, .differs = avx2_differs};
