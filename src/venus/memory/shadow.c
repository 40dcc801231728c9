#include "venus/memory/shadow.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "venus/memory/diff_impl.h"

/* Whole host pages, which have up to 64 KiB: the client installs them from here. */
static size_t mapped_bytes(size_t size)
{
    enum { ROUND = 64 << 10 };
    return (size + ROUND - 1) / ROUND * ROUND;
}

int vn_shadow_init(struct vn_shadow *shadow, size_t size)
{
    if (size == 0 || size > VN_PAGES_MAX * VN_PAGE_BYTES)
        return -EINVAL;
    struct vn_shadow made = {.size = size};
    void *bytes = mmap(NULL, mapped_bytes(size), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return -ENOMEM;
    made.bytes = bytes;
    *shadow = made;
    return 0;
}

void vn_shadow_fini(struct vn_shadow *shadow)
{
    if (shadow->bytes)
        munmap(shadow->bytes, mapped_bytes(shadow->size));
    vn_pageset_fini(&shadow->omitted);
    *shadow = (struct vn_shadow){0};
}

static size_t bytes_in(const struct vn_shadow *shadow, size_t page)
{
    size_t start = page * VN_PAGE_BYTES;
    assert(start < shadow->size);
    return shadow->size - start < VN_PAGE_BYTES ? shadow->size - start : VN_PAGE_BYTES;
}

static size_t pages_up_to(size_t end)
{
    return (end + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES;
}

/* Memory is accessed with relaxed atomics, so that each access happens once and whole.  Order comes
 * from the lock or the message that led here. */
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

/* Reads each byte of memory that others may write once: not inlined, so that nobody who reads `to`
 * reads the memory instead.  In registers: ThreadSanitizer would watch a call of memcpy. */
VN_RACY __attribute__((noinline)) static void copy_racy(uint8_t *to, const uint8_t *from,
                                                        size_t len)
{
    size_t at = 0;
    for (; at + VN_BLOCK_BYTES <= len; at += VN_BLOCK_BYTES)
        __builtin_memcpy(to + at, from + at, VN_BLOCK_BYTES);
    for (; at < len; at++)
        to[at] = from[at];
}

static void snapshot(const uint8_t *memory, size_t n, uint8_t page[VN_PAGE_BYTES])
{
    copy_racy(page, memory, n);
    memset(page + n, 0, VN_PAGE_BYTES - n);
}

static bool is_omitted(const struct vn_shadow *shadow, size_t page)
{
    return shadow->omitted.count && vn_pageset_has(&shadow->omitted, page);
}

bool vn_shadow_differs(const struct vn_shadow *shadow, const uint8_t *memory, size_t page)
{
    size_t start = page * VN_PAGE_BYTES, n = bytes_in(shadow, page);
    if (is_omitted(shadow, page))
        return false;
    if (n == VN_PAGE_BYTES)
        return vn_diff_differs(memory + start, shadow->bytes + start);
    uint8_t last[VN_PAGE_BYTES];
    snapshot(memory + start, n, last);
    return vn_diff_differs(last, shadow->bytes + start);
}

bool vn_shadow_take(const struct vn_shadow *shadow, const uint8_t *memory, size_t page,
                    struct vn_change *change)
{
    assert(((uintptr_t)memory & 7) == 0);
    size_t start = page * VN_PAGE_BYTES;
    change->page = page;
    snapshot(memory + start, bytes_in(shadow, page), change->bytes);
    change->blocks = vn_diff_page(change->bytes, shadow->bytes + start, change->mask);
    return change->blocks != 0;
}

void vn_shadow_sent(struct vn_shadow *shadow, const struct vn_change *change)
{
    uint8_t *to = shadow->bytes + change->page * VN_PAGE_BYTES;
    for (uint64_t blocks = change->blocks; blocks; blocks &= blocks - 1) {
        size_t at = (size_t)__builtin_ctzll(blocks) * VN_BLOCK_BYTES;
        memcpy(to + at, change->bytes + at, VN_BLOCK_BYTES);
    }
}

static void store_block(uint8_t *memory, uint8_t *shadow, const uint8_t *from)
{
    for (size_t i = 0; i < VN_BLOCK_BYTES; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, 8);
        atomic_store_explicit((_Atomic uint64_t *)(void *)(memory + i), word, memory_order_relaxed);
    }
    memcpy(shadow, from, VN_BLOCK_BYTES);
}

static bool block_differs(const uint8_t *memory, const uint8_t *shadow)
{
    uint64_t differ = 0;
    for (size_t i = 0; i < VN_BLOCK_BYTES; i += 8) {
        uint64_t word;
        memcpy(&word, shadow + i, 8);
        differ |= word ^ load64(memory + i);
    }
    return differ != 0;
}

static void store_bytes(uint8_t *memory, uint8_t *shadow, const uint8_t *from, uint64_t mask,
                        bool keep_local)
{
    for (; mask; mask &= mask - 1) {
        size_t i = (size_t)__builtin_ctzll(mask);
        if (!keep_local || load8(memory + i) == shadow[i])
            store8(memory + i, from[i]);
        shadow[i] = from[i];
    }
}

/* Words are stored only where every byte of the block is named. */
static void store(struct vn_shadow *shadow, uint8_t *memory, const struct vn_change *change,
                  bool keep_local)
{
    size_t start = change->page * VN_PAGE_BYTES;
    assert(((uintptr_t)memory & 7) == 0 && start < shadow->size);
    for (uint64_t blocks = change->blocks; blocks; blocks &= blocks - 1) {
        size_t b = (size_t)__builtin_ctzll(blocks), at = b * VN_BLOCK_BYTES;
        uint8_t *l = memory + start + at, *t = shadow->bytes + start + at;
        if (change->mask[b] == UINT64_MAX && !(keep_local && block_differs(l, t)))
            store_block(l, t, change->bytes + at);
        else
            store_bytes(l, t, change->bytes + at, change->mask[b], keep_local);
    }
}

void vn_shadow_merge(struct vn_shadow *shadow, uint8_t *memory, const struct vn_change *change)
{
    store(shadow, memory, change, true);
}

void vn_shadow_overwrite(struct vn_shadow *shadow, uint8_t *memory, const struct vn_change *change)
{
    store(shadow, memory, change, false);
}

/* Whether a page that a device wrote goes as it is. */
static bool goes_whole(const struct vn_shadow *shadow, const uint8_t *memory,
                       const struct vn_pages *filled, size_t page)
{
    if (page < filled->first || page >= filled->end)
        return false;
    return filled->awaited || (vn_shadow_differs(shadow, memory, page) &&
                               vn_shadow_is_rewritten(shadow, memory, page));
}

int vn_shadow_encode(struct vn_shadow *shadow, const uint8_t *memory, struct vn_pages filled,
                     size_t *page, size_t end, struct vn_delta_codec *codec, struct wire_enc *e,
                     size_t budget)
{
    assert(budget > VN_CHANGE_WIRE_MAX && *page <= end && end <= vn_shadow_pages(shadow));
    struct vn_delta_out out;
    struct vn_change change;
    int changes = 0;
    size_t at = *page;
    vn_delta_begin(&out, e);
    for (; at < end && vn_delta_has_room(&out, budget); at++) {
        if (goes_whole(shadow, memory, &filled, at)) {
            vn_shadow_take_whole(shadow, memory, at * VN_PAGE_BYTES, VN_PAGE_BYTES);
            vn_delta_put_page(&out, at, shadow->bytes + at * VN_PAGE_BYTES);
        } else if (vn_shadow_differs(shadow, memory, at) &&
                   vn_shadow_take(shadow, memory, at, &change)) {
            vn_delta_put(&out, &change);
            vn_shadow_sent(shadow, &change);
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

int vn_shadow_apply(struct vn_shadow *shadow, uint8_t *memory, struct vn_delta_codec *codec,
                    const void *data, size_t len)
{
    struct vn_delta_in in;
    struct vn_change change;
    int err = vn_delta_open(codec, data, len, shadow->size, &in);
    if (err)
        return err;
    while (vn_delta_next(&in, &change)) {
        vn_shadow_make(shadow, memory, change.page, change.page + 1);
        vn_shadow_overwrite(shadow, memory, &change);
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

/* The block by which a page is judged. */
static size_t sample_of(size_t page)
{
    enum { STEP = 27 }; /* odd, so that pages in a row are judged by different blocks */
    return page * VN_PAGE_BYTES + page * STEP % VN_PAGE_BLOCKS * VN_BLOCK_BYTES;
}

/* Of a block, how many bytes differ; *any: whether one in memory is not zero. */
static unsigned count_different(const uint8_t *memory, const uint8_t *other, bool *any)
{
    unsigned differ = 0;
    uint64_t all = 0;
    for (size_t at = 0; at < VN_BLOCK_BYTES; at += 8) {
        uint64_t now = load64(memory + at), then;
        memcpy(&then, other + at, 8);
        differ += count_bytes(now ^ then);
        all |= now;
    }
    *any = all;
    return differ;
}

bool vn_shadow_is_rewritten(const struct vn_shadow *shadow, const uint8_t *memory, size_t page)
{
    size_t at = sample_of(page);
    bool any;
    unsigned differ = count_different(memory + at, shadow->bytes + at, &any);
    return (any || shadow->near) && differ >= VN_BLOCK_BYTES / 2;
}

bool vn_shadow_is_news(const uint8_t *memory, size_t page, const uint8_t *bytes)
{
    size_t at = sample_of(page);
    bool any;
    return count_different(memory + at, bytes + at % VN_PAGE_BYTES, &any) >= VN_BLOCK_BYTES / 2;
}

void vn_shadow_take_sample(struct vn_shadow *shadow, const uint8_t *memory, size_t page)
{
    size_t at = sample_of(page);
    copy_racy(shadow->bytes + at, memory + at, VN_BLOCK_BYTES);
}

/* The page to look at after this one. */
static size_t next_sampled(size_t page, size_t every)
{
    return page - page % every + every;
}

size_t vn_shadow_count_rewritten(const struct vn_shadow *shadow, const uint8_t *memory, size_t page,
                                 size_t end, size_t every)
{
    size_t at = page;
    while (at < end && vn_shadow_is_rewritten(shadow, memory, at))
        at = next_sampled(at, every);
    return (at < end ? at : end) - page;
}

void vn_shadow_populate(const struct vn_shadow *shadow, size_t off, size_t len)
{
#ifdef MADV_POPULATE_WRITE
    (void)madvise(shadow->bytes + off, len, MADV_POPULATE_WRITE);
#else
    (void)shadow, (void)off, (void)len;
#endif
}

void vn_shadow_take_whole(struct vn_shadow *shadow, const uint8_t *memory, size_t off, size_t len)
{
    assert(off % VN_PAGE_BYTES == 0 && off <= shadow->size && len <= shadow->size - off);
    copy_racy(shadow->bytes + off, memory + off, len);
    if (shadow->omitted.count)
        vn_pageset_remove_span(&shadow->omitted, off / VN_PAGE_BYTES, pages_up_to(len));
}

void vn_shadow_take_samples(struct vn_shadow *shadow, const uint8_t *memory, size_t page,
                            size_t count, size_t every)
{
    for (size_t end = page + count; page < end; page = next_sampled(page, every))
        copy_racy(shadow->bytes + sample_of(page), memory + sample_of(page), VN_BLOCK_BYTES);
}

void vn_shadow_put_memory(uint8_t *memory, size_t off, const uint8_t *bytes, size_t len)
{
    copy_racy(memory + off, bytes, len);
}

void vn_shadow_put_whole(struct vn_shadow *shadow, uint8_t *memory, size_t off,
                         const uint8_t *bytes, size_t len)
{
    assert(off % VN_PAGE_BYTES == 0 && off <= shadow->size && len <= shadow->size - off);
    copy_racy(memory + off, bytes, len);
    memcpy(shadow->bytes + off, bytes, len);
}

/* The set is made with its first member. */
static bool can_omit(struct vn_shadow *shadow)
{
    return shadow->omitted.words || vn_pageset_init(&shadow->omitted, vn_shadow_pages(shadow)) == 0;
}

/* Of len bytes, those of pages that stay omitted. */
static size_t omitted_bytes(const struct vn_shadow *shadow, size_t len, bool omit)
{
    return omit && shadow->omitted.words ? len / VN_PAGE_BYTES * VN_PAGE_BYTES : 0;
}

bool vn_shadow_omit(struct vn_shadow *shadow, size_t page, size_t count)
{
    if (!can_omit(shadow))
        return false;
    vn_pageset_add_span(&shadow->omitted, page, count);
    return true;
}

bool vn_shadow_store_begin(struct vn_shadow *shadow, const uint8_t *memory, size_t off, size_t len)
{
    assert(off % VN_PAGE_BYTES == 0 && off <= shadow->size && len <= shadow->size - off);
    size_t first = off / VN_PAGE_BYTES, end = pages_up_to(off + len);
    if (!can_omit(shadow))
        return false;
    vn_shadow_make(shadow, memory, first + len / VN_PAGE_BYTES, end);
    vn_pageset_add_span(&shadow->omitted, first, end - first);
    return true;
}

void vn_shadow_store_copy(const struct vn_shadow *shadow, uint8_t *memory, size_t off,
                          const uint8_t *bytes, size_t len, bool omit)
{
    size_t whole = omitted_bytes(shadow, len, omit);
    copy_racy(memory + off, bytes, len);
    memcpy(shadow->bytes + off + whole, bytes + whole, len - whole);
}

void vn_shadow_store_end(struct vn_shadow *shadow, size_t off, size_t len, bool omit)
{
    size_t page = (off + omitted_bytes(shadow, len, omit)) / VN_PAGE_BYTES;
    if (shadow->omitted.words)
        vn_pageset_remove_span(&shadow->omitted, page, pages_up_to(off + len) - page);
}

void vn_shadow_make(struct vn_shadow *shadow, const uint8_t *memory, size_t first, size_t end)
{
    if (shadow->omitted.count == 0)
        return;
    for (size_t page = first; (page = vn_pageset_next(&shadow->omitted, page)) < end; page++) {
        size_t at = page * VN_PAGE_BYTES;
        copy_racy(shadow->bytes + at, memory + at, bytes_in(shadow, page));
        vn_pageset_remove(&shadow->omitted, page);
    }
}

void vn_shadow_thin(const struct vn_shadow *shadow)
{
    (void)madvise(shadow->bytes, mapped_bytes(shadow->size), MADV_NOHUGEPAGE);
    vn_shadow_release(shadow, 0, vn_shadow_pages(shadow));
}

void vn_shadow_release(const struct vn_shadow *shadow, size_t page, size_t count)
{
    (void)madvise(shadow->bytes + page * VN_PAGE_BYTES, count * VN_PAGE_BYTES, MADV_DONTNEED);
}

void vn_shadow_read(const struct vn_shadow *shadow, const uint8_t *memory, size_t off, size_t len,
                    uint8_t *to)
{
    assert(off % VN_PAGE_BYTES == 0 && off <= shadow->size && len <= shadow->size - off);
    for (size_t at = 0; at < len; at += VN_PAGE_BYTES) {
        bool omitted = is_omitted(shadow, (off + at) / VN_PAGE_BYTES);
        size_t n = len - at < VN_PAGE_BYTES ? len - at : VN_PAGE_BYTES;
        copy_racy(to + at, (omitted ? memory : shadow->bytes) + off + at, n);
    }
}
