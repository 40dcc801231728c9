/* llm/cpu/kernels_impl.h - private to src/llm: rows of weights, for all sets of kernels.
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

#endif
