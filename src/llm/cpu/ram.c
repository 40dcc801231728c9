#include "llm/cpu/ram.h"

#include "llm/engine/arith.h"
#include "llm/model/why.h"
#include "page/tensors.h"
#include "wire/half.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- buffers and weights ---- */

int llm_ram_buffer_create(struct llm_backend *b, uint64_t bytes, struct llm_buffer **out, char *why)
{
    (void)b;
    struct llm_buffer *buffer = calloc(1, sizeof *buffer);
    uint64_t size = (bytes + LLM_PLACE_ALIGN - 1) / LLM_PLACE_ALIGN * LLM_PLACE_ALIGN;
    void *memory = buffer ? aligned_alloc(LLM_PLACE_ALIGN, size ? size : LLM_PLACE_ALIGN) : NULL;
    if (!memory) {
        free(buffer);
        return llm_why(why, -ENOMEM, "no memory for a buffer of %llu bytes",
                       (unsigned long long)bytes);
    }
    memset(memory, 0, size);
    *buffer = (struct llm_buffer){.bytes = memory, .size = size};
    *out = buffer;
    return 0;
}

void llm_ram_buffer_destroy(struct llm_backend *b, struct llm_buffer *buffer)
{
    (void)b;
    if (!buffer)
        return;
    free(buffer->bytes);
    free(buffer);
}

static void check_place(struct llm_place place, uint64_t bytes)
{
    assert(place.offset <= place.buffer->size && bytes <= place.buffer->size - place.offset);
    (void)place;
    (void)bytes;
}

void *llm_ram_host(struct llm_place place)
{
    return place.buffer->bytes + place.offset;
}

int llm_ram_upload(struct llm_backend *b, struct llm_place to, const void *src, uint64_t bytes,
                   char *why)
{
    (void)b;
    (void)why;
    check_place(to, bytes);
    memcpy(to.buffer->bytes + to.offset, src, bytes);
    return 0;
}

int llm_ram_download(struct llm_backend *b, struct llm_place from, void *dst, uint64_t bytes,
                     char *why)
{
    (void)b;
    (void)why;
    check_place(from, bytes);
    memcpy(dst, from.buffer->bytes + from.offset, bytes);
    return 0;
}

int llm_ram_weight_create(struct llm_backend *b, const struct llm_tensor *tensor, uint64_t first,
                          uint64_t rows, struct llm_weight **out, char *why)
{
    (void)b;
    uint64_t row_bytes = llm_dtype_bytes(tensor->dtype, tensor->dims[0]);
    assert((first + rows) * row_bytes <= tensor->bytes);
    struct llm_weight *weight = malloc(sizeof *weight);
    if (!weight)
        return llm_why(why, -ENOMEM, "no memory for the weight %s", tensor->name);
    *weight = (struct llm_weight){.dtype = tensor->dtype,
                                  .rows = (const uint8_t *)tensor->data + first * row_bytes,
                                  .row_bytes = row_bytes,
                                  .width = (uint32_t)tensor->dims[0],
                                  .count = (uint32_t)rows};
    *out = weight;
    return 0;
}

void llm_ram_weight_destroy(struct llm_backend *b, struct llm_weight *weight)
{
    (void)b;
    free(weight);
}

/* ---- KV pages: each K and then V ---- */

struct llm_kv_memory {
    struct page_tensors *tensors; /* its pages are our slabs */
    struct page_outcome outcome;  /* of the last batch; too large for the stack */
    uint8_t *range;               /* of all pages */
    uint32_t row_values;
    uint64_t half_bytes; /* of a page: its K, or its V */
    uint32_t run;
};

static uint64_t half_bytes_for(const struct llm_kv_shape *shape)
{
    uint64_t bytes = (uint64_t)shape->row_values * sizeof(uint16_t) * LLM_KV_POSITIONS;
    uint64_t unit = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + unit - 1) / unit * unit;
}

int llm_ram_kv_create(struct llm_backend *b, const struct llm_kv_shape *shape,
                      struct llm_kv_memory **out, char *why)
{
    (void)b;
    uint64_t half_bytes = half_bytes_for(shape);
    uint32_t slabs = shape->pages / shape->run;
    struct llm_kv_memory *kv = calloc(1, sizeof *kv);
    if (!kv)
        return llm_why(why, -ENOMEM, "no memory for the KV cache");
    struct page_tensors_config config = {.backend = &page_backend_host,
                                         .device.memory_bytes = 2 * half_bytes * shape->run * slabs,
                                         .layers = 1,
                                         .page_bytes = half_bytes * shape->run,
                                         .layout = PAGE_CONTIGUOUS,
                                         .no_reuse = true}; /* page/slabs.h has the reserve */
    struct page_error error = {0};
    int rc = page_tensors_create(&config, &kv->tensors, &error);
    if (rc) {
        free(kv);
        return llm_why(why, rc, "KV cache: %s", error.text);
    }
    kv->range = (uint8_t *)(uintptr_t)page_tensors_address(kv->tensors);
    kv->row_values = shape->row_values;
    kv->half_bytes = half_bytes;
    kv->run = shape->run;
    assert(kv->range && page_tensors_geometry(kv->tensors)->pages >= slabs);
    *out = kv;
    return 0;
}

void llm_ram_kv_destroy(struct llm_backend *b, struct llm_kv_memory *kv)
{
    (void)b;
    if (!kv)
        return;
    page_tensors_destroy(kv->tensors);
    free(kv);
}

static int told(const struct llm_kv_memory *kv, int rc, char *why)
{
    return rc ? llm_why(why, rc, "KV pages: %s", kv->outcome.why.text) : 0;
}

uint64_t llm_ram_kv_slab(const struct llm_kv_memory *kv)
{
    return 2 * kv->half_bytes * kv->run;
}

int llm_ram_kv_map(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why)
{
    return told(kv, page_tensors_map(kv->tensors, slabs, count, &kv->outcome), why);
}

int llm_ram_kv_unmap(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why)
{
    int rc = page_tensors_unmap(kv->tensors, slabs, count, &kv->outcome);
    if (rc == 0)
        page_tensors_commit(kv->tensors); /* the memory is free now, not after the next batch */
    return told(kv, rc, why);
}

uint8_t *llm_ram_kv(const struct llm_kv_memory *kv, unsigned v, uint32_t page, uint32_t row)
{
    return kv->range + (2 * (uint64_t)page + v) * kv->half_bytes +
           (uint64_t)row * kv->row_values * sizeof(uint16_t);
}

uint32_t llm_ram_kv_values(const struct llm_kv_memory *kv)
{
    return kv->row_values;
}

uint64_t llm_ram_kv_page_stride(const struct llm_kv_memory *kv)
{
    return 2 * kv->half_bytes;
}

static uint8_t *kv_rows(const struct llm_kv_memory *kv, const struct llm_kv_rows *rows,
                        size_t *bytes)
{
    assert(page_tensors_is_mapped(kv->tensors, rows->page / kv->run));
    assert(rows->first + rows->count <= LLM_KV_POSITIONS);
    *bytes = (size_t)rows->count * kv->row_values * sizeof(uint16_t);
    return llm_ram_kv(kv, rows->v, rows->page, rows->first);
}

int llm_ram_kv_read(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst, char *why)
{
    (void)why;
    size_t bytes;
    const uint8_t *at = kv_rows(kv, rows, &bytes);
    memcpy(dst, at, bytes);
    return 0;
}

int llm_ram_kv_write(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, const void *src,
                     char *why)
{
    (void)why;
    size_t bytes;
    uint8_t *at = kv_rows(kv, rows, &bytes);
    memcpy(at, src, bytes);
    return 0;
}

/* ---- steps, and the ops that only move values ---- */

int llm_ram_begin(struct llm_backend *b, const struct llm_batch *batch, char *why)
{
    (void)why;
    struct llm_ram *ram = (struct llm_ram *)b;
    assert(!ram->batch && batch->rows > 0);
    ram->batch = batch;
    return 0;
}

int llm_ram_finish(struct llm_backend *b, uint64_t *kernel_ns, char *why)
{
    struct llm_ram *ram = (struct llm_ram *)b;
    int rc = ram->error;
    ram->error = 0;
    ram->batch = NULL;
    *kernel_ns = 0;
    return rc ? llm_why(why, rc, "no memory for a step") : 0;
}

void llm_ram_embed(const struct llm_batch *batch, const struct llm_op_embed *op, uint32_t row)
{
    const struct llm_weight *table = op->table, *positions = op->position_table;
    float *out = llm_ram_floats(op->out) + (size_t)row * op->width;
    assert(table->width == op->width && batch->tokens[row] < table->count);
    llm_dtype_to_f32(table->dtype, out, llm_ram_row(table, batch->tokens[row]), op->width);
    for (uint32_t i = 0; i < op->width && op->scale != 1; i++)
        out[i] *= op->scale;
    if (!positions)
        return;
    assert(positions->width == op->width && batch->positions[row] < positions->count);
    const uint8_t *at = llm_ram_row(positions, batch->positions[row]);
    uint32_t block = llm_dtype_block(positions->dtype);
    uint32_t bytes = llm_dtype_block_bytes(positions->dtype);
    float values[256]; /* the largest block */
    for (uint32_t i = 0; i < op->width; i += block, at += bytes) {
        llm_dtype_to_f32(positions->dtype, values, at, block);
        for (uint32_t j = 0; j < block; j++)
            out[i + j] += values[j];
    }
}

void llm_ram_pick(const struct llm_batch *batch, const struct llm_op_pick *op)
{
    const float *in = llm_ram_floats(op->in);
    float *out = llm_ram_floats(op->out);
    for (uint32_t i = 0; i < batch->pick_count; i++)
        memcpy(out + (size_t)i * op->width, in + (size_t)batch->picks[i] * op->width,
               op->width * sizeof *out);
}

static void turn_head(float *x, const float *angles, uint32_t pairs, bool neox)
{
    uint32_t step = neox ? 1 : 2, apart = neox ? pairs : 1;
    for (uint32_t i = 0; i < pairs; i++) {
        float cosine = angles[2 * i], sine = angles[2 * i + 1];
        float a = x[i * step], b = x[i * step + apart];
        x[i * step] = a * cosine - b * sine;
        x[i * step + apart] = a * sine + b * cosine;
    }
}

void llm_ram_rope(const struct llm_batch *batch, const struct llm_op_rope *op, uint32_t row)
{
    size_t each = (size_t)2 * batch->rope_pairs;
    const float *q_angles = batch->rope + ((size_t)op->q_table * batch->rows + row) * each;
    const float *k_angles = batch->rope + ((size_t)op->k_table * batch->rows + row) * each;
    float *q = llm_ram_floats(op->q) + (size_t)row * op->heads * op->head_dim;
    float *k = llm_ram_floats(op->k) + (size_t)row * op->kv_heads * op->head_dim;
    assert(2 * batch->rope_pairs <= op->head_dim);
    assert(op->q_table < batch->rope_tables && op->k_table < batch->rope_tables);
    for (uint32_t h = 0; h < op->heads; h++)
        turn_head(q + (size_t)h * op->head_dim, q_angles, batch->rope_pairs, op->neox);
    for (uint32_t h = 0; h < op->kv_heads; h++)
        turn_head(k + (size_t)h * op->head_dim, k_angles, batch->rope_pairs, op->neox);
}

void llm_ram_append(const struct llm_batch *batch, const struct llm_op_append *op, uint32_t row)
{
    uint32_t values = llm_ram_kv_values(op->kv), position = batch->positions[row];
    uint32_t page = llm_ram_pages(batch, op->layer, row)[position / LLM_KV_POSITIONS];
    const float *k = llm_ram_floats(op->k) + (size_t)row * values;
    const float *v = llm_ram_floats(op->v) + (size_t)row * values;
    uint32_t at = position % LLM_KV_POSITIONS;
    wire_half_from_f32(llm_ram_kv(op->kv, 0, page, at), k, values);
    wire_half_from_f32(llm_ram_kv(op->kv, 1, page, at), v, values);
}

/* ---- experts, residuals, logits ---- */

/* The largest logit that is not taken, that with the lowest number of equals. */
static uint32_t best_left(const float *logits, const uint32_t *taken, uint32_t taken_count,
                          uint32_t experts)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t e = 0; e < experts; e++) {
        bool is_taken = false;
        for (uint32_t i = 0; i < taken_count; i++)
            is_taken |= taken[i] == e;
        if (!is_taken && (best == UINT32_MAX || logits[e] > logits[best]))
            best = e;
    }
    return best;
}

void llm_ram_route(const struct llm_op_route *op, uint32_t row)
{
    const float *logits = llm_ram_floats(op->logits) + (size_t)row * op->experts;
    uint32_t *chosen = llm_ram_words(op->chosen) + (size_t)row * op->used;
    float *weights = llm_ram_floats(op->weights) + (size_t)row * op->used;
    assert(op->used >= 1 && op->used <= op->experts);
    for (uint32_t i = 0; i < op->used; i++) {
        chosen[i] = best_left(logits, chosen, i, op->experts);
        weights[i] = llm_exp(logits[chosen[i]] - logits[chosen[0]]);
    }
    float sum = 0;
    for (uint32_t i = 0; i < op->used && op->normed; i++)
        sum += weights[i];
    for (uint32_t e = 0; e < op->experts && !op->normed; e++)
        sum += llm_exp(logits[e] - logits[chosen[0]]);
    for (uint32_t i = 0; i < op->used; i++)
        weights[i] = weights[i] / sum * op->scale;
}

void llm_ram_add(const struct llm_op_add *op, uint32_t row)
{
    float *x = llm_ram_floats(op->x) + (size_t)row * op->width;
    const float *y = llm_ram_floats(op->y) + (size_t)row * op->terms * op->width;
    const float *weights = llm_ram_maybe(op->weights);
    assert(weights || op->terms == 1);
    for (uint32_t i = 0; i < op->width; i++) {
        float sum = weights ? 0 : y[i];
        for (uint32_t t = 0; t < op->terms && weights; t++)
            sum = fmaf(weights[(size_t)row * op->terms + t], y[(size_t)t * op->width + i], sum);
        x[i] += op->scale * sum;
    }
}

void llm_ram_scale(const struct llm_op_scale *op, uint32_t row)
{
    float *x = llm_ram_floats(op->x) + (size_t)row * op->width;
    for (uint32_t i = 0; i < op->width; i++)
        x[i] = llm_soft_cap(op->scale * x[i], op->cap);
}
