/* kv/daemon/host.h - a daemon in the real world: sockets, regions, sleep.
 *
 * Drives one kv_daemon: accepts and attaches local clients over a Unix socket (mode 0600: the
 * kernel lets in nobody but this user), accepts and dials other ranks, and waits.  A client that
 * dies is noticed by its socket.
 *
 * Who the other daemons are is fixed (ranks: their number and addresses are given), or follows a
 * view that changes while it runs (members: kv_host_set_view).  Small values are divided among
 * ranks; blocks among the members of the view, which is that of the ranks unless one is set.
 *
 * Trust: whoever reaches the attach socket gets a region of its own and nothing else; a caller that
 * says nothing is dropped after KV_ATTACH_NS.  Other ranks pass TLS and token as configured.
 * Threads: one in kv_host_run; kv_host_stop from any, or from a signal handler; kv_host_set_view
 * from any thread but not from a handler. Lifetime: create/destroy; what options point at must
 * outlive it. */
#ifndef HAWSER_KV_DAEMON_HOST_H
#define HAWSER_KV_DAEMON_HOST_H

#include "kv/client/client.h"
#include "kv/cluster/view.h"
#include "kv/common/arena.h"
#include "kv/daemon/daemon.h"
#include "rpc/transport/net.h"

enum { KV_ATTACHING_MAX = 64 }; /* callers that have not said what they want */

#define KV_ATTACH_NS (5 * HW_SEC)

struct kv_host_options {
    uint32_t rank, ranks, index, daemons;
    const char *socket;           /* base path; kv_socket_path makes it this daemon's */
    const struct rpc_addr *addrs; /* base address of each rank; NULL when there is one rank */
    const struct rpc_security *listen_security, *dial_security; /* NULL: none */
    uint64_t store_bytes;
    uint32_t store_entries, value_max, max_clients; /* 0: the defaults of kv/daemon/daemon.h */
    /* Members instead of ranks: this daemon's name in the views.  Then ranks is 1, and addrs[0] is
     * where to listen (its first daemon).  NULL: ranks. */
    const char *member;
    uint32_t copies;                /* of a block, each at another member; 0: 1 */
    uint64_t arena_bytes;           /* of blocks; 0: none */
    struct kv_blocks_config blocks; /* its limits; the arena is set here */
    enum rpc_flush_policy flush;
    enum rpc_wait_mode wait;
    uint32_t ring_bytes;   /* of shm between ranks; 0: 1 MiB */
    uint64_t heartbeat_ns; /* 0: copyrpc's default */
    uint64_t seed;         /* 0: from the kernel */
    bool plain;
    struct kv_probe *probe;
};

struct kv_host;

/* 0, or a negative errno with cause and remedy in why.  Listens from then on. */
int kv_host_create(const struct kv_host_options *options, struct kv_host **out,
                   char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_host_destroy(struct kv_host *host);
void kv_host_run(struct kv_host *host);
void kv_host_stop(struct kv_host *host);

/* The members from now on; only with options.member.  The view is copied; the daemon takes it up in
 * its next turn, connects to who is new and lets go of who is not in it.  A view without this
 * daemon is fine: it owns nothing then.  0; -ESTALE when its epoch is not greater than that of the
 * last one set; -EINVAL without options.member. */
int kv_host_set_view(struct kv_host *host, const struct kv_view *view) MUST_CHECK;

const struct kv_stats *kv_host_stats(const struct kv_host *host);
/* Where the blocks are, for tests that damage one; NULL: no blocks. */
uint8_t *kv_host_arena(struct kv_host *host);
/* As bound, with the port that the kernel chose; "" with one rank. */
const char *kv_host_address(const struct kv_host *host);

/* The address of daemon `index` where `base` is that of the first: the next port, or "PATH.1".
 * 0, -ERANGE (no such port), -ENAMETOOLONG. */
int kv_address_of(const struct rpc_addr *base, uint32_t index, struct rpc_addr *out) MUST_CHECK;

#endif
