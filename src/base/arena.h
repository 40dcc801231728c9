/* base/arena.h - many small allocations that are freed together.
 *
 * Grows by blocks, each twice the last up to HW_ARENA_BLOCK_MAX; never moves what it gave out.
 *
 * Threads: one at a time.  Lifetime: init/fini; the struct is the caller's; what was allocated
 * lives until the next reset or fini.  Init allocates nothing, so it cannot fail. */
#ifndef HAWSER_BASE_ARENA_H
#define HAWSER_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

#include "base/attr.h"

enum {
    HW_ARENA_BLOCK_MIN = 4096,
    HW_ARENA_BLOCK_MAX = 1 << 20, /* larger blocks save nothing and waste more at the end */
    HW_ARENA_ALIGN_MAX = 4096,    /* a page; more is the business of mmap */
};

struct hw_arena_block;

struct hw_arena {                  /* private */
    struct hw_arena_block *blocks; /* the newest first */
    size_t used;                   /* of the newest block */
    size_t held;                   /* bytes of all blocks, headers included */
    size_t max;
};

/* max_bytes bounds what is held, headers and waste included. */
void hw_arena_init(struct hw_arena *arena, size_t max_bytes);
void hw_arena_fini(struct hw_arena *arena);
/* Frees everything but the newest block, which is kept for the next round. */
void hw_arena_reset(struct hw_arena *arena);

/* align: a power of two up to HW_ARENA_ALIGN_MAX.  Not zeroed.  NULL at the maximum or when out of
 * memory.  A size of 0 gives a pointer that must not be followed. */
void *hw_arena_alloc(struct hw_arena *arena, size_t size, size_t align) MUST_CHECK;
/* Zeroed; NULL also when count * size overflows. */
void *hw_arena_calloc(struct hw_arena *arena, size_t count, size_t size) MUST_CHECK;
/* Copies; NULL as above. */
char *hw_arena_strdup(struct hw_arena *arena, const char *text) MUST_CHECK;
char *hw_arena_vprintf(struct hw_arena *arena, const char *fmt, va_list args) MUST_CHECK
    PRINTF_LIKE(2, 0);

#endif
