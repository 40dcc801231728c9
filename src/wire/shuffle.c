#include "wire/shuffle.h"

#include <assert.h>
#include <stdint.h>

/* Where the size is a constant, the compiler makes vectors of these loops.  On arm64 they are as
 * fast as NEON by hand. */
static inline void shuffle(uint8_t *restrict dst, const uint8_t *restrict src, size_t count,
                           size_t elem)
{
    for (size_t i = 0; i < count; i++)
        for (size_t b = 0; b < elem; b++)
            dst[b * count + i] = src[i * elem + b];
}

static inline void unshuffle(uint8_t *restrict dst, const uint8_t *restrict src, size_t count,
                             size_t elem)
{
    for (size_t i = 0; i < count; i++)
        for (size_t b = 0; b < elem; b++)
            dst[i * elem + b] = src[b * count + i];
}

void wire_shuffle(void *dst, const void *src, size_t count, size_t elem)
{
    assert(elem >= 1);
    if (elem == 2)
        shuffle(dst, src, count, 2);
    else if (elem == 4)
        shuffle(dst, src, count, 4);
    else
        shuffle(dst, src, count, elem);
}

void wire_unshuffle(void *dst, const void *src, size_t count, size_t elem)
{
    assert(elem >= 1);
    if (elem == 2)
        unshuffle(dst, src, count, 2);
    else if (elem == 4)
        unshuffle(dst, src, count, 4);
    else
        unshuffle(dst, src, count, elem);
}
