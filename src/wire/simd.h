/* wire/simd.h - the implementations behind wire/half.h, and their choice.
 *
 * The first use takes the best one that this CPU runs.  "c" is the portable reference: it is
 * what the others are compared with, and the way to turn them off.
 *
 * Trust: none needed.  Threads: any; wire_simd_use acts on calls that begin after it. */
#ifndef HAWSER_WIRE_SIMD_H
#define HAWSER_WIRE_SIMD_H

#include <stddef.h>

#include "base/attr.h"

/* Arguments as in wire/half.h. */
struct wire_simd {
    const char *name;
    void (*half_from_f32)(void *dst, const void *src, size_t count);
    void (*half_to_f32)(void *dst, const void *src, size_t count);
};

/* The i-th implementation that this CPU runs, best first and "c" last; NULL past the end. */
const struct wire_simd *wire_simd_get(size_t i);

/* The one in use. */
const struct wire_simd *wire_simd(void);

/* Uses the one of that name from now on.  0, or -ENOENT when there is none that runs here. */
int wire_simd_use(const char *name) MUST_CHECK;

#endif
