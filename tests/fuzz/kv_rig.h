/* tests/fuzz/kv_rig.h - what hostile input meets in the KV targets: a daemon, a client of its own
 * in this process, and a peer at the other end of a loopback network.
 *
 * A target takes the parts that it needs.  What the rig itself needs and does not get ends the
 * process.  Threads: one.  Lifetime: open/close; the daemon goes after its clients and peers. */
#ifndef HAWSER_TESTS_FUZZ_KV_RIG_H
#define HAWSER_TESTS_FUZZ_KV_RIG_H

#include "bench/rpc/loopback.h"
#include "kv/daemon/daemon.h"

/* Small, so that inputs reach the ends of them. */
enum { RIG_ARENA = 1 << 16, RIG_STAGING = 4096 };

/* A daemon logs what a hostile one does: nobody reads it here. */
void rig_be_quiet(void);

/* For the config of a daemon: a store in this memory. */
struct kv_blocks_config rig_blocks(uint8_t arena[RIG_ARENA]);

/* ---- a local client ---- */

struct rig_client {
    struct kv_daemon *daemon;
    struct kv_client_slot *client_slot;
    struct kv_port port;
    void *map;
};

void rig_client_open(struct rig_client *c, struct kv_daemon *daemon);
void rig_client_close(struct rig_client *c);

/* ---- a peer ---- */

struct rig_net {
    struct rpc_loopnet *loop;
    struct kv_daemon *daemon;
    struct rpc_ep *peer;
    uint32_t asked, answered;  /* calls of the peer */
    void (*serve)(void *user); /* receives what the daemon asks of the peer; NULL: nobody does */
    void *user;
};

/* Makes the daemon, rank 0 of 2, with these blocks, and connects rank 1, which has not joined then.
 * `serve` and `user` are the caller's and set before. */
void rig_net_open(struct rig_net *n, const struct kv_blocks_config *blocks, uint32_t window_bytes);
void rig_net_close(struct rig_net *n);

/* A few milliseconds of both sides. */
void rig_net_turn(struct rig_net *n);
/* A call of the peer, and a turn; its answer is counted when it comes. */
void rig_net_call(struct rig_net *n, uint32_t method, const uint8_t *data, size_t len);
void rig_net_join(struct rig_net *n);
/* Turns until all calls are answered, or too many turns have gone by. */
void rig_net_await(struct rig_net *n);

#endif
