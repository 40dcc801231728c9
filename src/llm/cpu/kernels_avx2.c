/* The set "avx2": x86-64 with AVX2, FMA and F16C. */
#define LLM_ROWS 8 /* of weights, side by side */
#include "llm/cpu/x86_impl.h"

const struct llm_kernels llm_kernels_avx2 = {
    .name = "avx2",
    .queries = 2 * PLAIN_COLS,
    .prepare = x86_prepare,
    .mul = x86_mul,
    .attend = x86_attend,
    .norm = x86_norm,
    .activate = x86_activate,
};
