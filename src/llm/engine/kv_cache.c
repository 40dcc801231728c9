#include "llm/engine/kv_cache.h"

#include "base/log.h"
#include "llm/model/why.h"
#include "page/alloc.h"

#include <errno.h>
#include <stdlib.h>

/* Freed pages of a layer that stay mapped, so that the next prompt of a thousand positions need not
 * map any. */
enum { RESERVE_PAGES = 16 };

struct llm_kv_cache {
    struct llm_backend *backend;
    struct llm_kv_memory *kv;
    struct page_alloc *alloc;
};

static int map_pages(void *user, const uint32_t *ids, size_t count, struct page_error *why)
{
    struct llm_kv_cache *cache = user;
    char text[LLM_WHY_CHARS] = "";
    int rc = cache->backend->ops->kv_map(cache->kv, ids, count, text);
    return rc ? page_fail(why, rc, 0, "%s", text) : 0;
}

static int unmap_pages(void *user, const uint32_t *ids, size_t count, struct page_error *why)
{
    struct llm_kv_cache *cache = user;
    char text[LLM_WHY_CHARS] = "";
    int rc = cache->backend->ops->kv_unmap(cache->kv, ids, count, text);
    return rc ? page_fail(why, rc, 0, "%s", text) : 0;
}

static int make_alloc(struct llm_kv_cache *cache, uint32_t pages, uint32_t layers, char *why)
{
    uint32_t reserve = RESERVE_PAGES * layers;
    struct page_alloc_config config = {.pages = pages,
                                       .map = map_pages,
                                       .unmap = unmap_pages,
                                       .user = cache,
                                       .reserve_high = pages < reserve ? pages : reserve};
    struct page_error error = {0};
    int rc = page_alloc_create(&config, &cache->alloc, &error);
    return rc ? llm_why(why, rc, "KV pages: %s", error.text) : 0;
}

static int count_pages(const struct llm_config *config, uint64_t bytes, struct llm_kv_shape *shape,
                       char *why)
{
    uint64_t page = UINT64_C(2) * LLM_KV_POSITIONS * shape->row_values * sizeof(uint16_t);
    uint64_t pages = bytes / page;
    if (pages < config->layers)
        return llm_why(why, -ENOMEM, "%llu bytes of KV are not a page of %llu for each layer",
                       (unsigned long long)bytes, (unsigned long long)page);
    shape->pages = pages < PAGE_COUNT_MAX ? (uint32_t)pages : PAGE_COUNT_MAX;
    return 0;
}

int llm_kv_cache_create(struct llm_backend *backend, const struct llm_config *config,
                        uint64_t bytes, struct llm_kv_cache **out, char *why)
{
    struct llm_kv_shape shape = {.row_values = config->kv_heads * config->head_dim};
    int rc = count_pages(config, bytes, &shape, why);
    if (rc)
        return rc;
    struct llm_kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return llm_why(why, -ENOMEM, "no memory for the KV cache");
    cache->backend = backend;
    rc = backend->ops->kv_create(backend, &shape, &cache->kv, why);
    if (rc == 0)
        rc = make_alloc(cache, shape.pages, config->layers, why);
    if (rc) {
        llm_kv_cache_destroy(cache);
        return rc;
    }
    *out = cache;
    return 0;
}

void llm_kv_cache_destroy(struct llm_kv_cache *cache)
{
    if (!cache)
        return;
    if (cache->alloc)
        page_alloc_destroy(cache->alloc);
    cache->backend->ops->kv_destroy(cache->backend, cache->kv);
    free(cache);
}

void llm_kv_cache_pages(struct llm_kv_cache *cache, uint32_t *used, uint32_t *all)
{
    struct page_alloc_stats stats;
    page_alloc_stats(cache->alloc, &stats);
    *used = stats.used;
    *all = stats.used + stats.free + stats.reserved + stats.reclaimed;
}

struct llm_kv_memory *llm_kv_cache_memory(struct llm_kv_cache *cache)
{
    return cache->kv;
}

static uint32_t pages_for(uint32_t positions)
{
    return (uint32_t)(((uint64_t)positions + LLM_KV_POSITIONS - 1) / LLM_KV_POSITIONS);
}

static int make_room(struct llm_pages *pages, uint32_t count)
{
    if (count <= pages->room)
        return 0;
    uint32_t room = count > 2 * pages->room ? count : 2 * pages->room;
    uint32_t *ids = realloc(pages->ids, room * sizeof *ids);
    if (!ids)
        return -ENOMEM;
    pages->ids = ids;
    pages->room = room;
    return 0;
}

int llm_kv_cache_extend(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t positions,
                        char *why)
{
    uint32_t before = pages->count, needed = pages_for(positions);
    if (needed <= before)
        return 0;
    if (make_room(pages, needed))
        return llm_why(why, -ENOMEM, "no memory for a list of %u KV pages", needed);
    while (pages->count < needed) {
        uint32_t rest = needed - pages->count;
        uint32_t count = rest < PAGE_BATCH_MAX ? rest : PAGE_BATCH_MAX;
        struct page_error error = {0};
        int rc = page_alloc_pages(cache->alloc, pages->ids + pages->count, count, &error);
        if (rc) {
            llm_kv_cache_shorten(cache, pages, before * LLM_KV_POSITIONS);
            return llm_why(why, rc, "KV pages: %s", error.text);
        }
        pages->count += count;
    }
    return 0;
}

void llm_kv_cache_shorten(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t positions)
{
    uint32_t keep = pages_for(positions);
    while (pages->count > keep) {
        uint32_t rest = pages->count - keep;
        uint32_t count = rest < PAGE_BATCH_MAX ? rest : PAGE_BATCH_MAX;
        struct page_error error = {0};
        pages->count -= count;
        /* On failure, too, the allocator has the pages again. */
        if (page_alloc_free(cache->alloc, pages->ids + pages->count, count, &error))
            hw_warn(HW_CAT_LLM, "KV pages stay mapped: %s", error.text);
    }
    if (positions == 0) {
        free(pages->ids);
        *pages = (struct llm_pages){0};
    }
}
