/* llm/cpu/ram.h - private to src/llm: what the backends in main memory share.
 *
 * Buffers are memory, weights are rows of the mapped file, KV pages come from page/tensors.h with
 * its backend "host".  The functions below fit the table of llm/engine/backend.h.
 *
 * Threads and lifetime: as llm/engine/backend.h. */
#ifndef HAWSER_LLM_CPU_RAM_H
#define HAWSER_LLM_CPU_RAM_H

#include "llm/engine/backend.h"

#include <assert.h>

struct llm_buffer {
    uint8_t *bytes;
    uint64_t size;
};

struct llm_weight {
    enum llm_dtype dtype;
    const uint8_t *rows;
    uint64_t row_bytes;
    uint32_t width, count;
};

#define LLM_RAM_SLAB_BYTES (UINT64_C(1) << 20)

/* Each slab that is not mapped takes one of the process' mappings, by default 65,530; a worker may
 * have 16 models. */
enum { LLM_RAM_SLABS_MAX = 3072 };
enum { LLM_RAM_BATCH_ROWS = 512 };

/* A backend's own struct begins with this. */
struct llm_ram {
    struct llm_backend base;
    const struct llm_batch
        *batch; /* of the current step, else NULL; the caller does not change it */
    int error;  /* of the current step */
};

static inline float *llm_ram_floats(struct llm_place place)
{
    return (float *)(void *)(place.buffer->bytes + place.offset);
}

static inline uint32_t *llm_ram_words(struct llm_place place)
{
    return (uint32_t *)(void *)(place.buffer->bytes + place.offset);
}

/* The place's values, or NULL where there is none. */
static inline const float *llm_ram_maybe(struct llm_place place)
{
    return place.buffer ? llm_ram_floats(place) : NULL;
}

/* The pages of a row's sequence in a layer. */
static inline const uint32_t *llm_ram_pages(const struct llm_batch *batch, uint32_t layer,
                                            uint32_t row)
{
    assert(layer < batch->layers);
    return batch->pages + (size_t)layer * batch->page_count + batch->page_first[batch->seqs[row]];
}

/* Row `row` of a matrix, and of a page's K or V. */
static inline const uint8_t *llm_ram_row(const struct llm_weight *w, uint64_t row)
{
    return w->rows + row * w->row_bytes;
}
uint8_t *llm_ram_kv(const struct llm_kv_memory *kv, unsigned v, uint32_t page, uint32_t row);
uint32_t llm_ram_kv_values(const struct llm_kv_memory *kv); /* of a row */
uint64_t
llm_ram_kv_page_stride(const struct llm_kv_memory *kv); /* bytes from one page to the next */

int llm_ram_buffer_create(struct llm_backend *b, uint64_t bytes, struct llm_buffer **out,
                          char *why);
void llm_ram_buffer_destroy(struct llm_backend *b, struct llm_buffer *buffer);
void *llm_ram_host(struct llm_place place);
int llm_ram_upload(struct llm_backend *b, struct llm_place to, const void *src, uint64_t bytes,
                   char *why);
int llm_ram_download(struct llm_backend *b, struct llm_place from, void *dst, uint64_t bytes,
                     char *why);
int llm_ram_weight_create(struct llm_backend *b, const struct llm_tensor *tensor, uint64_t first,
                          uint64_t rows, struct llm_weight **out, char *why);
void llm_ram_weight_destroy(struct llm_backend *b, struct llm_weight *weight);
int llm_ram_kv_create(struct llm_backend *b, const struct llm_kv_shape *shape,
                      struct llm_kv_memory **out, char *why);
void llm_ram_kv_destroy(struct llm_backend *b, struct llm_kv_memory *kv);
uint64_t llm_ram_kv_slab(const struct llm_kv_memory *kv);
int llm_ram_kv_map(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why);
int llm_ram_kv_unmap(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why);
int llm_ram_kv_read(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst, char *why);
int llm_ram_kv_write(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, const void *src,
                     char *why);
int llm_ram_begin(struct llm_backend *b, const struct llm_batch *batch, char *why);
int llm_ram_finish(struct llm_backend *b, uint64_t *kernel_ns, char *why);

/* Their places in the table of a backend. */
#define LLM_RAM_CALLS                                                                              \
    .buffer_create = llm_ram_buffer_create, .buffer_destroy = llm_ram_buffer_destroy,              \
    .host = llm_ram_host, .upload = llm_ram_upload, .download = llm_ram_download,                  \
    .weight_create = llm_ram_weight_create, .weight_destroy = llm_ram_weight_destroy,              \
    .batch_rows = LLM_RAM_BATCH_ROWS, .kv_slab_bytes = LLM_RAM_SLAB_BYTES,                         \
    .kv_slabs_max = LLM_RAM_SLABS_MAX, .kv_create = llm_ram_kv_create,                             \
    .kv_destroy = llm_ram_kv_destroy, .kv_slab = llm_ram_kv_slab, .kv_map = llm_ram_kv_map,        \
    .kv_unmap = llm_ram_kv_unmap, .kv_read = llm_ram_kv_read, .kv_write = llm_ram_kv_write,        \
    .begin = llm_ram_begin, .finish = llm_ram_finish

/* Ops that move few values and gain nothing from vector code: all backends in main memory share
 * these loops. */
void llm_ram_embed(const struct llm_batch *batch, const struct llm_op_embed *op, uint32_t row);
void llm_ram_pick(const struct llm_batch *batch, const struct llm_op_pick *op);
void llm_ram_rope(const struct llm_batch *batch, const struct llm_op_rope *op, uint32_t row);
void llm_ram_append(const struct llm_batch *batch, const struct llm_op_append *op, uint32_t row);
void llm_ram_route(const struct llm_op_route *op, uint32_t row);
void llm_ram_add(const struct llm_op_add *op, uint32_t row);
void llm_ram_scale(const struct llm_op_scale *op, uint32_t row);

/* The first position that a row sees. */
static inline uint32_t llm_ram_first(const struct llm_op_attend *op, uint32_t position)
{
    return op->window && position >= op->window ? position + 1 - op->window : 0;
}

#endif
