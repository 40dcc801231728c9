/* venus/memory/shadow.h - the shadow copy of a region: what the other end has of it.
 *
 * Both ends keep one.  A byte that differs from the shadow copy was written here and is yet to be
 * sent.  A byte that arrives is stored, unless it was written here meanwhile.  Then the host's
 * write wins on both ends, because the host wrote it after the device work that it had waited for:
 * the client keeps its byte and sends it (vn_shadow_merge), the server takes the client's
 * (vn_shadow_overwrite).
 *
 * `memory` is the program's mapping at the client and the driver's memory at the server.  Others
 * may write it at any time.  Each byte is read once for a delta, so that the shadow copy is what
 * was sent.  No byte is stored that the peer did not name, so that a write beside it survives.
 *
 * Trust: vn_shadow_apply takes a peer's bytes, see delta.h.
 * Threads: the caller serialises calls on one shadow copy.
 * Lifetime: init/fini.  `memory` is the caller's, 8-byte aligned, at least shadow->size bytes. */
#ifndef HAWSER_VENUS_MEMORY_SHADOW_H
#define HAWSER_VENUS_MEMORY_SHADOW_H

#include "venus/memory/delta.h"

struct vn_shadow {
    uint8_t *bytes; /* whole pages; zero past size */
    size_t size;
    struct vn_pageset omitted; /* at the server: pages whose shadow copy is the memory itself */
    bool near;                 /* set by the owner: the peer is on this machine */
};

struct vn_pages {
    size_t first, end;
    bool awaited; /* of filled ones: the client wants all of each */
};

/* All zero; takes no memory until it is written.  0, -EINVAL for a size of 0 or past VN_PAGES_MAX,
 * -ENOMEM. */
int vn_shadow_init(struct vn_shadow *shadow, size_t size) MUST_CHECK;
void vn_shadow_fini(struct vn_shadow *shadow);

static inline size_t vn_shadow_pages(const struct vn_shadow *shadow)
{
    return (shadow->size + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES;
}

/* ---- one page ---- */

/* Whether the page differs; exact for writes that happened before the call. */
bool vn_shadow_differs(const struct vn_shadow *shadow, const uint8_t *memory, size_t page);

/* Takes the bytes that differ into *change.  False: none does, and *change is scratch. */
bool vn_shadow_take(const struct vn_shadow *shadow, const uint8_t *memory, size_t page,
                    struct vn_change *change) MUST_CHECK;

/* The change will reach the peer: it becomes a part of the shadow copy. */
void vn_shadow_sent(struct vn_shadow *shadow, const struct vn_change *change);

/* At the client, the server's change: stored in memory where the program wrote nothing, and in the
 * shadow copy. */
void vn_shadow_merge(struct vn_shadow *shadow, uint8_t *memory, const struct vn_change *change);

/* At the server, the client's change: stored in both. */
void vn_shadow_overwrite(struct vn_shadow *shadow, uint8_t *memory, const struct vn_change *change);

/* ---- the server's deltas ---- */

/* Appends to e a delta of what differs in pages *page up to end, of at most budget bytes (more than
 * VN_CHANGE_WIRE_MAX), and moves *page to the first page not looked at.  A device wrote all of
 * `filled`, where the client therefore writes nothing: pages there that seem to be rewritten, and
 * awaited ones, are sent as a whole.  The number of changes, or the encoder's error: the shadow
 * copy is then ahead of the peer, and the connection is to be given up. */
int vn_shadow_encode(struct vn_shadow *shadow, const uint8_t *memory, struct vn_pages filled,
                     size_t *page, size_t end, struct vn_delta_codec *codec, struct wire_enc *e,
                     size_t budget) MUST_CHECK;

/* Overwrites with a delta: with all of it or, on -EPROTO, -EMSGSIZE and -ENOMEM, none of it. */
int vn_shadow_apply(struct vn_shadow *shadow, uint8_t *memory, struct vn_delta_codec *codec,
                    const void *data, size_t len) MUST_CHECK;

/* ---- whole pages ----
 *
 * For pages that the other end does not write meanwhile: they are sent or stored without a
 * comparison.  Offsets are those of pages. */

/* Whether half of a page's bytes or more seem to differ, judged by one block of 64 bytes.  False
 * for a block that became zeros, for which a delta is shorter, unless the peer is near: bytes
 * travel there more quickly than both ends look at each page. */
bool vn_shadow_is_rewritten(const struct vn_shadow *shadow, const uint8_t *memory, size_t page);

/* The same of the server's bytes for a page of memory. */
bool vn_shadow_is_news(const uint8_t *memory, size_t page, const uint8_t *bytes);
/* Copies to the shadow copy what is_news looks at in memory. */
void vn_shadow_take_sample(struct vn_shadow *shadow, const uint8_t *memory, size_t page);

/* How many whole pages from `page` up to `end` seem to be rewritten, without a gap, judged by the
 * first and by those whose number is a multiple of `every`. */
size_t vn_shadow_count_rewritten(const struct vn_shadow *shadow, const uint8_t *memory, size_t page,
                                 size_t end, size_t every);

/* Allocates the shadow copy's memory for [off, off + len) in one call, where the kernel can. */
void vn_shadow_populate(const struct vn_shadow *shadow, size_t off, size_t len);

/* Copies memory to the shadow copy, which is then sent: so the two are the same. */
void vn_shadow_take_whole(struct vn_shadow *shadow, const uint8_t *memory, size_t off, size_t len);

/* Copies only the blocks that vn_shadow_count_rewritten looks at with the same `every`: the pages
 * are sent from memory. */
void vn_shadow_take_samples(struct vn_shadow *shadow, const uint8_t *memory, size_t page,
                            size_t count, size_t every);

/* At the client: stores the server's bytes in memory alone, or in both. */
void vn_shadow_put_memory(uint8_t *memory, size_t off, const uint8_t *bytes, size_t len);
void vn_shadow_put_whole(struct vn_shadow *shadow, uint8_t *memory, size_t off,
                         const uint8_t *bytes, size_t len);

/* At the server: stores the client's bytes in both, in three steps, so that the copy needs no lock.
 * Begin and end are called under it.  In between the pages are omitted, and no thread compares
 * them. begin: false where there is no memory for that; the lock is then kept throughout.  With
 * `omit` whole pages stay omitted: for memory that the CPU reads as quickly as the shadow copy. */
bool vn_shadow_store_begin(struct vn_shadow *shadow, const uint8_t *memory, size_t off,
                           size_t len) MUST_CHECK;
void vn_shadow_store_copy(const struct vn_shadow *shadow, uint8_t *memory, size_t off,
                          const uint8_t *bytes, size_t len, bool omit);
void vn_shadow_store_end(struct vn_shadow *shadow, size_t off, size_t len, bool omit);

/* At the server: omits the shadow copies of pages that are sent from memory while no device can
 * write them.  False where there is no memory for that. */
bool vn_shadow_omit(struct vn_shadow *shadow, size_t page, size_t count) MUST_CHECK;

/* Makes the omitted shadow copies of pages first up to end, before a device can write them. */
void vn_shadow_make(struct vn_shadow *shadow, const uint8_t *memory, size_t first, size_t end);

/* At the server, where few pages of a large memory are compared: gives back what all shadow copies
 * take, and lets each take no more than its page (huge pages are off). */
void vn_shadow_thin(const struct vn_shadow *shadow);
/* Gives back what these take, which nobody compares: blocks of 64 KiB, or all up to the end. */
void vn_shadow_release(const struct vn_shadow *shadow, size_t page, size_t count);

/* Copies what the peer has at [off, off + len). */
void vn_shadow_read(const struct vn_shadow *shadow, const uint8_t *memory, size_t off, size_t len,
                    uint8_t *to);

#endif
