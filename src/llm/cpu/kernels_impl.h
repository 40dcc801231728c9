/* llm/cpu/kernels_impl.h - private to src/llm: rows of weights, for all sets of kernels.
 *
 * Threads: any. */
#ifndef HAWSER_LLM_CPU_KERNELS_IMPL_H
#define HAWSER_LLM_CPU_KERNELS_IMPL_H

#include "llm/cpu/kernels.h"

#include <string.h>

/* `count` adjacent rows of weights; rows past the last repeat it, and their results are not stored.
 */
static inline void adjacent_rows(const struct llm_mul *m, uint32_t row, const uint8_t *w[],
                                 uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        w[i] = m->weight + (row + i < m->rows ? row + i : m->rows - 1) * m->row_bytes;
}

/* The next rows, as many as are taken at once; after the last ones the first.  at NULL: none. While
 * some rows are multiplied, next_lines asks for every cache line of the next ones, in order: the
 * CPU's prefetcher cannot follow short streams side by side, and asked so, all weights are one
 * stream. */
struct next_rows {
    const volatile uint8_t *at;
    bool hints;
};
static const struct next_rows no_rows = {NULL, false};

/* hints: lines are prefetched, not read.  On a Neoverse-V1 reads get twice the bandwidth of hints.
 * A Neoverse-N1 waits for reads: with hints Q8_0 is 1.3 times as fast, and no type slower.  On a
 * Xeon with one thread, hints make Q8_0 3.1 times as fast and F16 1.6, reads 1.1. */
static inline struct next_rows next_rows_of(const struct llm_mul *m, uint32_t row, uint32_t count,
                                            bool hints)
{
    uint32_t next = row + 2 * count <= m->rows ? row + count : 0;
    return (struct next_rows){m->rows < count ? NULL : m->weight + next * m->row_bytes, hints};
}

static inline struct next_rows next_rows(const struct llm_mul *m, uint32_t row, bool hints)
{
    return next_rows_of(m, row, 4, hints);
}

/* Asks for the lines that correspond to `bytes` of each of `count` rows from `at` on.  count is a
 * constant in each use. */
static inline void next_lines_of(struct next_rows next, size_t count, size_t at, size_t bytes)
{
    for (size_t i = 0; next.at && i < bytes; i += HW_CACHE_LINE / count) {
        if (next.hints)
            __builtin_prefetch((const void *)(uintptr_t)(next.at + count * (at + i)));
        else
            (void)next.at[count * (at + i)];
    }
}

static inline void next_lines(struct next_rows next, size_t at, size_t bytes)
{
    next_lines_of(next, 4, at, bytes);
}

/* Hints on every CPU, for types with much arithmetic for a byte (Q4_K, Q6_K). */
static inline void hint_lines(struct next_rows next, size_t at, size_t bytes)
{
    next.hints = true;
    next_lines(next, at, bytes);
}

#endif
