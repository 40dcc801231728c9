/* wire/half.h - IEEE 754 binary32 to binary16 and back.
 *
 * Rounds to nearest, ties to even; subnormals are kept; what is past 65504 and rounds away from
 * it becomes infinity.  A NaN stays a NaN with its sign and its leading payload bits, made quiet.
 *
 * Trust: sizes are the caller's.  Threads: any.  Vectors give the same bits as single values, in
 * the default floating-point environment.  Arrays may have any alignment and do not overlap. */
#ifndef HAWSER_WIRE_HALF_H
#define HAWSER_WIRE_HALF_H

#include <stddef.h>
#include <stdint.h>

/* count binary32 values at src to count binary16 values at dst, and back. */
void wire_half_from_f32(void *dst, const void *src, size_t count);
void wire_half_to_f32(void *dst, const void *src, size_t count);

/* One value, as bits: the reference that vectors are compared with. */
uint16_t wire_half_from_bits(uint32_t f32);
uint32_t wire_half_to_bits(uint16_t f16);

#endif
