/* llm/cpu/kernels.h - private to src/llm: the inner loops of the cpu backend, and their choice.
 *
 * The first use chooses the best set that this CPU runs.  The set "c" is the reference that tests
 * compare the others with, bit for bit; choosing it turns the others off.
 *
 * Trust: none needed; weights come as the file holds them, at any alignment.
 * Threads: any; llm_kernels_use acts on backends opened after it. */
#ifndef HAWSER_LLM_CPU_KERNELS_H
#define HAWSER_LLM_CPU_KERNELS_H

#include "base/attr.h"
#include "llm/engine/quantise.h"
#include "llm/model/shape.h"

/* Activations are prepared in groups of so many rows, which a set may interleave; the last group
 * may have fewer. */
enum { LLM_GROUP = 4 };
/* Panels have room for so many rows of weights as floats, or more as bytes with scales. */
enum { LLM_PANEL_ROWS = 9 };

/* Rows of one matrix times all rows of activations. */
struct llm_mul {
    enum llm_dtype dtype;
    const uint8_t *weight; /* first row */
    uint64_t row_bytes;
    uint32_t rows, width;
    const uint8_t *acts; /* LLM_ACT_F32: rows of floats, else groups as prepare left them */
    uint64_t group_bytes;
    uint32_t count; /* of activation rows */
    float *out;     /* of the first weight row, for the first activation row */
    uint32_t out_width;
    const float *bias; /* NULL: none */
    bool accumulate;
    void *panel; /* llm_panel_bytes for unpacked weights; of this thread */
};

/* Queries of one KV head over the pages of their sequence: those of one row, or of several rows of
 * one position after another, which all see from the same position on. */
struct llm_attention {
    const uint8_t *k, *v; /* of page 0 of the range, at this head */
    uint64_t page_stride; /* bytes from one page to the next */
    uint64_t row_stride;  /* bytes from one position to the next */
    const uint32_t *pages;
    uint32_t first;     /* position that the rows see */
    uint32_t positions; /* from there on that the first row sees; each later row sees one more */
    uint32_t rows;
    const float *q;
    float *out;
    uint32_t q_width; /* floats from one row's queries, and results, to the next row's */
    uint32_t group;   /* queries of a row that share the head */
    uint32_t head_dim;
    float scale, cap;   /* cap 0: none */
    const float *sinks; /* of the group's queries; NULL: none */
    float *scores;      /* for each query the positions of the last row; of this thread */
    float *panel;       /* llm_panel_bytes of a head; of this thread */
    float *queries;     /* room for all of several rows; of this thread */
};

struct llm_norm {
    const float *in, *weight, *bias; /* bias NULL: none */
    float *out;
    uint32_t width;
    float eps;
    bool is_rms;
};

struct llm_kernels {
    const char *name;
    uint32_t queries; /* that attend takes of several rows; 0: of one row, however many */
    /* `rows` rows, at most LLM_GROUP, as one group of a batch of `count`. */
    void (*prepare)(enum llm_act act, void *dst, const float *src, uint32_t width, uint32_t rows,
                    uint32_t count);
    void (*mul)(const struct llm_mul *mul);
    void (*attend)(const struct llm_attention *a);
    void (*norm)(const struct llm_norm *norm);
    void (*activate)(enum llm_activation kind, float *x, const float *gate_by, uint64_t count);
};

/* Bytes of a panel for rows of that width. */
static inline uint64_t llm_panel_bytes(uint32_t width)
{
    return (uint64_t)LLM_PANEL_ROWS * width * sizeof(float) + 64;
}

/* The i-th set that this CPU runs, best first and "c" last; NULL past the end. */
const struct llm_kernels *llm_kernels_get(size_t i);
const struct llm_kernels *llm_kernels(void);
/* 0, or -ENOENT when this CPU has no such set. */
int llm_kernels_use(const char *name) MUST_CHECK;

extern const struct llm_kernels llm_kernels_c;
#if defined(__aarch64__)
extern const struct llm_kernels llm_kernels_neon; /* dot products of bytes */
extern const struct llm_kernels llm_kernels_i8mm; /* and products of byte matrices */
#elif defined(__x86_64__)
extern const struct llm_kernels llm_kernels_avx2;
extern const struct llm_kernels llm_kernels_avx512; /* and products of bytes */
extern const struct llm_kernels llm_kernels_amx;    /* and of byte matrices */
#endif

#endif
