/* llm/engine/backend.h - where a model's arithmetic happens, behind one ops struct.
 *
 * `reference` is plain C, one loop an op, and defines what every op yields; `cpu` does the same
 * with threads and vector kernels, bit for bit; a GPU's backend may differ by the tolerance that
 * tests/unit/llm/test_ops.c states.
 *
 * A step is begin, ops in order, finish (or prepare).  Ops only name places; a backend may execute
 * each at once or record all and submit in finish, so nothing may be read, written, mapped or
 * destroyed between begin and finish.  An op sees what earlier ops of the step wrote.  Ops do not
 * fail: finish tells the first error, and places that the step wrote are then undefined.
 *
 * Activations are binary32, row after row without gaps: value c of row r of a place lies at
 * offset + 4 * (r * width + c).  Offsets of places are multiples of LLM_PLACE_ALIGN.
 *
 * What an op computes for a row depends only on that row and its sequence's KV, never on other
 * rows, their number or the number of threads: each output element has its own order of additions.
 *
 * Trust: callers are in src/llm; shapes are asserted.  llm/model/file.h and llm/engine/engine.h
 * have checked weights, tokens and lengths. Threads: one at a time for an instance and all that it
 * made. Lifetime: open/close; buffers, weights and KV are destroyed before their backend; a
 * weight's tensor outlives it. */
#ifndef HAWSER_LLM_ENGINE_BACKEND_H
#define HAWSER_LLM_ENGINE_BACKEND_H

#include "llm/model/file.h"

enum {
    LLM_PLACE_ALIGN = 256,    /* the largest that Vulkan may demand of a storage buffer's offset */
    LLM_MATMUL_PARTS_MAX = 3, /* q, k and v share one input */
    LLM_ROPE_TABLES_MAX = 2,  /* of angles: layers with a window, or queries, may have their own */
    LLM_KV_POSITIONS = 64,    /* of a page; a power of two, so that page tables need shifts only */
    LLM_THREADS_MAX = 256,    /* cores of a large server */
    LLM_STAGES_MAX = 16,      /* of a model's layers, each a server: a row waits for all in turn */
    LLM_ARITHMETIC_CHARS = 160,
};

/* Of one layer. */
static inline uint32_t llm_kv_pages_for(uint32_t positions)
{
    return (uint32_t)(((uint64_t)positions + LLM_KV_POSITIONS - 1) / LLM_KV_POSITIONS);
}

struct llm_backend;
struct llm_layers;
struct llm_split;
struct llm_stages;
struct llm_buffer;    /* bytes at the device */
struct llm_weight;    /* rows of a matrix, in the device's own layout */
struct llm_kv_memory; /* K and V, in pages */

/* exact: a row has the same bits alone and in any batch.  fast: a device may multiply many rows on
 * matrix units, so that a row's bits depend on how many there are. */
enum llm_math { LLM_MATH_EXACT, LLM_MATH_FAST };
extern const char *const llm_math_names[]; /* NULL-terminated */

struct llm_backend_config {
    unsigned threads; /* of cpu; 0: one for each core */
    uint32_t device;  /* which GPU, modulo their number */
    enum llm_math math;
};

struct llm_place {
    struct llm_buffer *buffer;
    uint64_t offset; /* bytes */
};

/* ---- KV ----
 *
 * A page id names room for LLM_KV_POSITIONS rows of K and as many of V, of one layer of a sequence:
 * an evicted layer gives its memory back.  A row is row_values binary16 values, kv_heads *
 * head_dim, heads one after the other.  Position p lies in the layer's page p / LLM_KV_POSITIONS,
 * as row p % LLM_KV_POSITIONS.  Pages are small, so a backend maps slabs of them (page/slabs.h). */
struct llm_kv_shape {
    uint32_t row_values;
    uint32_t pages; /* ids are below it */
    uint32_t run;   /* pages of a slab, mapped together; divides pages; page p is in slab p / run */
    /* Layers of stage i use pages from pool_ends[i - 1] on and below pool_ends[i], whole slabs.
     * Without stages there is one pool. */
    uint32_t pools, pool_ends[LLM_STAGES_MAX];
};

/* Rows of one page of one tensor. */
struct llm_kv_rows {
    unsigned v; /* 0: K, 1: V */
    uint32_t page;
    uint32_t first, count; /* within the page */
};

/* ---- the rows of a step ---- */

/* Given to begin, which copies what it needs; the ops refer to it.  Row i is the token tokens[i] at
 * position positions[i] of sequence seqs[i]; the pages of sequence s in layer l are
 * pages[l * page_count + page_first[s]] and on, mapped, enough for its positions. */
struct llm_batch {
    uint32_t rows;
    const uint32_t *tokens, *positions, *seqs;
    uint32_t seq_count;
    const uint32_t *page_first; /* seq_count entries */
    const uint32_t *pages;
    uint32_t page_count;   /* of one layer, all sequences together */
    uint32_t layers;       /* that pages has */
    const uint32_t *picks; /* rows whose logits are needed, ascending */
    uint32_t pick_count;
    /* For each row rope_pairs pairs (cos, sin) of its angles, the frequencies, scales and factors
     * of the model included (llm/engine/rope.h): computed once a step.  Tables follow each other.
     */
    const float *rope;
    uint32_t rope_pairs;  /* 0: the model has learned positions */
    uint32_t rope_tables; /* at most LLM_ROPE_TABLES_MAX */
    uint32_t row_copies;  /* inputs that a product has for one row at most: its experts, or 1 */
};

/* ---- ops: `rows` is the batch's where an op does not say otherwise ---- */

/* out[r] = scale * table[token of r] (+ position_table[position of r]). */
struct llm_op_embed {
    const struct llm_weight *table;
    const struct llm_weight *position_table; /* NULL: none */
    struct llm_place out;
    uint32_t width;
    float scale;
};

/* out[i] = in[picks[i]]: pick_count rows. */
struct llm_op_pick {
    struct llm_place in, out;
    uint32_t width;
};

/* rms:   out = x / sqrt(mean(x^2) + eps) * weight (+ bias)
 * layer: out = (x - mean(x)) / sqrt(mean((x - mean)^2) + eps) * weight (+ bias)
 * in and out may be the same place.  A row may be a head. */
struct llm_op_norm {
    struct llm_place in, out;
    struct llm_place weight, bias; /* width binary32 values; bias.buffer NULL: none */
    uint32_t rows, width;
    float eps;
    bool is_rms;
};

/* For each part: out[r][j] = sum over k of weight[j][k] * in[r][k]  (+ bias[j]) (+ out[r][j]).
 * The parts share in; their outputs neither overlap each other nor in.  Quantised weights are
 * multiplied with in rounded to 8 bits in blocks (llm/engine/quantise.h), so the products are
 * integers and exact within a block; F16 weights with in rounded to binary16. */
struct llm_matmul_part {
    const struct llm_weight *weight;
    struct llm_place bias; /* one value for each row of weight; buffer NULL: none */
    struct llm_place out;
    bool accumulate; /* adds to out: the residual */
};
/* With experts, a weight is `count` matrices one below the other, and so is its bias.  Row r is
 * multiplied with matrix chosen[r] (32-bit numbers that llm_op_route wrote), and reads row r /
 * share of in.  At most two parts. */
struct llm_experts {
    struct llm_place chosen; /* buffer NULL: no experts */
    uint32_t count;
    uint32_t share; /* rows that have one input */
};
struct llm_op_matmul {
    struct llm_place in; /* rows (/ share) x the weights' width */
    uint32_t rows;       /* of the outputs */
    uint32_t part_count; /* 1 to LLM_MATMUL_PARTS_MAX */
    struct llm_matmul_part parts[LLM_MATMUL_PARTS_MAX];
    struct llm_experts experts;
};

/* The `used` largest of a row's logits, the largest first, of equals that with the lower number:
 * chosen[r][i] is a number, weights[r][i] = scale * softmax of that logit, over those of the row's
 * chosen experts (normed) or over all. */
struct llm_op_route {
    struct llm_place logits; /* rows x experts */
    struct llm_place chosen; /* rows x used, 32-bit numbers */
    struct llm_place weights;
    uint32_t experts, used;
    bool normed;
    float scale;
};

/* x[r] += scale * sum over i of y[r * terms + i] (* weights[r][i]), from the first term on. */
struct llm_op_add {
    struct llm_place x, y;
    struct llm_place weights; /* rows x terms; buffer NULL: none, and one term */
    uint32_t terms, width;
    float scale;
};

/* x = scale * x, and with a cap c: x = c * tanh(scale * x / c).  In place, rows x width. */
struct llm_op_scale {
    struct llm_place x;
    uint32_t rows, width;
    float scale;
    float cap; /* 0: none */
};

/* Turns the first 2 * rope_pairs values of each head of q and of k by the batch's angles, in place:
 * pair i is (x[i], x[i + pairs]) with neox, else (x[2i], x[2i + 1]). */
struct llm_op_rope {
    struct llm_place q, k;
    uint32_t heads, kv_heads, head_dim;
    uint32_t q_table, k_table; /* of the batch's */
    bool neox;
};

/* Rounds the rows of k and v to binary16 and stores them at their positions in kv. */
struct llm_op_append {
    struct llm_kv_memory *kv;
    uint32_t layer;
    struct llm_place k, v; /* rows x row_values of kv */
};

/* For each row and head h, over the positions j up to the row's own, the last `window` of them,
 * with g = h / (heads / kv_heads): out = sum of softmax_j(cap(scale * q . k[j][g])) * v[j][g].
 * cap(s) is s, or c * tanh(s / c).  A sink is one more score in the softmax, without a value. */
struct llm_op_attend {
    struct llm_kv_memory *kv;
    uint32_t layer;
    struct llm_place q, out; /* rows x heads * head_dim */
    uint32_t heads, kv_heads, head_dim;
    float scale;
    float cap;              /* 0: none */
    uint32_t window;        /* 0: all positions */
    struct llm_place sinks; /* one for each head; buffer NULL: none */
};

/* silu gated:   x = silu(x) * gate_by, silu(x) = x / (1 + exp(-x))
 * gelu:         x = x / 2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))); gate_by is not read
 * gelu gated:   x = gelu(x) * gate_by
 * silu clamped: y = min(x, 7), x = y / (1 + exp(-1.702 y)) * (1 + gate_by, clamped to -7..7)
 * sigmoid:      x = 1 / (1 + exp(-x)); gate_by is not read
 * In place on x, rows x width. */
struct llm_op_activate {
    enum llm_activation kind;
    struct llm_place x, gate_by;
    uint32_t rows, width;
};

struct llm_backend_ops {
    const char *name;
    bool exact;          /* the reference's bits, on every machine */
    uint32_t batch_rows; /* that a batch has at most: more gain nothing; <= LLM_GRAPH_ROWS_MAX */
    /* What the device maps well at once, and how many slabs one cache may have. */
    uint64_t kv_slab_bytes;
    uint32_t kv_slabs_max;

    /* 0; -ENODEV (no device or driver: tests skip); -ENOMEM; -EIO; and why (LLM_WHY_CHARS). */
    int (*open)(const struct llm_backend_config *config, struct llm_backend **out, char *why);
    void (*close)(struct llm_backend *b);

    /* Content is zero at first.  0, -ENOMEM, -EIO, and why. */
    int (*buffer_create)(struct llm_backend *b, uint64_t bytes, struct llm_buffer **out, char *why);
    void (*buffer_destroy)(struct llm_backend *b, struct llm_buffer *buffer); /* NULL: nothing */
    /* The memory of a place, where ops are done when they return.  NULL: there is none. */
    void *(*host)(struct llm_place place);
    /* Within the buffer; outside of a step.  0 or -EIO, and why. */
    int (*upload)(struct llm_backend *b, struct llm_place to, const void *src, uint64_t bytes,
                  char *why);
    int (*download)(struct llm_backend *b, struct llm_place from, void *dst, uint64_t bytes,
                    char *why);
    /* What download would copy, where the last step left it in host memory; until the next step or
     * upload.  NULL, or returns NULL: nowhere. */
    const void *(*view)(struct llm_backend *b, struct llm_place from, uint64_t bytes);

    /* Rows first to first + rows of a matrix of any dtype: used in place, repacked or uploaded.  A
     * tensor may be bound several times; rows of one dimension are one row, those of three follow
     * each other matrix by matrix.  As buffer_create. */
    int (*weight_create)(struct llm_backend *b, const struct llm_tensor *tensor, uint64_t first,
                         uint64_t rows, struct llm_weight **out, char *why);
    void (*weight_destroy)(struct llm_backend *b, struct llm_weight *weight); /* NULL: nothing */
    /* Of a backend that copies weights to memory of its own.  leave: gives all of that back, until
     * return there is no step; yields the bytes.  return: copies the next of those that are not
     * there, from its tensor.  0: all are there; -EAGAIN: call again; -ENOMEM, -EIO and why: what
     * was there is, and it may be tried again.  NULL: weights are used where the file is mapped. */
    uint64_t (*weights_leave)(struct llm_backend *b);
    int (*weights_return)(struct llm_backend *b, char *why);

    /* No slab is mapped at first, and only mapped ones take memory.  map and unmap: all slabs or
     * none; the caller has checked them (page/slabs.h); a slab just mapped holds anything. */
    int (*kv_create)(struct llm_backend *b, const struct llm_kv_shape *shape,
                     struct llm_kv_memory **out, char *why);
    void (*kv_destroy)(struct llm_backend *b,
                       struct llm_kv_memory *kv);        /* NULL: nothing; frees the pages, too */
    uint64_t (*kv_slab)(const struct llm_kv_memory *kv); /* bytes of a slab */
    int (*kv_map)(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why);
    int (*kv_unmap)(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why);
    int (*kv_read)(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst, char *why);
    /* Several, whose bytes follow each other in dst, where that is quicker.  NULL: it is not. */
    int (*kv_read_all)(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, uint32_t count,
                       void *dst, char *why);
    /* A device's error may be told by the next step or read. */
    int (*kv_write)(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, const void *src,
                    char *why);

    /* 0, -ENOMEM, -EIO: then there is no step. */
    int (*begin)(struct llm_backend *b, const struct llm_batch *batch, char *why);
    void (*embed)(struct llm_backend *b, const struct llm_op_embed *op);
    void (*pick)(struct llm_backend *b, const struct llm_op_pick *op);
    void (*norm)(struct llm_backend *b, const struct llm_op_norm *op);
    void (*matmul)(struct llm_backend *b, const struct llm_op_matmul *op);
    void (*rope)(struct llm_backend *b, const struct llm_op_rope *op);
    void (*append)(struct llm_backend *b, const struct llm_op_append *op);
    void (*attend)(struct llm_backend *b, const struct llm_op_attend *op);
    void (*activate)(struct llm_backend *b, const struct llm_op_activate *op);
    void (*route)(struct llm_backend *b, const struct llm_op_route *op);
    void (*add)(struct llm_backend *b, const struct llm_op_add *op);
    void (*scale)(struct llm_backend *b, const struct llm_op_scale *op);
    /* Waits until the ops are done.  *kernel_ns: time on a GPU, 0 without one or when it cannot
     * measure; also set on failure.  0, or the first error of the step: -ENOMEM, -EIO. */
    int (*finish)(struct llm_backend *b, uint64_t *kernel_ns, char *why);
    /* Instead of finish: makes the programs and memory that the step's ops need, and computes
     * nothing.  NULL: they need none.  As finish. */
    int (*prepare)(struct llm_backend *b, char *why);
    /* How many programs and blocks of memory were made so far: they make a step slower than the
     * next like it.  NULL: none. */
    uint64_t (*made)(const struct llm_backend *b);
    /* Bytes that the device's driver sent and received over a network.  NULL: none. */
    void (*traffic)(const struct llm_backend *b, uint64_t *sent, uint64_t *received);
    /* Of a backend whose device is at other servers too: 0 when all are there; -EAGAIN: some are
     * not yet, which every use of KV says, too; else, and why.  NULL: always 0. */
    int (*reach)(struct llm_backend *b, char *why);
};

/* The first member of each backend's own struct. */
struct llm_backend {
    const struct llm_backend_ops *ops;
    char device[128];              /* for people: "2 threads, i8mm", "NVIDIA H200" */
    const struct llm_split *split; /* what of a model it computes (llm/engine/split.h); NULL: all */
    const struct llm_stages *stages; /* which layers (llm/engine/stages.h); NULL: all */
    bool kv_lost; /* all content of its KV memory is gone.  Whoever keeps sequences drops them and
                   * clears this; every use of KV fails before */
};

extern const struct llm_backend_ops llm_backend_reference;
extern const struct llm_backend_ops llm_backend_cpu;
extern const struct llm_backend_ops llm_backend_vulkan;

/* Backends with the same text compute the same bits: "exact", or the backend and its device; and a
 * number that grows when a change of the program changes bits. */
void llm_backend_arithmetic(const struct llm_backend *b, char text[LLM_ARITHMETIC_CHARS]);

/* All of them, and their names, NULL at the end; find: by name, or NULL. */
extern const char *const llm_backend_names[];
extern const struct llm_backend_ops *const llm_backends[];
const struct llm_backend_ops *llm_backend_find(const char *name);

#endif
