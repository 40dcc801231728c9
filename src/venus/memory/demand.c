/* Pages of a region that are at the server; see region_impl.h.
 *
 * A dropped page may hold bytes that the program wrote and that were not sent.  They are saved: the
 * next delta sends them, and they are laid over the server's content when that comes.  A byte that
 * was sent before the page was requested is in the answer, unless a device has written it since.  A
 * byte that was sent after the request is not in the answer, and is laid over it as well.  So saved
 * writes that were all sent are forgotten, unless a request is under way. */
#include "venus/memory/region_impl.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

/* ---- saved writes ---- */

static bool is_saved(const struct vn_region *region, size_t page)
{
    return region->saved_count && region->saved[page];
}

static void discard_saved(struct vn_region *region, size_t page)
{
    if (!is_saved(region, page))
        return;
    free(region->saved[page]);
    region->saved[page] = NULL;
    region->saved_count--;
}

void vn_demand_fini(struct vn_region *region)
{
    for (size_t page = 0; region->saved_count; page++)
        discard_saved(region, page);
    free(region->saved);
}

/* Saves what differs from the shadow copy; as_mapped is where the mapping would begin. */
static int save_writes(struct vn_region *region, const uint8_t *as_mapped, size_t page)
{
    struct vn_change change;
    if (!vn_shadow_take(&region->shadow, as_mapped, page, &change))
        return 0;
    if (!region->saved)
        region->saved = calloc(region->missing.pages, sizeof(struct vn_change *));
    struct vn_change *saved = region->saved ? malloc(sizeof(*saved)) : NULL;
    if (!saved)
        return -ENOMEM;
    *saved = change;
    region->saved[page] = saved;
    region->saved_count++;
    return 0;
}

/* What of the saved writes is yet to be sent; false: nothing. */
static bool take_saved(const struct vn_region *region, size_t page, struct vn_change *change)
{
    const struct vn_change *saved = region->saved[page];
    const uint8_t *as_mapped =
        (const uint8_t *)((uintptr_t)saved->bytes - page * (uintptr_t)VN_PAGE_BYTES);
    return vn_shadow_take(&region->shadow, as_mapped, page, change);
}

/* An answer that is requested from now on has what was sent. */
static void forget_sent(struct vn_region *region, size_t page)
{
    struct vn_change rest;
    if (vn_pageset_has(&region->requested, page))
        return;
    if (take_saved(region, page, &rest))
        *region->saved[page] = rest;
    else
        discard_saved(region, page);
}

size_t vn_demand_next_saved(const struct vn_region *region, size_t page)
{
    while (page < region->missing.pages && region->saved_count && !region->saved[page])
        page++;
    return region->saved_count ? page : region->missing.pages;
}

bool vn_demand_put(struct vn_region *region, struct vn_delta_out *out, size_t page)
{
    struct vn_change change;
    if (!take_saved(region, page, &change))
        return false;
    vn_delta_put(out, &change);
    vn_shadow_sent(&region->shadow, &change);
    forget_sent(region, page);
    return true;
}

bool vn_region_has_saved_writes(struct vn_region *region)
{
    if (!vn_region_enter(region))
        return false;
    bool any = region->saved_count != 0;
    pthread_mutex_unlock(&region->lock);
    return any;
}

/* ---- requests ---- */

static void come_back(struct vn_region *region, size_t page)
{
    vn_pageset_remove(&region->missing, page);
    vn_pageset_remove(&region->requested, page);
    discard_saved(region, page);
}

static void forget_missing(struct vn_region *region)
{
    if (region->missing.count == 0)
        return;
    if (vn_kernel_watch(region->kernel, (uintptr_t)region->memory, region->bytes, false))
        return;
    for (size_t page = 0; (page = vn_pageset_next(&region->missing, page)) < region->missing.pages;)
        come_back(region, page);
    vn_kernel_wake(region->kernel, (uintptr_t)region->memory, region->bytes);
}

void vn_region_lose(struct vn_region *region)
{
    if (!vn_region_enter(region))
        return;
    forget_missing(region);
    pthread_mutex_unlock(&region->lock);
}

bool vn_region_has(struct vn_region *region, size_t off, size_t len)
{
    assert(off < region->bytes && len <= region->bytes - off);
    if (!vn_region_enter(region))
        return true;
    bool here = vn_pageset_next(&region->missing, off / VN_PAGE_BYTES) * VN_PAGE_BYTES >= off + len;
    pthread_mutex_unlock(&region->lock);
    return here;
}

bool vn_region_is_requested(struct vn_region *region, size_t off)
{
    assert(off < region->bytes);
    if (!vn_region_enter(region))
        return false;
    bool requested = vn_pageset_has(&region->requested, off / VN_PAGE_BYTES);
    pthread_mutex_unlock(&region->lock);
    return requested;
}

/* At least a host page: the kernel installs no less. */
static size_t least_pages(const struct vn_region *region)
{
    size_t host = region->kernel->page / VN_PAGE_BYTES, least = VN_FETCH_LEAST / VN_PAGE_BYTES;
    return least > host ? least : host;
}

/* How many pages to request: twice as many as the last time if the program reads on. */
static size_t choose_ahead(struct vn_region *region, size_t page)
{
    size_t least = least_pages(region), most = VN_FETCH_BYTES / VN_PAGE_BYTES;
    bool reads_on = region->ahead && page == region->ahead_from;
    size_t ahead = reads_on ? 2 * region->ahead : least;
    region->ahead = ahead < most ? ahead : most;
    return region->ahead;
}

static bool may_request(const struct vn_region *region, size_t page)
{
    return page < region->missing.pages && vn_pageset_has(&region->missing, page) &&
           !vn_pageset_has(&region->requested, page);
}

/* Marks `page` and missing pages around and behind it as requested; how many, from *first on. */
static size_t choose_fetch(struct vn_region *region, size_t page, size_t *first)
{
    size_t least = least_pages(region), start = page, low = page / least * least;
    while (start > low && may_request(region, start - 1))
        start--;
    size_t most = start + choose_ahead(region, start), end = start;
    while (end < most && may_request(region, end))
        vn_pageset_add(&region->requested, end++);
    region->ahead_from = end;
    *first = start;
    return end - start;
}

/* The page was filled meanwhile, and the access finds it now.  Or the program has discarded the
 * page itself (madvise), and gets the shadow copy. */
static void install_known(struct vn_region *region, uintptr_t addr)
{
    size_t host = region->kernel->page, off = (addr - (uintptr_t)region->memory) / host * host;
    uintptr_t at = (uintptr_t)region->memory + off;
    if (vn_kernel_install(region->kernel, at, region->shadow.bytes + off, host))
        vn_kernel_wake(region->kernel, at, host);
}

/* On the pager's thread. */
static void on_missing(struct vn_pager_client *client, uintptr_t addr)
{
    struct vn_region *region = CONTAINER_OF(client, struct vn_region, client);
    size_t page = (addr - (uintptr_t)region->memory) / VN_PAGE_BYTES, first = 0, count = 0;
    pthread_mutex_lock(&region->lock);
    if (!vn_pageset_has(&region->missing, page))
        install_known(region, addr);
    else if (!vn_pageset_has(&region->requested, page))
        count = choose_fetch(region, page, &first);
    pthread_mutex_unlock(&region->lock);
    if (count == 0)
        return;
    size_t off = first * VN_PAGE_BYTES, len = count * VN_PAGE_BYTES;
    if (off + len > region->shadow.size)
        len = region->shadow.size - off;
    int err = region->fetch(region->user, off, len);
    if (err < 0) {
        hw_warn(HW_CAT_MEMORY, "mapped memory at the server cannot be fetched (%d): it reads as 0",
                err);
        vn_region_lose(region);
    }
}

/* ---- dropping ---- */

static bool sees_missing(const struct vn_region *region)
{
    return region->kernel->serves_kernel && region->track.ops == &vn_track_userfaultfd;
}

bool vn_region_can_drop(const struct vn_region *region)
{
    return region->fetch && sees_missing(region);
}

bool vn_region_set_fetch(struct vn_region *region, vn_fetch_fn *fetch)
{
    if (!sees_missing(region) || !vn_region_enter(region))
        return false;
    bool can = region->awaited.count == 0;
    if (can)
        region->fetch = fetch;
    pthread_mutex_unlock(&region->lock);
    return can;
}

static int attach_pager(struct vn_region *region)
{
    if (region->has_pager)
        return 0;
    region->client = (struct vn_pager_client){.start = (uintptr_t)region->memory,
                                              .end = (uintptr_t)region->memory + region->bytes,
                                              .fault = on_missing};
    int err = vn_pager_attach(region->kernel, &region->client);
    region->has_pager = err == 0;
    return err;
}

/* Pages that were moved out of the mapping, where the program cannot write them. */
struct moved {
    struct vn_region *region;
    size_t off;
    uintptr_t at;
    int err;
};

static void save_written(void *user, uintptr_t addr, size_t len)
{
    struct moved *moved = user;
    struct vn_region *region = moved->region;
    size_t first = (moved->off + (addr - moved->at)) / VN_PAGE_BYTES;
    size_t end = first + len / VN_PAGE_BYTES, pages = vn_shadow_pages(&region->shadow);
    /* Where the mapping would begin if the pages were in it: finds their shadow copies. */
    const uint8_t *as_mapped = (const uint8_t *)(moved->at - moved->off);
    for (size_t page = first; page < end && page < pages && !moved->err; page++)
        moved->err = save_writes(region, as_mapped, page);
}

/* Not by the name mremap: UCX puts its own behind it, which does not pass the new address on. */
static bool move_pages(void *from, size_t len, void *to)
{
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    return syscall(SYS_mremap, from, len, len, flags, to) == (long)(intptr_t)to;
}

/* Moves the pages out of the mapping, to `at`, in one step: no write falls between a check and the
 * release.  Whoever touches them from now on waits for the pager, which waits for the lock. */
static int move_out(struct vn_region *region, size_t off, size_t len, void *at)
{
    void *start = region->memory + off;
    int err = vn_kernel_watch(region->kernel, (uintptr_t)start, len, true);
    if (err)
        return err;
    if (!move_pages(start, len, at)) {
        err = -errno;
        if (vn_kernel_watch(region->kernel, (uintptr_t)start, len, false) == 0)
            vn_kernel_wake(region->kernel, (uintptr_t)start, len);
        return err;
    }
    vn_pageset_add_span(&region->missing, off / VN_PAGE_BYTES, len / VN_PAGE_BYTES);
    struct moved moved = {.region = region, .off = off, .at = (uintptr_t)at};
    err = vn_kernel_populated(region->kernel, moved.at, len, save_written, &moved);
    return err ? err : moved.err;
}

/* With a page of another kind on either side: if the place were right beside the mapping, the
 * kernel would join the two and watch neither. */
static int move_out_apart(struct vn_region *region, size_t off, size_t len)
{
    size_t page = region->kernel->page, room = len + 2 * page;
    uint8_t *at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    int err = move_out(region, off, len, at + page);
    munmap(at, room);
    return err;
}

/* A range that was dropped before is a mapping of its own to the kernel, even after it was filled,
 * and mremap moves only what lies in one mapping. */
static int move_out_by_mapping(struct vn_region *region, size_t off, size_t len)
{
    size_t page = region->kernel->page, half = len / page / 2 * page;
    int err = move_out_apart(region, off, len);
    if (err != -EFAULT || half == 0)
        return err;
    err = move_out_by_mapping(region, off, half);
    return err ? err : move_out_by_mapping(region, off + half, len - half);
}

/* Whether nobody needs the shadow copy of a missing page. */
static bool shadow_is_free(const struct vn_region *region, size_t page)
{
    bool sending = page >= region->sending.first && page < region->sending.end;
    return !sending && !is_saved(region, page);
}

static void drop_shadow(struct vn_region *region, size_t first, size_t end)
{
    for (size_t page = first; page < end;) {
        size_t stop = page;
        while (stop < end && shadow_is_free(region, stop))
            stop++;
        if (stop > page)
            (void)madvise(region->shadow.bytes + page * VN_PAGE_BYTES,
                          (stop - page) * VN_PAGE_BYTES, MADV_DONTNEED);
        page = stop + 1;
    }
    vn_pageset_remove_span(&region->pending, first, end - first);
    vn_pageset_remove_span(&region->whole, first, end - first);
}

/* Pages first up to end, but for those that are missing already. */
static int drop(struct vn_region *region, size_t first, size_t end)
{
    int err = attach_pager(region);
    for (size_t page = first; !err && page < end;) {
        size_t missing = vn_pageset_next(&region->missing, page);
        size_t stop = missing < end ? missing : end;
        if (stop > page) {
            err = move_out_by_mapping(region, page * VN_PAGE_BYTES, (stop - page) * VN_PAGE_BYTES);
            if (!err)
                drop_shadow(region, page, stop);
        }
        page = stop + vn_pageset_run(&region->missing, stop, end - stop);
    }
    return err;
}

int vn_region_drop(struct vn_region *region, size_t off, size_t len)
{
    if (!vn_region_widen(region, &off, &len))
        return -EINVAL;
    if (!vn_region_enter(region))
        return -ESHUTDOWN;
    int err = vn_region_can_drop(region)
                  ? drop(region, off / VN_PAGE_BYTES, (off + len) / VN_PAGE_BYTES)
                  : -ENOTSUP;
    pthread_mutex_unlock(&region->lock);
    return err;
}

/* ---- answers ---- */

static int fill_run(struct vn_region *region, size_t page, size_t run, const uint8_t *from,
                    size_t len)
{
    uint8_t *shadow = region->shadow.bytes + page * VN_PAGE_BYTES;
    memcpy(shadow, from, len);
    for (size_t i = page; i < page + run; i++)
        come_back(region, i);
    return vn_kernel_install(region->kernel, (uintptr_t)region->memory + page * VN_PAGE_BYTES,
                             shadow, run * VN_PAGE_BYTES);
}

/* Lays saved writes over the server's bytes `now`.  The other bytes become the shadow copy. */
static void lay_over(struct vn_region *region, size_t page, uint8_t now[VN_PAGE_BYTES])
{
    uint8_t *shadow = region->shadow.bytes + page * VN_PAGE_BYTES;
    const struct vn_change *saved = region->saved[page];
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++) {
        uint64_t mine = saved->blocks >> b & 1 ? saved->mask[b] : 0;
        for (size_t i = 0, at = b * VN_BLOCK_BYTES; i < VN_BLOCK_BYTES; i++, at++) {
            if (mine >> i & 1)
                now[at] = saved->bytes[at];
            else
                shadow[at] = now[at];
        }
    }
    if (memcmp(shadow, now, VN_PAGE_BYTES) != 0)
        vn_pageset_add(&region->pending, page);
}

/* One host page in which there are saved writes; the server gave len bytes of it. */
static int fill_saved(struct vn_region *region, size_t first, const uint8_t *from, size_t len)
{
    size_t host = region->kernel->page;
    uint8_t *now = calloc(1, host);
    if (!now)
        return -ENOMEM;
    memcpy(now, from, len);
    for (size_t at = 0; at < host; at += VN_PAGE_BYTES) {
        size_t page = first + at / VN_PAGE_BYTES;
        if (is_saved(region, page))
            lay_over(region, page, now + at);
        else
            memcpy(region->shadow.bytes + page * VN_PAGE_BYTES, now + at, VN_PAGE_BYTES);
        come_back(region, page);
    }
    int err = vn_kernel_install(region->kernel, (uintptr_t)region->memory + first * VN_PAGE_BYTES,
                                now, host);
    free(now);
    return err;
}

static bool has_saved(const struct vn_region *region, size_t page, size_t count)
{
    bool any = false;
    for (size_t i = page; i < page + count; i++)
        any |= is_saved(region, i);
    return any;
}

/* Some of the `run` missing pages from `page` on, of which the server gave len bytes.  How many
 * were filled, or a negative errno. */
static long fill_some(struct vn_region *region, size_t page, size_t run, const uint8_t *from,
                      size_t len)
{
    size_t host = region->kernel->page / VN_PAGE_BYTES;
    size_t count = 0; /* up to the first host page with saved writes */
    while (count < run && !has_saved(region, page + count, host))
        count += host;
    bool saved = count == 0;
    count = saved ? host : count;
    size_t bytes = count * VN_PAGE_BYTES < len ? count * VN_PAGE_BYTES : len;
    int err =
        saved ? fill_saved(region, page, from, bytes) : fill_run(region, page, count, from, bytes);
    return err ? err : (long)count;
}

/* A requested page waits for its answer, which is younger and has what was sent before the request.
 * Others have no writes on their way: the program writes none before it has waited. */
int vn_demand_store(struct vn_region *region, size_t page, size_t run, const uint8_t *bytes)
{
    size_t host = region->kernel->page / VN_PAGE_BYTES;
    if (page % host || run % host)
        return -EPROTO;
    for (size_t at = 0, part; at < run; at += part) {
        part = host;
        if (vn_pageset_has(&region->requested, page + at))
            continue;
        while (at + part < run && !vn_pageset_has(&region->requested, page + at + part))
            part += host;
        long filled =
            fill_some(region, page + at, part, bytes + at * VN_PAGE_BYTES, part * VN_PAGE_BYTES);
        if (filled < 0)
            return (int)filled;
        part = (size_t)filled;
    }
    return 0;
}

int vn_region_fill(struct vn_region *region, uint64_t off, const uint8_t *data, size_t len)
{
    size_t whole_off = off, whole_len = len, end = off + len;
    if (!vn_region_widen(region, &whole_off, &whole_len) || whole_off != off ||
        (end != region->shadow.size && whole_len != len))
        return -EINVAL;
    size_t page = off / VN_PAGE_BYTES, last = (off + whole_len) / VN_PAGE_BYTES;
    long filled = 0;
    if (!vn_region_enter(region))
        return -ESHUTDOWN;
    while (filled >= 0 && (page = vn_pageset_next(&region->missing, page)) < last) {
        size_t run = vn_pageset_run(&region->missing, page, last - page);
        size_t at = page * VN_PAGE_BYTES;
        filled = fill_some(region, page, run, data + (at - off), end - at);
        page += filled > 0 ? (size_t)filled : 0;
    }
    pthread_mutex_unlock(&region->lock);
    return filled < 0 ? (int)filled : 0;
}
