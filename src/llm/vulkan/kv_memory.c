#include "llm/vulkan/kv_memory.h"

#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES (UINT64_C(32) << 20) /* drivers allow at least 4096 allocations: 128 GiB */

enum {
    WORD_BITS = 64,
    SLAB_WORDS = 16, /* pages of small models are a few KiB: slabs of 16 MiB */
    SLAB_PAGES_MAX = WORD_BITS * SLAB_WORDS, /* pages of a slab: a bit each */
    HALF = sizeof(uint16_t),
    WORD = 4,
    ROW_ALIGN = 8, /* values */
};

struct slab {
    struct llm_vk_block block; /* zero: this entry is free */
    uint64_t used[SLAB_WORDS]; /* a bit a page */
    uint32_t used_count;
};

struct llm_kv_memory {
    struct llm_vk_memory *memory;
    struct llm_kv_shape shape;
    uint32_t row_words;
    uint64_t page_bytes;
    struct slab *slabs;
    uint32_t slab_count; /* enough for all pages */
    uint32_t slab_pages; /* pages of a slab */
    uint32_t homes[];    /* of a page id: slab * slab_pages + index + 1; 0: not mapped */
};

static void measure(struct llm_kv_memory *kv, const struct llm_kv_shape *shape, uint64_t stride)
{
    kv->shape = *shape;
    kv->row_words = (uint32_t)(stride / WORD);
    kv->page_bytes = stride * LLM_KV_POSITIONS * 2;
    uint64_t pages = SLAB_BYTES / kv->page_bytes;
    pages = pages < 1 ? 1 : pages > SLAB_PAGES_MAX ? SLAB_PAGES_MAX : pages;
    kv->slab_pages = pages < shape->pages ? (uint32_t)pages : shape->pages;
    kv->slab_count = (shape->pages + kv->slab_pages - 1) / kv->slab_pages;
}

int llm_vk_kv_create(struct llm_vk_memory *m, const struct llm_kv_shape *shape,
                     struct llm_kv_memory **out, char *why)
{
    uint64_t stride = (shape->row_values + UINT64_C(7)) / ROW_ALIGN * ROW_ALIGN * HALF;
    uint64_t words = stride / WORD * LLM_KV_POSITIONS * 2;
    assert(shape->pages > 0);
    if (words > INT32_MAX) /* shaders count in 31 bits */
        return llm_why(why, -ENOMEM, "a KV page of %llu words is too large for a Vulkan device",
                       (unsigned long long)words);
    struct llm_kv_memory *kv = calloc(1, sizeof *kv + shape->pages * sizeof kv->homes[0]);
    if (!kv)
        return llm_why(why, -ENOMEM, "no memory for the KV cache");
    kv->memory = m;
    measure(kv, shape, stride);
    kv->slabs = calloc(kv->slab_count, sizeof *kv->slabs);
    if (!kv->slabs) {
        free(kv);
        return llm_why(why, -ENOMEM, "no memory for the KV cache");
    }
    *out = kv;
    return 0;
}

void llm_vk_kv_destroy(struct llm_kv_memory *kv)
{
    if (!kv)
        return;
    for (uint32_t i = 0; i < kv->slab_count; i++)
        llm_vk_block_destroy(kv->memory->device, &kv->slabs[i].block);
    free(kv->slabs);
    free(kv);
}

static struct slab *slab_of(const struct llm_kv_memory *kv, uint32_t id)
{
    assert(id < kv->shape.pages && kv->homes[id]);
    return &kv->slabs[(kv->homes[id] - 1) / kv->slab_pages];
}

static uint32_t index_in_slab(const struct llm_kv_memory *kv, uint32_t id)
{
    return (kv->homes[id] - 1) % kv->slab_pages;
}

static void release(struct llm_kv_memory *kv, uint32_t id)
{
    struct slab *slab = slab_of(kv, id);
    uint32_t index = index_in_slab(kv, id);
    slab->used[index / WORD_BITS] &= ~(UINT64_C(1) << index % WORD_BITS);
    kv->homes[id] = 0;
    if (--slab->used_count == 0)
        llm_vk_block_destroy(kv->memory->device, &slab->block);
}

/* A slab with a free page; preferably one that has memory. */
static struct slab *find_slab(struct llm_kv_memory *kv)
{
    struct slab *empty = NULL;
    for (uint32_t i = 0; i < kv->slab_count; i++) {
        struct slab *slab = &kv->slabs[i];
        if (slab->used_count != 0 && slab->used_count != kv->slab_pages)
            return slab;
        if (slab->used_count == 0 && !empty)
            empty = slab;
    }
    assert(empty); /* slabs have room for all pages */
    return empty;
}

/* The slab is not full; its pages are the first bits. */
static uint32_t take_free(struct slab *slab)
{
    uint32_t word = 0;
    while (slab->used[word] == UINT64_MAX)
        word++;
    uint32_t bit = (uint32_t)__builtin_ctzll(~slab->used[word]);
    slab->used[word] |= UINT64_C(1) << bit;
    slab->used_count++;
    return word * WORD_BITS + bit;
}

static int acquire(struct llm_kv_memory *kv, uint32_t id, char *why)
{
    struct slab *slab = find_slab(kv);
    assert(id < kv->shape.pages && !kv->homes[id]);
    if (!slab->block.buffer) {
        int rc = llm_vk_block_create(kv->memory->device, kv->slab_pages * kv->page_bytes,
                                     LLM_VK_LOCAL, "the KV cache", &slab->block, why);
        if (rc)
            return rc;
    }
    kv->homes[id] = (uint32_t)(slab - kv->slabs) * kv->slab_pages + take_free(slab) + 1;
    return 0;
}

int llm_vk_kv_map(struct llm_kv_memory *kv, const uint32_t *ids, size_t count, char *why)
{
    for (size_t i = 0; i < count; i++) {
        int rc = acquire(kv, ids[i], why);
        if (rc) {
            while (i-- > 0)
                release(kv, ids[i]);
            return rc;
        }
    }
    return 0;
}

int llm_vk_kv_unmap(struct llm_kv_memory *kv, const uint32_t *ids, size_t count, char *why)
{
    (void)why;
    for (size_t i = 0; i < count; i++)
        release(kv, ids[i]);
    return 0;
}

VkDeviceAddress llm_vk_kv_page(const struct llm_kv_memory *kv, uint32_t id)
{
    return slab_of(kv, id)->block.address + index_in_slab(kv, id) * kv->page_bytes;
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
    return index_in_slab(kv, rows->page) * kv->page_bytes +
           (words + (uint64_t)rows->first * kv->row_words) * WORD;
}

struct rows_source {
    const struct llm_kv_memory *kv;
    const uint8_t *rows;
};

static void fill_rows(const void *user, uint64_t at, uint64_t bytes, uint8_t *dst)
{
    const struct rows_source *s = user;
    uint64_t stride = (uint64_t)s->kv->row_words * WORD;
    uint64_t row_bytes = (uint64_t)s->kv->shape.row_values * HALF;
    for (uint64_t row = at / stride; bytes; bytes -= stride, dst += stride, row++) {
        memcpy(dst, s->rows + row * row_bytes, row_bytes);
        memset(dst + row_bytes, 0, stride - row_bytes);
    }
}

int llm_vk_kv_write(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, const void *src,
                    char *why)
{
    uint64_t stride = (uint64_t)kv->row_words * WORD;
    struct rows_source source = {.kv = kv, .rows = src};
    return llm_vk_upload(kv->memory, slab_of(kv, rows->page)->block.buffer, rows_at(kv, rows),
                         rows->count * stride, stride, fill_rows, &source, why);
}

int llm_vk_kv_read(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst, char *why)
{
    uint64_t stride = (uint64_t)kv->row_words * WORD, bytes = rows->count * stride;
    uint64_t row_bytes = (uint64_t)kv->shape.row_values * HALF;
    VkBuffer buffer = slab_of(kv, rows->page)->block.buffer;
    if (row_bytes == stride)
        return llm_vk_download(kv->memory, buffer, rows_at(kv, rows), bytes, dst, why);
    uint8_t *padded = malloc(bytes);
    if (!padded)
        return llm_why(why, -ENOMEM, "no memory for rows of KV");
    int rc = llm_vk_download(kv->memory, buffer, rows_at(kv, rows), bytes, padded, why);
    for (uint32_t r = 0; rc == 0 && r < rows->count; r++)
        memcpy((uint8_t *)dst + r * row_bytes, padded + r * stride, row_bytes);
    free(padded);
    return rc;
}
