/* The set "avx512": x86-64 with AVX-512 and its products of bytes (VNNI). */
#define LLM_ROWS 16 /* of weights, side by side */
#include "llm/cpu/x86_impl.h"

const struct llm_kernels llm_kernels_avx512 = {
    .name = "avx512",
    .queries = 2 * PLAIN_COLS,
    .prepare = x86_prepare,
    .mul = x86_mul,
    .attend = x86_attend,
    .norm = x86_norm,
    .activate = x86_activate,
};
