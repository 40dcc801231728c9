/* venus/common/transfer/stripe.h - stripes: connections beside a session's own, which carry parts
 * of uploads.
 *
 * What arrives in a message is copied once more to where it belongs, and one thread at each end
 * moves fewer bytes a second than a GPU's host could.  So a client may dial again before OPEN, and
 * call STRIPE there with a key of its own making, which OPEN names.  From then on a stripe carries
 * nothing but chunks, from the client to the server:
 *
 *   {u32 upload, u32 bytes, u64 offset} bytes
 *
 * upload counts the stream's SPREADs from 1; the bytes belong at that offset of the memory that it
 * names, within its range.  One without bytes ends the upload on the first stripe; the others need
 * no end, for the bytes of all are those of the range.
 *
 * Where the session may resume, the server's count of stripes in OPEN's answer has
 * VN_STRIPES_RESUME set: each stripe is then a pipe (rpc/resume/pipe.h).  After a cut the client
 * dials again and calls STRIPE with the key and the stripe's number, from 0 on (u32).
 *
 * Trust: heads are a peer's; the reader checks each.  Threads: none.  Lifetime: values. */
#ifndef HAWSER_VENUS_COMMON_TRANSFER_STRIPE_H
#define HAWSER_VENUS_COMMON_TRANSFER_STRIPE_H

#include <errno.h>
#include <stddef.h>

#include "base/attr.h"
#include "wire/le.h"

enum {
    VN_STRIPES_MAX = 8, /* of one session */
    VN_STRIPE_KEY_BYTES = 16,
    VN_STRIPE_AGAIN_BYTES = VN_STRIPE_KEY_BYTES + 4,
    VN_STRIPES_RESUME = 1 << 16, /* beside their number */
    VN_CHUNK_HEAD = 16,
    /* Of one chunk: so many that a head does not count, so few that all stripes end at about the
     * same time. */
    VN_CHUNK_BYTES = 128 << 10,
    /* With fewer, the threads that send, receive and execute would compete for cores. */
    VN_STRIPES_CORES = 8,
};

/* The key that an OPEN names.  0; -ENOENT when there is none, which is all zeros; -EPROTO. */
static inline int vn_open_key(const uint8_t *open, size_t len, uint8_t key[VN_STRIPE_KEY_BYTES])
{
    static const uint8_t none[VN_STRIPE_KEY_BYTES];
    if (len < sizeof(uint32_t) + VN_STRIPE_KEY_BYTES)
        return -EPROTO;
    memcpy(key, open + sizeof(uint32_t), VN_STRIPE_KEY_BYTES);
    return memcmp(key, none, sizeof(none)) ? 0 : -ENOENT;
}

struct vn_chunk {
    uint32_t upload;
    uint32_t bytes;
    uint64_t offset;
};

static inline void vn_chunk_put(uint8_t head[VN_CHUNK_HEAD], const struct vn_chunk *chunk)
{
    wire_store32(head, chunk->upload);
    wire_store32(head + 4, chunk->bytes);
    wire_store64(head + 8, chunk->offset);
}

static inline struct vn_chunk vn_chunk_get(const uint8_t head[VN_CHUNK_HEAD])
{
    return (struct vn_chunk){.upload = wire_load32(head),
                             .bytes = wire_load32(head + 4),
                             .offset = wire_load64(head + 8)};
}

#endif
