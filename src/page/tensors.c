#include "page/tensors.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum page_state {
    STATE_FREE,
    STATE_MAPPED,
    STATE_KEPT /* unmapped by the last batch; its handles are still here */
};

enum last_op { LAST_NONE, LAST_MAP, LAST_UNMAP };

struct page_tensors {
    struct page_tensors_config config;
    struct page_geometry geometry;
    struct page_backend *backend;
    struct page_handles *cache;
    uint8_t *states;      /* enum page_state, of each id */
    uint8_t *marks;       /* ids of the batch at hand, to find duplicates */
    page_handle *handles; /* pieces of an id, in a row */
    uint32_t mapped;
    int doubt; /* -ENOTRECOVERABLE once an undo failed */

    enum last_op last;
    uint32_t *last_ids;
    uint32_t last_count;

    /* Of the batch at hand; sized for the largest. */
    uint32_t *sorted; /* its ids, ascending */
    struct page_bind *binds;
    page_handle *taken;
};

/* ---- life ---- */

static uint32_t batch_max(const struct page_tensors *t)
{
    return t->geometry.pages < PAGE_BATCH_MAX ? t->geometry.pages : PAGE_BATCH_MAX;
}

static int allocate(struct page_tensors *t)
{
    size_t pages = t->geometry.pages, pieces = t->geometry.pieces, most = batch_max(t);
    t->states = calloc(pages, 1);
    t->marks = calloc(pages, 1);
    t->handles = calloc(pages * pieces, sizeof *t->handles);
    t->last_ids = calloc(most, sizeof *t->last_ids);
    t->sorted = calloc(most, sizeof *t->sorted);
    t->binds = calloc(most * pieces, sizeof *t->binds);
    t->taken = calloc(most * pieces, sizeof *t->taken);
    bool all =
        t->states && t->marks && t->handles && t->last_ids && t->sorted && t->binds && t->taken;
    return all ? 0 : -ENOMEM;
}

static int make_cache(struct page_tensors *t, struct page_error *why)
{
    const struct page_tensors_config *c = &t->config;
    uint32_t all = t->geometry.pages * t->geometry.pieces;
    struct page_handles_config cache = {.backend = t->backend,
                                        .limit = c->limit,
                                        .piece_bytes = t->geometry.piece_bytes,
                                        .high = c->no_reuse ? 0 : all};
    return page_handles_create(&cache, &t->cache, why);
}

static int open_device(struct page_tensors *t, struct page_error *why)
{
    const struct page_tensors_config *c = &t->config;
    int rc = c->backend->open(&c->device, &t->backend, why);
    if (rc)
        return rc;
    const struct page_facts *facts = &t->backend->facts;
    uint64_t page_bytes = c->page_bytes ? c->page_bytes : PAGE_BYTES_DEFAULT;
    if (page_bytes % facts->granularity)
        return page_fail(why, -EINVAL, 0, "pages of %llu bytes; %s maps multiples of %llu",
                         (unsigned long long)page_bytes, facts->device,
                         (unsigned long long)facts->granularity);
    rc = page_geometry_init(&t->geometry, facts->memory_bytes, c->layers, page_bytes, c->layout,
                            why);
    if (rc)
        return rc;
    return c->backend->reserve(t->backend, t->geometry.range_bytes, t->geometry.piece_bytes, why);
}

int page_tensors_create(const struct page_tensors_config *config, struct page_tensors **out,
                        struct page_error *why)
{
    struct page_tensors *t = calloc(1, sizeof *t);
    if (!t)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    t->config = *config;
    int rc = open_device(t, why);
    if (rc == 0 && allocate(t))
        rc = page_fail(why, -ENOMEM, 0, "out of memory for the tables of %u pages",
                       t->geometry.pages);
    if (rc == 0)
        rc = make_cache(t, why);
    if (rc) {
        page_tensors_destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

/* After a device failure some pages stay mapped; closing the device frees them. */
static void clear_last(struct page_tensors *t)
{
    struct page_outcome *out = malloc(sizeof *out);
    if (out)
        (void)page_tensors_clear(t, out);
    free(out);
}

void page_tensors_destroy(struct page_tensors *t)
{
    if (!t)
        return;
    if (t->cache)
        clear_last(t);
    page_handles_destroy(t->cache);
    if (t->backend)
        t->backend->ops->close(t->backend);
    free(t->states);
    free(t->marks);
    free(t->handles);
    free(t->last_ids);
    free(t->sorted);
    free(t->binds);
    free(t->taken);
    free(t);
}

/* ---- what a batch may do ---- */

static int code_to_errno(enum page_code code)
{
    switch (code) {
    case PAGE_MAPPED_TWICE:
        return -EEXIST;
    case PAGE_UNMAPPED_TWICE:
        return -ENOENT;
    case PAGE_OUT_OF_RANGE:
        return -ERANGE;
    default:
        return -EINVAL;
    }
}

static enum page_code judge(const struct page_tensors *t, uint32_t id, bool map)
{
    if (id >= t->geometry.pages)
        return PAGE_OUT_OF_RANGE;
    bool is_mapped = t->states[id] == STATE_MAPPED;
    if (t->marks[id] || is_mapped == map)
        return map ? PAGE_MAPPED_TWICE : PAGE_UNMAPPED_TWICE;
    return PAGE_DONE;
}

static int blame(const struct page_tensors *t, uint32_t id, enum page_code code,
                 struct page_error *why)
{
    if (code == PAGE_OUT_OF_RANGE)
        return page_geometry_check(&t->geometry, &id, 1, why);
    return page_fail(why, code_to_errno(code), 0, "page id %u: %s", id, page_code_name(code));
}

/* Gives every id its code.  Clears the marks. */
static int check_ids(struct page_tensors *t, const uint32_t *ids, size_t count, bool map,
                     struct page_outcome *out)
{
    int rc = 0;
    for (size_t i = 0; i < count; i++) {
        enum page_code code = judge(t, ids[i], map);
        out->codes[i] = (uint8_t)code;
        if (code == PAGE_DONE)
            t->marks[ids[i]] = 1;
        else if (rc == 0)
            rc = blame(t, ids[i], code, &out->why);
    }
    for (size_t i = 0; i < count; i++) {
        if (out->codes[i] != PAGE_DONE)
            continue;
        t->marks[ids[i]] = 0;
        if (rc)
            out->codes[i] = PAGE_SKIPPED;
    }
    return rc;
}

static int begin(struct page_tensors *t, const uint32_t *ids, size_t count, bool map,
                 struct page_outcome *out)
{
    out->why = (struct page_error){0};
    out->driver_ns = 0;
    out->count = 0;
    if (t->doubt)
        return page_fail(&out->why, t->doubt, 0,
                         "the range is in doubt: an earlier batch could not be undone");
    if (count == 0)
        return page_fail(&out->why, -EINVAL, 0, "no page ids");
    if (count > PAGE_BATCH_MAX)
        return page_fail(&out->why, -E2BIG, 0, "%zu page ids at once; at most %d", count,
                         PAGE_BATCH_MAX);
    out->count = (uint32_t)count;
    return check_ids(t, ids, count, map, out);
}

/* Blames one id of the batch for a failure; the others are skipped. */
static int fail_at(struct page_outcome *out, const uint32_t *ids, uint32_t id, enum page_code code)
{
    for (uint32_t i = 0; i < out->count; i++)
        out->codes[i] = (uint8_t)(ids[i] == id ? code : PAGE_SKIPPED);
    return out->why.rc;
}

/* ---- the batch ---- */

static int by_id(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts the ids, so that neighbours in the range are neighbours in the batch. */
static void sort_ids(struct page_tensors *t, const uint32_t *ids, size_t count)
{
    bool ascending = true;
    for (size_t i = 1; i < count; i++)
        ascending &= ids[i - 1] < ids[i];
    memcpy(t->sorted, ids, count * sizeof *ids);
    if (!ascending)
        qsort(t->sorted, count, sizeof *t->sorted, by_id);
}

/* Where the handles of a batch are, in the order of its binds.  Handles that come from the cache in
 * a row lie side by side in the range, and go back in a row: backends join such neighbours. */
static page_handle *handle_at(struct page_tensors *t, const uint32_t *ids, size_t count, size_t n)
{
    return &t->handles[(size_t)ids[n % count] * t->geometry.pieces + n / count];
}

/* The pieces of all ids by offset: one tensor after the other, with ascending ids in each. */
static size_t fill_binds(struct page_tensors *t, size_t count)
{
    const struct page_geometry *g = &t->geometry;
    size_t total = count * g->pieces;
    for (size_t n = 0; n < total; n++)
        t->binds[n] =
            (struct page_bind){page_piece_offset(g, (uint32_t)(n / count), t->sorted[n % count]),
                               *handle_at(t, t->sorted, count, n)};
    return total;
}

static void set_states(struct page_tensors *t, size_t count, enum page_state state)
{
    for (size_t i = 0; i < count; i++)
        t->states[t->sorted[i]] = (uint8_t)state;
}

static void remember(struct page_tensors *t, enum last_op op, size_t count)
{
    t->last = op;
    t->last_count = (uint32_t)count;
    memcpy(t->last_ids, t->sorted, count * sizeof *t->last_ids);
    int64_t pages = op == LAST_MAP ? (int64_t)count : -(int64_t)count;
    t->mapped += (uint32_t)pages;
    if (t->config.limit)
        page_limit_add_mapped(t->config.limit,
                              pages * t->geometry.pieces * (int64_t)t->geometry.piece_bytes);
}

/* Binds or unbinds the pieces of t->sorted, whose handles are in place. */
static int change(struct page_tensors *t, const uint32_t *ids, size_t count, bool map,
                  struct page_outcome *out)
{
    const struct page_backend_ops *ops = t->backend->ops;
    size_t failed = 0, n = fill_binds(t, count);
    uint64_t start = hw_now_ns();
    int rc = map ? ops->bind(t->backend, t->binds, n, &failed, &out->why)
                 : ops->unbind(t->backend, t->binds, n, &failed, &out->why);
    out->driver_ns += hw_now_ns() - start;
    if (rc == 0)
        return 0;
    assert(failed < n);
    if (rc == -ENOTRECOVERABLE)
        t->doubt = rc;
    return fail_at(out, ids, t->sorted[failed % count], PAGE_DRIVER_ERROR);
}

static int take_handles(struct page_tensors *t, const uint32_t *ids, size_t count,
                        struct page_outcome *out)
{
    size_t pieces = t->geometry.pieces, made = 0;
    uint64_t start = hw_now_ns();
    int rc = page_handles_take(t->cache, t->taken, count * pieces, &made, &out->why);
    out->driver_ns += hw_now_ns() - start;
    if (rc == 0) {
        for (size_t n = 0; n < count * pieces; n++)
            *handle_at(t, t->sorted, count, n) = t->taken[n];
        return 0;
    }
    bool memory = rc == -ENOMEM || rc == -ENOSPC;
    return fail_at(out, ids, t->sorted[made / pieces],
                   memory ? PAGE_OUT_OF_MEMORY : PAGE_DRIVER_ERROR);
}

static void give_handles(struct page_tensors *t, const uint32_t *ids, size_t count)
{
    size_t total = count * t->geometry.pieces;
    for (size_t n = 0; n < total; n++)
        t->taken[n] = *handle_at(t, ids, count, n);
    page_handles_give(t->cache, t->taken, total);
}

void page_tensors_commit(struct page_tensors *t)
{
    if (t->last == LAST_UNMAP) {
        for (uint32_t i = 0; i < t->last_count; i++)
            t->states[t->last_ids[i]] = STATE_FREE;
        give_handles(t, t->last_ids, t->last_count);
    }
    t->last = LAST_NONE;
}

int page_tensors_map(struct page_tensors *t, const uint32_t *ids, size_t count,
                     struct page_outcome *out)
{
    int rc = begin(t, ids, count, true, out);
    if (rc)
        return rc;
    uint64_t start = hw_now_ns();
    page_tensors_commit(t);
    out->driver_ns += hw_now_ns() - start;
    sort_ids(t, ids, count);
    rc = take_handles(t, ids, count, out);
    if (rc)
        return rc;
    rc = change(t, ids, count, true, out);
    if (rc) {
        if (!t->doubt)
            give_handles(t, t->sorted, count);
        return rc;
    }
    set_states(t, count, STATE_MAPPED);
    remember(t, LAST_MAP, count);
    return 0;
}

/* What was queued before may still read or write the pages. */
static int finish_work(struct page_tensors *t, const uint32_t *ids, struct page_outcome *out)
{
    if (!t->config.async_sched)
        return 0;
    uint64_t start = hw_now_ns();
    int rc = t->backend->ops->finish(t->backend, &out->why);
    out->driver_ns += hw_now_ns() - start;
    return rc ? fail_at(out, ids, t->sorted[0], PAGE_DRIVER_ERROR) : 0;
}

int page_tensors_unmap(struct page_tensors *t, const uint32_t *ids, size_t count,
                       struct page_outcome *out)
{
    int rc = begin(t, ids, count, false, out);
    if (rc)
        return rc;
    sort_ids(t, ids, count);
    rc = finish_work(t, ids, out);
    if (rc)
        return rc;
    uint64_t start = hw_now_ns();
    page_tensors_commit(t);
    out->driver_ns += hw_now_ns() - start;
    rc = change(t, ids, count, false, out);
    if (rc)
        return rc;
    set_states(t, count, STATE_KEPT);
    remember(t, LAST_UNMAP, count);
    return 0;
}

int page_tensors_clear(struct page_tensors *t, struct page_outcome *out)
{
    uint32_t ids[PAGE_BATCH_MAX];
    int rc = 0;
    page_tensors_commit(t);
    for (uint32_t id = 0; id < t->geometry.pages && rc == 0;) {
        uint32_t count = 0;
        for (; id < t->geometry.pages && count < PAGE_BATCH_MAX; id++) {
            if (t->states[id] == STATE_MAPPED)
                ids[count++] = id;
        }
        if (count > 0)
            rc = page_tensors_unmap(t, ids, count, out);
    }
    page_tensors_commit(t);
    return rc;
}

int page_tensors_undo(struct page_tensors *t, struct page_outcome *out)
{
    enum last_op op = t->last;
    if (op == LAST_NONE) {
        out->driver_ns = 0;
        out->count = 0;
        return page_fail(&out->why, -ENOENT, 0, "there is no batch to undo");
    }
    uint32_t count = t->last_count;
    int rc = begin(t, t->last_ids, count, op == LAST_UNMAP, out);
    if (rc)
        return rc;
    memcpy(t->sorted, t->last_ids, count * sizeof *t->sorted);
    rc = change(t, t->last_ids, count, op == LAST_UNMAP, out);
    if (rc)
        return rc;
    set_states(t, count, op == LAST_UNMAP ? STATE_MAPPED : STATE_FREE);
    remember(t, op == LAST_UNMAP ? LAST_MAP : LAST_UNMAP, count);
    if (op == LAST_MAP)
        give_handles(t, t->sorted, count);
    t->last = LAST_NONE;
    return 0;
}

/* ---- looking ---- */

const struct page_geometry *page_tensors_geometry(const struct page_tensors *t)
{
    return &t->geometry;
}

const struct page_facts *page_tensors_facts(const struct page_tensors *t)
{
    return &t->backend->facts;
}

uint64_t page_tensors_address(const struct page_tensors *t)
{
    return t->backend->address;
}

bool page_tensors_is_mapped(const struct page_tensors *t, uint32_t id)
{
    assert(id < t->geometry.pages);
    return t->states[id] == STATE_MAPPED;
}

uint32_t page_tensors_mapped(const struct page_tensors *t)
{
    return t->mapped;
}

uint64_t page_tensors_trim(struct page_tensors *t)
{
    return page_handles_trim(t->cache, 0) * t->geometry.piece_bytes;
}

void page_tensors_stats(struct page_tensors *t, struct page_handles_stats *out)
{
    page_handles_stats(t->cache, out);
}

/* ---- contents ---- */

static int check_place(const struct page_tensors *t, const struct page_place *at, size_t len,
                       struct page_error *why)
{
    const struct page_geometry *g = &t->geometry;
    if (at->layer >= g->layers || at->kv > 1 || at->offset > g->page_bytes ||
        len > g->page_bytes - at->offset)
        return page_fail(why, -EINVAL, 0, "no such place: layer %u, kv %u, offset %llu, %zu bytes",
                         at->layer, at->kv, (unsigned long long)at->offset, len);
    int rc = page_geometry_check(g, &at->id, 1, why);
    if (rc)
        return rc;
    if (t->states[at->id] != STATE_MAPPED && t->backend->facts.stray == PAGE_STRAY_FAULTS)
        return page_fail(why, -EFAULT, 0, "page id %u is not mapped", at->id);
    return 0;
}

static uint64_t offset_of(const struct page_tensors *t, const struct page_place *at)
{
    return page_tensor_offset(&t->geometry, at->layer, at->kv, at->id) + at->offset;
}

int page_tensors_read(struct page_tensors *t, const struct page_place *at, void *dst, size_t len,
                      struct page_error *why)
{
    int rc = check_place(t, at, len, why);
    return rc ? rc : t->backend->ops->copy(t->backend, offset_of(t, at), dst, len, false, why);
}

int page_tensors_write(struct page_tensors *t, const struct page_place *at, const void *src,
                       size_t len, struct page_error *why)
{
    int rc = check_place(t, at, len, why);
    return rc ? rc
              : t->backend->ops->copy(t->backend, offset_of(t, at), (void *)(uintptr_t)src, len,
                                      true, why);
}
