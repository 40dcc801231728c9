/* llm/cpu/kernels_impl.h - private to src/llm: unpacking weights, for all sets of kernels.
 *
 * Threads: any. */
#ifndef HAWSER_LLM_CPU_KERNELS_IMPL_H
#define HAWSER_LLM_CPU_KERNELS_IMPL_H

#include "llm/cpu/kernels.h"

#include <string.h>

/* Four adjacent rows of weights; rows past the last repeat it, and their results are not stored. */
static inline void rows4(const struct llm_mul *m, uint32_t row, const uint8_t *w[4])
{
    for (uint32_t i = 0; i < 4; i++)
        w[i] = m->weight + (row + i < m->rows ? row + i : m->rows - 1) * m->row_bytes;
}

/* Four rows in blocks, unpacked into the panel; row i begins at rows[i]. */
static inline void unpack4(const struct llm_mul *m, uint32_t row, const void *rows[4])
{
    const uint8_t *w[4];
    bool small = llm_format(m->dtype).values == 32;
    size_t bytes =
        small ? m->width / 32 * sizeof(struct llm_w32) : m->width / 256 * sizeof(struct llm_w256);
    rows4(m, row, w);
    for (int i = 0; i < 4; i++) {
        void *to = (uint8_t *)m->panel + (size_t)i * bytes;
        if (small)
            llm_unpack32(m->dtype, to, w[i], m->width);
        else
            llm_unpack256(m->dtype, to, w[i], m->width);
        rows[i] = to;
    }
}

_Static_assert(sizeof(struct llm_w32) <= 32 * sizeof(float), "a panel has room");
_Static_assert(sizeof(struct llm_w256) <= 256 * sizeof(float), "a panel has room");

#endif
