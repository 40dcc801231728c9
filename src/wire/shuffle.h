/* wire/shuffle.h - byte transposition of fixed-size elements, so that zstd sees like with like.
 *
 * Byte b of element i moves to place b * count + i: all first bytes, then all second bytes, ...
 * The exponents of neighbouring floats resemble each other; their mantissas do not.
 *
 * Trust: sizes are the caller's, already checked.  Threads: any.
 * src and dst hold count * elem bytes at any alignment and do not overlap.  elem is at least 1; 2
 * and 4 are the fast ones. */
#ifndef HAWSER_WIRE_SHUFFLE_H
#define HAWSER_WIRE_SHUFFLE_H

#include <stddef.h>

void wire_shuffle(void *dst, const void *src, size_t count, size_t elem);
void wire_unshuffle(void *dst, const void *src, size_t count, size_t elem);

#endif
