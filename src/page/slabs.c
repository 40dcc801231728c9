#include "page/slabs.h"

#include "page/trace/trace.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { NONE = UINT32_MAX };

struct slab {
    uint32_t first_free; /* of its pages, NONE at the end of the chain */
    uint32_t used;
    bool is_mapped; /* by us, not as a reserve */
};

struct page_slabs {
    struct page_slabs_config config;
    struct page_alloc *alloc; /* its ids are slabs */
    struct slab *slabs;
    uint32_t *next; /* of a free page: the next one of its slab */
    uint8_t *taken; /* of each page */
    uint32_t slab_count;
    uint32_t lowest; /* no slab below has a free page */
    uint32_t used, mapped;
};

/* ---- slabs are mapped ---- */

static void tell_mapped(const struct page_slabs *s)
{
    if (s->config.limit)
        page_limit_note_mapped(s->config.limit, s->mapped * s->config.slab_bytes);
}

static int map_slabs(void *user, const uint32_t *ids, size_t count, struct page_error *why)
{
    const struct page_slabs *s = user;
    struct page_limit *limit = s->config.limit;
    int rc = limit ? page_limit_charge(limit, count * s->config.slab_bytes, why) : 0;
    if (rc)
        return rc;
    rc = s->config.map(s->config.user, ids, count, why);
    if (rc && limit)
        page_limit_refund(limit, count * s->config.slab_bytes);
    if (rc == 0 && s->config.trace)
        page_trace_add(s->config.trace, true, ids, count);
    return rc;
}

static int unmap_slabs(void *user, const uint32_t *ids, size_t count, struct page_error *why)
{
    const struct page_slabs *s = user;
    int rc = s->config.unmap(s->config.user, ids, count, why);
    if (rc == 0 && s->config.limit)
        page_limit_refund(s->config.limit, count * s->config.slab_bytes);
    if (rc == 0 && s->config.trace)
        page_trace_add(s->config.trace, false, ids, count);
    return rc;
}

/* ---- life ---- */

static int make_tables(struct page_slabs *s)
{
    uint32_t pages = s->config.pages;
    s->slabs = calloc(s->slab_count, sizeof *s->slabs);
    s->next = calloc(pages, sizeof *s->next);
    s->taken = calloc(pages, sizeof *s->taken);
    return s->slabs && s->next && s->taken ? 0 : -ENOMEM;
}

int page_slabs_create(const struct page_slabs_config *config, struct page_slabs **out,
                      struct page_error *why)
{
    if (config->pages == 0 || config->run == 0 || config->pages % config->run)
        return page_fail(why, -EINVAL, 0, "%u pages in slabs of %u make no sense", config->pages,
                         config->run);
    struct page_slabs *s = calloc(1, sizeof *s);
    if (!s)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    s->config = *config;
    s->slab_count = config->pages / config->run;
    int rc =
        make_tables(s) ? page_fail(why, -ENOMEM, 0, "no memory for %u pages", config->pages) : 0;
    uint32_t reserve = config->reserve < s->slab_count ? config->reserve : s->slab_count;
    struct page_alloc_config slabs = {.pages = s->slab_count,
                                      .map = map_slabs,
                                      .unmap = unmap_slabs,
                                      .user = s,
                                      .reserve = reserve,
                                      .limit = config->limit,
                                      .id_bytes = config->slab_bytes};
    if (rc == 0)
        rc = page_alloc_create(&slabs, &s->alloc, why);
    if (rc) {
        page_slabs_destroy(s);
        return rc;
    }
    s->lowest = s->slab_count;
    if (config->trace)
        page_trace_begin(config->trace, s->slab_count, config->slab_bytes);
    *out = s;
    return 0;
}

void page_slabs_destroy(struct page_slabs *s)
{
    if (!s)
        return;
    assert(s->used == 0);
    page_alloc_destroy(s->alloc);
    free(s->slabs);
    free(s->next);
    free(s->taken);
    free(s);
}

/* ---- pages ---- */

static void chain(struct page_slabs *s, uint32_t slab)
{
    uint32_t first = slab * s->config.run, count = s->config.run;
    for (uint32_t i = 0; i < count; i++)
        s->next[first + i] = i + 1 < count ? first + i + 1 : NONE;
    s->slabs[slab] = (struct slab){.first_free = first, .is_mapped = true};
    s->mapped++;
    s->lowest = slab < s->lowest ? slab : s->lowest;
}

/* A slab with a free page; NONE when a slab has to be mapped. */
static uint32_t find(struct page_slabs *s)
{
    while (s->lowest < s->slab_count &&
           !(s->slabs[s->lowest].is_mapped && s->slabs[s->lowest].first_free != NONE))
        s->lowest++;
    return s->lowest < s->slab_count ? s->lowest : NONE;
}

/* Slabs for so many pages more. */
static int add_slabs(struct page_slabs *s, size_t pages, struct page_error *why)
{
    uint32_t slabs[PAGE_BATCH_MAX];
    size_t count = (pages + s->config.run - 1) / s->config.run;
    int rc = page_alloc_pages(s->alloc, slabs, count, why);
    for (size_t i = 0; i < count && rc == 0; i++)
        chain(s, slabs[i]);
    return rc;
}

int page_slabs_take(struct page_slabs *s, uint32_t *ids_out, size_t count, struct page_error *why)
{
    if (count > PAGE_BATCH_MAX)
        return page_fail(why, -E2BIG, 0, "%zu pages at once; at most %d", count, PAGE_BATCH_MAX);
    size_t n = 0;
    int rc = 0;
    while (n < count && rc == 0) {
        uint32_t slab = find(s);
        if (slab == NONE) {
            rc = add_slabs(s, count - n, why);
            continue;
        }
        uint32_t id = s->slabs[slab].first_free;
        s->slabs[slab].first_free = s->next[id];
        s->slabs[slab].used++;
        s->taken[id] = true;
        ids_out[n++] = id;
    }
    s->used += (uint32_t)n;
    if (rc) {
        struct page_error ignored;
        int given = page_slabs_give(s, ids_out, n, &ignored);
        (void)given; /* what stays mapped is a reserve */
    }
    tell_mapped(s);
    return rc;
}

static int drop_slab(struct page_slabs *s, uint32_t slab, struct page_error *why)
{
    s->slabs[slab].is_mapped = false;
    s->mapped--;
    return page_alloc_free(s->alloc, &slab, 1, why);
}

int page_slabs_give(struct page_slabs *s, const uint32_t *ids, size_t count, struct page_error *why)
{
    int rc = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t id = ids[i], at = id / s->config.run;
        assert(id < s->config.pages && s->taken[id]);
        struct slab *slab = &s->slabs[at];
        s->taken[id] = false;
        s->next[id] = slab->first_free;
        slab->first_free = id;
        s->lowest = at < s->lowest ? at : s->lowest;
        struct page_error why_not;
        int dropped = --slab->used == 0 ? drop_slab(s, at, &why_not) : 0;
        if (dropped && rc == 0)
            *why = why_not;
        rc = rc ? rc : dropped;
    }
    s->used -= (uint32_t)count;
    tell_mapped(s);
    return rc;
}

int page_slabs_trim(struct page_slabs *s, struct page_error *why)
{
    return page_alloc_trim(s->alloc, why);
}

void page_slabs_stats(const struct page_slabs *s, struct page_slabs_stats *out)
{
    struct page_alloc_stats a;
    page_alloc_stats(s->alloc, &a);
    *out = (struct page_slabs_stats){.used = s->used, .mapped = s->mapped, .reserved = a.reserved};
}
