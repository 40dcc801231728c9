/* venus/memory/diff.h - which bytes of a page differ from its shadow copy.
 *
 * A page is 64 blocks of 64 bytes.  A block's mask has 64 bits: bit i is byte i.  So the mask of a
 * page is 512 bytes, the same on every host once stored little-endian.
 *
 * The first use chooses the best implementation that this CPU runs.  "c" is the reference that
 * tests compare the others with, and the way to turn them off.
 *
 * Trust: none needed.
 * Threads: any.  Others may write the page meanwhile: a byte that changes during the call is
 * reported either way, and the rest is right.  ThreadSanitizer is told so.
 * Lifetime: no state but the choice. */
#ifndef HAWSER_VENUS_MEMORY_DIFF_H
#define HAWSER_VENUS_MEMORY_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "venus/memory/pageset.h"

enum { VN_BLOCK_BYTES = 64, VN_PAGE_BLOCKS = VN_PAGE_BYTES / VN_BLOCK_BYTES };

struct vn_diff {
    const char *name;
    uint64_t (*page)(const uint8_t *now, const uint8_t *shadow, uint64_t mask[VN_PAGE_BLOCKS]);
    bool (*differs)(const uint8_t *now, const uint8_t *shadow);
};

/* The i-th implementation that this CPU runs, best first and "c" last; NULL past the end. */
const struct vn_diff *vn_diff_get(size_t i);

/* Uses the one of that name from now on.  0, or -ENOENT when there is none that runs here. */
int vn_diff_use(const char *name) MUST_CHECK;

/* Compares two pages.  Bit b of the result says that block b differs.  mask[b] is written for those
 * blocks only, so that a clean page costs two reads and nothing else. */
uint64_t vn_diff_page(const uint8_t *now, const uint8_t *shadow, uint64_t mask[VN_PAGE_BLOCKS]);

/* Whether any byte of the page differs; stops at the first block that does. */
bool vn_diff_differs(const uint8_t *now, const uint8_t *shadow);

#endif
