#include "venus/memory/twin.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "venus/memory/diff_impl.h"

/* Host pages have up to 64 KiB; the client installs whole ones from its twin. */
static size_t mapped_bytes(size_t size)
{
    enum { ROUND = 64 << 10 };
    return (size + ROUND - 1) / ROUND * ROUND;
}

int vn_twin_init(struct vn_twin *twin, size_t size)
{
    if (size == 0 || size > VN_PAGES_MAX * VN_PAGE_BYTES)
        return -EINVAL;
    struct vn_twin made = {.size = size};
    void *bytes = mmap(NULL, mapped_bytes(size), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return -ENOMEM;
    made.bytes = bytes;
    *twin = made;
    return 0;
}

void vn_twin_fini(struct vn_twin *twin)
{
    if (twin->bytes)
        munmap(twin->bytes, mapped_bytes(twin->size));
    vn_pageset_fini(&twin->alike);
    *twin = (struct vn_twin){0};
}

static size_t bytes_in(const struct vn_twin *twin, size_t page)
{
    size_t start = page * VN_PAGE_BYTES;
    assert(start < twin->size);
    return twin->size - start < VN_PAGE_BYTES ? twin->size - start : VN_PAGE_BYTES;
}

static size_t pages_up_to(size_t end)
{
    return (end + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES;
}

/* Live memory is read and written with relaxed atomics: each access happens once and whole, which
 * is all that exactness asks; order comes from the lock or the message that led here. */
static uint64_t load64(const uint8_t *p)
{
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)p, memory_order_relaxed);
}

static uint8_t load8(const uint8_t *p)
{
    return atomic_load_explicit((const _Atomic uint8_t *)p, memory_order_relaxed);
}

static void store8(uint8_t *p, uint8_t v)
{
    atomic_store_explicit((_Atomic uint8_t *)p, v, memory_order_relaxed);
}

static void snapshot(const uint8_t *live, size_t n, uint8_t page[VN_PAGE_BYTES])
{
    size_t at = 0;
    for (; at + 8 <= n; at += 8) {
        uint64_t word = load64(live + at);
        memcpy(page + at, &word, 8);
    }
    for (; at < n; at++)
        page[at] = load8(live + at);
    memset(page + n, 0, VN_PAGE_BYTES - n);
}

static bool is_alike(const struct vn_twin *twin, size_t page)
{
    return twin->alike.count && vn_pageset_has(&twin->alike, page);
}

bool vn_twin_differs(const struct vn_twin *twin, const uint8_t *live, size_t page)
{
    size_t start = page * VN_PAGE_BYTES, n = bytes_in(twin, page);
    if (is_alike(twin, page))
        return false;
    if (n == VN_PAGE_BYTES)
        return vn_diff_differs(live + start, twin->bytes + start);
    uint8_t last[VN_PAGE_BYTES];
    snapshot(live + start, n, last);
    return vn_diff_differs(last, twin->bytes + start);
}

bool vn_twin_take(const struct vn_twin *twin, const uint8_t *live, size_t page,
                  struct vn_change *change)
{
    assert(((uintptr_t)live & 7) == 0);
    size_t start = page * VN_PAGE_BYTES;
    change->page = page;
    snapshot(live + start, bytes_in(twin, page), change->bytes);
    change->blocks = vn_diff_page(change->bytes, twin->bytes + start, change->mask);
    return change->blocks != 0;
}

void vn_twin_sent(struct vn_twin *twin, const struct vn_change *change)
{
    uint8_t *to = twin->bytes + change->page * VN_PAGE_BYTES;
    for (uint64_t blocks = change->blocks; blocks; blocks &= blocks - 1) {
        size_t at = (size_t)__builtin_ctzll(blocks) * VN_BLOCK_BYTES;
        memcpy(to + at, change->bytes + at, VN_BLOCK_BYTES);
    }
}

static void store_block(uint8_t *live, uint8_t *twin, const uint8_t *from)
{
    for (size_t i = 0; i < VN_BLOCK_BYTES; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, 8);
        atomic_store_explicit((_Atomic uint64_t *)(void *)(live + i), word, memory_order_relaxed);
    }
    memcpy(twin, from, VN_BLOCK_BYTES);
}

static bool block_differs(const uint8_t *live, const uint8_t *twin)
{
    uint64_t differ = 0;
    for (size_t i = 0; i < VN_BLOCK_BYTES; i += 8) {
        uint64_t word;
        memcpy(&word, twin + i, 8);
        differ |= word ^ load64(live + i);
    }
    return differ != 0;
}

static void store_bytes(uint8_t *live, uint8_t *twin, const uint8_t *from, uint64_t mask,
                        bool keep_local)
{
    for (; mask; mask &= mask - 1) {
        size_t i = (size_t)__builtin_ctzll(mask);
        if (!keep_local || load8(live + i) == twin[i])
            store8(live + i, from[i]);
        twin[i] = from[i];
    }
}

/* Whole words are stored only where every byte of the block is named. */
static void store(struct vn_twin *twin, uint8_t *live, const struct vn_change *change,
                  bool keep_local)
{
    size_t start = change->page * VN_PAGE_BYTES;
    assert(((uintptr_t)live & 7) == 0 && start < twin->size);
    for (uint64_t blocks = change->blocks; blocks; blocks &= blocks - 1) {
        size_t b = (size_t)__builtin_ctzll(blocks), at = b * VN_BLOCK_BYTES;
        uint8_t *l = live + start + at, *t = twin->bytes + start + at;
        if (change->mask[b] == UINT64_MAX && !(keep_local && block_differs(l, t)))
            store_block(l, t, change->bytes + at);
        else
            store_bytes(l, t, change->bytes + at, change->mask[b], keep_local);
    }
}

void vn_twin_merge(struct vn_twin *twin, uint8_t *live, const struct vn_change *change)
{
    store(twin, live, change, true);
}

void vn_twin_overwrite(struct vn_twin *twin, uint8_t *live, const struct vn_change *change)
{
    store(twin, live, change, false);
}

int vn_twin_encode(struct vn_twin *twin, const uint8_t *live, struct vn_pages filled, size_t *page,
                   size_t end, struct vn_delta_codec *codec, struct wire_enc *e, size_t budget)
{
    assert(budget > VN_CHANGE_WIRE_MAX && *page <= end && end <= vn_twin_pages(twin));
    struct vn_delta_out out;
    struct vn_change change;
    int changes = 0;
    size_t at = *page;
    vn_delta_begin(&out, e);
    for (; at < end && vn_delta_has_room(&out, budget); at++) {
        if (!vn_twin_differs(twin, live, at))
            continue;
        if (at >= filled.first && at < filled.end && vn_twin_is_rewritten(twin, live, at)) {
            vn_twin_take_whole(twin, live, at * VN_PAGE_BYTES, VN_PAGE_BYTES);
            vn_delta_put_page(&out, at, twin->bytes + at * VN_PAGE_BYTES);
        } else if (vn_twin_take(twin, live, at, &change)) {
            vn_delta_put(&out, &change);
            vn_twin_sent(twin, &change);
        } else {
            continue;
        }
        changes++;
    }
    int err = vn_delta_end(&out, codec);
    if (err)
        return err;
    *page = at;
    return changes;
}

int vn_twin_apply(struct vn_twin *twin, uint8_t *live, struct vn_delta_codec *codec,
                  const void *data, size_t len)
{
    struct vn_delta_in in;
    struct vn_change change;
    int err = vn_delta_open(codec, data, len, twin->size, &in);
    if (err)
        return err;
    while (vn_delta_next(&in, &change)) {
        vn_twin_part(twin, live, change.page, change.page + 1);
        vn_twin_overwrite(twin, live, &change);
    }
    return 0;
}

/* --- whole pages --------------------------------------------------------------------------- */

/* How many of the eight bytes are not zero. */
static unsigned count_bytes(uint64_t word)
{
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    return (unsigned)__builtin_popcountll((((word & low) + low) | word) & ~low);
}

/* The block of a page that is looked at for all of it. */
static size_t sample_of(size_t page)
{
    enum { STEP = 27 }; /* odd, so that pages in a row are looked at in all places */
    return page * VN_PAGE_BYTES + page * STEP % VN_PAGE_BLOCKS * VN_BLOCK_BYTES;
}

bool vn_twin_is_rewritten(const struct vn_twin *twin, const uint8_t *live, size_t page)
{
    size_t at = sample_of(page);
    unsigned differ = 0;
    uint64_t any = 0;
    for (size_t end = at + VN_BLOCK_BYTES; at < end; at += 8) {
        uint64_t now = load64(live + at), then;
        memcpy(&then, twin->bytes + at, 8);
        differ += count_bytes(now ^ then);
        any |= now;
    }
    return any && differ >= VN_BLOCK_BYTES / 2;
}

/* The page to look at after this one. */
static size_t next_sampled(size_t page, size_t every)
{
    return page - page % every + every;
}

size_t vn_twin_count_rewritten(const struct vn_twin *twin, const uint8_t *live, size_t page,
                               size_t end, size_t every)
{
    size_t at = page;
    for (; at < end; at = next_sampled(at, every)) {
        size_t ahead = at + VN_TWIN_AHEAD * every;
        size_t soon = sample_of(ahead < end ? ahead - ahead % every : at);
        __builtin_prefetch(live + soon);
        __builtin_prefetch(twin->bytes + soon);
        if (!vn_twin_is_rewritten(twin, live, at))
            break;
    }
    return (at < end ? at : end) - page;
}

/* In pieces that the compiler copies in registers: a call of memcpy is watched by ThreadSanitizer,
 * and one of the two may be memory that others write. */
VN_RACY static void copy_racy(uint8_t *to, const uint8_t *from, size_t len)
{
    size_t at = 0;
    for (; at + VN_BLOCK_BYTES <= len; at += VN_BLOCK_BYTES)
        __builtin_memcpy(to + at, from + at, VN_BLOCK_BYTES);
    for (; at < len; at++)
        to[at] = from[at];
}

void vn_twin_populate(const struct vn_twin *twin, size_t off, size_t len)
{
#ifdef MADV_POPULATE_WRITE
    (void)madvise(twin->bytes + off, len, MADV_POPULATE_WRITE);
#else
    (void)twin, (void)off, (void)len;
#endif
}

void vn_twin_take_whole(struct vn_twin *twin, const uint8_t *live, size_t off, size_t len)
{
    assert(off % VN_PAGE_BYTES == 0 && off <= twin->size && len <= twin->size - off);
    copy_racy(twin->bytes + off, live + off, len);
}

void vn_twin_take_samples(struct vn_twin *twin, const uint8_t *live, size_t page, size_t count,
                          size_t every)
{
    for (size_t end = page + count; page < end; page = next_sampled(page, every))
        copy_racy(twin->bytes + sample_of(page), live + sample_of(page), VN_BLOCK_BYTES);
}

void vn_twin_put_whole(struct vn_twin *twin, uint8_t *live, size_t off, const uint8_t *bytes,
                       size_t len)
{
    assert(off % VN_PAGE_BYTES == 0 && off <= twin->size && len <= twin->size - off);
    copy_racy(live + off, bytes, len);
    memcpy(twin->bytes + off, bytes, len);
}

/* The set is made with its first member.  Without memory for it nothing is alike. */
static bool can_be_alike(struct vn_twin *twin)
{
    return twin->alike.words || vn_pageset_init(&twin->alike, vn_twin_pages(twin)) == 0;
}

/* Of len bytes, those of pages for which live stands afterwards. */
static size_t alike_bytes(const struct vn_twin *twin, size_t len, bool alike)
{
    return alike && twin->alike.words ? len / VN_PAGE_BYTES * VN_PAGE_BYTES : 0;
}

bool vn_twin_join(struct vn_twin *twin, size_t page, size_t count)
{
    if (!can_be_alike(twin))
        return false;
    vn_pageset_add_span(&twin->alike, page, count);
    return true;
}

bool vn_twin_store_begin(struct vn_twin *twin, const uint8_t *live, size_t off, size_t len)
{
    assert(off % VN_PAGE_BYTES == 0 && off <= twin->size && len <= twin->size - off);
    size_t first = off / VN_PAGE_BYTES, end = pages_up_to(off + len);
    if (!can_be_alike(twin))
        return false;
    vn_twin_part(twin, live, first + len / VN_PAGE_BYTES, end);
    vn_pageset_add_span(&twin->alike, first, end - first);
    return true;
}

void vn_twin_store_copy(const struct vn_twin *twin, uint8_t *live, size_t off, const uint8_t *bytes,
                        size_t len, bool alike)
{
    size_t whole = alike_bytes(twin, len, alike);
    copy_racy(live + off, bytes, len);
    memcpy(twin->bytes + off + whole, bytes + whole, len - whole);
}

void vn_twin_store_end(struct vn_twin *twin, size_t off, size_t len, bool alike)
{
    size_t page = (off + alike_bytes(twin, len, alike)) / VN_PAGE_BYTES;
    if (twin->alike.words)
        vn_pageset_remove_span(&twin->alike, page, pages_up_to(off + len) - page);
}

void vn_twin_part(struct vn_twin *twin, const uint8_t *live, size_t first, size_t end)
{
    if (twin->alike.count == 0)
        return;
    for (size_t page = first; (page = vn_pageset_next(&twin->alike, page)) < end; page++) {
        size_t at = page * VN_PAGE_BYTES;
        copy_racy(twin->bytes + at, live + at, bytes_in(twin, page));
        vn_pageset_remove(&twin->alike, page);
    }
}

void vn_twin_read(const struct vn_twin *twin, const uint8_t *live, size_t off, size_t len,
                  uint8_t *to)
{
    assert(off % VN_PAGE_BYTES == 0 && off <= twin->size && len <= twin->size - off);
    for (size_t at = 0; at < len; at += VN_PAGE_BYTES) {
        bool alike = is_alike(twin, (off + at) / VN_PAGE_BYTES);
        size_t n = len - at < VN_PAGE_BYTES ? len - at : VN_PAGE_BYTES;
        copy_racy(to + at, (alike ? live : twin->bytes) + off + at, n);
    }
}

/* --- the upload cache ---------------------------------------------------------------------- */

void vn_twin_read_live(const struct vn_twin *twin, const uint8_t *live, size_t off, size_t len,
                       uint8_t *to)
{
    assert(off % 8 == 0 && off <= twin->size && len <= twin->size - off);
    size_t at = 0;
    for (; at + 8 <= len; at += 8) {
        uint64_t word = load64(live + off + at);
        memcpy(to + at, &word, 8);
    }
    for (; at < len; at++)
        to[at] = load8(live + off + at);
}

void vn_twin_write(struct vn_twin *twin, uint8_t *live, size_t off, const uint8_t *bytes,
                   size_t len)
{
    struct vn_change change;
    assert(off % VN_PAGE_BYTES == 0 && off <= twin->size && len <= twin->size - off);
    vn_twin_part(twin, live, off / VN_PAGE_BYTES, pages_up_to(off + len));
    for (size_t at = 0; at < len; at += VN_PAGE_BYTES) {
        const uint8_t *known = twin->bytes + off + at;
        size_t n = len - at < VN_PAGE_BYTES ? len - at : VN_PAGE_BYTES;
        memcpy(change.bytes, bytes + at, n);
        memcpy(change.bytes + n, known + n, VN_PAGE_BYTES - n);
        change.page = (off + at) / VN_PAGE_BYTES;
        change.blocks = vn_diff_page(change.bytes, known, change.mask);
        if (change.blocks)
            vn_twin_overwrite(twin, live, &change);
    }
}
