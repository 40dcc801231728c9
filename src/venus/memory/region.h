/* venus/memory/region.h - memory that a program maps here and a GPU uses elsewhere.
 *
 * The program gets a plain pointer.  What it writes is found (track.h), compared with what the
 * server has (shadow.h) and sent as a delta; what the server changes comes as a delta and is merged
 * byte by byte.  docs/design/mapped-memory.md argues why no write is lost on either side.
 *
 *   collect  finds the pages written since the last time and remembers them as pending
 *   encode   puts pending pages into deltas, until none is left
 *   apply    merges a delta of the server; leaves no page marked that the program did not write
 *   drop     gives up pages whose newest content the server has; touched again, they are asked
 *            for with `fetch`, and `fill` delivers them
 *
 * Order between the two streams is the caller's: deltas are encoded, sent, received and applied
 * in order; a fetch is sent after the deltas encoded before it, and its answer is given to fill in
 * its place among the deltas received.
 *
 * Trust: apply and fill take a peer's bytes; see delta.h.
 * Threads: any, calls on one region take turns; the program writes whenever it likes.  apply, fill
 * and encode never touch a page that is not there, so they may run where fetch's answer arrives.
 * After fork the region is the parent's: in the child every call but destroy is -ESHUTDOWN, the
 * memory stays readable and writable, and what is written there stays there.
 * Lifetime: create/destroy.  Nobody may touch the memory during or after destroy. */
#ifndef HAWSER_VENUS_MEMORY_REGION_H
#define HAWSER_VENUS_MEMORY_REGION_H

#include "venus/memory/delta.h"
#include "venus/memory/track/track.h"

enum {
    /* Asked for at a touched page, the more the longer the program reads on: a round trip is worth
     * more than a page, but a server that reads across a bus may need a millisecond for 64 KiB; on
     * 10 Gbit/s 256 KiB arrive in the time of one short round trip. */
    VN_FETCH_LEAST = 16 << 10,
    VN_FETCH_BYTES = 256 << 10,

    /* Fewer pages that are written as a whole are left to deltas, which gather in one message. */
    VN_WHOLE_MIN = 64 << 10,
};

/* Alignment of a mapping, at most: far past any minMemoryMapAlignment. */
#define VN_REGION_ALIGN_MAX ((size_t)1 << 30)

/* Pages at [off, off + len) were touched: ask the server, and have its answer given to
 * vn_region_fill.  Runs on the pager's thread; may wait, and may call fill itself.  A negative
 * errno says that they will never come: the region is then as after vn_region_lose. */
typedef int vn_fetch_fn(void *user, size_t off, size_t len);

struct vn_region_params {
    size_t size;
    size_t alignment;            /* 0 or a power of two up to VN_REGION_ALIGN_MAX */
    enum vn_track_method method; /* VN_TRACK_AUTO unless a test wants another */
    vn_fetch_fn *fetch;          /* NULL: nothing is ever dropped */
    void *user;                  /* for fetch */
};

struct vn_region;

/* Fresh zeros on both sides.  0, -EINVAL, -ENOMEM, -ENOTSUP for a method that does not work here,
 * or the kernel's errno.  *out is set only on 0; free with vn_region_destroy. */
int vn_region_create(const struct vn_region_params *params, struct vn_region **out) MUST_CHECK;
void vn_region_destroy(struct vn_region *region);

/* What vkMapMemory returns. */
void *vn_region_memory(const struct vn_region *region);

/* The name of the method in use. */
const char *vn_region_method(const struct vn_region *region);

/* Finds the written pages of the range, all of them for (0, SIZE_MAX).  Every write that happened
 * before the call is pending afterwards.  0 or a negative errno; -EINVAL past the end. */
int vn_region_collect(struct vn_region *region, size_t off, size_t len) MUST_CHECK;

/* The first run of pending pages at or after *off: true and its place.  Pages may be among them
 * whose bytes turn out to be as they were. */
bool vn_region_next_pending(struct vn_region *region, size_t *off, size_t *len) MUST_CHECK;

/* Whether the server may write the same memory while a delta is on its way.  Where it does not, a
 * delta may name bytes that did not change. */
enum vn_server_side { VN_SERVER_WRITES, VN_SERVER_IS_STILL };

/* Appends to e one delta of pending pages, at most budget bytes (more than VN_CHANGE_WIRE_MAX), and
 * counts them.  With *changes 0 there was nothing to send, though a delta was put.
 * 0: none is left; 1: more is pending; or the encoder's error, -ESHUTDOWN.  After an encoder's
 * error the shadow copy is ahead of the server and the connection is to be given up. */
int vn_region_encode(struct vn_region *region, struct vn_delta_codec *codec, struct wire_enc *e,
                     size_t budget, enum vn_server_side server, size_t *changes) MUST_CHECK;

/* Takes the first pending pages at or after *off that seem to be written as a whole, at least
 * VN_WHOLE_MIN and at most `most` bytes (twice that or more) of them in a row, for a server that
 * writes nothing there meanwhile (VN_SERVER_IS_STILL).  True with their place and their bytes,
 * which are to be sent as they are, before the next call that encodes or applies.  False: there are
 * none.
 *
 * The bytes of pages that went so the last time, too, are those of the mapping itself, and no
 * shadow copy of them is kept: such pages are unshadowed.  The next time that they may have been
 * written they are sent as a whole in any case.  So no device may be writing them: see
 * vn_region_expect. */
bool vn_region_take_whole(struct vn_region *region, size_t most, size_t *off, size_t *len,
                          const uint8_t **bytes) MUST_CHECK;

/* A device may write the range once the pages that are pending now were encoded: none of it goes
 * unshadowed with them, and what is unshadowed is made pending, to get its shadow copy.  0, -EINVAL
 * past the end, -ESHUTDOWN. */
int vn_region_expect(struct vn_region *region, size_t off, size_t len) MUST_CHECK;

/* For the upload cache: pending pages that the server can have without their bytes being sent.
 *
 * Copies the bytes of pending pages at [off, off + len), as they are now; off is the start of a
 * page.  0, -EINVAL past the end, -EAGAIN where a page is not here any more, -ESHUTDOWN. */
int vn_region_read(struct vn_region *region, size_t off, size_t len, void *to) MUST_CHECK;
/* The server will have these bytes, which vn_region_read gave: they are the shadow copy, and
 * nothing of them is pending.  What the program wrote since then is found by the next collect.  The
 * end is that of a page or of the region.  0, -EINVAL, -ESHUTDOWN. */
int vn_region_sent(struct vn_region *region, size_t off, size_t len, const void *bytes) MUST_CHECK;

/* Merges a delta of the server.  0; -EPROTO, -EMSGSIZE, -ENOMEM, -ESHUTDOWN with nothing applied;
 * or the kernel's errno, with the region no longer exact. */
int vn_region_apply(struct vn_region *region, struct vn_delta_codec *codec, const void *data,
                    size_t len) MUST_CHECK;

/* The server's bytes for whole pages, which the program does not write meanwhile.  0, -EPROTO for a
 * range that is not of whole pages inside the region, -ESHUTDOWN; or as vn_region_apply. */
int vn_region_store(struct vn_region *region, uint64_t off, const uint8_t *bytes,
                    size_t len) MUST_CHECK;

/* Whether pages can be dropped: the method finds accesses to pages that are not there. */
bool vn_region_can_drop(const struct vn_region *region);

/* The server has newer content for the range: gives up the pages.  What the program wrote there and
 * was not sent is set aside: encode sends it, fill lays it over the server's content.
 * 0, -EINVAL past the end, -ENOTSUP, or a negative errno with the region no longer exact. */
int vn_region_drop(struct vn_region *region, size_t off, size_t len) MUST_CHECK;

/* Whether something is set aside, pending or not. */
bool vn_region_has_saved_writes(struct vn_region *region);

/* Whether the page at off is here. */
bool vn_region_has(struct vn_region *region, size_t off);

/* The server's content for the range, from a fetch.  Pages that are not missing are left alone.
 * 0, -EINVAL for a range that does not begin and end with a host page or the region, or the
 * kernel's errno. */
int vn_region_fill(struct vn_region *region, uint64_t off, const uint8_t *data,
                   size_t len) MUST_CHECK;

/* The server is gone: missing pages become zeros and nobody waits for them. */
void vn_region_lose(struct vn_region *region);

#endif
