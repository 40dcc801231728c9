/* venus/memory/shadow.h - what the other end has of a piece of memory, and the exchange against it.
 *
 * Both ends keep a shadow copy of each shared region.  A byte that differs from the shadow copy was
 * written here and is yet to be sent.  A byte that arrives is taken where nobody wrote it here.
 * Where somebody did, the host's write wins on both ends: it came after all device work that the
 * host had waited for, and before all that it submits next.  So the client keeps its byte and sends
 * it with the next delta (vn_shadow_merge), and the server takes the client's
 * (vn_shadow_overwrite).
 *
 * `memory` is the memory itself: the program's mapping at the client, the driver's at the server.
 * It may be written by others at any time.  Bytes are read once for each delta, so that what is
 * sent and what the shadow copy remembers are the same; and no byte is ever stored that the peer
 * did not name, so that a neighbour's write is never undone.
 *
 * Trust: vn_shadow_apply takes a peer's bytes, see delta.h.
 * Threads: one at a time for each shadow copy; `memory` belongs to anybody.
 * Lifetime: init/fini.  `memory` is the caller's, 8-byte aligned, at least shadow copy->size bytes.
 */
#ifndef HAWSER_VENUS_MEMORY_SHADOW_H
#define HAWSER_VENUS_MEMORY_SHADOW_H

#include "venus/memory/delta.h"

struct vn_shadow {
    uint8_t *bytes; /* whole pages; zero past size */
    size_t size;
    struct vn_pageset omitted; /* pages for which memory stands; see vn_shadow_store_begin */
};

/* All zero, and without memory behind it until it is written.  0, -EINVAL for a size of 0 or past
 * VN_PAGES_MAX, -ENOMEM. */
int vn_shadow_init(struct vn_shadow *shadow, size_t size) MUST_CHECK;
void vn_shadow_fini(struct vn_shadow *shadow);

static inline size_t vn_shadow_pages(const struct vn_shadow *shadow)
{
    return (shadow->size + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES;
}

/* Pages between a look at one and a hint that it is coming: each is a miss of the TLB and of every
 * cache, and these overlap. */
enum { VN_SHADOW_AHEAD = 8 };

/* Hints that the beginning of a page will be compared. */
static inline void vn_shadow_hint(const struct vn_shadow *shadow, const uint8_t *memory,
                                  size_t page)
{
    __builtin_prefetch(memory + page * VN_PAGE_BYTES);
    __builtin_prefetch(shadow->bytes + page * VN_PAGE_BYTES);
}

/* Whether the page of memory differs; exact for writes that happened before the call. */
bool vn_shadow_differs(const struct vn_shadow *shadow, const uint8_t *memory, size_t page);

/* Takes what differs in the page into *change.  False when nothing does; *change is then scratch.
 */
bool vn_shadow_take(const struct vn_shadow *shadow, const uint8_t *memory, size_t page,
                    struct vn_change *change) MUST_CHECK;

/* The change is on its way: the peer will have it. */
void vn_shadow_sent(struct vn_shadow *shadow, const struct vn_change *change);

/* The server's change, at the client: into memory where nobody wrote it here, into the shadow copy
 * in any case. */
void vn_shadow_merge(struct vn_shadow *shadow, uint8_t *memory, const struct vn_change *change);

/* The client's change, at the server: into both. */
void vn_shadow_overwrite(struct vn_shadow *shadow, uint8_t *memory, const struct vn_change *change);

struct vn_pages {
    size_t first, end;
};

/* The two calls of an end that tracks nothing and compares: the server.
 *
 * Appends to e a delta of what differs in pages *page up to end, of at most budget bytes, and moves
 * *page to the first page not looked at.  budget is at least VN_CHANGE_WIRE_MAX + 1.  Pages of
 * `filled` were written here as a whole, so that the peer may write none of their bytes: those that
 * seem to have changed as a whole are sent so.
 * The number of changes put; or the encoder's error, after which the shadow copy is ahead of the
 * peer and the connection is to be given up. */
int vn_shadow_encode(struct vn_shadow *shadow, const uint8_t *memory, struct vn_pages filled,
                     size_t *page, size_t end, struct vn_delta_codec *codec, struct wire_enc *e,
                     size_t budget) MUST_CHECK;

/* Overwrites with a delta, all of it or, on -EPROTO, -EMSGSIZE and -ENOMEM, none of it. */
int vn_shadow_apply(struct vn_shadow *shadow, uint8_t *memory, struct vn_delta_codec *codec,
                    const void *data, size_t len) MUST_CHECK;

/* Whole pages, without a look at each byte, where the server writes nothing there meanwhile.
 *
 * Whether at least half of the bytes of a page seem to differ, as where numbers changed but for
 * their exponents, by one block of it, and not to become zeros, for which a delta has a short name.
 */
bool vn_shadow_is_rewritten(const struct vn_shadow *shadow, const uint8_t *memory, size_t page);

/* Gets memory for the pages of [off, off + len), which are about to be written, in one call: a look
 * and then a write would be two faults a page.  Harmless where it cannot. */
void vn_shadow_populate(const struct vn_shadow *shadow, size_t off, size_t len);

/* How many pages from `page` up to `end`, whole ones, seem to be rewritten. */
size_t vn_shadow_count_rewritten(const struct vn_shadow *shadow, const uint8_t *memory, size_t page,
                                 size_t end);

/* Live at [off, off + len), whole pages, becomes the shadow copy, which is what is then sent: so
 * both are the same, whatever is written meanwhile. */
void vn_shadow_take_whole(struct vn_shadow *shadow, const uint8_t *memory, size_t off, size_t len);

/* The same for pages whose bytes are sent from memory itself: the shadow copy has only the block
 * that vn_shadow_is_rewritten looks at. */
void vn_shadow_take_samples(struct vn_shadow *shadow, const uint8_t *memory, size_t page,
                            size_t count);

/* At the server, for pages whose bytes are sent from memory while no device can write them: it
 * stands for the shadow copy until vn_shadow_make.  False where there is no memory for that. */
bool vn_shadow_omit(struct vn_shadow *shadow, size_t page, size_t count) MUST_CHECK;

/* At the client: the server's bytes at [off, off + len), whole pages, into both, where the program
 * writes nothing meanwhile. */
void vn_shadow_put_whole(struct vn_shadow *shadow, uint8_t *memory, size_t off,
                         const uint8_t *bytes, size_t len);

/* At the server: the client's bytes at [off, off + len) into both; off is the start of a page.
 *
 * With `alike` whole pages are written to memory only, which stands for the shadow copy until
 * vn_shadow_make: as long as no device can write them the two are the same, and a copy would be for
 * nothing.  For memory that is read as quickly as the shadow copy.
 *
 * In steps, for who gives its lock back while the bytes are copied: begin and end under it, copy
 * without.  From begin to end the pages are alike for everybody else, who so does not compare them.
 * False where there is no memory for that: the lock is to be kept. */
bool vn_shadow_store_begin(struct vn_shadow *shadow, const uint8_t *memory, size_t off,
                           size_t len) MUST_CHECK;
void vn_shadow_store_copy(const struct vn_shadow *shadow, uint8_t *memory, size_t off,
                          const uint8_t *bytes, size_t len, bool omitted);
void vn_shadow_store_end(struct vn_shadow *shadow, size_t off, size_t len, bool omitted);

/* A device may write pages from first up to end from now on. */
void vn_shadow_make(struct vn_shadow *shadow, const uint8_t *memory, size_t first, size_t end);

/* Copies what the peer has at [off, off + len); off is the start of a page. */
void vn_shadow_read(const struct vn_shadow *shadow, const uint8_t *memory, size_t off, size_t len,
                    uint8_t *to);

/* The client's upload cache; see docs/upload-cache.md.
 *
 * Copies the bytes of memory at [off, off + len), each read once.  off is a multiple of 8. */
void vn_shadow_read_memory(const struct vn_shadow *shadow, const uint8_t *memory, size_t off,
                           size_t len, uint8_t *to);

/* At the server: all bytes that the client has at [off, off + len), where the shadow copies of both
 * ends are equal: what differs from the shadow copy was written by the client, and is overwritten;
 * the rest is left alone.  off is the start of a page. */
void vn_shadow_write(struct vn_shadow *shadow, uint8_t *memory, size_t off, const uint8_t *bytes,
                     size_t len);

#endif
