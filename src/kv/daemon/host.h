/* kv/daemon/host.h - runs one kv_daemon: sockets, regions, waiting.
 *
 * The host attaches local clients over a Unix socket (mode 0600: only this user gets in), accepts
 * and dials other daemons, and waits.  It notices a client's death by the client's socket.
 *
 * The other daemons are either fixed (ranks, whose addresses are given) or follow a view that
 * changes at run time (members, kv_host_set_view).  Small values are divided among ranks, blocks
 * among the members of the view; with ranks the view is the ranks.
 *
 * Trust: whoever reaches the attach socket gets a region of its own and nothing else.  A connection
 * that does not ask to attach within KV_ATTACH_NS is dropped.  Other daemons pass TLS and token as
 * configured.  Threads: one in kv_host_run; kv_host_stop from any, and from a signal handler;
 * kv_host_set_view, kv_host_enter and kv_host_leave from any, but not from a handler.  Lifetime:
 * create/destroy; what the options point at must outlive the host. */
#ifndef HAWSER_KV_DAEMON_HOST_H
#define HAWSER_KV_DAEMON_HOST_H

#include "kv/client/client.h"
#include "kv/cluster/view.h"
#include "kv/common/arena.h"
#include "kv/daemon/daemon.h"
#include "rpc/transport/net.h"

enum { KV_ATTACHING_MAX = 64 }; /* connections that have not asked to attach yet */

#define KV_ATTACH_NS (5 * HW_SEC)

struct kv_host_options {
    uint32_t rank, ranks, index, daemons;
    const char *socket;           /* base path; see kv_socket_path */
    const struct rpc_addr *addrs; /* base address of each rank; NULL when there is one rank */
    const struct rpc_security *listen_security, *dial_security; /* NULL: none */
    uint64_t store_bytes;
    uint32_t store_entries, max_clients; /* 0: the defaults of kv/daemon/daemon.h */
    /* Not NULL: members instead of ranks, and this member's name.  Then ranks is 1, and addrs[0] is
     * where the member's first daemon listens. */
    const char *member;
    bool fixed_members;             /* they never change */
    uint32_t copies;                /* replicas of a block, each at another member; 0: 1 */
    uint32_t min_copies;            /* a put that reaches fewer fails; 0: 1 */
    uint64_t arena_bytes;           /* of blocks; 0: none */
    struct kv_blocks_config blocks; /* its limits; the arena is set here */
    enum rpc_flush_policy flush;
    enum rpc_wait_mode wait;
    uint64_t heartbeat_ns; /* 0: copyrpc's default */
    uint64_t idle_ns;      /* then a client's staging area gives its memory back; 0: 5 s */
    uint64_t seed;         /* 0: from the kernel */
    struct kv_probe *probe;
};

struct kv_host;

/* 0, or a negative errno with cause and remedy in why.  Listens from then on. */
int kv_host_create(const struct kv_host_options *options, struct kv_host **out,
                   char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_host_destroy(struct kv_host *host);
void kv_host_run(struct kv_host *host);
void kv_host_stop(struct kv_host *host);

/* The members from now on; only with options.member.  The view is copied.  From its next turn on
 * the daemon connects to new members and drops those that are not in the view.  In a view without
 * this daemon it owns nothing.  0; -ESTALE when the epoch is not greater than the last one; -EINVAL
 * without options.member. */
int kv_host_set_view(struct kv_host *host, const struct kv_view *view) MUST_CHECK;

/* A visit: between the two calls the daemon makes no turn, and this thread may use what
 * kv/daemon/daemon.h allows to visitors.  Keep it as short as a turn.  Visitors and turns take
 * their places in order. */
void kv_host_enter(struct kv_host *host);
void kv_host_leave(struct kv_host *host);
struct kv_daemon *kv_host_daemon(struct kv_host *host);

const struct kv_stats *kv_host_stats(const struct kv_host *host);
/* The arena, for tests that damage a block; NULL: no blocks. */
uint8_t *kv_host_arena(struct kv_host *host);
/* As bound, with the port that the kernel chose; "" with one rank. */
const char *kv_host_address(const struct kv_host *host);

/* The address of daemon `index` where `base` is that of the first: the next port, or "PATH.1".
 * 0, -ERANGE (no such port), -ENAMETOOLONG. */
int kv_address_of(const struct rpc_addr *base, uint32_t index, struct rpc_addr *out) MUST_CHECK;

#endif
