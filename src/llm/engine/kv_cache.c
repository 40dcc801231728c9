#include "llm/engine/kv_cache.h"

#include "base/log.h"
#include "llm/engine/engine.h"
#include "llm/model/why.h"
#include "page/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Freed pages of a layer that stay mapped, so that the next prompt of a thousand positions need not
 * map any. */
enum { RESERVE_PAGES = 16 };

struct page {
    uint16_t lists; /* that have it */
    bool is_held;
};

static_assert(LLM_SEQUENCES_MAX < UINT16_MAX, "a page is in one list of a sequence at most");

struct llm_kv_cache {
    struct llm_backend *backend;
    struct llm_kv_memory *kv;
    struct page_alloc *alloc;
    struct page *pages; /* by id */
    uint32_t idle;
    uint64_t row_bytes; /* of K or V of a position */
    bool (*reclaim)(void *user);
    void *user;
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
    cache->row_bytes = shape.row_values * sizeof(uint16_t);
    cache->pages = calloc(shape.pages, sizeof *cache->pages);
    rc = cache->pages ? backend->ops->kv_create(backend, &shape, &cache->kv, why)
                      : llm_why(why, -ENOMEM, "no memory for a table of %u KV pages", shape.pages);
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
    free(cache->pages);
    free(cache);
}

void llm_kv_cache_pages(struct llm_kv_cache *cache, uint32_t *used, uint32_t *all)
{
    struct page_alloc_stats stats;
    page_alloc_stats(cache->alloc, &stats);
    *used = stats.used - cache->idle;
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

/* With idle pages, if there are no others. */
static int allocate(struct llm_kv_cache *cache, uint32_t *ids, uint32_t count, char *why)
{
    struct page_error error = {0};
    int rc;
    do
        rc = page_alloc_pages(cache->alloc, ids, count, &error);
    while (rc == -ENOSPC && cache->reclaim && cache->reclaim(cache->user));
    if (rc)
        return llm_why(why, rc, "KV pages: %s", error.text);
    for (uint32_t i = 0; i < count; i++) {
        assert(cache->pages[ids[i]].lists == 0 && !cache->pages[ids[i]].is_held);
        cache->pages[ids[i]].lists = 1;
    }
    return 0;
}

static void free_pages(struct llm_kv_cache *cache, const uint32_t *ids, uint32_t count)
{
    struct page_error error = {0};
    /* On failure, too, the allocator has the pages again. */
    if (count && page_alloc_free(cache->alloc, ids, count, &error))
        hw_warn(HW_CAT_LLM, "KV pages stay mapped: %s", error.text);
}

/* A list gives the page up; true: it is to be freed. */
static bool leave(struct llm_kv_cache *cache, uint32_t id)
{
    struct page *page = &cache->pages[id];
    assert(page->lists > 0);
    page->lists--;
    cache->idle += page->lists == 0 && page->is_held;
    return page->lists == 0 && !page->is_held;
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
        int rc = allocate(cache, pages->ids + pages->count, count, why);
        if (rc) {
            llm_kv_cache_shorten(cache, pages, before * LLM_KV_POSITIONS);
            return rc;
        }
        pages->count += count;
    }
    return 0;
}

void llm_kv_cache_shorten(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t positions)
{
    uint32_t keep = pages_for(positions);
    while (pages->count > keep) {
        uint32_t rest = pages->count - keep, freed = 0;
        uint32_t count = rest < PAGE_BATCH_MAX ? rest : PAGE_BATCH_MAX;
        pages->count -= count;
        uint32_t *ids = pages->ids + pages->count;
        for (uint32_t i = 0; i < count; i++) {
            if (leave(cache, ids[i]))
                ids[freed++] = ids[i];
        }
        free_pages(cache, ids, freed);
    }
    if (positions == 0) {
        free(pages->ids);
        *pages = (struct llm_pages){0};
    }
}

/* ---- pages of several lists ---- */

static void join(struct llm_kv_cache *cache, uint32_t id)
{
    struct page *page = &cache->pages[id];
    assert(page->is_held);
    cache->idle -= page->lists == 0;
    page->lists++;
}

int llm_kv_cache_share(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t id)
{
    if (make_room(pages, pages->count + 1))
        return -ENOMEM;
    join(cache, id);
    pages->ids[pages->count++] = id;
    return 0;
}

void llm_kv_cache_replace(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t index,
                          uint32_t id)
{
    uint32_t old = pages->ids[index];
    if (old == id)
        return;
    join(cache, id);
    pages->ids[index] = id;
    if (leave(cache, old))
        free_pages(cache, &old, 1);
}

static int copy_page(struct llm_kv_cache *cache, uint32_t from, uint32_t to, void *bytes, char *why)
{
    int rc = 0;
    for (unsigned v = 0; v < 2 && rc == 0; v++) {
        struct llm_kv_rows rows = {.v = v, .page = from, .count = LLM_KV_POSITIONS};
        rc = cache->backend->ops->kv_read(cache->kv, &rows, bytes, why);
        rows.page = to;
        if (rc == 0)
            rc = cache->backend->ops->kv_write(cache->kv, &rows, bytes, why);
    }
    return rc;
}

int llm_kv_cache_own(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t index, char *why)
{
    assert(index < pages->count);
    uint32_t old = pages->ids[index], copy;
    if (cache->pages[old].lists == 1 && !cache->pages[old].is_held)
        return 0;
    void *bytes = malloc(LLM_KV_POSITIONS * cache->row_bytes);
    int rc = bytes ? allocate(cache, &copy, 1, why)
                   : llm_why(why, -ENOMEM, "no memory to copy a KV page");
    if (rc == 0) {
        rc = copy_page(cache, old, copy, bytes, why);
        pages->ids[index] = rc ? old : copy;
        uint32_t left = rc ? copy : old;
        if (leave(cache, left))
            free_pages(cache, &left, 1);
    }
    free(bytes);
    return rc;
}

void llm_kv_cache_hold(struct llm_kv_cache *cache, uint32_t id)
{
    assert(cache->pages[id].lists > 0 && !cache->pages[id].is_held);
    cache->pages[id].is_held = true;
}

void llm_kv_cache_release(struct llm_kv_cache *cache, uint32_t id)
{
    assert(cache->pages[id].is_held);
    cache->pages[id].is_held = false;
    if (cache->pages[id].lists > 0)
        return;
    cache->idle--;
    free_pages(cache, &id, 1);
}

bool llm_kv_cache_is_idle(const struct llm_kv_cache *cache, uint32_t id)
{
    return cache->pages[id].is_held && cache->pages[id].lists == 0;
}

void llm_kv_cache_set_reclaim(struct llm_kv_cache *cache, bool (*reclaim)(void *user), void *user)
{
    cache->reclaim = reclaim;
    cache->user = user;
}
