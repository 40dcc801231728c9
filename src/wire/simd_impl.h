/* wire/simd_impl.h - private to src/wire: what the implementations share.
 *
 * Each vector version works in whole blocks and leaves the elements from `first` on to the
 * reference. */
#ifndef HAWSER_WIRE_SIMD_IMPL_H
#define HAWSER_WIRE_SIMD_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/simd.h"

void wire_ref_half_from_f32(uint8_t *dst, const uint8_t *src, size_t count, size_t first);
void wire_ref_half_to_f32(uint8_t *dst, const uint8_t *src, size_t count, size_t first);

extern const struct wire_simd wire_simd_ref;

#if defined(__aarch64__)
extern const struct wire_simd wire_simd_neon;
#elif defined(__x86_64__)
extern const struct wire_simd wire_simd_avx2;
bool wire_simd_avx2_runs(void);
#endif

#endif
