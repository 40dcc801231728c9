/* CRC-64/NVME by folding: 16 bytes, seen as a polynomial, are multiplied by x^n mod P and added to
 * the 16 bytes that stand n bits later.  Eight vectors of one or four such parts go on side by side
 * and are joined at the end.  Compiled for 16 bytes a vector, and on x86-64 once more for 64.
 *
 * A long copy with vectors of 64 bytes goes past the caches.  A store of a whole line then need not
 * read the line first, which makes it quicker than memcpy (docs/design/speed.md has the figures).
 * The price is that the next who reads the copy reads it from memory.  Here that is right: such
 * copies are blocks of megabytes, read by another process or thread, by a device, or much later.
 *
 * Bits are reflected, so a product comes out one bit short; the constants make up for it:
 * x^(n+63) mod P for the half that stands first, x^(n-1) mod P for the other. */
#include "kv/common/checksum_impl.h"

#if defined(__aarch64__)
#include <arm_neon.h>

typedef uint64x2_t part;

static inline part part_load(const uint8_t *p)
{
    return vreinterpretq_u64_u8(vld1q_u8(p));
}

static inline void part_store(uint8_t *p, part v)
{
    vst1q_u8(p, vreinterpretq_u8_u64(v));
}

static inline part part_make(uint64_t first, uint64_t second)
{
    return vcombine_u64(vcreate_u64(first), vcreate_u64(second));
}

static inline part part_add(part a, part b)
{
    return veorq_u64(a, b);
}

static inline part part_multiply(part v, part by)
{
    poly64x2_t a = vreinterpretq_p64_u64(v), b = vreinterpretq_p64_u64(by);
    poly128_t first = vmull_p64(vgetq_lane_p64(a, 0), vgetq_lane_p64(b, 0));
    return part_add(vreinterpretq_u64_p128(first), vreinterpretq_u64_p128(vmull_high_p64(a, b)));
}

#else
#include <immintrin.h>

typedef __m128i part;

static inline part part_load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline void part_store(uint8_t *p, part v)
{
    _mm_storeu_si128((__m128i *)p, v);
}

static inline part part_make(uint64_t first, uint64_t second)
{
    return _mm_set_epi64x((long long)second, (long long)first);
}

static inline part part_add(part a, part b)
{
    return _mm_xor_si128(a, b);
}

static inline part part_multiply(part v, part by)
{
    return part_add(_mm_clmulepi64_si128(v, by, 0x00), _mm_clmulepi64_si128(v, by, 0x11));
}
#endif

#if defined(KV_FOLD_WIDE)
#define KV_FOLD kv_fold_wide
enum { STREAMS = 1 };

typedef __m512i vec;

static inline vec vec_load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

static inline void vec_store(uint8_t *p, vec v)
{
    _mm512_storeu_si512(p, v);
}

static inline void vec_stream(uint8_t *p, vec v)
{
    _mm512_stream_si512((void *)p, v);
}

/* Streamed stores become visible before later stores. */
static inline void stream_end(void)
{
    _mm_sfence();
}

/* The CPU's own prefetcher stops at the end of each page. */
static inline void look_ahead(const uint8_t *p)
{
    _mm_prefetch((const char *)((uintptr_t)p + 2048), _MM_HINT_T0);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm512_xor_si512(a, b);
}

static inline vec vec_multiply(vec v, vec by)
{
    return vec_add(_mm512_clmulepi64_epi128(v, by, 0x00), _mm512_clmulepi64_epi128(v, by, 0x11));
}

static inline vec vec_first(part v)
{
    return _mm512_zextsi128_si512(v);
}

/* By eight vectors, 4,096 bits. */
static inline vec vec_stride(void)
{
    return _mm512_broadcast_i32x4(
        part_make(UINT64_C(0xd0b3aa0ed6d54ae0), UINT64_C(0xc2409e2537aa5eb1)));
}

#else
#define KV_FOLD kv_fold_narrow
enum { STREAMS = 0 };

typedef part vec;

static inline vec vec_load(const uint8_t *p)
{
    return part_load(p);
}

static inline void vec_store(uint8_t *p, vec v)
{
    part_store(p, v);
}

static inline void vec_stream(uint8_t *p, vec v)
{
    part_store(p, v);
}

static inline void stream_end(void) {}

static inline void look_ahead(const uint8_t *p)
{
    (void)p; /* the CPU prefetches by itself */
}

static inline vec vec_add(vec a, vec b)
{
    return part_add(a, b);
}

static inline vec vec_multiply(vec v, vec by)
{
    return part_multiply(v, by);
}

static inline vec vec_first(part v)
{
    return v;
}

/* By eight vectors, 1,024 bits. */
static inline vec vec_stride(void)
{
    return part_make(UINT64_C(0xa1ca681e733f9c40), UINT64_C(0x5f852fb61e8d92dc));
}
#endif

enum { LANES = 8, STEP = LANES * (int)sizeof(vec) };

/* The part that stands behind those of the sum. */
static inline part join(part sum, part next)
{
    const part by_128 = part_make(UINT64_C(0xeadc41fd2ba3d420), UINT64_C(0x21e9761e252621ac));
    return part_add(part_multiply(sum, by_128), next);
}

enum target { NOWHERE, CACHE, MEMORY };

/* The vector at `at`, copied. */
static inline vec take(enum target target, uint8_t *to, const uint8_t *from, size_t at)
{
    look_ahead(from + at);
    vec v = vec_load(from + at);
    if (target == CACHE)
        vec_store(to + at, v);
    else if (target == MEMORY)
        vec_stream(to + at, v);
    return v;
}

/* A positive multiple of STEP, in lanes.  The target is a constant in each use, so that the loop
 * has no test for it. */
static inline part fold_steps(enum target target, uint64_t crc, uint8_t *to, const uint8_t *from,
                              size_t len)
{
    const vec by_step = vec_stride();
    vec lanes[LANES];
    uint8_t last[STEP];
    /* Unrolled before the compiler places the lanes: they stay in registers. */
#pragma GCC unroll 8
    for (size_t i = 0; i < LANES; i++)
        lanes[i] = take(target, to, from, sizeof(vec) * i);
    lanes[0] = vec_add(lanes[0], vec_first(part_make(crc, 0)));
    for (size_t at = STEP; at < len; at += STEP) {
#pragma GCC unroll 8
        for (size_t i = 0; i < LANES; i++) {
            vec next = take(target, to, from, at + sizeof(vec) * i);
            lanes[i] = vec_add(vec_multiply(lanes[i], by_step), next);
        }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < LANES; i++)
        vec_store(last + sizeof(vec) * i, lanes[i]);
    part sum = part_load(last);
    for (size_t at = sizeof(part); at < STEP; at += sizeof(part))
        sum = join(sum, part_load(last + at));
    return sum;
}

/* The steps, then what is left of them. */
static inline part fold(enum target target, uint64_t crc, uint8_t *to, const uint8_t *from,
                        size_t len)
{
    size_t at = len - len % STEP;
    part sum = at ? fold_steps(target, crc, to, from, at) : part_make(0, 0);
    for (; at < len; at += sizeof(part)) {
        part next = part_load(from + at);
        if (target != NOWHERE)
            part_store(to + at, next);
        sum = at ? join(sum, next) : part_add(next, part_make(crc, 0));
    }
    return sum;
}

static void go(uint64_t crc, uint8_t *to, const uint8_t *from, size_t len,
               uint8_t rest[KV_FOLD_REST])
{
    if (!to) {
        part_store(rest, fold(NOWHERE, crc, NULL, from, len));
    } else if (STREAMS && len >= KV_FOLD_LONG && (uintptr_t)to % sizeof(vec) == 0) {
        part_store(rest, fold(MEMORY, crc, to, from, len));
        stream_end();
    } else {
        part_store(rest, fold(CACHE, crc, to, from, len));
    }
}

/* What is less than a step of the wide one is quicker in the lanes of the other. */
const struct kv_fold KV_FOLD = {
    .bytes = STREAMS ? STEP : sizeof(part), .align = STREAMS ? sizeof(vec) : 1, .go = go};
