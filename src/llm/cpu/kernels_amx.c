/* The set "amx": "avx512", and products of byte matrices (AMX-INT8). */
#define LLM_ROWS 16 /* of weights, side by side */
#include "llm/cpu/x86_impl.h"

const struct llm_kernels llm_kernels_amx = {
    .name = "amx",
    .prepare = x86_prepare,
    .mul = x86_mul,
    .attend = x86_attend,
    .norm = x86_norm,
    .activate = x86_activate,
};
