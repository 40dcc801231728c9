/* duet.h - a channel and the client at its other end, in one process, over a Unix socket.
 *
 * The client keeps what is pushed; deltas are applied to its copy of the one shared memory. */
#ifndef HAWSER_TESTS_UNIT_VENUS_SERVER_DUET_H
#define HAWSER_TESTS_UNIT_VENUS_SERVER_DUET_H

#include "rpc/client.h"
#include "venus/memory/shadow.h"
#include "venus/server/session/channel.h"

#include <vulkan/vulkan_core.h>

enum {
    DUET_PATIENCE_MS = 240000, /* a wait this long has failed, on a loaded machine too */
    DUET_PUSHES_MAX = 4096,
};

struct duet_push {
    uint32_t method;
    size_t len;
    uint8_t head[40]; /* the first bytes */
};

struct duet {
    struct rpc_ep *ep;
    struct vns_channel channel;
    struct rpc_client *client;
    struct duet_push pushes[DUET_PUSHES_MAX];
    size_t count;
    uint8_t *bytes; /* of the shared memory, NULL: none */
    struct vn_shadow twin;
    struct vn_delta_codec *codec;
};

/* window is what the client takes at once; heartbeat_ns 0: the default. */
void duet_start(struct duet *d, uint32_t window, uint64_t heartbeat_ns);
void duet_share(struct duet *d, size_t bytes);
void duet_end(struct duet *d);

/* Waits until so many pushes have come. */
void duet_wait(struct duet *d, size_t count);

/* Waits for a DONE; its index. */
size_t duet_wait_done(struct duet *d);

struct duet_done {
    uint64_t queue, number;
    VkResult result;
};
/* The push as a DONE. */
struct duet_done duet_done(const struct duet *d, size_t index);

#endif
