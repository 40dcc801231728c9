#include "venus/memory/region.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "venus/memory/pager.h"
#include "venus/memory/twin.h"

/* Changes merged between one unlock and one relock: enough to forget the cost of the two calls,
 * few enough that the pages are still in the cache when they are compared after it. */
enum { BATCH = 16 };

struct vn_region {
    pthread_mutex_t lock; /* all that follows but the memory itself */
    struct vn_kernel *kernel;
    struct vn_track track;
    struct vn_twin twin;
    struct vn_pageset pending;   /* to be encoded */
    struct vn_pageset missing;   /* dropped; the server has them */
    struct vn_pageset asked;     /* missing and asked for */
    struct vn_pageset populated; /* whose twin has memory */
    struct vn_change *batch;     /* BATCH of them, from the first apply on */
    uint8_t *live;
    size_t bytes; /* of live: size in whole host pages */
    vn_fetch_fn *fetch;
    void *user;
    struct vn_pager_client client;
    bool has_pager;
};

/* --- life ---------------------------------------------------------------------------------- */

static bool is_foreign(const struct vn_region *region)
{
    return region->kernel->forks != vn_kernel_forks();
}

static bool differs(void *user, size_t page)
{
    struct vn_region *region = user;
    return page < vn_twin_pages(&region->twin) && !vn_pageset_has(&region->missing, page) &&
           vn_twin_differs(&region->twin, region->live, page);
}

static int map_memory(struct vn_region *region, size_t size, size_t alignment)
{
    size_t page = region->kernel->page;
    size_t bytes = (size + page - 1) / page * page;
    size_t spare = alignment > page ? alignment - page : 0;
    uint8_t *at = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -ENOMEM;
    size_t before = spare ? (size_t)(-(uintptr_t)at & (alignment - 1)) : 0;
    if (before)
        munmap(at, before);
    if (spare - before)
        munmap(at + before + bytes, spare - before);
    region->live = at + before;
    region->bytes = bytes;
    /* A write marks what the page table holds; with huge pages that is 2 MiB, to be compared. */
    (void)madvise(region->live, bytes, MADV_NOHUGEPAGE);
    return 0;
}

static int init(struct vn_region *region, const struct vn_region_params *params)
{
    int err = vn_kernel_ref(&region->kernel);
    if (!err)
        err = vn_twin_init(&region->twin, params->size);
    if (!err)
        err = map_memory(region, params->size, params->alignment);
    size_t pages = region->bytes / VN_PAGE_BYTES;
    if (!err)
        err = vn_pageset_init(&region->pending, pages);
    if (!err)
        err = vn_pageset_init(&region->missing, pages);
    if (!err)
        err = vn_pageset_init(&region->asked, pages);
    if (!err)
        err = vn_pageset_init(&region->populated, pages);
    if (!err)
        err = vn_track_init(&region->track, region->kernel, params->method, region->live,
                            region->bytes, differs, region);
    return err;
}

int vn_region_create(const struct vn_region_params *params, struct vn_region **out)
{
    size_t alignment = params->alignment;
    if (params->size == 0 || params->size > (VN_PAGES_MAX - 16) * VN_PAGE_BYTES ||
        alignment > VN_REGION_ALIGN_MAX || (alignment & (alignment - 1)))
        return -EINVAL;
    struct vn_region *region = calloc(1, sizeof(*region));
    if (!region)
        return -ENOMEM;
    pthread_mutex_init(&region->lock, NULL);
    region->fetch = params->fetch;
    region->user = params->user;
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
    if (region->live)
        munmap(region->live, region->bytes);
    vn_pageset_fini(&region->populated);
    vn_pageset_fini(&region->asked);
    vn_pageset_fini(&region->missing);
    vn_pageset_fini(&region->pending);
    vn_twin_fini(&region->twin);
    vn_kernel_unref(region->kernel);
    free(region->batch);
    if (!foreign) /* in a child it may be locked by a thread that is not there */
        pthread_mutex_destroy(&region->lock);
    free(region);
}

void *vn_region_memory(const struct vn_region *region)
{
    return region->live;
}

const char *vn_region_method(const struct vn_region *region)
{
    return region->track.ops->name;
}

/* The host pages that hold the range; false past the end. */
static bool widen(const struct vn_region *region, size_t *off, size_t *len)
{
    size_t page = region->kernel->page;
    if (*off > region->twin.size)
        return false;
    if (*len > region->twin.size - *off) {
        if (*len != SIZE_MAX)
            return false;
        *len = region->twin.size - *off;
    }
    size_t end = (*off + *len + page - 1) / page * page;
    *off = *off / page * page;
    *len = end - *off;
    return true;
}

/* --- what the program wrote ---------------------------------------------------------------- */

int vn_region_collect(struct vn_region *region, size_t off, size_t len)
{
    if (is_foreign(region))
        return -ESHUTDOWN;
    if (!widen(region, &off, &len))
        return -EINVAL;
    pthread_mutex_lock(&region->lock);
    int err = vn_track_take(&region->track, off, len, &region->pending);
    pthread_mutex_unlock(&region->lock);
    return err;
}

bool vn_region_next_pending(struct vn_region *region, size_t *off, size_t *len)
{
    if (is_foreign(region))
        return false;
    pthread_mutex_lock(&region->lock);
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

static int encode(struct vn_region *region, struct vn_delta_codec *codec, struct wire_enc *e,
                  size_t budget, enum vn_server_side server, size_t *changes)
{
    struct vn_delta_out out;
    struct vn_change change;
    size_t put = 0, pages = vn_twin_pages(&region->twin);
    vn_delta_begin(&out, e);
    for (size_t page = 0; vn_delta_has_room(&out, budget); page++) {
        page = vn_pageset_next(&region->pending, page);
        if (page >= region->pending.pages)
            break;
        vn_pageset_remove(&region->pending, page);
        if (page >= pages || !vn_twin_take(&region->twin, region->live, page, &change))
            continue;
        if (server == VN_SERVER_IS_STILL && (page + 1) * VN_PAGE_BYTES <= region->twin.size)
            vn_change_round(&change);
        vn_delta_put(&out, &change);
        vn_twin_sent(&region->twin, &change);
        put++;
    }
    int err = vn_delta_end(&out, codec);
    if (err)
        return err;
    *changes = put;
    return region->pending.count != 0;
}

int vn_region_encode(struct vn_region *region, struct vn_delta_codec *codec, struct wire_enc *e,
                     size_t budget, enum vn_server_side server, size_t *changes)
{
    assert(budget > VN_CHANGE_WIRE_MAX);
    if (is_foreign(region))
        return -ESHUTDOWN;
    pthread_mutex_lock(&region->lock);
    int more = encode(region, codec, e, budget, server, changes);
    pthread_mutex_unlock(&region->lock);
    return more;
}

static void populate_twin(struct vn_region *region, size_t page, size_t count)
{
    if (vn_pageset_run(&region->populated, page, count) == count)
        return;
    vn_twin_populate(&region->twin, page * VN_PAGE_BYTES, count * VN_PAGE_BYTES);
    vn_pageset_add_span(&region->populated, page, count);
}

/* Pages from `page` on, pending and written as a whole, at most `most`. */
static size_t count_whole(struct vn_region *region, size_t page, size_t most)
{
    size_t whole = region->twin.size / VN_PAGE_BYTES, count = 0;
    most = vn_pageset_run(&region->pending, page, most);
    if (most >= VN_WHOLE_MIN / VN_PAGE_BYTES)
        populate_twin(region, page, most);
    while (count < most && page + count < whole &&
           vn_twin_is_rewritten(&region->twin, region->live, page + count))
        count++;
    return count;
}

static bool take_whole(struct vn_region *region, size_t most, size_t *off, size_t *len)
{
    size_t page = *off / VN_PAGE_BYTES + (*off % VN_PAGE_BYTES != 0);
    while ((page = vn_pageset_next(&region->pending, page)) < region->pending.pages) {
        size_t count = count_whole(region, page, most / VN_PAGE_BYTES);
        if (count >= VN_WHOLE_MIN / VN_PAGE_BYTES) {
            *off = page * VN_PAGE_BYTES;
            *len = count * VN_PAGE_BYTES;
            vn_twin_take_whole(&region->twin, region->live, *off, *len);
            for (size_t i = page; i < page + count; i++)
                vn_pageset_remove(&region->pending, i);
            return true;
        }
        page += count + 1;
    }
    return false;
}

bool vn_region_take_whole(struct vn_region *region, size_t most, size_t *off, size_t *len,
                          const uint8_t **bytes)
{
    assert(most >= VN_WHOLE_MIN);
    if (is_foreign(region))
        return false;
    pthread_mutex_lock(&region->lock);
    bool taken = take_whole(region, most, off, len);
    pthread_mutex_unlock(&region->lock);
    if (taken)
        *bytes = region->twin.bytes + *off;
    return taken;
}

static bool is_inside(const struct vn_region *region, size_t off, size_t len)
{
    return off % VN_PAGE_BYTES == 0 && off <= region->twin.size && len <= region->twin.size - off;
}

int vn_region_read(struct vn_region *region, size_t off, size_t len, void *to)
{
    if (is_foreign(region))
        return -ESHUTDOWN;
    if (!is_inside(region, off, len))
        return -EINVAL;
    pthread_mutex_lock(&region->lock);
    vn_twin_read_live(&region->twin, region->live, off, len, to);
    pthread_mutex_unlock(&region->lock);
    return 0;
}

int vn_region_sent(struct vn_region *region, size_t off, size_t len, const void *bytes)
{
    if (is_foreign(region))
        return -ESHUTDOWN;
    size_t end = off + len;
    if (!is_inside(region, off, len) || (end % VN_PAGE_BYTES && end != region->twin.size))
        return -EINVAL;
    pthread_mutex_lock(&region->lock);
    memcpy(region->twin.bytes + off, bytes, len);
    for (size_t page = off / VN_PAGE_BYTES; page * VN_PAGE_BYTES < end; page++)
        vn_pageset_remove(&region->pending, page);
    pthread_mutex_unlock(&region->lock);
    return 0;
}

/* --- what the server wrote ----------------------------------------------------------------- */

/* The tracker has forgotten these pages; whatever the program wrote before it did shows here, and
 * what it writes from now on is marked again. */
static void remember_writes(struct vn_region *region, size_t off, size_t len)
{
    size_t end = (off + len) / VN_PAGE_BYTES;
    for (size_t page = off / VN_PAGE_BYTES; page < end; page++) {
        if (differs(region, page))
            vn_pageset_add(&region->pending, page);
    }
}

/* The first `count` changes of the batch, of consecutive pages. */
static int merge_batch(struct vn_region *region, size_t count)
{
    size_t host = region->kernel->page;
    size_t off = region->batch[0].page * VN_PAGE_BYTES / host * host;
    size_t end = (region->batch[count - 1].page * VN_PAGE_BYTES / host + 1) * host;
    int err = vn_track_unlock(&region->track, off, end - off);
    if (err)
        return err;
    for (size_t i = 0; i < count; i++)
        vn_twin_merge(&region->twin, region->live, &region->batch[i]);
    if (vn_track_relock(&region->track, off, end - off))
        remember_writes(region, off, end - off);
    return 0;
}

static int merge(struct vn_region *region, struct vn_delta_in *in)
{
    size_t count = 0;
    int err = 0;
    while (!err && vn_delta_next(in, &region->batch[count])) {
        struct vn_change *got = &region->batch[count];
        if (vn_pageset_has(&region->missing, got->page))
            continue; /* a fetch will bring this and all else */
        if (count && got->page != region->batch[count - 1].page + 1) {
            err = merge_batch(region, count);
            region->batch[0] = *got;
            count = 0;
        }
        if (!err && ++count == BATCH) {
            err = merge_batch(region, count);
            count = 0;
        }
    }
    return err || count == 0 ? err : merge_batch(region, count);
}

static int apply(struct vn_region *region, struct vn_delta_in *in)
{
    if (!region->batch)
        region->batch = malloc(BATCH * sizeof(*region->batch));
    return region->batch ? merge(region, in) : -ENOMEM;
}

int vn_region_apply(struct vn_region *region, struct vn_delta_codec *codec, const void *data,
                    size_t len)
{
    struct vn_delta_in in;
    if (is_foreign(region))
        return -ESHUTDOWN;
    int err = vn_delta_open(codec, data, len, region->twin.size, &in);
    if (err)
        return err;
    pthread_mutex_lock(&region->lock);
    err = apply(region, &in);
    pthread_mutex_unlock(&region->lock);
    return err;
}

/* --- pages that are at the server ---------------------------------------------------------- */

static void forget_missing(struct vn_region *region)
{
    if (region->missing.count == 0)
        return;
    if (vn_kernel_watch(region->kernel, (uintptr_t)region->live, region->bytes, false))
        return;
    for (size_t page = 0;
         (page = vn_pageset_next(&region->missing, page)) < region->missing.pages;) {
        vn_pageset_remove(&region->missing, page);
        vn_pageset_remove(&region->asked, page);
    }
    vn_kernel_wake(region->kernel, (uintptr_t)region->live, region->bytes);
}

void vn_region_lose(struct vn_region *region)
{
    if (is_foreign(region))
        return;
    pthread_mutex_lock(&region->lock);
    forget_missing(region);
    pthread_mutex_unlock(&region->lock);
}

/* The missing pages around `page` that nobody has asked for, within one window. */
static size_t choose_fetch(struct vn_region *region, size_t page, size_t *first)
{
    enum { WINDOW = VN_FETCH_BYTES / VN_PAGE_BYTES };
    size_t start = page, low = page / WINDOW * WINDOW;
    while (start > low && vn_pageset_has(&region->missing, start - 1) &&
           !vn_pageset_has(&region->asked, start - 1))
        start--;
    size_t end = start;
    while (end < low + WINDOW && end < region->missing.pages &&
           vn_pageset_has(&region->missing, end) && !vn_pageset_has(&region->asked, end))
        vn_pageset_add(&region->asked, end++);
    *first = start;
    return end - start;
}

/* The page was filled or kept meanwhile, and the access finds it now; or the program itself threw
 * it away, and gets what the server is known to have. */
static void install_known(struct vn_region *region, uintptr_t addr)
{
    size_t host = region->kernel->page, off = (addr - (uintptr_t)region->live) / host * host;
    uintptr_t at = (uintptr_t)region->live + off;
    if (vn_kernel_install(region->kernel, at, region->twin.bytes + off, host, true))
        vn_kernel_wake(region->kernel, at, host);
}

/* On the pager's thread. */
static void on_missing(struct vn_pager_client *client, uintptr_t addr)
{
    struct vn_region *region = CONTAINER_OF(client, struct vn_region, client);
    size_t page = (addr - (uintptr_t)region->live) / VN_PAGE_BYTES, first = 0, count = 0;
    pthread_mutex_lock(&region->lock);
    if (!vn_pageset_has(&region->missing, page))
        install_known(region, addr);
    else if (!vn_pageset_has(&region->asked, page))
        count = choose_fetch(region, page, &first);
    pthread_mutex_unlock(&region->lock);
    if (count == 0)
        return;
    size_t off = first * VN_PAGE_BYTES, len = count * VN_PAGE_BYTES;
    if (off + len > region->twin.size)
        len = region->twin.size - off;
    int err = region->fetch(region->user, off, len);
    if (err < 0) {
        hw_warn(HW_CAT_MEMORY, "mapped memory at the server cannot be fetched (%d): it reads as 0",
                err);
        vn_region_lose(region);
    }
}

static bool can_drop(const struct vn_region *region)
{
    return region->fetch && region->kernel->serves_kernel &&
           region->track.ops == &vn_track_userfaultfd;
}

static int attach_pager(struct vn_region *region)
{
    if (region->has_pager)
        return 0;
    region->client = (struct vn_pager_client){.start = (uintptr_t)region->live,
                                              .end = (uintptr_t)region->live + region->bytes,
                                              .fault = on_missing};
    int err = vn_pager_attach(region->kernel, &region->client);
    region->has_pager = err == 0;
    return err;
}

/* Pages moved out of the mapping, where nobody can write them any more. */
struct moved {
    struct vn_region *region;
    size_t off;
    uintptr_t at;
    int err;
};

/* A page with writes of the program goes back, and stays. */
static void restore_written(void *user, uintptr_t addr, size_t len)
{
    struct moved *moved = user;
    struct vn_region *region = moved->region;
    size_t host = region->kernel->page;
    for (size_t i = 0; i < len && !moved->err; i += host) {
        size_t off = moved->off + (addr - moved->at) + i;
        /* The page as it would be in the mapping, so that its twin is found. */
        const uint8_t *as_live = (const uint8_t *)addr + i - off;
        bool written = false;
        for (size_t p = off / VN_PAGE_BYTES; p < (off + host) / VN_PAGE_BYTES; p++) {
            if (p < vn_twin_pages(&region->twin) && vn_twin_differs(&region->twin, as_live, p)) {
                vn_pageset_add(&region->pending, p);
                written = true;
            }
        }
        if (!written)
            continue;
        for (size_t p = off / VN_PAGE_BYTES; p < (off + host) / VN_PAGE_BYTES; p++)
            vn_pageset_remove(&region->missing, p);
        moved->err = vn_kernel_install(region->kernel, (uintptr_t)region->live + off,
                                       (const void *)(addr + i), host, false);
    }
}

/* Takes the pages out of the mapping in one step.  Whoever touches them from here on waits for
 * the pager, which waits for the region's lock. */
static int move_out(struct vn_region *region, size_t off, size_t len)
{
    uintptr_t start = (uintptr_t)region->live + off;
    int err = vn_kernel_watch(region->kernel, start, len, true);
    if (err)
        return err;
    void *at = mremap((void *)start, len, len, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (at == MAP_FAILED) {
        err = -errno;
        if (vn_kernel_watch(region->kernel, start, len, false) == 0)
            vn_kernel_wake(region->kernel, start, len);
        return err;
    }
    vn_pageset_add_span(&region->missing, off / VN_PAGE_BYTES, len / VN_PAGE_BYTES);
    struct moved moved = {.region = region, .off = off, .at = (uintptr_t)at};
    err = vn_kernel_populated(region->kernel, moved.at, len, restore_written, &moved);
    munmap(at, len);
    return err ? err : moved.err;
}

static void drop_twin(struct vn_region *region, size_t first, size_t end)
{
    for (size_t page = first; (page = vn_pageset_next(&region->missing, page)) < end;) {
        size_t run = vn_pageset_run(&region->missing, page, end - page);
        (void)madvise(region->twin.bytes + page * VN_PAGE_BYTES, run * VN_PAGE_BYTES,
                      MADV_DONTNEED);
        for (size_t i = page; i < page + run; i++) {
            vn_pageset_remove(&region->pending, i);
            vn_pageset_remove(&region->populated, i);
        }
        page += run;
    }
}

static void tell_kept(struct vn_region *region, size_t off, size_t len, vn_kept_fn *kept,
                      void *user)
{
    size_t end = off + len;
    while (kept && off < end) {
        size_t stop = off;
        pthread_mutex_lock(&region->lock);
        while (off < end && vn_pageset_has(&region->missing, off / VN_PAGE_BYTES))
            off += VN_PAGE_BYTES;
        for (stop = off; stop < end && !vn_pageset_has(&region->missing, stop / VN_PAGE_BYTES);)
            stop += VN_PAGE_BYTES;
        pthread_mutex_unlock(&region->lock);
        if (stop > off)
            kept(user, off, (stop < region->twin.size ? stop : region->twin.size) - off);
        off = stop;
    }
}

int vn_region_drop(struct vn_region *region, size_t off, size_t len, vn_kept_fn *kept, void *user)
{
    if (is_foreign(region))
        return -ESHUTDOWN;
    if (!widen(region, &off, &len))
        return -EINVAL;
    int err = 0;
    pthread_mutex_lock(&region->lock);
    if (len && can_drop(region)) {
        err = attach_pager(region);
        if (!err)
            err = move_out(region, off, len);
        if (!err)
            drop_twin(region, off / VN_PAGE_BYTES, (off + len) / VN_PAGE_BYTES);
    }
    pthread_mutex_unlock(&region->lock);
    if (!err)
        tell_kept(region, off, len, kept, user);
    return err;
}

static int fill_run(struct vn_region *region, size_t page, size_t run, const uint8_t *from,
                    size_t len)
{
    uint8_t *twin = region->twin.bytes + page * VN_PAGE_BYTES;
    memcpy(twin, from, len);
    for (size_t i = page; i < page + run; i++) {
        vn_pageset_remove(&region->missing, i);
        vn_pageset_remove(&region->asked, i);
    }
    return vn_kernel_install(region->kernel, (uintptr_t)region->live + page * VN_PAGE_BYTES, twin,
                             run * VN_PAGE_BYTES, true);
}

int vn_region_fill(struct vn_region *region, size_t off, const void *data, size_t len)
{
    if (is_foreign(region))
        return -ESHUTDOWN;
    size_t whole_off = off, whole_len = len, end = off + len;
    if (!widen(region, &whole_off, &whole_len) || whole_off != off ||
        (end != region->twin.size && whole_len != len))
        return -EINVAL;
    const uint8_t *from = data;
    size_t page = off / VN_PAGE_BYTES, last = (off + whole_len) / VN_PAGE_BYTES;
    int err = 0;
    pthread_mutex_lock(&region->lock);
    while (!err && (page = vn_pageset_next(&region->missing, page)) < last) {
        size_t run = vn_pageset_run(&region->missing, page, last - page);
        size_t at = page * VN_PAGE_BYTES, stop = at + run * VN_PAGE_BYTES;
        err = fill_run(region, page, run, from + (at - off), (stop < end ? stop : end) - at);
        page += run;
    }
    pthread_mutex_unlock(&region->lock);
    return err;
}
