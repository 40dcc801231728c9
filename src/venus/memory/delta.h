/* venus/memory/delta.h - the changed bytes of a set of pages, as they travel.
 *
 * A delta names exactly the bytes that its sender changed.  The peer may have written the byte
 * beside them, with that write still on its way here: an old value sent along would undo it.  That
 * is why near runs are not joined.  Where runs are many, a bit mask is smaller.
 *
 *    u8      form           0: the changes follow; 1: their length as a varint, then a zstd frame
 *    changes to the end, pages ascending; each is:
 *      varint  pages skipped since the last one
 *      u8      which bytes:  1 runs, 2 mask, 3 all;  +4: all of them become zero, no bytes follow;
 *                            8 all, as runs of equal words
 *      runs:   varint count, then for each: varint gap, varint length, its bytes
 *      mask:   512 bytes, bit i of byte j is byte 8j + i of the page; then the bytes it names
 *      all:    4096 bytes
 *      words:  u8 count, then for each run: varint words, 4 bytes
 *
 * Whoever frames a delta knows its length: the delta fills its message to the end.
 *
 * Trust: decoding takes a peer's bytes.  All of a delta is checked before any of it is given out. A
 * change never names a byte past the region.  A frame yields no more than it declared, and no more
 * than the region could need.
 * Threads: the caller serialises calls on one codec.
 * Lifetime: codecs create/destroy.  A decoded delta points into its input and its codec, and holds
 * until the codec's next use. */
#ifndef HAWSER_VENUS_MEMORY_DELTA_H
#define HAWSER_VENUS_MEMORY_DELTA_H

#include "venus/memory/diff.h"
#include "wire/dec.h"
#include "wire/enc.h"

enum {
    /* One encoded change: a page, a mask or as many runs as are allowed instead, and its head. */
    VN_CHANGE_WIRE_MAX = VN_PAGE_BYTES + 1024,

    /* Below this zstd's own overhead and latency exceed what it saves on any link we serve. */
    VN_DELTA_ZSTD_MIN = 16 << 10,
};

/* The bytes of one page that changed.  mask[b] holds for the blocks named in `blocks`, bytes[i]
 * for the bytes named in the mask. */
struct vn_change {
    size_t page;
    uint64_t blocks;
    uint64_t mask[VN_PAGE_BLOCKS];
    uint8_t bytes[VN_PAGE_BYTES] __attribute__((aligned(64)));
};

/* Names all bytes of a block where half are named, and all of a page where most are: about as
 * short, and much quicker at both ends, which copy blocks and pick single bytes.  For pages that
 * the peer does not write meanwhile. */
void vn_change_round(struct vn_change *change);

/* How many bytes are named. */
size_t vn_change_bytes(const struct vn_change *change);
/* Whether every byte of the page is named. */
bool vn_change_is_whole(const struct vn_change *change);

struct vn_delta_codec;

/* Bodies of at least zstd_min bytes are compressed where that saves an eighth; 0: none is.
 * 0 or -ENOMEM.  *out is set only on 0; free with vn_delta_codec_destroy. */
int vn_delta_codec_create(size_t zstd_min, struct vn_delta_codec **out) MUST_CHECK;
void vn_delta_codec_destroy(struct vn_delta_codec *codec);

/* Whether the line is the bottleneck.  Compression is slower than a fast line, and costs nothing
 * while a slow one has bytes to carry: with such a function, bodies are compressed only then. */
typedef bool vn_line_behind_fn(void *user);
void vn_delta_codec_watch(struct vn_delta_codec *codec, vn_line_behind_fn *behind, void *user);

/* A delta being written at the end of e.  Fields are private. */
struct vn_delta_out {
    struct wire_enc *e;
    size_t start;
    size_t next_page;
};

void vn_delta_begin(struct vn_delta_out *out, struct wire_enc *e);

/* Appends a change with at least one byte; pages ascend.  The encoder's error sticks there. */
void vn_delta_put(struct vn_delta_out *out, const struct vn_change *change);

/* The same for all bytes of a page, which a program may be writing. */
void vn_delta_put_page(struct vn_delta_out *out, size_t page, const uint8_t *bytes);

/* Whether whole pages are runs of equal words, by a look at some: masks, and what was cleared. They
 * are shorter as a delta, and sooner there on any line. */
bool vn_delta_is_few_words(const uint8_t *pages, size_t len);

/* Whether bytes like these of one page are worth compressing. */
bool vn_delta_shrinks(struct vn_delta_codec *codec, const uint8_t *page);

/* Whether the delta has room for one more change within `budget` bytes. */
static inline bool vn_delta_has_room(const struct vn_delta_out *out, size_t budget)
{
    return wire_enc_len(out->e) - out->start + VN_CHANGE_WIRE_MAX <= budget;
}

/* Ends the delta, compressing it where that pays.  0, or the encoder's error. */
int vn_delta_end(struct vn_delta_out *out, struct vn_delta_codec *codec) MUST_CHECK;

/* A delta being read.  Fields are private. */
struct vn_delta_in {
    struct wire_dec d;
    size_t region_bytes;
    size_t next_page;
};

/* Takes data[0..len) as a delta for a region of that many bytes and checks all of it.
 * 0; -EPROTO, -EMSGSIZE or -ENOMEM, and then nothing may be taken from it. */
int vn_delta_open(struct vn_delta_codec *codec, const void *data, size_t len, size_t region_bytes,
                  struct vn_delta_in *in) MUST_CHECK;

/* The next change of a delta that vn_delta_open accepted; false past the last. */
bool vn_delta_next(struct vn_delta_in *in, struct vn_change *change) MUST_CHECK;

#endif
