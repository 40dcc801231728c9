#include "page/slabs.h"

#include "page/trace/trace.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { NONE = UINT32_MAX };

enum slab_state { UNMAPPED, RESERVED, IN_USE };

struct slab {
    uint32_t first_free; /* of its pages, NONE at the end of the chain */
    uint32_t used;
    enum slab_state state;
};

struct page_slabs {
    struct page_slabs_config config;
    struct slab *slabs;
    uint32_t *next;    /* of a free page: the next one of its slab */
    uint8_t *taken;    /* of each page */
    uint32_t *reserve; /* slabs that are mapped and empty */
    uint32_t slab_count;
    uint32_t lowest;          /* no slab below that is in use has a free page */
    uint32_t lowest_unmapped; /* no slab below is unmapped */
    uint32_t used, mapped, reserved;
};

/* ---- slabs are mapped ---- */

static void count_mapped(struct page_slabs *s, int slabs)
{
    s->mapped += (uint32_t)slabs;
    if (s->config.limit)
        page_limit_add_mapped(s->config.limit, slabs * (int64_t)s->config.slab_bytes);
}

static int map_slabs(const struct page_slabs *s, const uint32_t *ids, size_t count,
                     struct page_error *why)
{
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

static void keep(struct page_slabs *s, uint32_t slab)
{
    s->slabs[slab].state = RESERVED;
    s->reserve[s->reserved++] = slab;
}

/* Those that stay mapped, because it failed, are a reserve. */
static int unmap_slabs(struct page_slabs *s, const uint32_t *ids, size_t count,
                       struct page_error *why)
{
    int rc = s->config.unmap(s->config.user, ids, count, why);
    for (size_t i = 0; i < count && rc; i++)
        keep(s, ids[i]);
    if (rc)
        return rc;
    for (size_t i = 0; i < count; i++) {
        s->slabs[ids[i]].state = UNMAPPED;
        s->lowest_unmapped = ids[i] < s->lowest_unmapped ? ids[i] : s->lowest_unmapped;
    }
    if (s->config.limit)
        page_limit_refund(s->config.limit, count * s->config.slab_bytes);
    if (s->config.trace)
        page_trace_add(s->config.trace, false, ids, count);
    return 0;
}

/* Slabs that may be mapped, were nobody else under the limit. */
static uint32_t allowed(const struct page_slabs *s)
{
    uint64_t limit = s->config.limit ? page_limit_get(s->config.limit) : 0;
    uint64_t own = s->config.limit ? page_limit_own(s->config.limit) : 0;
    limit = own && (limit == 0 || own < limit) ? own : limit;
    uint64_t slabs = limit ? limit / s->config.slab_bytes : s->slab_count;
    return slabs < s->slab_count ? (uint32_t)slabs : s->slab_count;
}

/* ---- life ---- */

static int make_tables(struct page_slabs *s)
{
    uint32_t pages = s->config.pages;
    s->slabs = calloc(s->slab_count, sizeof *s->slabs);
    s->next = calloc(pages, sizeof *s->next);
    s->taken = calloc(pages, sizeof *s->taken);
    s->reserve = calloc(s->slab_count, sizeof *s->reserve);
    return s->slabs && s->next && s->taken && s->reserve ? 0 : -ENOMEM;
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
    if (make_tables(s)) {
        page_slabs_destroy(s);
        return page_fail(why, -ENOMEM, 0, "no memory for %u pages", config->pages);
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
    struct page_error ignored;
    (void)page_slabs_trim(s, &ignored);
    free(s->slabs);
    free(s->next);
    free(s->taken);
    free(s->reserve);
    free(s);
}

/* ---- pages ---- */

static void chain(struct page_slabs *s, uint32_t slab)
{
    uint32_t first = slab * s->config.run, count = s->config.run;
    for (uint32_t i = 0; i < count; i++)
        s->next[first + i] = i + 1 < count ? first + i + 1 : NONE;
    s->slabs[slab] = (struct slab){.first_free = first, .state = IN_USE};
    count_mapped(s, 1);
    s->lowest = slab < s->lowest ? slab : s->lowest;
}

/* A slab with a free page; NONE when a slab has to be mapped. */
static uint32_t find(struct page_slabs *s)
{
    while (s->lowest < s->slab_count &&
           !(s->slabs[s->lowest].state == IN_USE && s->slabs[s->lowest].first_free != NONE))
        s->lowest++;
    return s->lowest < s->slab_count ? s->lowest : NONE;
}

/* Slabs for so many pages more: of the reserve, then the lowest. */
static int add_slabs(struct page_slabs *s, size_t pages, struct page_error *why)
{
    uint32_t slabs[PAGE_BATCH_MAX], present = s->mapped + s->reserved, most = allowed(s);
    uint32_t count = (uint32_t)((pages + s->config.run - 1) / s->config.run);
    uint32_t ready = count < s->reserved ? count : s->reserved, n = ready;
    if (present + count - ready > most)
        return page_fail(why, -ENOSPC, 0,
                         "%u slabs asked for; %u are in use and %u reserved of %u, and the limit"
                         " allows %u",
                         count, s->mapped, s->reserved, s->slab_count, most);
    for (uint32_t i = 0; i < ready; i++)
        slabs[i] = s->reserve[s->reserved - 1 - i];
    while (n < count) {
        if (s->slabs[s->lowest_unmapped].state == UNMAPPED)
            slabs[n++] = s->lowest_unmapped;
        s->lowest_unmapped++;
    }
    int rc = n > ready ? map_slabs(s, slabs + ready, n - ready, why) : 0;
    if (rc) {
        s->lowest_unmapped = slabs[ready];
        return rc;
    }
    s->reserved -= ready;
    for (uint32_t i = 0; i < count; i++)
        chain(s, slabs[i]);
    return 0;
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
    return rc;
}

static int drop_slab(struct page_slabs *s, uint32_t slab, struct page_error *why)
{
    bool is_past_limit = s->mapped + s->reserved > allowed(s);
    count_mapped(s, -1);
    if (is_past_limit || s->reserved >= s->config.reserve)
        return unmap_slabs(s, &slab, 1, why);
    keep(s, slab);
    return 0;
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
    return rc;
}

int page_slabs_trim(struct page_slabs *s, struct page_error *why)
{
    int rc = 0;
    while (rc == 0 && s->reserved > 0) {
        uint32_t count = s->reserved < PAGE_BATCH_MAX ? s->reserved : PAGE_BATCH_MAX;
        s->reserved -= count;
        rc = unmap_slabs(s, s->reserve + s->reserved, count, why);
    }
    return rc;
}

void page_slabs_stats(const struct page_slabs *s, struct page_slabs_stats *out)
{
    *out = (struct page_slabs_stats){.used = s->used, .mapped = s->mapped, .reserved = s->reserved};
}
