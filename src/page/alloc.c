#include "page/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct stack {
    uint32_t *ids;
    uint32_t count;
};

struct page_alloc {
    struct page_alloc_config config;
    bool *is_used; /* of each id */
    struct stack free, reserved, reclaimed;
    uint32_t used;
};

static void push(struct page_alloc *a, struct stack *s, const uint32_t *ids, size_t count)
{
    assert(s->count + count <= a->config.pages);
    for (size_t i = 0; i < count; i++)
        s->ids[s->count++] = ids[i];
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

/* Withdraws free pages above the limit, or gives withdrawn ones back. */
static void apply_limit(struct page_alloc *a)
{
    uint32_t allowed = allowed_pages(a);
    uint32_t in_play = a->config.pages - a->reclaimed.count;
    for (; in_play > allowed && a->free.count > 0; in_play--)
        push(a, &a->reclaimed, &a->free.ids[--a->free.count], 1);
    for (; in_play < allowed && a->reclaimed.count > 0; in_play++)
        push(a, &a->free, &a->reclaimed.ids[--a->reclaimed.count], 1);
}

static bool is_past_limit(const struct page_alloc *a)
{
    return a->config.pages - a->reclaimed.count > allowed_pages(a);
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
    a->is_used = calloc(config->pages, sizeof *a->is_used);
    if (!a->is_used || make_stack(&a->free, config->pages) ||
        make_stack(&a->reserved, config->pages) || make_stack(&a->reclaimed, config->pages)) {
        page_alloc_destroy(a);
        return page_fail(why, -ENOMEM, 0, "out of memory");
    }
    for (uint32_t id = config->pages; id > 0; id--)
        push(a, &a->free, &(uint32_t){id - 1}, 1); /* low ones first */
    *out = a;
    return 0;
}

void page_alloc_destroy(struct page_alloc *a)
{
    if (!a)
        return;
    struct page_error why;
    (void)page_alloc_trim(a, &why);
    free(a->is_used);
    free(a->free.ids);
    free(a->reserved.ids);
    free(a->reclaimed.ids);
    free(a);
}

/* ---- handing out ---- */

int page_alloc_pages(struct page_alloc *a, uint32_t *ids_out, size_t count, struct page_error *why)
{
    if (count > PAGE_BATCH_MAX)
        return page_fail(why, -E2BIG, 0, "%zu pages at once; at most %d", count, PAGE_BATCH_MAX);
    apply_limit(a);
    if (is_past_limit(a) || a->reserved.count + a->free.count < count)
        return page_fail(why, -ENOSPC, 0,
                         "%zu pages asked for; %u are free, %u reserved, %u in use, %u withdrawn by"
                         " the limit",
                         count, a->free.count, a->reserved.count, a->used, a->reclaimed.count);
    uint32_t ready = count < a->reserved.count ? (uint32_t)count : a->reserved.count;
    uint32_t rest = (uint32_t)count - ready;
    for (uint32_t i = 0; i < ready; i++)
        ids_out[i] = a->reserved.ids[a->reserved.count - 1 - i];
    for (uint32_t i = 0; i < rest; i++)
        ids_out[ready + i] = a->free.ids[a->free.count - 1 - i];
    int rc = rest ? a->config.map(a->config.user, ids_out + ready, rest, why) : 0;
    if (rc)
        return rc;
    a->reserved.count -= ready;
    a->free.count -= rest;
    a->used += (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        a->is_used[ids_out[i]] = true;
    return 0;
}

/* Takes used ids back; all or, with -ENOENT, none. */
static int take_used(struct page_alloc *a, const uint32_t *ids, size_t count,
                     struct page_error *why)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < a->config.pages && a->is_used[ids[i]]) {
            a->is_used[ids[i]] = false;
            continue;
        }
        for (size_t k = 0; k < i; k++)
            a->is_used[ids[k]] = true;
        return page_fail(why, -ENOENT, 0, "page id %u is not in use", ids[i]);
    }
    a->used -= (uint32_t)count;
    return 0;
}

/* Unmaps pages; those that stay mapped, because it failed, are reserved. */
static int unmap(struct page_alloc *a, const uint32_t *ids, size_t count, struct page_error *why)
{
    int rc = count ? a->config.unmap(a->config.user, ids, count, why) : 0;
    push(a, rc ? &a->reserved : &a->free, ids, count);
    apply_limit(a);
    return rc;
}

int page_alloc_free(struct page_alloc *a, const uint32_t *ids, size_t count, struct page_error *why)
{
    if (count > PAGE_BATCH_MAX)
        return page_fail(why, -E2BIG, 0, "%zu pages at once; at most %d", count, PAGE_BATCH_MAX);
    int rc = take_used(a, ids, count, why);
    if (rc)
        return rc;
    uint32_t high = is_past_limit(a) ? 0 : a->config.reserve;
    size_t room = high > a->reserved.count ? high - a->reserved.count : 0;
    size_t kept = count < room ? count : room;
    push(a, &a->reserved, ids, kept);
    return unmap(a, ids + kept, count - kept, why);
}

int page_alloc_trim(struct page_alloc *a, struct page_error *why)
{
    int rc = 0;
    while (rc == 0 && a->reserved.count > 0) {
        uint32_t ids[PAGE_BATCH_MAX], count = 0;
        while (count < PAGE_BATCH_MAX && a->reserved.count > 0)
            ids[count++] = a->reserved.ids[--a->reserved.count];
        rc = unmap(a, ids, count, why);
    }
    return rc;
}

void page_alloc_stats(struct page_alloc *a, struct page_alloc_stats *out)
{
    apply_limit(a);
    *out = (struct page_alloc_stats){.used = a->used,
                                     .free = a->free.count,
                                     .reserved = a->reserved.count,
                                     .reclaimed = a->reclaimed.count};
}
