/* page/geometry.h - how many pages there are, and where each lies.
 *
 * Every layer has a K and a V tensor, and an id names one page in each of them, so
 *
 *     pages = memory / (2 (K and V) x page bytes x layers), rounded down
 *
 * as in 2 x 354 x 2 MB x 32 layers = 45312 MB.  Two layouts of the virtual range:
 *
 *   per layer    K0 | V0 | K1 | V1 ...    each tensor is `pages` pages in a row; an id is
 *                                         2 x layers pieces of one page, far apart
 *   contiguous   id 0 | id 1 | ...        an id is one compound piece of 2 x layers pages,
 *                                         in it K0 V0 K1 V1 ... of one page each
 *
 * Threads: any (values).  Lifetime: values. */
#ifndef HAWSER_PAGE_GEOMETRY_H
#define HAWSER_PAGE_GEOMETRY_H

#include "page/page.h"

enum page_layout { PAGE_PER_LAYER, PAGE_CONTIGUOUS };

struct page_geometry {
    enum page_layout layout;
    uint32_t layers;
    uint64_t page_bytes;
    uint64_t memory_bytes; /* what the page count was computed from */
    uint32_t pages;
    uint32_t pieces;      /* that are mapped for one id: 2 x layers, or 1 */
    uint64_t piece_bytes; /* page_bytes, or 2 x layers of them */
    uint64_t range_bytes; /* of virtual addresses, all tensors together */
};

/* 0; -EINVAL, -ERANGE or -ENOMEM (memory for not a single page) with a sentence in why. */
int page_geometry_init(struct page_geometry *g, uint64_t memory_bytes, uint32_t layers,
                       uint64_t page_bytes, enum page_layout layout,
                       struct page_error *why) MUST_CHECK;

/* Where piece `piece` of an id begins in the range. */
static inline uint64_t page_piece_offset(const struct page_geometry *g, uint32_t piece, uint32_t id)
{
    return ((uint64_t)piece * g->pages + id) * g->piece_bytes;
}

/* Where page `id` of the K (kv 0) or V (kv 1) tensor of a layer begins in the range. */
uint64_t page_tensor_offset(const struct page_geometry *g, uint32_t layer, unsigned kv,
                            uint32_t id);

/* "354 pages: 45312 MiB / (2 x 2 MiB x 32 layers)" in text. */
void page_geometry_explain(const struct page_geometry *g, char text[PAGE_TEXT_CHARS]);

/* 0, or -ERANGE with a sentence that says how many pages there are and how that was computed. */
int page_geometry_check(const struct page_geometry *g, const uint32_t *ids, size_t count,
                        struct page_error *why) MUST_CHECK;

#endif
