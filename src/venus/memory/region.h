/* venus/memory/region.h - memory that a program maps here and a GPU uses elsewhere.
 *
 * The program gets a plain pointer.  What it writes is found (track.h), compared with what the
 * server has (shadow.h) and sent as a delta.  What the server changes comes as a delta and is
 * merged byte by byte.  docs/design/mapped-memory.md argues why no write is lost on either side.
 *
 *   collect  finds the pages written since the last time: they are pending
 *   encode   puts pending pages into deltas, until none is left
 *   apply    merges a delta of the server
 *   drop     gives up pages whose newest content the server has; `fetch` asks for them when they
 * are touched, and `fill` delivers them
 *
 * The caller keeps the order of the two streams.  Deltas are encoded, sent, received and applied in
 * order.  A fetch is sent after the deltas encoded before it, and its answer is given to fill in
 * its place among the deltas received.
 *
 * Trust: apply, store and fill take a peer's bytes; see delta.h.
 * Threads: any; a lock serialises the calls on a region, and the program writes whenever it likes.
 * apply, fill and encode touch no missing page, so they may run where fetch's answer arrives.
 * After fork the region is the parent's: in the child every call but destroy is -ESHUTDOWN, the
 * memory stays readable and writable, and the child's writes stay in the child.
 * Lifetime: create/destroy.  Nobody may touch the memory during or after destroy, but who was given
 * a part of it by place. */
#ifndef HAWSER_VENUS_MEMORY_REGION_H
#define HAWSER_VENUS_MEMORY_REGION_H

#include "venus/memory/delta.h"
#include "venus/memory/track/track.h"

enum {
    /* Requested at a touched page: at first LEAST, then twice as much each time the program reads
     * on.  A round trip costs more than a page, but a server that reads across a bus may need a
     * millisecond for 64 KiB. */
    VN_FETCH_LEAST = 16 << 10,
    VN_FETCH_BYTES = 256 << 10,

    /* Shorter runs of rewritten pages go as deltas, which share a message. */
    VN_WHOLE_MIN = 64 << 10,
};

/* Of a mapping, at most: far past any minMemoryMapAlignment. */
#define VN_REGION_ALIGN_MAX ((size_t)1 << 30)

/* The program touched a page of [off, off + len): asks the server, and has its answer given to
 * vn_region_fill.  Runs on the pager's thread; may wait, and may call fill itself.  A negative
 * errno says that the pages will never come: the region is then as after vn_region_lose. */
typedef int vn_fetch_fn(void *user, size_t off, size_t len);

struct vn_region_params {
    size_t size;
    void *borrowed;   /* the program's own memory, of whole host pages; NULL: fresh memory */
    size_t alignment; /* 0 or a power of two up to VN_REGION_ALIGN_MAX */
    enum vn_track_method method; /* VN_TRACK_AUTO unless a test wants another */
    vn_fetch_fn *fetch;          /* NULL: nothing is ever dropped */
    void *user;                  /* for fetch */
    bool near;                   /* the server is on this machine */
    bool moves; /* vn_region_move may be called, and vn_region_place gives nothing */
};

struct vn_region;

/* Fresh zeros on both sides.  What borrowed memory holds is to be sent as if the program had
 * written it; it is never dropped or moved, and is left as it is at the end.  0, -EINVAL, -ENOMEM,
 * -ENOTSUP for a method that does not work here, or the kernel's errno.  *out is set only on 0;
 * free with vn_region_destroy. */
int vn_region_create(const struct vn_region_params *params, struct vn_region **out) MUST_CHECK;
void vn_region_destroy(struct vn_region *region);

/* What vkMapMemory returns. */
void *vn_region_memory(const struct vn_region *region);

/* Moves the memory, which the program does not touch meanwhile, to `to`, where it replaces what was
 * mapped there, or (NULL) to where the kernel has room.  With `reserve` the old addresses stay
 * taken, without access; else they are free.  0, -EINVAL for an address that is not one of a page,
 * -ENOTSUP without params.moves, for borrowed memory and for memory whose pages can be dropped,
 * -ESHUTDOWN, -ENOMEM or the kernel's errno; the memory is then where it was. */
int vn_region_move(struct vn_region *region, void *to, bool reserve) MUST_CHECK;

/* The name of the method in use. */
const char *vn_region_method(const struct vn_region *region);

/* Finds the written pages of the range; (0, SIZE_MAX) is all of the region.  Every write that
 * happened before the call is pending afterwards.  0 or a negative errno; -EINVAL past the end. */
int vn_region_collect(struct vn_region *region, size_t off, size_t len) MUST_CHECK;

/* The first run of pending pages at or after *off: true and its place.  Some may turn out to be
 * unchanged. */
bool vn_region_next_pending(struct vn_region *region, size_t *off, size_t *len) MUST_CHECK;

/* Whether a device may write the memory while a delta is on its way.  If not, a delta may name
 * bytes that did not change. */
enum vn_server_side { VN_SERVER_WRITES, VN_SERVER_IS_STILL };

/* Appends to e one delta of pending pages, of at most budget bytes (more than VN_CHANGE_WIRE_MAX).
 * With *changes 0 the delta is empty.  0: nothing is left; 1: more is pending; or the encoder's
 * error, -ESHUTDOWN.  After an encoder's error the shadow copy is ahead of the server, and the
 * connection is to be given up. */
int vn_region_encode(struct vn_region *region, struct vn_delta_codec *codec, struct wire_enc *e,
                     size_t budget, enum vn_server_side server, size_t *changes) MUST_CHECK;

/* Takes the first run of pending pages at or after *off that seem to be rewritten, at least
 * VN_WHOLE_MIN and at most `most` bytes (twice that or more).  Only while VN_SERVER_IS_STILL.  True
 * with their place and their bytes, which are to be sent before the next call that encodes or
 * applies.  False: there is none.
 *
 * Pages that went so the last time as well become unshadowed: their bytes are those of the mapping
 * itself, and no shadow copy of them is kept.  When they may have been written again they are sent
 * as a whole in any case, so no device may be writing them: see vn_region_expect. */
bool vn_region_take_whole(struct vn_region *region, size_t most, size_t *off, size_t *len,
                          const uint8_t **bytes) MUST_CHECK;

/* A device may write the range after the next encode.  Pages of the range do not become unshadowed
 * until then, and those that are so become pending, to get their shadow copies.  `filled`: it
 * writes every byte.  0, -EINVAL past the end, -ESHUTDOWN. */
int vn_region_expect(struct vn_region *region, size_t off, size_t len, bool filled) MUST_CHECK;

/* For readbacks that come again and again, and that nothing looks at in between.  A device is to
 * write every byte of these pages, and the server will send them as a whole: through store, or
 * each page whole in a delta.  The program does not touch them meanwhile.
 *
 * Of how many bytes, from off on, that is worth while: of all if most of the pages came so the last
 * time, else of the first pages that did.  The range is of whole pages. */
size_t vn_region_may_await(struct vn_region *region, size_t off, size_t len);
/* What the program wrote there is not sent any more, and the pages are not compared; they come
 * without a shadow copy.  Behind the encode for whatever reads them before.  Only after
 * vn_region_may_await. */
void vn_region_await(struct vn_region *region, size_t off, size_t len);
/* The device is done, all has come, and the program does not know it yet. */
void vn_region_arrived(struct vn_region *region, size_t off, size_t len);

/* Merges a delta of the server; *changed: how many bytes it named.  0; -EPROTO, -EMSGSIZE, -ENOMEM,
 * -ESHUTDOWN with nothing applied; or the kernel's errno, with the region no longer exact. */
int vn_region_apply(struct vn_region *region, struct vn_delta_codec *codec, const void *data,
                    size_t len, size_t *changed) MUST_CHECK;

/* Stores the server's bytes for whole pages, which the program does not write meanwhile.  Missing
 * pages come back with them, unless a fetch is under way for them.  0, -EPROTO for a range that is
 * not of whole pages inside the region, or of missing pages that are not whole host pages,
 * -ESHUTDOWN; or as vn_region_apply.  `bytes` may be what vn_region_place gave for the range. */
int vn_region_store(struct vn_region *region, uint64_t off, const uint8_t *bytes,
                    size_t len) MUST_CHECK;

/* Where the server's bytes for these pages may be received, before they are given to store; NULL:
 * somewhere else.  The pages are awaited, and no call that is still to come is about older bytes of
 * them.  The mapping stays until vn_region_leave, also after destroy. */
uint8_t *vn_region_place(struct vn_region *region, uint64_t off, size_t len);
void vn_region_leave(struct vn_region *region);

/* Whether pages can be dropped: the kernel reports accesses to missing pages. */
bool vn_region_can_drop(const struct vn_region *region);

/* Pages of a region that was created without `fetch` may be dropped from now on.  The caller sends
 * unshadowed pages first, as vn_region_expect has them sent.  False, and nothing has changed: they
 * cannot be dropped, or some are awaited. */
bool vn_region_set_fetch(struct vn_region *region, vn_fetch_fn *fetch);

/* The server has newer content for the range: gives up the pages.  Writes that were not sent are
 * saved: encode sends them, fill lays them over the server's content.
 * 0, -EINVAL past the end, -ENOTSUP, or a negative errno with the region no longer exact. */
int vn_region_drop(struct vn_region *region, size_t off, size_t len) MUST_CHECK;

/* Whether a missing page has saved writes, sent or not. */
bool vn_region_has_saved_writes(struct vn_region *region);

/* Whether the pages of [off, off + len) are here. */
bool vn_region_has(struct vn_region *region, size_t off, size_t len);

/* Whether the page at off was requested by a fetch and did not come.  A page that came may be
 * dropped again before anybody looks, so a fetch waits for this and not for the page. */
bool vn_region_is_requested(struct vn_region *region, size_t off);

/* The answer of a fetch.  Pages that are not missing are left alone.
 * 0, -EINVAL for a range that does not begin and end with a host page or the region, or the
 * kernel's errno. */
int vn_region_fill(struct vn_region *region, uint64_t off, const uint8_t *data,
                   size_t len) MUST_CHECK;

/* The server is gone: missing pages become zeros and no thread waits for them. */
void vn_region_lose(struct vn_region *region);

#endif
