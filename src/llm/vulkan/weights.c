#include "llm/vulkan/weights.h"

#include "base/attr.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How a file's block is split: the body, of whole quads, and parts that follow the row's bodies,
 * all first parts before all second ones.  Zeros fill up a body. */
enum { PARTS_MAX = 2 };
struct part {
    uint32_t at, bytes;
};
struct split {
    enum llm_dtype dtype;
    struct part body, parts[PARTS_MAX];
};

static const struct split splits[] = {
    {LLM_Q8_0, {2, 32}, {{0, 2}}},    {LLM_Q4_0, {2, 16}, {{0, 2}}},
    {LLM_Q4_1, {4, 16}, {{0, 4}}},    {LLM_Q5_0, {6, 16}, {{2, 4}, {0, 2}}},
    {LLM_Q5_1, {8, 16}, {{0, 8}}},    {LLM_IQ4_NL, {2, 16}, {{0, 2}}},
    {LLM_MXFP4, {1, 16}, {{0, 1}}},   {LLM_Q2_K, {0, 80}, {{80, 4}}},
    {LLM_Q3_K, {0, 110}, {{0, 0}}},   {LLM_Q6_K, {0, 208}, {{208, 2}}},
    {LLM_IQ4_XS, {8, 128}, {{0, 8}}},
};

/* NULL: rows stay as they are. */
static const struct split *split_of(enum llm_dtype dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(splits); i++) {
        if (splits[i].dtype == dtype)
            return &splits[i];
    }
    return NULL;
}

static uint64_t quads(uint64_t bytes)
{
    return (bytes + 15) / 16;
}

static uint64_t stride_for(enum llm_dtype dtype, uint64_t width)
{
    uint64_t blocks = width / llm_dtype_block(dtype), after = 0;
    const struct split *split = split_of(dtype);
    if (!split)
        return quads(llm_dtype_bytes(dtype, width));
    for (int i = 0; i < PARTS_MAX; i++)
        after += blocks * split->parts[i].bytes;
    return blocks * quads(split->body.bytes) + quads(after);
}

struct source {
    const uint8_t *rows;
    uint64_t row_bytes, stride_bytes;
    const struct split *split; /* or NULL */
    uint32_t block_bytes;
};

/* Copies one part of every block; returns where the next part begins. */
static uint8_t *gather(const struct source *s, const struct part *part, uint64_t stride,
                       const uint8_t *src, uint8_t *dst)
{
    for (uint64_t b = s->row_bytes / s->block_bytes; b; b--, src += s->block_bytes, dst += stride)
        memcpy(dst, src + part->at, part->bytes);
    return dst;
}

static void fill_row(const struct source *s, const uint8_t *src, uint8_t *dst)
{
    if (!s->split) {
        memcpy(dst, src, s->row_bytes);
        memset(dst + s->row_bytes, 0, s->stride_bytes - s->row_bytes);
        return;
    }
    memset(dst, 0, s->stride_bytes);
    dst = gather(s, &s->split->body, 16 * quads(s->split->body.bytes), src, dst);
    for (int i = 0; i < PARTS_MAX; i++)
        dst = gather(s, &s->split->parts[i], s->split->parts[i].bytes, src, dst);
}

static void fill_rows(const void *user, uint64_t at, uint64_t bytes, uint8_t *dst)
{
    const struct source *s = user;
    uint64_t row = at / s->stride_bytes;
    assert(at % s->stride_bytes == 0 && bytes % s->stride_bytes == 0);
    if (!s->split && s->row_bytes == s->stride_bytes) {
        memcpy(dst, s->rows + at, bytes);
        return;
    }
    for (uint64_t done = 0; done < bytes; done += s->stride_bytes, row++)
        fill_row(s, s->rows + row * s->row_bytes, dst + done);
}

/* Takes memory for the weight's rows, and fills it from the tensor. */
static int upload(struct llm_vk_memory *m, struct llm_weight *w, char *why)
{
    const struct llm_tensor *tensor = w->tensor;
    struct source s = {.row_bytes = llm_dtype_bytes(tensor->dtype, tensor->dims[0]),
                       .stride_bytes = 16 * (uint64_t)w->stride,
                       .split = split_of(tensor->dtype),
                       .block_bytes = llm_dtype_block_bytes(tensor->dtype)};
    uint64_t bytes = w->count * s.stride_bytes;
    assert((w->first + w->count) * s.row_bytes <= tensor->bytes);
    s.rows = (const uint8_t *)tensor->data + w->first * s.row_bytes;
    int rc = llm_vk_piece_take(m, bytes, tensor->name, &w->piece, why);
    if (rc == 0)
        rc = llm_vk_upload(m, llm_vk_piece_buffer(&w->piece), w->piece.offset, bytes,
                           s.stride_bytes, fill_rows, &s, why);
    if (rc)
        llm_vk_piece_give(m, &w->piece);
    return rc;
}

int llm_vk_weight_create(struct llm_vk_memory *m, struct llm_vk_weights *all,
                         const struct llm_tensor *tensor, uint64_t first, uint64_t rows,
                         struct llm_weight **out, char *why)
{
    uint64_t stride = stride_for(tensor->dtype, tensor->dims[0]);
    assert(rows > 0);
    if (rows * stride * 4 > INT32_MAX) /* shaders count words in 31 bits */
        return llm_why(why, -ENOMEM, "the weight %s is larger than 8 GiB", tensor->name);
    struct llm_weight *weight = calloc(1, sizeof *weight);
    if (!weight)
        return llm_why(why, -ENOMEM, "no memory for the weight %s", tensor->name);
    *weight = (struct llm_weight){.dtype = tensor->dtype,
                                  .width = (uint32_t)tensor->dims[0],
                                  .count = (uint32_t)rows,
                                  .stride = (uint32_t)stride,
                                  .tensor = tensor,
                                  .first = first};
    int rc = upload(m, weight, why);
    if (rc) {
        free(weight);
        return rc;
    }
    TAILQ_INSERT_TAIL(all, weight, entry);
    *out = weight;
    return 0;
}

void llm_vk_weight_destroy(struct llm_vk_memory *m, struct llm_vk_weights *all,
                           struct llm_weight *weight)
{
    if (!weight)
        return;
    TAILQ_REMOVE(all, weight, entry);
    llm_vk_piece_give(m, &weight->piece);
    free(weight);
}

/* A recorded step names weights by address only: at other addresses it is recorded again. */
uint64_t llm_vk_weights_leave(struct llm_vk_memory *m, struct llm_vk_weights *all)
{
    uint64_t before = m->device->taken;
    struct llm_weight *weight;
    TAILQ_FOREACH (weight, all, entry)
        llm_vk_piece_give(m, &weight->piece);
    return before - m->device->taken;
}

int llm_vk_weights_return(struct llm_vk_memory *m, struct llm_vk_weights *all, char *why)
{
    struct llm_weight *weight = TAILQ_FIRST(all);
    while (weight && weight->piece.slab)
        weight = TAILQ_NEXT(weight, entry);
    if (!weight)
        return 0;
    int rc = upload(m, weight, why);
    return rc ? rc : -EAGAIN;
}
