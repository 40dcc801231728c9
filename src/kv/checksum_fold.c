/* CRC-64/NVME by folding: 16 bytes, seen as a polynomial, are multiplied by x^n mod P and added to
 * the 16 bytes that stand n bits later.  Eight vectors go on side by side and are joined at the
 * end.
 *
 * Bits are reflected, so a product comes out one bit short; the constants make up for it:
 * x^(n+63) mod P for the half that stands first, x^(n-1) mod P for the other. */
#include "kv/checksum_impl.h"

#if defined(__aarch64__)
#include <arm_neon.h>

typedef uint64x2_t vec;

static inline vec load(const uint8_t *p)
{
    return vreinterpretq_u64_u8(vld1q_u8(p));
}

static inline void store(uint8_t *p, vec v)
{
    vst1q_u8(p, vreinterpretq_u8_u64(v));
}

static inline vec make(uint64_t first, uint64_t second)
{
    return vcombine_u64(vcreate_u64(first), vcreate_u64(second));
}

static inline vec add(vec a, vec b)
{
    return veorq_u64(a, b);
}

static inline vec multiply(vec v, vec by)
{
    poly64x2_t a = vreinterpretq_p64_u64(v), b = vreinterpretq_p64_u64(by);
    poly128_t first = vmull_p64(vgetq_lane_p64(a, 0), vgetq_lane_p64(b, 0));
    return add(vreinterpretq_u64_p128(first), vreinterpretq_u64_p128(vmull_high_p64(a, b)));
}

#else
#include <immintrin.h>

typedef __m128i vec;

static inline vec load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline void store(uint8_t *p, vec v)
{
    _mm_storeu_si128((__m128i *)p, v);
}

static inline vec make(uint64_t first, uint64_t second)
{
    return _mm_set_epi64x((long long)second, (long long)first);
}

static inline vec add(vec a, vec b)
{
    return _mm_xor_si128(a, b);
}

static inline vec multiply(vec v, vec by)
{
    return add(_mm_clmulepi64_si128(v, by, 0x00), _mm_clmulepi64_si128(v, by, 0x11));
}
#endif

enum { LANES = KV_FOLD_BYTES / KV_FOLD_REST };

static inline void fold(uint64_t crc, uint8_t *to, const uint8_t *from, size_t len,
                        uint8_t rest[KV_FOLD_REST])
{
    const vec by_1024 = make(UINT64_C(0xa1ca681e733f9c40), UINT64_C(0x5f852fb61e8d92dc));
    const vec by_128 = make(UINT64_C(0xeadc41fd2ba3d420), UINT64_C(0x21e9761e252621ac));
    vec lanes[LANES];
    for (int i = 0; i < LANES; i++) {
        lanes[i] = load(from + KV_FOLD_REST * i);
        if (to)
            store(to + KV_FOLD_REST * i, lanes[i]);
    }
    lanes[0] = add(lanes[0], make(crc, 0));
    for (size_t at = KV_FOLD_BYTES; at < len; at += KV_FOLD_BYTES) {
        for (int i = 0; i < LANES; i++) {
            vec next = load(from + at + (size_t)KV_FOLD_REST * (size_t)i);
            if (to)
                store(to + at + (size_t)KV_FOLD_REST * (size_t)i, next);
            lanes[i] = add(multiply(lanes[i], by_1024), next);
        }
    }
    for (int i = 1; i < LANES; i++)
        lanes[i] = add(multiply(lanes[i - 1], by_128), lanes[i]);
    store(rest, lanes[LANES - 1]);
}

/* Twice, so that the loop without a copy has no test for it. */
void kv_checksum_fold(uint64_t crc, uint8_t *to, const uint8_t *from, size_t len,
                      uint8_t rest[KV_FOLD_REST])
{
    if (to)
        fold(crc, to, from, len, rest);
    else
        fold(crc, NULL, from, len, rest);
}
