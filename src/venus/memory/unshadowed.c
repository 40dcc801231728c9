#include "venus/memory/unshadowed.h"

#include <string.h>

#if defined(__x86_64__)
#include <smmintrin.h>
#endif

void vn_unshadowed_store(uint8_t *memory, const struct vn_change *change)
{
    memory += change->page * VN_PAGE_BYTES;
    for (uint64_t blocks = change->blocks; blocks; blocks &= blocks - 1) {
        size_t b = (size_t)__builtin_ctzll(blocks), at = b * VN_BLOCK_BYTES;
        if (change->mask[b] == UINT64_MAX) {
            memcpy(memory + at, change->bytes + at, VN_BLOCK_BYTES);
            continue;
        }
        for (uint64_t mask = change->mask[b]; mask; mask &= mask - 1) {
            size_t i = at + (size_t)__builtin_ctzll(mask);
            memory[i] = change->bytes[i];
        }
    }
}

#if defined(__x86_64__)
/* Plain loads cross the bus eight bytes at a time; these take a line of 64. */
__attribute__((target("sse4.1"))) static size_t read_lines(uint8_t *to, const uint8_t *from,
                                                           size_t len)
{
    size_t at = 0;
    for (; at + 64 <= len; at += 64) {
        __m128i *source = (__m128i *)(uintptr_t)(from + at), *dest = (__m128i *)(void *)(to + at);
        __m128i a = _mm_stream_load_si128(source), b = _mm_stream_load_si128(source + 1);
        __m128i c = _mm_stream_load_si128(source + 2), d = _mm_stream_load_si128(source + 3);
        _mm_storeu_si128(dest, a);
        _mm_storeu_si128(dest + 1, b);
        _mm_storeu_si128(dest + 2, c);
        _mm_storeu_si128(dest + 3, d);
    }
    return at;
}
#endif

void vn_unshadowed_read(uint8_t *to, const uint8_t *from, size_t len)
{
    size_t done = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.1") && (uintptr_t)from % 16 == 0)
        done = read_lines(to, from, len);
#endif
    memcpy(to + done, from + done, len - done);
}
