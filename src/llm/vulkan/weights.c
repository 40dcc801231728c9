#include "llm/vulkan/weights.h"

#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How a file's block is split: the part that stays, and the scale that goes after the row. */
struct split {
    uint32_t body_at, body_bytes, scale_at;
};
enum { SCALE_BYTES = 2 };

static bool split_of(enum llm_dtype dtype, struct split *out)
{
    switch (dtype) {
    case LLM_Q8_0:
        *out = (struct split){.body_at = 2, .body_bytes = 32, .scale_at = 0};
        return true;
    case LLM_Q4_0:
        *out = (struct split){.body_at = 2, .body_bytes = 16, .scale_at = 0};
        return true;
    case LLM_Q6_K:
        *out = (struct split){.body_at = 0, .body_bytes = 208, .scale_at = 208};
        return true;
    default:
        return false;
    }
}

static uint64_t quads(uint64_t bytes)
{
    return (bytes + 15) / 16;
}

static uint64_t stride_for(enum llm_dtype dtype, uint64_t width)
{
    uint64_t blocks = width / llm_dtype_block(dtype);
    struct split split;
    if (split_of(dtype, &split))
        return quads(blocks * split.body_bytes) + quads(blocks * SCALE_BYTES);
    return quads(llm_dtype_bytes(dtype, width));
}

struct source {
    const uint8_t *rows;
    uint64_t row_bytes, stride_bytes;
    struct split split;
    bool is_split;
    uint32_t block_bytes;
};

static void fill_row(const struct source *s, const uint8_t *src, uint8_t *dst)
{
    if (!s->is_split) {
        memcpy(dst, src, s->row_bytes);
        memset(dst + s->row_bytes, 0, s->stride_bytes - s->row_bytes);
        return;
    }
    uint64_t blocks = s->row_bytes / s->block_bytes;
    uint8_t *scales = dst + 16 * quads(blocks * s->split.body_bytes);
    memset(dst, 0, s->stride_bytes);
    for (uint64_t b = 0; b < blocks; b++, src += s->block_bytes) {
        memcpy(dst + b * s->split.body_bytes, src + s->split.body_at, s->split.body_bytes);
        memcpy(scales + b * SCALE_BYTES, src + s->split.scale_at, SCALE_BYTES);
    }
}

static void fill_rows(const void *user, uint64_t at, uint64_t bytes, uint8_t *dst)
{
    const struct source *s = user;
    uint64_t row = at / s->stride_bytes;
    assert(at % s->stride_bytes == 0 && bytes % s->stride_bytes == 0);
    if (!s->is_split && s->row_bytes == s->stride_bytes) {
        memcpy(dst, s->rows + at, bytes);
        return;
    }
    for (uint64_t done = 0; done < bytes; done += s->stride_bytes, row++)
        fill_row(s, s->rows + row * s->row_bytes, dst + done);
}

int llm_vk_weight_create(struct llm_vk_memory *m, const struct llm_tensor *tensor, uint64_t first,
                         uint64_t rows, struct llm_weight **out, char *why)
{
    struct source s = {.row_bytes = llm_dtype_bytes(tensor->dtype, tensor->dims[0]),
                       .stride_bytes = 16 * stride_for(tensor->dtype, tensor->dims[0]),
                       .block_bytes = llm_dtype_block_bytes(tensor->dtype)};
    assert(rows > 0 && (first + rows) * s.row_bytes <= tensor->bytes);
    s.rows = (const uint8_t *)tensor->data + first * s.row_bytes;
    s.is_split = split_of(tensor->dtype, &s.split);
    if (rows * s.stride_bytes / 4 > INT32_MAX) /* shaders count words in 31 bits */
        return llm_why(why, -ENOMEM, "the weight %s is larger than 8 GiB", tensor->name);
    struct llm_weight *weight = calloc(1, sizeof *weight);
    if (!weight)
        return llm_why(why, -ENOMEM, "no memory for the weight %s", tensor->name);
    *weight = (struct llm_weight){.dtype = tensor->dtype,
                                  .width = (uint32_t)tensor->dims[0],
                                  .count = (uint32_t)rows,
                                  .stride = (uint32_t)(s.stride_bytes / 16)};
    uint64_t bytes = rows * s.stride_bytes;
    int rc = llm_vk_piece_take(m, bytes, tensor->name, &weight->piece, why);
    if (rc == 0)
        rc = llm_vk_upload(m, llm_vk_piece_buffer(&weight->piece), weight->piece.offset, bytes,
                           s.stride_bytes, fill_rows, &s, why);
    if (rc) {
        llm_vk_weight_destroy(m, weight);
        return rc;
    }
    *out = weight;
    return 0;
}

void llm_vk_weight_destroy(struct llm_vk_memory *m, struct llm_weight *weight)
{
    if (!weight)
        return;
    llm_vk_piece_give(m, &weight->piece);
    free(weight);
}
