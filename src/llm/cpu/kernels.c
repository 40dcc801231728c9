/* The choice of a set of kernels, and the set "c". */
#include "llm/cpu/kernels.h"

#include "llm/cpu/elementwise.h"
#include "wire/half.h"

#include <errno.h>
#include <stdatomic.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* ---- the choice ---- */

/* Relaxed: it points to constants, and each of them is valid. */
static _Atomic(const struct llm_kernels *) in_use;

#if defined(__aarch64__)
/* Linux' hwcap bits; older headers lack their names. */
enum { HAS_FP16 = 1 << 10, HAS_DOT = 1 << 20, HAS_FHM = 1 << 23 };
enum { HAS_I8MM = 1 << 13 }; /* of the second word */

static bool neon_runs(void)
{
    unsigned long has = getauxval(AT_HWCAP);
    return (has & HAS_DOT) && (has & HAS_FP16);
}

static bool i8mm_runs(void)
{
    return neon_runs() && (getauxval(AT_HWCAP) & HAS_FHM) && (getauxval(AT_HWCAP2) & HAS_I8MM);
}
#elif defined(__x86_64__)
static bool avx2_runs(void)
{
    unsigned eax, ebx, ecx, edx; /* clang's builtin does not know f16c */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

static bool avx512_runs(void)
{
    return avx2_runs() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

/* A process asks Linux for the tiles' registers before it uses them. */
static bool amx_runs(void)
{
    enum { HAS_TILES = 1 << 24, HAS_BYTES = 1 << 25, ASK_FOR = 0x1023, TILE_DATA = 18 };
    unsigned eax, ebx, ecx, edx;
    return avx512_runs() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & HAS_TILES) &&
           (edx & HAS_BYTES) && syscall(SYS_arch_prctl, ASK_FOR, TILE_DATA) == 0;
}
#endif

const struct llm_kernels *llm_kernels_get(size_t i)
{
#if defined(__aarch64__)
    if (i8mm_runs() && i-- == 0)
        return &llm_kernels_i8mm;
    if (neon_runs() && i-- == 0)
        return &llm_kernels_neon;
#elif defined(__x86_64__)
    if (amx_runs() && i-- == 0)
        return &llm_kernels_amx;
    if (avx512_runs() && i-- == 0)
        return &llm_kernels_avx512;
    if (avx2_runs() && i-- == 0)
        return &llm_kernels_avx2;
#endif
    return i == 0 ? &llm_kernels_c : NULL;
}

const struct llm_kernels *llm_kernels(void)
{
    const struct llm_kernels *kernels = atomic_load_explicit(&in_use, memory_order_relaxed);
    return kernels ? kernels : llm_kernels_get(0);
}

int llm_kernels_use(const char *name)
{
    const struct llm_kernels *kernels;
    for (size_t i = 0; (kernels = llm_kernels_get(i)); i++) {
        if (strcmp(kernels->name, name) == 0) {
            atomic_store_explicit(&in_use, kernels, memory_order_relaxed);
            return 0;
        }
    }
    return -ENOENT;
}

/* ---- the set "c" ---- */

static void c_prepare(enum llm_act act, void *dst, const float *src, uint32_t width, uint32_t rows,
                      uint32_t count)
{
    (void)count;
    if (act == LLM_ACT_F16)
        llm_round_f16(dst, src, (size_t)width * rows);
    else if (act == LLM_ACT_Q32)
        llm_quantise32(dst, src, (size_t)width * rows);
    else
        llm_quantise256(dst, src, (size_t)width * rows);
}

static void c_mul(const struct llm_mul *m)
{
    for (uint32_t r = 0; r < m->rows; r++) {
        for (uint32_t c = 0; c < m->count; c++) {
            float *out = m->out + (size_t)c * m->out_width + r;
            float sum = llm_dot(m->dtype, m->weight + r * m->row_bytes,
                                m->acts + c * (m->group_bytes / LLM_GROUP), m->width);
            *out = mul_finish(m, r, out, sum);
        }
    }
}

static void c_attend(const struct llm_attention *a)
{
    for (uint32_t h = 0; h < a->group; h++) {
        float *out = a->out + (size_t)h * a->head_dim, *scores = attention_scores(a, h);
        const float *q = a->q + (size_t)h * a->head_dim;
        for (uint32_t j = 0; j < a->positions; j++)
            scores[j] = a->scale * llm_dot(LLM_F16, attention_row(a, a->k, j), q, a->head_dim);
        float inverse = 1.0f / attention_weights(a, h);
        memset(out, 0, a->head_dim * sizeof *out);
        for (uint32_t j = 0; j < a->positions; j++) {
            const uint8_t *v = attention_row(a, a->v, j);
            for (uint32_t i = 0; i < a->head_dim; i++) {
                uint16_t half = (uint16_t)(v[2 * i] | v[2 * i + 1] << 8);
                out[i] = fmaf(scores[j], llm_float(wire_half_to_bits(half)), out[i]);
            }
        }
        for (uint32_t i = 0; i < a->head_dim; i++)
            out[i] *= inverse;
    }
}

static void c_norm(const struct llm_norm *norm)
{
    elementwise_norm(norm);
}

static void c_activate(enum llm_activation kind, float *x, const float *gate_by, uint64_t count)
{
    elementwise_activate(kind, x, gate_by, count);
}

const struct llm_kernels llm_kernels_c = {
    .name = "c",
    .prepare = c_prepare,
    .mul = c_mul,
    .attend = c_attend,
    .norm = c_norm,
    .activate = c_activate,
};
