#include "wire/shuffle.h"

#include <assert.h>

#include "wire/simd_impl.h"

void wire_shuffle(void *dst, const void *src, size_t count, size_t elem)
{
    assert(elem >= 1);
    if (elem == 2)
        wire_simd()->shuffle2(dst, src, count);
    else if (elem == 4)
        wire_simd()->shuffle4(dst, src, count);
    else
        wire_ref_shuffle(dst, src, count, elem, 0);
}

void wire_unshuffle(void *dst, const void *src, size_t count, size_t elem)
{
    assert(elem >= 1);
    if (elem == 2)
        wire_simd()->unshuffle2(dst, src, count);
    else if (elem == 4)
        wire_simd()->unshuffle4(dst, src, count);
    else
        wire_ref_unshuffle(dst, src, count, elem, 0);
}
