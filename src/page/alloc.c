#include "page/alloc.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum id_place {
    PLACE_FREE,
    PLACE_RESERVED,
    PLACE_USED,
    PLACE_RECLAIMED,
    PLACE_MOVING /* one thread is mapping or unmapping it */
};

struct stack {
    uint32_t *ids;
    uint32_t count;
};

struct page_alloc {
    struct page_alloc_config config;
    pthread_mutex_t lock; /* guards all below */
    uint8_t *places;      /* enum id_place, of each id */
    struct stack free, reserved, reclaimed;
    uint32_t used, moving;
};

static void put(struct page_alloc *a, struct stack *s, uint32_t id, enum id_place place)
{
    assert(s->count < a->config.pages);
    s->ids[s->count++] = id;
    a->places[id] = (uint8_t)place;
}

static uint32_t take(struct page_alloc *a, struct stack *s)
{
    assert(s->count > 0);
    uint32_t id = s->ids[--s->count];
    a->places[id] = PLACE_MOVING;
    a->moving++;
    return id;
}

/* ---- the limit ---- */

static uint32_t allowed_pages(const struct page_alloc *a)
{
    uint64_t limit = a->config.limit ? page_limit_get(a->config.limit) : 0;
    uint64_t own = a->config.limit ? page_limit_own(a->config.limit) : 0;
    limit = own && (limit == 0 || own < limit) ? own : limit;
    uint64_t pages = limit ? limit / a->config.id_bytes : a->config.pages;
    return pages < a->config.pages ? (uint32_t)pages : a->config.pages;
}

/* Withdraws free pages above the limit, or gives withdrawn ones back.  With the lock. */
static void apply_limit(struct page_alloc *a)
{
    uint32_t allowed = allowed_pages(a);
    uint32_t in_play = a->config.pages - a->reclaimed.count;
    for (; in_play > allowed && a->free.count > 0; in_play--)
        put(a, &a->reclaimed, a->free.ids[--a->free.count], PLACE_RECLAIMED);
    for (; in_play < allowed && a->reclaimed.count > 0; in_play++)
        put(a, &a->free, a->reclaimed.ids[--a->reclaimed.count], PLACE_FREE);
}

static bool is_past_limit(const struct page_alloc *a)
{
    return a->config.pages - a->reclaimed.count > allowed_pages(a);
}

/* ---- moving pages ---- */

/* Puts ids that this thread has mapped or unmapped where they belong. */
static void finish_move(struct page_alloc *a, const uint32_t *ids, size_t count, struct stack *s,
                        enum id_place place)
{
    for (size_t i = 0; i < count; i++) {
        assert(a->places[ids[i]] == PLACE_MOVING);
        put(a, s, ids[i], place);
    }
    a->moving -= (uint32_t)count;
}

/* Unmaps a batch of reserved pages.  How many, or what unmap answered. */
static int shrink_reserve(struct page_alloc *a, struct page_error *why)
{
    uint32_t ids[PAGE_BATCH_MAX], count = 0;
    pthread_mutex_lock(&a->lock);
    while (count < PAGE_BATCH_MAX && a->reserved.count > 0)
        ids[count++] = take(a, &a->reserved);
    pthread_mutex_unlock(&a->lock);
    if (count == 0)
        return 0;
    int rc = a->config.unmap(a->config.user, ids, count, why);
    pthread_mutex_lock(&a->lock);
    if (rc)
        finish_move(a, ids, count, &a->reserved, PLACE_RESERVED);
    else
        finish_move(a, ids, count, &a->free, PLACE_FREE);
    apply_limit(a);
    pthread_mutex_unlock(&a->lock);
    return rc ? rc : (int)count;
}

int page_alloc_trim(struct page_alloc *a, struct page_error *why)
{
    int n;
    while ((n = shrink_reserve(a, why)) > 0)
        ;
    return n;
}

/* ---- life ---- */

static int make_stack(struct stack *s, uint32_t pages)
{
    s->ids = calloc(pages, sizeof *s->ids);
    return s->ids ? 0 : -ENOMEM;
}

int page_alloc_create(const struct page_alloc_config *config, struct page_alloc **out,
                      struct page_error *why)
{
    if (config->pages == 0 || config->pages > PAGE_COUNT_MAX || config->reserve > config->pages ||
        (config->limit && config->id_bytes == 0))
        return page_fail(why, -EINVAL, 0, "a reserve of %u of %u pages makes no sense",
                         config->reserve, config->pages);
    struct page_alloc *a = calloc(1, sizeof *a);
    if (!a)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    a->config = *config;
    pthread_mutex_init(&a->lock, NULL);
    a->places = calloc(config->pages, 1);
    bool short_of = !a->places || make_stack(&a->free, config->pages) ||
                    make_stack(&a->reserved, config->pages) ||
                    make_stack(&a->reclaimed, config->pages);
    for (uint32_t id = config->pages; id > 0 && !short_of; id--)
        put(a, &a->free, id - 1, PLACE_FREE); /* low ones first */
    if (short_of) {
        page_alloc_destroy(a);
        return page_fail(why, -ENOMEM, 0, "out of memory");
    }
    *out = a;
    return 0;
}

void page_alloc_destroy(struct page_alloc *a)
{
    if (!a)
        return;
    struct page_error why;
    if (a->places)
        (void)page_alloc_trim(a, &why);
    pthread_mutex_destroy(&a->lock);
    free(a->places);
    free(a->free.ids);
    free(a->reserved.ids);
    free(a->reclaimed.ids);
    free(a);
}

/* ---- handing out ---- */

/* Takes reserved ids first; how many of ids_out they are.  -ENOSPC takes nothing. */
static int take_ids(struct page_alloc *a, uint32_t *ids_out, size_t count, size_t *ready,
                    struct page_error *why)
{
    apply_limit(a);
    if (is_past_limit(a) || a->reserved.count + a->free.count < count)
        return page_fail(why, -ENOSPC, 0,
                         "%zu pages asked for; %u are free, %u reserved, %u in use, %u withdrawn by"
                         " the limit",
                         count, a->free.count, a->reserved.count, a->used, a->reclaimed.count);
    size_t n = 0;
    while (n < count && a->reserved.count > 0)
        ids_out[n++] = take(a, &a->reserved);
    *ready = n;
    while (n < count)
        ids_out[n++] = take(a, &a->free);
    return 0;
}

static void mark_used(struct page_alloc *a, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        a->places[ids[i]] = PLACE_USED;
    a->moving -= (uint32_t)count;
    a->used += (uint32_t)count;
}

int page_alloc_pages(struct page_alloc *a, uint32_t *ids_out, size_t count, struct page_error *why)
{
    size_t ready = 0;
    if (count > PAGE_BATCH_MAX)
        return page_fail(why, -E2BIG, 0, "%zu pages at once; at most %d", count, PAGE_BATCH_MAX);
    pthread_mutex_lock(&a->lock);
    int rc = take_ids(a, ids_out, count, &ready, why);
    pthread_mutex_unlock(&a->lock);
    if (rc)
        return rc;
    if (ready < count)
        rc = a->config.map(a->config.user, ids_out + ready, count - ready, why);
    pthread_mutex_lock(&a->lock);
    if (rc) {
        finish_move(a, ids_out, ready, &a->reserved, PLACE_RESERVED);
        finish_move(a, ids_out + ready, count - ready, &a->free, PLACE_FREE);
    } else {
        mark_used(a, ids_out, count);
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}

/* Takes used ids back; all or, with -ENOENT, none. */
static int take_used(struct page_alloc *a, const uint32_t *ids, size_t count,
                     struct page_error *why)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < a->config.pages && a->places[ids[i]] == PLACE_USED) {
            a->places[ids[i]] = PLACE_MOVING;
            continue;
        }
        for (size_t k = 0; k < i; k++)
            a->places[ids[k]] = PLACE_USED;
        return page_fail(why, -ENOENT, 0, "page id %u is not in use", ids[i]);
    }
    a->used -= (uint32_t)count;
    a->moving += (uint32_t)count;
    return 0;
}

int page_alloc_free(struct page_alloc *a, const uint32_t *ids, size_t count, struct page_error *why)
{
    if (count > PAGE_BATCH_MAX)
        return page_fail(why, -E2BIG, 0, "%zu pages at once; at most %d", count, PAGE_BATCH_MAX);
    pthread_mutex_lock(&a->lock);
    int rc = take_used(a, ids, count, why);
    if (rc) {
        pthread_mutex_unlock(&a->lock);
        return rc;
    }
    uint32_t high = is_past_limit(a) ? 0 : a->config.reserve;
    size_t room = high > a->reserved.count ? high - a->reserved.count : 0;
    size_t kept = count < room ? count : room;
    finish_move(a, ids, kept, &a->reserved, PLACE_RESERVED);
    pthread_mutex_unlock(&a->lock);
    if (kept < count)
        rc = a->config.unmap(a->config.user, ids + kept, count - kept, why);
    pthread_mutex_lock(&a->lock);
    if (rc)
        finish_move(a, ids + kept, count - kept, &a->reserved, PLACE_RESERVED);
    else
        finish_move(a, ids + kept, count - kept, &a->free, PLACE_FREE);
    apply_limit(a);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

void page_alloc_stats(struct page_alloc *a, struct page_alloc_stats *out)
{
    pthread_mutex_lock(&a->lock);
    apply_limit(a);
    *out = (struct page_alloc_stats){.used = a->used,
                                     .free = a->free.count,
                                     .reserved = a->reserved.count,
                                     .reclaimed = a->reclaimed.count};
    pthread_mutex_unlock(&a->lock);
}
