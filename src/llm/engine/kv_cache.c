#include "llm/engine/kv_cache.h"

#include "base/grow.h"
#include "base/log.h"
#include "base/units.h"
#include "llm/engine/engine.h"
#include "llm/engine/stages.h"
#include "llm/model/why.h"
#include "page/slabs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum {
    RESERVE_PAGES = 16, /* freed pages of a layer that stay mapped, so that the next prompt of a
                         * thousand positions need not map any */
    SLABS_MIN = 16,     /* of a cache, where it has as many pages: each takes a driver a while */
    SLABS_SHARED = 256, /* the same under a limit: memory moves between models in slabs */
};

struct page {
    uint16_t lists; /* that have it */
    bool is_held;
};

static_assert(LLM_SEQUENCES_MAX < UINT16_MAX, "a page is in one list of a sequence at most");

/* Pages of one stage's layers, or of all. */
struct pool {
    struct llm_kv_cache *cache;
    struct page_slabs *slabs;
    uint32_t first; /* page */
    uint32_t first_layer, end_layer;
};

struct llm_kv_cache {
    struct llm_backend *backend;
    struct llm_kv_memory *kv;
    struct pool pools[LLM_STAGES_MAX];
    uint32_t pool_count;
    struct page_limit *limit; /* NULL: none */
    struct page *pages;       /* by id */
    uint32_t page_count, run;
    uint64_t slab_bytes;
    uint32_t idle;
    uint64_t row_bytes; /* of K or V of a position */
    bool (*reclaim)(void *user);
    void *user;
};

typedef int change(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why);

/* A pool's slabs count from 0, the backend's from the first pool's. */
static int change_slabs(const struct pool *pool, change *one, const uint32_t *ids, size_t count,
                        struct page_error *why)
{
    uint32_t slabs[PAGE_BATCH_MAX], first = pool->first / pool->cache->run;
    char text[LLM_WHY_CHARS] = "";
    assert(count <= PAGE_BATCH_MAX);
    for (size_t i = 0; i < count; i++)
        slabs[i] = first + ids[i];
    int rc = one(pool->cache->kv, slabs, count, text);
    return rc ? page_fail(why, rc, 0, "%s", text) : 0;
}

static int map_slabs(void *user, const uint32_t *ids, size_t count, struct page_error *why)
{
    const struct pool *pool = user;
    return change_slabs(pool, pool->cache->backend->ops->kv_map, ids, count, why);
}

static int unmap_slabs(void *user, const uint32_t *ids, size_t count, struct page_error *why)
{
    const struct pool *pool = user;
    return change_slabs(pool, pool->cache->backend->ops->kv_unmap, ids, count, why);
}

static int make_slabs(struct pool *pool, uint32_t pages, struct page_trace *trace, char *why)
{
    struct llm_kv_cache *cache = pool->cache;
    uint32_t layers = pool->end_layer - pool->first_layer;
    struct page_slabs_config config = {.pages = pages,
                                       .run = cache->run,
                                       .map = map_slabs,
                                       .unmap = unmap_slabs,
                                       .user = pool,
                                       .reserve = (RESERVE_PAGES * layers - 1) / cache->run + 1,
                                       .limit = cache->limit,
                                       .slab_bytes = cache->slab_bytes,
                                       .trace = trace};
    struct page_error error = {0};
    int rc = page_slabs_create(&config, &pool->slabs, &error);
    return rc ? llm_why(why, rc, "KV pages: %s", error.text) : 0;
}

/* Each stage has pages in proportion to its layers, so that all are full at the same length of
 * sequences.  No page less. */
static void divide(struct llm_kv_cache *cache, const struct llm_config *config,
                   struct llm_kv_shape *shape)
{
    const struct llm_stages *stages = cache->backend->stages;
    uint64_t all = shape->pages, run = shape->run, end = 0;
    shape->pools = cache->pool_count = stages ? stages->count : 1;
    for (uint32_t i = 0; i < shape->pools; i++) {
        struct pool *pool = &cache->pools[i];
        pool->cache = cache;
        pool->first = (uint32_t)end;
        pool->first_layer = stages ? stages->items[i].first : 0;
        pool->end_layer = stages ? stages->items[i].end : config->layers;
        uint64_t pages = all * (pool->end_layer - pool->first_layer) / config->layers;
        end += (pages / run + (pages % run > 0 || pages == 0)) * run;
        shape->pool_ends[i] = (uint32_t)end;
    }
    shape->pages = (uint32_t)end;
}

/* The trace has one pool's numbers. */
static int make_pools(struct llm_kv_cache *cache, const struct llm_kv_shape *shape,
                      struct page_trace *trace, char *why)
{
    int rc = 0;
    for (uint32_t i = 0; i < cache->pool_count && rc == 0; i++)
        rc = make_slabs(&cache->pools[i], shape->pool_ends[i] - cache->pools[i].first,
                        i == 0 ? trace : NULL, why);
    return rc;
}

/* A limit may be raised later, so there are more pages than it allows now. */
static int count_pages(const struct llm_config *config, uint64_t bytes,
                       const struct page_limit *limit, struct llm_kv_shape *shape, char *why)
{
    uint64_t page = UINT64_C(2) * LLM_KV_POSITIONS * shape->row_values * sizeof(uint16_t);
    uint64_t pages = bytes / page, now = limit ? page_limit_get(limit) : 0;
    char have[HW_FORMAT_CHARS], need[HW_FORMAT_CHARS];
    now = now && now < bytes ? now : bytes;
    if (now / page < config->layers)
        return llm_why(why, -ENOMEM,
                       "%s of KV memory are too little: a page of each layer, %s, is the least",
                       hw_format_size(have, now), hw_format_size(need, page * config->layers));
    shape->pages = pages < PAGE_COUNT_MAX ? (uint32_t)pages : PAGE_COUNT_MAX;
    return 0;
}

/* Slabs as large as the device likes them, unless there would be few. */
static uint32_t run_for(const struct llm_backend_ops *ops, const struct llm_kv_shape *shape,
                        bool is_shared)
{
    uint64_t page = UINT64_C(2) * LLM_KV_POSITIONS * shape->row_values * sizeof(uint16_t);
    uint64_t run = ops->kv_slab_bytes / page, least = (shape->pages - 1) / ops->kv_slabs_max + 1;
    uint64_t most = shape->pages / (is_shared ? SLABS_SHARED : SLABS_MIN);
    run = run < most ? run : most;
    return (uint32_t)(run > least ? run : least);
}

int llm_kv_cache_create(struct llm_backend *backend, const struct llm_config *config,
                        uint64_t bytes, struct page_limit *limit, struct page_trace *trace,
                        struct llm_kv_cache **out, char *why)
{
    struct llm_kv_shape shape = {.row_values = config->kv_heads * config->head_dim};
    int rc = count_pages(config, bytes, limit, &shape, why);
    if (rc)
        return rc;
    struct llm_kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return llm_why(why, -ENOMEM, "no memory for the KV cache");
    shape.run = run_for(backend->ops, &shape, limit != NULL);
    cache->backend = backend;
    divide(cache, config, &shape);
    cache->limit = limit;
    cache->page_count = shape.pages;
    cache->run = shape.run;
    cache->row_bytes = shape.row_values * sizeof(uint16_t);
    cache->pages = calloc(shape.pages, sizeof *cache->pages);
    rc = cache->pages ? backend->ops->kv_create(backend, &shape, &cache->kv, why)
                      : llm_why(why, -ENOMEM, "no memory for a table of %u KV pages", shape.pages);
    if (rc == 0) {
        cache->slab_bytes = backend->ops->kv_slab(cache->kv);
        rc = make_pools(cache, &shape, trace, why);
    }
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
    for (uint32_t i = 0; i < cache->pool_count; i++)
        page_slabs_destroy(cache->pools[i].slabs);
    cache->backend->ops->kv_destroy(cache->backend, cache->kv);
    free(cache->pages);
    free(cache);
}

/* Pages of the slabs that so many bytes are; 0: as many as there are.  Each pool may have a slab
 * that is not full. */
static uint32_t pages_within(const struct llm_kv_cache *cache, uint64_t bytes)
{
    uint64_t slabs = bytes / cache->slab_bytes, partial = cache->pool_count - 1;
    uint64_t pages =
        bytes ? (slabs > partial ? slabs - partial : 0) * cache->run : cache->page_count;
    return pages < cache->page_count ? (uint32_t)pages : cache->page_count;
}

uint32_t llm_kv_cache_most(const struct llm_kv_cache *cache)
{
    return cache->page_count;
}

void llm_kv_cache_pages(struct llm_kv_cache *cache, uint32_t *used, uint32_t *all)
{
    struct page_slabs_stats stats;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < cache->pool_count; i++) {
        page_slabs_stats(cache->pools[i].slabs, &stats);
        taken += stats.used;
    }
    uint32_t most = pages_within(cache, cache->limit ? page_limit_get(cache->limit) : 0);
    uint32_t own = pages_within(cache, cache->limit ? page_limit_own(cache->limit) : 0);
    *used = taken - cache->idle;
    *all = most < own ? most : own;
}

uint64_t llm_kv_cache_bytes(const struct llm_kv_cache *cache, uint64_t pages)
{
    return (pages + cache->run - 1) / cache->run * cache->slab_bytes;
}

void llm_kv_cache_trim(struct llm_kv_cache *cache)
{
    struct page_error error = {0};
    for (uint32_t i = 0; i < cache->pool_count; i++) {
        if (page_slabs_trim(cache->pools[i].slabs, &error))
            hw_warn(HW_CAT_LLM, "KV pages stay mapped: %s", error.text);
    }
}

bool llm_kv_cache_reclaim(struct llm_kv_cache *cache)
{
    return cache->reclaim && cache->reclaim(cache->user);
}

struct llm_kv_memory *llm_kv_cache_memory(struct llm_kv_cache *cache)
{
    return cache->kv;
}

uint64_t llm_kv_cache_row_bytes(const struct llm_kv_cache *cache)
{
    return cache->row_bytes;
}

static struct pool *pool_of_layer(struct llm_kv_cache *cache, uint32_t layer)
{
    struct pool *pool = cache->pools;
    while (layer >= pool->end_layer)
        pool++;
    return pool;
}

static struct pool *pool_of_page(struct llm_kv_cache *cache, uint32_t page)
{
    uint32_t i = cache->pool_count - 1;
    while (page < cache->pools[i].first)
        i--;
    return &cache->pools[i];
}

static int make_room(struct llm_pages *pages, uint32_t count)
{
    return hw_grow(&pages->ids, &pages->room, count, sizeof *pages->ids) ? 0 : -ENOMEM;
}

/* With idle pages, if there are no others. */
static int allocate(struct pool *pool, uint32_t *ids, uint32_t count, char *why)
{
    struct llm_kv_cache *cache = pool->cache;
    struct page_error error = {0};
    int rc;
    do
        rc = page_slabs_take(pool->slabs, ids, count, &error);
    while ((rc == -ENOSPC || rc == -ENOMEM) && llm_kv_cache_reclaim(cache));
    if (rc)
        return llm_why(why, rc, "KV pages: %s", error.text);
    for (uint32_t i = 0; i < count; i++) {
        ids[i] += pool->first;
        assert(cache->pages[ids[i]].lists == 0 && !cache->pages[ids[i]].is_held);
        cache->pages[ids[i]].lists = 1;
    }
    return 0;
}

/* Of one layer, so of one pool; changes the list. */
static void free_pages(struct llm_kv_cache *cache, uint32_t *ids, uint32_t count)
{
    struct page_error error = {0};
    if (count == 0)
        return;
    const struct pool *pool = pool_of_page(cache, ids[0]);
    for (uint32_t i = 0; i < count; i++)
        ids[i] -= pool->first;
    /* On failure, too, the allocator has the pages again. */
    if (page_slabs_give(pool->slabs, ids, count, &error))
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

int llm_kv_cache_extend(struct llm_kv_cache *cache, uint32_t layer, struct llm_pages *pages,
                        uint32_t positions, char *why)
{
    uint32_t before = pages->count, needed = llm_kv_pages_for(positions);
    if (needed <= before)
        return 0;
    if (make_room(pages, needed))
        return llm_why(why, -ENOMEM, "no memory for a list of %u KV pages", needed);
    while (pages->count < needed) {
        uint32_t rest = needed - pages->count;
        uint32_t count = rest < PAGE_BATCH_MAX ? rest : PAGE_BATCH_MAX;
        int rc = allocate(pool_of_layer(cache, layer), pages->ids + pages->count, count, why);
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
    uint32_t keep = llm_kv_pages_for(positions);
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

/* ---- content ---- */

int llm_kv_cache_read(struct llm_kv_cache *cache, const struct llm_kv_rows *rows, uint32_t count,
                      void *dst, char *why)
{
    const struct llm_backend_ops *ops = cache->backend->ops;
    uint8_t *bytes = dst;
    if (ops->kv_read_all)
        return ops->kv_read_all(cache->kv, rows, count, dst, why);
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; bytes += rows[i++].count * cache->row_bytes)
        rc = ops->kv_read(cache->kv, &rows[i], bytes, why);
    return rc;
}

int llm_kv_cache_write(struct llm_kv_cache *cache, const struct llm_kv_rows *rows, uint32_t count,
                       const void *src, char *why)
{
    const uint8_t *bytes = src;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; bytes += rows[i++].count * cache->row_bytes)
        rc = cache->backend->ops->kv_write(cache->kv, &rows[i], bytes, why);
    return rc;
}

static int copy_page(struct llm_kv_cache *cache, uint32_t from, uint32_t to, void *bytes, char *why)
{
    struct llm_kv_rows rows[] = {{.page = from, .count = LLM_KV_POSITIONS},
                                 {.v = 1, .page = from, .count = LLM_KV_POSITIONS}};
    int rc = llm_kv_cache_read(cache, rows, 2, bytes, why);
    rows[0].page = rows[1].page = to;
    return rc ? rc : llm_kv_cache_write(cache, rows, 2, bytes, why);
}

int llm_kv_cache_own(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t index, char *why)
{
    assert(index < pages->count);
    uint32_t old = pages->ids[index], copy;
    if (cache->pages[old].lists == 1 && !cache->pages[old].is_held)
        return 0;
    void *bytes = malloc(2 * LLM_KV_POSITIONS * cache->row_bytes);
    int rc = bytes ? allocate(pool_of_page(cache, old), &copy, 1, why)
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
