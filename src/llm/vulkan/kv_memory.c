#include "llm/vulkan/kv_memory.h"

#include "base/log.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    HALF = sizeof(uint16_t),
    WORD = 4,
    ROW_ALIGN = 8, /* values */
};

struct llm_kv_memory {
    struct llm_vk_memory *memory;
    struct llm_kv_shape shape;
    uint32_t row_words;
    uint64_t page_bytes;
    uint32_t slab_count;
    struct llm_vk_block slabs[]; /* zero: not mapped */
};

int llm_vk_kv_create(struct llm_vk_memory *m, const struct llm_kv_shape *shape,
                     struct llm_kv_memory **out, char *why)
{
    uint64_t stride = (shape->row_values + UINT64_C(7)) / ROW_ALIGN * ROW_ALIGN * HALF;
    assert(shape->pages > 0 && shape->run > 0);
    if (stride * LLM_KV_POSITIONS > LLM_VK_MOVED_BYTES) /* one move may be half a page */
        return llm_why(why, -ENOMEM, "KV rows of %u values are too wide for a Vulkan device",
                       shape->row_values);
    uint32_t slabs = shape->pages / shape->run;
    struct llm_kv_memory *kv = calloc(1, sizeof *kv + slabs * sizeof kv->slabs[0]);
    if (!kv)
        return llm_why(why, -ENOMEM, "no memory for the KV cache");
    kv->memory = m;
    kv->shape = *shape;
    kv->row_words = (uint32_t)(stride / WORD);
    kv->page_bytes = stride * LLM_KV_POSITIONS * 2;
    kv->slab_count = slabs;
    *out = kv;
    return 0;
}

void llm_vk_kv_destroy(struct llm_kv_memory *kv)
{
    char why[LLM_WHY_CHARS];
    if (!kv)
        return;
    if (llm_vk_flush(kv->memory, why)) /* queued copies name the slabs */
        hw_info(HW_CAT_LLM, "rows of KV were not written: %s", why);
    for (uint32_t i = 0; i < kv->slab_count; i++)
        llm_vk_block_destroy(kv->memory->device, &kv->slabs[i]);
    free(kv);
}

uint64_t llm_vk_kv_slab(const struct llm_kv_memory *kv)
{
    return kv->page_bytes * kv->shape.run;
}

int llm_vk_kv_map(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why)
{
    for (size_t i = 0; i < count; i++) {
        struct llm_vk_block *slab = &kv->slabs[slabs[i]];
        assert(slabs[i] < kv->slab_count && !slab->buffer);
        int rc = llm_vk_block_create(kv->memory->device, llm_vk_kv_slab(kv), LLM_VK_LOCAL,
                                     "the KV cache", slab, why);
        if (rc) {
            while (i-- > 0)
                llm_vk_block_destroy(kv->memory->device, &kv->slabs[slabs[i]]);
            return rc;
        }
    }
    return 0;
}

int llm_vk_kv_unmap(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why)
{
    int rc = llm_vk_flush(kv->memory, why); /* queued copies name the slabs */
    if (rc)
        return rc;
    for (size_t i = 0; i < count; i++) {
        assert(slabs[i] < kv->slab_count && kv->slabs[slabs[i]].buffer);
        llm_vk_block_destroy(kv->memory->device, &kv->slabs[slabs[i]]);
    }
    return 0;
}

static const struct llm_vk_block *slab_of(const struct llm_kv_memory *kv, uint32_t id)
{
    assert(id < kv->shape.pages && kv->slabs[id / kv->shape.run].buffer);
    return &kv->slabs[id / kv->shape.run];
}

/* Where a page begins in its slab. */
static uint64_t page_at(const struct llm_kv_memory *kv, uint32_t id)
{
    return id % kv->shape.run * kv->page_bytes;
}

VkDeviceAddress llm_vk_kv_page(const struct llm_kv_memory *kv, uint32_t id)
{
    return slab_of(kv, id)->address + page_at(kv, id);
}

uint32_t llm_vk_kv_row_values(const struct llm_kv_memory *kv)
{
    return kv->shape.row_values;
}

uint32_t llm_vk_kv_row_words(const struct llm_kv_memory *kv)
{
    return kv->row_words;
}

uint32_t llm_vk_kv_words(const struct llm_kv_memory *kv, unsigned v)
{
    assert(v < 2);
    return v * LLM_KV_POSITIONS * kv->row_words;
}

/* Where rows lie in their slab's buffer. */
static uint64_t rows_at(const struct llm_kv_memory *kv, const struct llm_kv_rows *rows)
{
    assert(rows->first + rows->count <= LLM_KV_POSITIONS);
    uint64_t words = llm_vk_kv_words(kv, rows->v);
    return page_at(kv, rows->page) + (words + (uint64_t)rows->first * kv->row_words) * WORD;
}

/* Rows as a copy: they lie `stride` bytes apart. */
static struct llm_vk_move move_of(const struct llm_kv_memory *kv, const struct llm_kv_rows *rows)
{
    const struct llm_vk_block *slab = slab_of(kv, rows->page);
    return (struct llm_vk_move){.buffer = slab->buffer,
                                .offset = rows_at(kv, rows),
                                .address = slab->address + rows_at(kv, rows),
                                .bytes = (uint64_t)rows->count * kv->row_words * WORD};
}

int llm_vk_kv_write(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, const void *src,
                    char *why)
{
    uint64_t stride = (uint64_t)kv->row_words * WORD;
    uint64_t row_bytes = (uint64_t)kv->shape.row_values * HALF;
    struct llm_vk_move move = move_of(kv, rows);
    uint8_t *room;
    int rc = llm_vk_queue(kv->memory, &move, &room, why);
    if (rc)
        return rc;
    if (row_bytes == stride) {
        memcpy(room, src, move.bytes);
        return 0;
    }
    for (uint32_t r = 0; r < rows->count; r++, room += stride) {
        memcpy(room, (const uint8_t *)src + r * row_bytes, row_bytes);
        memset(room + row_bytes, 0, stride - row_bytes);
    }
    return 0;
}

/* Appends the rows of a move to dst. */
static uint8_t *put_rows(const struct llm_kv_memory *kv, const uint8_t *from, uint32_t count,
                         uint8_t *dst)
{
    uint64_t stride = (uint64_t)kv->row_words * WORD;
    uint64_t row_bytes = (uint64_t)kv->shape.row_values * HALF;
    if (row_bytes == stride)
        return (uint8_t *)memcpy(dst, from, count * stride) + count * stride;
    for (uint32_t r = 0; r < count; r++, from += stride, dst += row_bytes)
        memcpy(dst, from, row_bytes);
    return dst;
}

/* As many of the rows as one submission takes, as moves. */
static uint32_t next_moves(const struct llm_kv_memory *kv, const struct llm_kv_rows *rows,
                           uint32_t count, struct llm_vk_move *moves)
{
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (; n < count && n < LLM_VK_MOVES_MAX; n++) {
        moves[n] = move_of(kv, &rows[n]);
        bytes += moves[n].bytes;
        if (bytes > LLM_VK_MOVED_BYTES)
            break;
    }
    assert(n > 0 || count == 0);
    return n;
}

/* While the device gathers rows in one half, those of the other are copied. */
int llm_vk_kv_read_all(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, uint32_t count,
                       void *dst, char *why)
{
    struct llm_vk_move moves[LLM_VK_MOVES_MAX];
    uint8_t *to = dst;
    uint32_t n = next_moves(kv, rows, count, moves), half = 0;
    int rc = n ? llm_vk_gather(kv->memory, moves, n, half, why) : 0;
    while (n && rc == 0) {
        const uint8_t *from;
        const struct llm_kv_rows *here = rows;
        uint32_t here_count = n;
        rc = llm_vk_gathered(kv->memory, half, &from, why);
        rows += n;
        count -= n;
        half = 1 - half;
        n = next_moves(kv, rows, count, moves);
        if (rc == 0 && n)
            rc = llm_vk_gather(kv->memory, moves, n, half, why);
        for (uint32_t i = 0; i < here_count && rc == 0; i++) {
            to = put_rows(kv, from, here[i].count, to);
            from += (uint64_t)here[i].count * kv->row_words * WORD;
        }
    }
    return rc;
}

int llm_vk_kv_read(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst, char *why)
{
    return llm_vk_kv_read_all(kv, rows, 1, dst, why);
}
