#include "venus/memory/region_impl.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of pages that travel as a whole in any case one in so many is looked at: each look misses every
 * cache. */
enum { LOOK_EVERY = 8 };

/* --- life ---------------------------------------------------------------------------------- */

static bool is_foreign(const struct vn_region *region)
{
    return region->kernel->forks != vn_kernel_forks();
}

bool vn_region_enter(struct vn_region *region)
{
    if (is_foreign(region))
        return false;
    pthread_mutex_lock(&region->lock);
    return true;
}

static bool differs(void *user, size_t page)
{
    struct vn_region *region = user;
    /* What is awaited stays writable for who receives it, and is not pending for all that. */
    if (vn_pageset_has(&region->awaited, page) || vn_pageset_has(&region->unshadowed, page))
        return true;
    return page < vn_shadow_pages(&region->shadow) && !vn_pageset_has(&region->missing, page) &&
           vn_shadow_differs(&region->shadow, region->memory, page);
}

/* Fresh memory at `to`, or (NULL) where there is room; NULL when there is none. */
static uint8_t *map_memory(const struct vn_region *region, uint8_t *to)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t page = region->kernel->page, bytes = region->bytes;
    size_t spare = !to && region->alignment > page ? region->alignment - page : 0;
    uint8_t *at =
        mmap(to, bytes + spare, PROT_READ | PROT_WRITE, flags | (to ? MAP_FIXED : 0), -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    size_t before = spare ? (size_t)(-(uintptr_t)at & (region->alignment - 1)) : 0;
    if (before)
        munmap(at, before);
    if (spare - before)
        munmap(at + before + bytes, spare - before);
    /* The kernel reports what one page-table entry holds: 2 MiB to compare with huge pages. */
    (void)madvise(at + before, bytes, MADV_NOHUGEPAGE);
    return at + before;
}

static int init(struct vn_region *region, const struct vn_region_params *params)
{
    int err = vn_kernel_ref(&region->kernel);
    if (!err)
        err = vn_shadow_init(&region->shadow, params->size);
    region->shadow.near = params->near;
    size_t page = err ? 1 : region->kernel->page;
    region->bytes = (params->size + page - 1) / page * page;
    region->borrowed = params->borrowed;
    if (!err && params->borrowed)
        region->memory = params->borrowed;
    else if (!err)
        err = (region->memory = map_memory(region, NULL)) ? 0 : -ENOMEM;
    struct vn_pageset *const sets[] = {&region->pending,  &region->whole,   &region->unshadowed,
                                       &region->returned, &region->awaited, &region->missing,
                                       &region->requested};
    for (size_t i = 0; !err && i < ARRAY_LEN(sets); i++)
        err = vn_pageset_init(sets[i], region->bytes / VN_PAGE_BYTES);
    /* Where all is overwritten first, nothing is sent. */
    if (!err && region->borrowed)
        vn_pageset_add_span(&region->returned, 0, vn_shadow_pages(&region->shadow));
    if (!err)
        err = vn_track_init(&region->track, region->kernel,
                            region->borrowed ? VN_TRACK_BORROWED : params->method, region->memory,
                            region->bytes, differs, region);
    return err;
}

int vn_region_create(const struct vn_region_params *params, struct vn_region **out)
{
    size_t alignment = params->alignment;
    if (params->size == 0 || params->size > (VN_PAGES_MAX - 16) * VN_PAGE_BYTES ||
        alignment > VN_REGION_ALIGN_MAX || (alignment & (alignment - 1)))
        return -EINVAL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (params->borrowed && ((uintptr_t)params->borrowed % page || params->size % page))
        return -EINVAL;
    struct vn_region *region = calloc(1, sizeof(*region));
    if (!region)
        return -ENOMEM;
    pthread_mutex_init(&region->lock, NULL);
    atomic_init(&region->refs, 1);
    region->moves = params->moves;
    region->fetch = params->fetch;
    region->user = params->user;
    region->alignment = params->alignment;
    region->method = params->method;
    int err = init(region, params);
    if (err) {
        vn_region_destroy(region);
        return err;
    }
    *out = region;
    return 0;
}

void vn_region_destroy(struct vn_region *region)
{
    if (!region)
        return;
    bool foreign = region->kernel && is_foreign(region);
    if (region->has_pager && !foreign)
        vn_pager_detach(&region->client);
    vn_track_fini(&region->track);
    vn_demand_fini(region);
    vn_pageset_fini(&region->requested);
    vn_pageset_fini(&region->missing);
    vn_pageset_fini(&region->awaited);
    vn_pageset_fini(&region->returned);
    vn_pageset_fini(&region->unshadowed);
    vn_pageset_fini(&region->whole);
    vn_pageset_fini(&region->pending);
    vn_shadow_fini(&region->shadow);
    vn_kernel_unref(region->kernel);
    if (!foreign) /* a thread of the parent may hold it */
        pthread_mutex_destroy(&region->lock);
    vn_region_leave(region);
}

/* Release and acquire: whoever frees comes after all others. */
void vn_region_leave(struct vn_region *region)
{
    if (atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (region->memory && !region->borrowed)
        munmap(region->memory, region->bytes);
    free(region);
}

void *vn_region_memory(const struct vn_region *region)
{
    return region->memory;
}

/* Somebody wants to know what the program wrote there.  A few pages without shadow copies are sent
 * as they are, such as the last one of a readback that ends inside it. */
static void look_at(struct vn_region *region, size_t first, size_t end)
{
    size_t without = 0;
    for (size_t page = first;
         !region->needs_shadow && (page = vn_pageset_next(&region->returned, page)) < end; page++) {
        without +=
            vn_pageset_has(&region->unshadowed, page) && !vn_pageset_has(&region->awaited, page);
        region->needs_shadow = without * VN_PAGE_BYTES >= VN_WHOLE_MIN;
    }
    if (region->returned.count)
        vn_pageset_remove_span(&region->returned, first, end - first);
}

static void spare_awaited(struct vn_region *region, size_t first, size_t end)
{
    for (size_t page = first; (page = vn_pageset_next(&region->awaited, page)) < end; page++)
        vn_pageset_remove(&region->pending, page);
}

/* --- moving -------------------------------------------------------------------------------- */

struct move {
    struct vn_region *region;
    uint8_t *to;
};

/* What tracking knew of the old pages is gone: those that were ever touched are looked at again. */
static void move_span(void *user, uintptr_t addr, size_t len)
{
    const struct move *move = user;
    size_t off = addr - (uintptr_t)move->region->memory;
    memcpy(move->to + off, move->region->memory + off, len);
    vn_pageset_add_span(&move->region->pending, off / VN_PAGE_BYTES, len / VN_PAGE_BYTES);
}

/* Ends a mapping; reserved addresses are not given to anybody else. */
static void leave(void *at, size_t bytes, bool reserve)
{
    if (reserve)
        (void)mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                   -1, 0);
    else
        munmap(at, bytes);
}

static int move(struct vn_region *region, uint8_t *to, bool reserve)
{
    struct vn_track track;
    struct move move = {region, map_memory(region, to)};
    if (!move.to)
        return -ENOMEM;
    int err = vn_kernel_populated(region->kernel, (uintptr_t)region->memory, region->bytes,
                                  move_span, &move);
    if (!err)
        err = vn_track_init(&track, region->kernel, region->method, move.to, region->bytes, differs,
                            region);
    if (err) {
        leave(move.to, region->bytes, to != NULL);
        return err;
    }
    look_at(region, 0, region->pending.pages);
    spare_awaited(region, 0, region->pending.pages);
    vn_track_fini(&region->track);
    leave(region->memory, region->bytes, reserve);
    region->track = track;
    region->memory = move.to;
    return 0;
}

int vn_region_move(struct vn_region *region, void *to, bool reserve)
{
    uintptr_t at = (uintptr_t)to, bytes = region->bytes, from = (uintptr_t)region->memory;
    if (at % region->kernel->page || (to && at < from + bytes && from < at + bytes))
        return -EINVAL;
    if (!region->moves || region->borrowed || vn_region_can_drop(region))
        return -ENOTSUP;
    if (!vn_region_enter(region))
        return -ESHUTDOWN;
    int err = move(region, to, reserve);
    pthread_mutex_unlock(&region->lock);
    return err;
}

const char *vn_region_method(const struct vn_region *region)
{
    return region->track.ops->name;
}

bool vn_region_widen(const struct vn_region *region, size_t *off, size_t *len)
{
    size_t page = region->kernel->page;
    if (*off > region->shadow.size)
        return false;
    if (*len > region->shadow.size - *off) {
        if (*len != SIZE_MAX)
            return false;
        *len = region->shadow.size - *off;
    }
    size_t end = (*off + *len + page - 1) / page * page;
    *off = *off / page * page;
    *len = end - *off;
    return true;
}

/* --- what the program wrote ---------------------------------------------------------------- */

int vn_region_collect(struct vn_region *region, size_t off, size_t len)
{
    if (!vn_region_widen(region, &off, &len))
        return -EINVAL;
    if (!vn_region_enter(region))
        return -ESHUTDOWN;
    size_t first = off / VN_PAGE_BYTES, end = first + len / VN_PAGE_BYTES;
    look_at(region, first, end);
    int err = vn_track_take(&region->track, off, len, &region->pending);
    spare_awaited(region, first, end);
    pthread_mutex_unlock(&region->lock);
    return err;
}

bool vn_region_next_pending(struct vn_region *region, size_t *off, size_t *len)
{
    if (!vn_region_enter(region))
        return false;
    size_t from = *off / VN_PAGE_BYTES + (*off % VN_PAGE_BYTES != 0);
    size_t page = vn_pageset_next(&region->pending, from);
    size_t run = vn_pageset_run(&region->pending, page, region->pending.pages);
    pthread_mutex_unlock(&region->lock);
    if (run == 0)
        return false;
    *off = page * VN_PAGE_BYTES;
    *len = run * VN_PAGE_BYTES;
    return true;
}

/* Copies an unshadowed page, as it is now, to its shadow copy. */
static void give_shadow(struct vn_region *region, size_t page)
{
    vn_shadow_take_whole(&region->shadow, region->memory, page * VN_PAGE_BYTES, VN_PAGE_BYTES);
    vn_pageset_remove(&region->unshadowed, page);
}

/* Puts the page's changed bytes; whether there are any. */
static bool put_page(struct vn_region *region, struct vn_delta_out *out, size_t page,
                     enum vn_server_side server)
{
    struct vn_change change;
    vn_pageset_remove(&region->whole, page);
    if (vn_pageset_has(&region->unshadowed, page)) {
        give_shadow(region, page);
        vn_delta_put_page(out, page, region->shadow.bytes + page * VN_PAGE_BYTES);
        return true;
    }
    if (page >= vn_shadow_pages(&region->shadow) ||
        !vn_shadow_take(&region->shadow, region->memory, page, &change))
        return false;
    if (server == VN_SERVER_IS_STILL && (page + 1) * VN_PAGE_BYTES <= region->shadow.size)
        vn_change_round(&change);
    vn_delta_put(out, &change);
    vn_shadow_sent(&region->shadow, &change);
    return true;
}

static int encode(struct vn_region *region, struct vn_delta_codec *codec, struct wire_enc *e,
                  size_t budget, enum vn_server_side server, size_t *changes)
{
    struct vn_delta_out out;
    size_t pages = region->pending.pages, put = 0;
    size_t pending = vn_pageset_next(&region->pending, 0), saved = vn_demand_next_saved(region, 0);
    vn_delta_begin(&out, e);
    region->sending = (struct vn_pages){0};
    /* A delta names pages in ascending order.  A missing page is not pending. */
    while ((pending < pages || saved < pages) && vn_delta_has_room(&out, budget)) {
        if (saved < pending) {
            put += vn_demand_put(region, &out, saved);
            saved = vn_demand_next_saved(region, saved + 1);
        } else {
            vn_pageset_remove(&region->pending, pending);
            put += put_page(region, &out, pending, server);
            pending = vn_pageset_next(&region->pending, pending);
        }
    }
    int err = vn_delta_end(&out, codec);
    if (err)
        return err;
    *changes = put;
    return pending < pages || saved < pages;
}

int vn_region_encode(struct vn_region *region, struct vn_delta_codec *codec, struct wire_enc *e,
                     size_t budget, enum vn_server_side server, size_t *changes)
{
    assert(budget > VN_CHANGE_WIRE_MAX);
    if (!vn_region_enter(region))
        return -ESHUTDOWN;
    int more = encode(region, codec, e, budget, server, changes);
    pthread_mutex_unlock(&region->lock);
    return more;
}

/* Pages from `page` on, pending and written as a whole, at most `most`.  Memory for their shadow
 * copies comes in one call: the look and the copy would be two faults a page. */
static size_t count_whole(struct vn_region *region, size_t page, size_t most)
{
    size_t count = vn_pageset_run(&region->pending, page, most);
    size_t whole = region->shadow.size / VN_PAGE_BYTES; /* in the region */
    size_t end = page + count < whole ? page + count : whole;
    if (end < page + VN_WHOLE_MIN / VN_PAGE_BYTES)
        return end > page ? end - page : 0;
    if (!vn_shadow_is_rewritten(&region->shadow, region->memory, page))
        return 0;
    if (vn_pageset_run(&region->whole, page, end - page) < end - page)
        vn_shadow_populate(&region->shadow, page * VN_PAGE_BYTES, (end - page) * VN_PAGE_BYTES);
    size_t unshadowed = page + vn_pageset_run(&region->unshadowed, page, end - page);
    size_t at = page + vn_shadow_count_rewritten(&region->shadow, region->memory, page, unshadowed,
                                                 LOOK_EVERY);
    if (at == unshadowed)
        at += vn_shadow_count_rewritten(&region->shadow, region->memory, at, end, 1);
    return at - page;
}

/* Of a page that is dropped only the shadow copy is left. */
static bool can_be_unshadowed(const struct vn_region *region, size_t page, size_t count)
{
    return !vn_region_can_drop(region) && vn_pageset_run(&region->whole, page, count) == count;
}

/* Where to send the pages from. */
static const uint8_t *take_run(struct vn_region *region, size_t page, size_t count)
{
    size_t off = page * VN_PAGE_BYTES;
    bool unshadowed = can_be_unshadowed(region, page, count);
    if (unshadowed)
        vn_shadow_take_samples(&region->shadow, region->memory, page, count, LOOK_EVERY);
    else
        vn_shadow_take_whole(&region->shadow, region->memory, off, count * VN_PAGE_BYTES);
    vn_pageset_remove_span(&region->pending, page, count);
    (unshadowed ? vn_pageset_add_span : vn_pageset_remove_span)(&region->unshadowed, page, count);
    vn_pageset_add_span(&region->whole, page, count);
    region->sending = (struct vn_pages){.first = page, .end = page + count};
    return (unshadowed ? region->memory : region->shadow.bytes) + off;
}

static const uint8_t *take_whole(struct vn_region *region, size_t most, size_t *off, size_t *len)
{
    enum { LEAST = VN_WHOLE_MIN / VN_PAGE_BYTES };
    size_t page = *off / VN_PAGE_BYTES + (*off % VN_PAGE_BYTES != 0);
    most /= VN_PAGE_BYTES;
    while ((page = vn_pageset_next(&region->pending, page)) < region->pending.pages) {
        size_t count = count_whole(region, page, most + LEAST);
        if (count > most) /* the rest is then long enough as well */
            count -= LEAST;
        if (count >= LEAST) {
            *off = page * VN_PAGE_BYTES;
            *len = count * VN_PAGE_BYTES;
            return take_run(region, page, count);
        }
        page += count + 1;
    }
    return NULL;
}

bool vn_region_take_whole(struct vn_region *region, size_t most, size_t *off, size_t *len,
                          const uint8_t **bytes)
{
    assert(most >= 2 * VN_WHOLE_MIN);
    if (!vn_region_enter(region))
        return false;
    const uint8_t *taken = take_whole(region, most, off, len);
    pthread_mutex_unlock(&region->lock);
    if (taken)
        *bytes = taken;
    return taken;
}

int vn_region_expect(struct vn_region *region, size_t off, size_t len, bool filled)
{
    if (!vn_region_widen(region, &off, &len))
        return -EINVAL;
    if (!vn_region_enter(region))
        return -ESHUTDOWN;
    size_t first = off / VN_PAGE_BYTES, end = first + len / VN_PAGE_BYTES;
    if (filled) /* a readback of another length, of which nobody wants what it overwrites */
        vn_pageset_remove_span(&region->returned, first, end - first);
    else
        look_at(region, first, end);
    vn_pageset_remove_span(&region->whole, first, end - first); /* none becomes unshadowed now */
    for (size_t page = first; (page = vn_pageset_next(&region->unshadowed, page)) < end; page++)
        vn_pageset_add(&region->pending, page);
    spare_awaited(region, first, end);
    pthread_mutex_unlock(&region->lock);
    return 0;
}

size_t vn_region_may_await(struct vn_region *region, size_t off, size_t len)
{
    size_t first = off / VN_PAGE_BYTES, end = first + len / VN_PAGE_BYTES, returned = 0;
    assert(off % VN_PAGE_BYTES == 0 && len % VN_PAGE_BYTES == 0);
    if (len < VN_WHOLE_MIN || vn_region_can_drop(region) || !vn_region_enter(region))
        return 0;
    bool may = !region->needs_shadow && end <= region->shadow.size / VN_PAGE_BYTES &&
               vn_pageset_next(&region->awaited, first) >= end;
    size_t leading = may ? vn_pageset_run(&region->returned, first, end - first) : 0;
    for (size_t page = first; may && (page = vn_pageset_next(&region->returned, page)) < end;) {
        size_t run = vn_pageset_run(&region->returned, page, end - page);
        returned += run;
        page += run;
    }
    pthread_mutex_unlock(&region->lock);
    if (may && returned >= (end - first) / 4 * 3)
        return len;
    return leading * VN_PAGE_BYTES >= VN_WHOLE_MIN ? leading * VN_PAGE_BYTES : 0;
}

void vn_region_await(struct vn_region *region, size_t off, size_t len)
{
    size_t first = off / VN_PAGE_BYTES, count = len / VN_PAGE_BYTES;
    if (!vn_region_enter(region))
        return;
    assert(vn_pageset_next(&region->awaited, first) >= first + count);
    vn_pageset_remove_span(&region->whole, first, count);
    vn_pageset_add_span(&region->awaited, first, count);
    spare_awaited(region, first, first + count);
    pthread_mutex_unlock(&region->lock);
}

/* --- what the server wrote ----------------------------------------------------------------- */

static bool is_placed(const struct vn_region *region, size_t page, const uint8_t *bytes)
{
    return bytes == region->memory + page * VN_PAGE_BYTES;
}

/* Pages that a device has rewritten, or is rewriting.  Where most have the bytes that they had, the
 * server is to compare them the next time.  Of what they had before others were received there,
 * their shadow copies, of no other use now, have a sample. */
static void store_awaited(struct vn_region *region, size_t page, size_t count, const uint8_t *bytes)
{
    size_t looks = 0, rewritten = 0;
    bool placed = is_placed(region, page, bytes);
    const uint8_t *before = placed ? region->shadow.bytes : region->memory;
    for (size_t i = 0; i < count; i += LOOK_EVERY, looks++)
        rewritten += vn_shadow_is_news(before, page + i, bytes + i * VN_PAGE_BYTES);
    if (2 * rewritten < looks)
        vn_pageset_remove_span(&region->returned, page, count);
    if (!placed)
        vn_shadow_put_memory(region->memory, page * VN_PAGE_BYTES, bytes, count * VN_PAGE_BYTES);
}

static int begin_write(struct vn_region *region, size_t page, size_t count)
{
    size_t off = page * VN_PAGE_BYTES, len = count * VN_PAGE_BYTES;
    return vn_region_widen(region, &off, &len) ? vn_track_begin_write(&region->track, off, len)
                                               : -EINVAL;
}

uint8_t *vn_region_place(struct vn_region *region, uint64_t off, size_t len)
{
    size_t page = (size_t)off / VN_PAGE_BYTES, count = len / VN_PAGE_BYTES;
    if (off % VN_PAGE_BYTES || len % VN_PAGE_BYTES || off > region->shadow.size ||
        len > region->shadow.size - off || region->moves || region->borrowed ||
        !vn_region_enter(region))
        return NULL;
    bool may = vn_pageset_run(&region->awaited, page, count) == count &&
               begin_write(region, page, count) == 0;
    for (size_t i = 0; may && i < count; i += LOOK_EVERY)
        vn_shadow_take_sample(&region->shadow, region->memory, page + i);
    if (may)
        atomic_fetch_add_explicit(&region->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&region->lock);
    return may ? region->memory + off : NULL;
}

/* Who looked at a page meanwhile needs its shadow copy. */
void vn_region_arrived(struct vn_region *region, size_t off, size_t len)
{
    size_t page = off / VN_PAGE_BYTES, end = page + len / VN_PAGE_BYTES;
    if (!vn_region_enter(region))
        return;
    for (; (page = vn_pageset_next(&region->awaited, page)) < end; page++) {
        vn_pageset_remove(&region->awaited, page);
        if (vn_pageset_has(&region->returned, page))
            vn_pageset_add(&region->unshadowed, page);
        else
            give_shadow(region, page);
    }
    pthread_mutex_unlock(&region->lock);
}

/* A run of pages, none of them missing. */
static int store_run(struct vn_region *region, size_t page, size_t count, const uint8_t *bytes)
{
    size_t end = page + count;
    int err = is_placed(region, page, bytes) ? 0 : begin_write(region, page, count);
    for (size_t part; !err && page < end; page += part, bytes += part * VN_PAGE_BYTES) {
        size_t awaited = vn_pageset_next(&region->awaited, page);
        part = vn_pageset_run(&region->awaited, page, end - page);
        if (part) {
            store_awaited(region, page, part, bytes);
            continue;
        }
        part = (awaited < end ? awaited : end) - page;
        vn_shadow_put_whole(&region->shadow, region->memory, page * VN_PAGE_BYTES, bytes,
                            part * VN_PAGE_BYTES);
        vn_pageset_remove_span(&region->unshadowed, page, part);
        vn_pageset_add_span(&region->returned, page, part);
    }
    return err;
}

static int merge(struct vn_region *region, struct vn_delta_in *in, size_t *changed)
{
    size_t host = region->kernel->page;
    struct vn_change change;
    while (vn_delta_next(in, &change)) {
        size_t page = change.page;
        *changed += vn_change_bytes(&change);
        if (vn_pageset_has(&region->missing, page))
            continue; /* a fetch will bring it */
        bool stored = vn_pageset_has(&region->awaited, page) && vn_change_is_whole(&change);
        int err =
            stored ? store_run(region, page, 1, change.bytes)
                   : vn_track_begin_write(&region->track, page * VN_PAGE_BYTES / host * host, host);
        if (err)
            return err;
        if (stored)
            continue;
        /* The server's bytes, of which there is no copy: another batch wrote a part since. */
        if (vn_pageset_has(&region->unshadowed, page) || vn_pageset_has(&region->awaited, page))
            give_shadow(region, page);
        vn_shadow_merge(&region->shadow, region->memory, &change);
    }
    return 0;
}

int vn_region_apply(struct vn_region *region, struct vn_delta_codec *codec, const void *data,
                    size_t len, size_t *changed)
{
    struct vn_delta_in in;
    *changed = 0;
    int err = vn_delta_open(codec, data, len, region->shadow.size, &in);
    if (err)
        return err;
    if (!vn_region_enter(region))
        return -ESHUTDOWN;
    err = merge(region, &in, changed);
    pthread_mutex_unlock(&region->lock);
    return err;
}

int vn_region_store(struct vn_region *region, uint64_t off, const uint8_t *bytes, size_t len)
{
    if (off % VN_PAGE_BYTES || len % VN_PAGE_BYTES || off > region->shadow.size ||
        len > region->shadow.size - off)
        return -EPROTO;
    size_t first = (size_t)off / VN_PAGE_BYTES, end = first + len / VN_PAGE_BYTES, page = first;
    int err = 0;
    if (!vn_region_enter(region))
        return -ESHUTDOWN;
    while (!err && page < end) {
        size_t missing = vn_pageset_next(&region->missing, page);
        size_t stop = missing < end ? missing : end;
        if (stop > page)
            err = store_run(region, page, stop - page, bytes + (page - first) * VN_PAGE_BYTES);
        page = stop;
        size_t run = err ? 0 : vn_pageset_run(&region->missing, page, end - page);
        if (run)
            err = vn_demand_store(region, page, run, bytes + (page - first) * VN_PAGE_BYTES);
        page += run;
    }
    pthread_mutex_unlock(&region->lock);
    return err;
}
