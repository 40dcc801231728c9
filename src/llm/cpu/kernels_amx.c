/* The set "amx": "avx512", but for many rows of activations products of byte matrices (AMX-INT8).
 */
#define LLM_ROWS 16 /* of weights, side by side */
#define LLM_AMX     /* products of byte matrices */
#include "llm/cpu/x86_tiles_impl.h"

static void amx_prepare(enum llm_act act, void *dst, const float *src, uint32_t width,
                        uint32_t rows, uint32_t count)
{
    llm_kernels_avx512.prepare(act, dst, src, width, rows, count);
}

static void amx_mul(const struct llm_mul *m)
{
    if (llm_format(m->dtype).values && m->count > FUSED_COLS)
        mul_groups(m, mul_panels);
    else
        llm_kernels_avx512.mul(m);
}

static void amx_attend(const struct llm_attention *a)
{
    llm_kernels_avx512.attend(a);
}

static void amx_norm(const struct llm_norm *norm)
{
    llm_kernels_avx512.norm(norm);
}

static void amx_activate(enum llm_activation kind, float *x, const float *gate_by, uint64_t count)
{
    llm_kernels_avx512.activate(kind, x, gate_by, count);
}

const struct llm_kernels llm_kernels_amx = {
    .name = "amx",
    .queries = 2 * PLAIN_COLS,
    .prepare = amx_prepare,
    .mul = amx_mul,
    .attend = amx_attend,
    .norm = amx_norm,
    .activate = amx_activate,
};
