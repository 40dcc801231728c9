/* venus/common/lane.h - lanes: connections beside a session's own, which carry parts of uploads.
 *
 * What arrives in a message is copied once more to where it belongs, and one thread at each end
 * moves fewer bytes a second than a GPU's host could.  So a client may dial again before OPEN, and
 * call LANE there with a key of its own making, which OPEN names.  From then on a lane carries
 * nothing but parcels, from the client to the server:
 *
 *   {u32 upload, u32 bytes, u64 offset} bytes
 *
 * upload counts the stream's SPREADs from 1; the bytes belong at that offset of the memory that it
 * names, within its range.  One without bytes ends the upload on the first lane; the others need no
 * end, for the bytes of all are those of the range.
 *
 * Trust: heads are a peer's; who reads one checks it.  Threads: none.  Lifetime: values. */
#ifndef HAWSER_VENUS_COMMON_LANE_H
#define HAWSER_VENUS_COMMON_LANE_H

#include <errno.h>
#include <stddef.h>

#include "base/attr.h"
#include "wire/le.h"

enum {
    VN_LANES_MAX = 8, /* of one session */
    VN_LANE_KEY_BYTES = 16,
    VN_PARCEL_HEAD = 16,
    /* Of one parcel: so many that a head does not count, so few that all lanes end at about the
     * same time. */
    VN_PARCEL_BYTES = 128 << 10,
    /* With fewer, those who send, receive and execute would be in each other's way. */
    VN_LANES_CORES = 8,
};

/* The key that an OPEN names.  0; -ENOENT when there is none, which is all zeros; -EPROTO. */
static inline int vn_open_key(const uint8_t *open, size_t len, uint8_t key[VN_LANE_KEY_BYTES])
{
    static const uint8_t none[VN_LANE_KEY_BYTES];
    if (len < sizeof(uint32_t) + VN_LANE_KEY_BYTES)
        return -EPROTO;
    memcpy(key, open + sizeof(uint32_t), VN_LANE_KEY_BYTES);
    return memcmp(key, none, sizeof(none)) ? 0 : -ENOENT;
}

struct vn_parcel {
    uint32_t upload;
    uint32_t bytes;
    uint64_t offset;
};

static inline void vn_parcel_put(uint8_t head[VN_PARCEL_HEAD], const struct vn_parcel *parcel)
{
    wire_store32(head, parcel->upload);
    wire_store32(head + 4, parcel->bytes);
    wire_store64(head + 8, parcel->offset);
}

static inline struct vn_parcel vn_parcel_get(const uint8_t head[VN_PARCEL_HEAD])
{
    return (struct vn_parcel){.upload = wire_load32(head),
                              .bytes = wire_load32(head + 4),
                              .offset = wire_load64(head + 8)};
}

#endif
