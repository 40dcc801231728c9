/* kv/common/attach.h - how a local client gets its region: one message each way over a Unix socket.
 *
 *   request  32 bytes  magic u32, version u32, depth u32, value_max u32, staging_bytes u32,
 *                      12 bytes of zeros
 *   offer    64 bytes  magic, version, status (0, or an errno), depth, value_max, ranks, daemons,
 *                      rank, index, generation, staging_bytes (u32 each), arena_bytes u64,
 *                      12 bytes of zeros
 *
 * An offer of status 0 carries three descriptors: the sealed memfd, the daemon's bell and the
 * client's bell (eventfds).  If arena_bytes is not 0, a fourth is the arena of the blocks; only
 * clients with a staging area get it.  Neither side sends anything after the offer; the end of the
 * socket tells each side that the other is gone.
 *
 * Trust: the daemon takes any request and answers or closes; a client checks seals, size and bells
 * before it maps.  Threads: any.  Lifetime: values; descriptors are the caller's. */
#ifndef HAWSER_KV_COMMON_ATTACH_H
#define HAWSER_KV_COMMON_ATTACH_H

#include "kv/common/region.h"

enum {
    KV_ATTACH_MAGIC = 0x4b485748, /* "HWHK" */
    KV_ATTACH_VERSION = 2,
    KV_ATTACH_BYTES = 32,
    KV_OFFER_BYTES = 64,
    KV_OFFER_FDS = 3,
    KV_OFFER_FDS_BLOCKS = 4
};

void kv_attach_encode(const struct kv_region_shape *shape, uint8_t out[KV_ATTACH_BYTES]);
/* 0, -EPROTO, -EPROTONOSUPPORT (another version), -EINVAL (a depth or size past the limits). */
int kv_attach_decode(const uint8_t *data, size_t len, struct kv_region_shape *out) MUST_CHECK;

struct kv_offer {
    uint32_t error; /* 0, or a positive errno: refused */
    struct kv_region_shape shape;
    uint32_t ranks, daemons, rank, index, generation;
    uint64_t arena_bytes; /* 0: no blocks */
};

void kv_offer_encode(const struct kv_offer *offer, uint8_t out[KV_OFFER_BYTES]);
/* 0, -EPROTO, -EPROTONOSUPPORT. */
int kv_offer_decode(const uint8_t *data, size_t len, struct kv_offer *out) MUST_CHECK;

/* What the daemon makes for a client; the map is formatted. */
struct kv_attachment {
    int memfd, daemon_bell, client_bell; /* -1: none */
    void *map;
    size_t bytes;
};

/* 0 or a negative errno; free with kv_attachment_fini. */
int kv_attachment_make(const struct kv_region_shape *shape, struct kv_attachment *out) MUST_CHECK;
/* The client's side: takes the descriptors, also on failure.  0, -EPROTO for a memfd that is not
 * sealed or has another size, or a bell that is no eventfd; or the errno of mmap. */
int kv_attachment_take(const int fds[KV_OFFER_FDS], const struct kv_region_shape *shape,
                       struct kv_attachment *out) MUST_CHECK;
void kv_attachment_fini(struct kv_attachment *a);
/* The memfd is not needed once it is mapped and sent. */
void kv_attachment_close_memfd(struct kv_attachment *a);

#endif
