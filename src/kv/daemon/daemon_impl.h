/* kv/daemon/daemon_impl.h - the state of a daemon, for the files of this folder only.
 *
 * A file calls those below it and none above:
 *
 *   daemon.c                            create, destroy, the phases of a turn
 *   local_requests.c, local_blocks.c    serve local clients
 *   peer_requests.c, peer_blocks.c      serve other daemons
 *   copies.c                            keeps the number of copies of our blocks
 *   remote/get.c, put.c, keys.c         the kinds of remote requests
 *   remote/remote.c                     remote requests and their sub-requests
 *   peers.c                             connections to other daemons
 *   client_slots.c                      local clients: regions, answers, wake-ups
 *   permits.c                           when a named value may be read without the other owner
 *   view_peers.c                        the view's members as peers; who owns a block
 *
 * Two things go up, as callbacks: an answer to rpc_call, and remote.c's call of a kind's functions.
 *
 * Invariants: a request slot is busy from the moment its request is taken until its answer is
 * written.  A pending request is in exactly one state.  PENDING_CALLED: the endpoint holds a
 * pointer to it; PENDING_QUEUED: it is in its peer's list; PENDING_COPYING: it is in the daemon's
 * list of copies; PENDING_REMOTE: a remote request points to it.  So a client slot may be freed
 * once all its pending requests are idle.
 *
 * Threads: the daemon's.  Lifetime: the daemon's. */
#ifndef HAWSER_KV_DAEMON_DAEMON_IMPL_H
#define HAWSER_KV_DAEMON_DAEMON_IMPL_H

#include "kv/common/blockmsg.h"
#include "kv/common/peerblock.h"
#include "kv/daemon/daemon.h"
#include "kv/store/store.h"

enum {
    KV_TURN_BYTES = 1 << 20 /* of blocks, copied and hashed in one turn: some 200 us */
};

enum { KV_PEER_NONE = UINT32_MAX, KV_PEER_PLACES = 4 * KV_MEMBERS_MAX };

enum pending_state {
    PENDING_IDLE,
    PENDING_CALLED,
    PENDING_QUEUED,
    PENDING_COPYING,
    PENDING_REMOTE
};

/* A block on its way out of a client's staging area. */
struct kv_block_copy {
    uint64_t ticket;
    uint32_t at, len, done;
};

/* The request of one request slot. */
struct kv_pending {
    struct kv_client_slot *client;
    uint32_t generation; /* of the client slot when the request was taken */
    uint16_t slot;
    uint8_t op;
    uint8_t state;
    bool busy;
    uint32_t value_len;
    uint32_t call_id;
    uint64_t asked_ns, deadline_ns;
    struct kv_key key;
    struct kv_peer *peer;
    struct kv_pending *next, *prev; /* queued, copying */
    struct kv_block_copy copy;
    struct kv_remote *remote;
    uint8_t value[KV_REQUEST_INLINE];
};

struct kv_client_slot {
    struct kv_region region;
    struct kv_daemon *daemon;
    struct kv_client_slot *next, *prev;         /* of the active ones */
    struct kv_client_slot *all_next, *all_prev; /* of all */
    uint32_t taken, answered;                   /* positions in the rings */
    uint32_t generation;                        /* unique in the daemon's life */
    uint64_t used_ns;                           /* last request or answer */
    bool active, broken, to_wake;
    struct kv_client_slot *wake_next;
    kv_ring_fn *ring;
    void *user;
    struct kv_block_holder holder;
    struct kv_claim_list remote_puts;
    uint32_t staging_left;       /* of the staging area: what may have memory since a put */
    struct kv_pending pending[]; /* depth of them */
};

/* A daemon that we ask or that asks us.  Between ranks one connection serves both.  Of members each
 * asks on a connection that it dialled itself: so requests go where the view says, and a name that
 * a caller claims gives it nothing.  A caller is a peer of its own, from its JOIN to its end. */
struct kv_peer {
    struct rpc_ep *ep;                     /* NULL: not connected */
    struct kv_peer *link_next, *link_prev; /* of those with a connection */
    struct kv_peer *awake_next, *awake_prev;
    bool awake;                /* a turn looks at it: see kv_daemon_config.watch */
    struct kv_peer *want_next; /* of those to be dialled */
    bool is_listed;            /* in that list */
    bool wanted;               /* to be connected: always, or since it was needed */
    bool caller;
    struct kv_daemon *daemon;
    uint32_t number;                       /* in the daemon's peers: with ranks, the rank */
    uint64_t id;                           /* of the member; 0: the number is free */
    char address[KV_MEMBER_ADDRESS_CHARS]; /* with members */
    bool we_dial;                          /* of two ranks, one does */
    uint64_t in_view;                      /* the last epoch with this member at this address */
    uint64_t used_ns;                      /* last request or answer */
    bool dialling, up, blocked;
    bool lost;            /* its last connection ended while it was in the view */
    uint64_t incarnation; /* of the daemon at the other end; 0: not known */
    uint32_t session;     /* counts connections: tickets and leases end with theirs */
    uint32_t chunks;      /* calls of remote requests in flight */
    struct kv_block_holder holder;
    uint32_t in_flight;
    uint32_t quiet; /* fruitless polls in a row */
    bool polled;    /* in this turn */
    bool fresh;     /* and read or written: the next turn would find nothing, most likely */
    uint64_t dial_at_ns;
    uint64_t said_ns;   /* when the log last had why it does not let us join */
    uint64_t missed_ns; /* since when there is no connection, or one is wanted */
    uint32_t failures;
    uint64_t permit, permit_until_ns; /* what it gave us last: see permits.h */
    uint64_t given, given_until_ns;   /* what we give it (0: another next time), and gave last */
    struct kv_pending *queue, *queue_last; /* waiting for room to send */
};

/* Where requests about blocks are decoded, since a client may change its slot meanwhile, and
 * answers and requests to other daemons are encoded. */
struct kv_scratch {
    uint8_t request[KV_VALUE_MAX];
    struct kv_block_key keys[KV_BLOCK_CHAIN_MAX];
    uint8_t answer[KV_PEER_ANSWER_MAX];
    uint8_t payload[KV_PEER_REQUEST_MAX];
};
_Static_assert((int)KV_PEER_ANSWER_MAX >= (int)KV_BLOCK_ANSWER_MAX, "clients' answers fit, too");

struct kv_daemon {
    struct kv_daemon_config config;
    struct kv_store *store;
    struct kv_blocks *blocks; /* NULL: none; then no scratch either */
    struct kv_scratch *scratch;
    struct kv_pending *copying, *copying_last; /* the first is copied, the others wait */
    struct kv_remote *remotes, *remotes_last;
    uint32_t remote_count;
    bool remotes_blocked; /* some wait for room to send */
    bool more_to_serve;   /* messages were left for the next turn */
    uint32_t turn_bytes;  /* see KV_TURN_BYTES */
    struct kv_block_holder cache_holder;
    struct kv_copies *copies_kept; /* NULL: of each block there is one */
    bool disowning;                /* the view has changed: see kv_view_disown */
    uint32_t disown_from;
    struct kv_claims *remote_put_claims;
    struct kv_remote_put *remote_puts;
    struct kv_chunk *chunks; /* spare ones */
    uint32_t chunk_count;
    uint64_t permits;          /* the number that was given last */
    uint64_t permits_until_ns; /* of other views: see permits.h */
    uint64_t lives_until_ns;   /* of an earlier life of this daemon */
    uint64_t self;             /* our id in the view */
    bool alone;                /* the only member: every block is ours */
    struct kv_view view;
    uint32_t peer_of[KV_MEMBERS_MAX]; /* by place in the view; KV_PEER_NONE: ourselves, or none */
    uint32_t peer_count;              /* every peer number in use is below it */
    uint32_t peer_room, spare_from;   /* no number below spare_from is spare */
    uint32_t by_id[KV_PEER_PLACES];   /* one more than the number of a peer that is no caller,
                                         hashed by its id */
    struct kv_peer *linked, *awake, *wanting;
    uint32_t awake_count;
    uint64_t rest_until_ns;   /* of the peers with a connection that are not awake */
    uint64_t refusal_said_ns; /* when the log last had why somebody cannot join */
    uint64_t idle_at_ns;      /* when to look for connections that nobody uses */
    struct kv_stats stats;
    uint64_t now_ns; /* of this turn */
    uint64_t incarnation;
    bool measuring, gauges_stale;
    struct kv_client_slot *active, *active_last, *clients;
    struct kv_client_slot *wake;
    uint32_t client_count, generations, crowd, peers_up, in_flight;
    uint32_t staging_clients; /* whose staging_left is not 0 */
    struct rpc_ep *unjoined[KV_UNJOINED_MAX];
    uint64_t join_until_ns[KV_UNJOINED_MAX]; /* of each of them */
    uint32_t unjoined_count;                 /* so that none cost nothing */
    struct kv_peer peers[];                  /* by number; our own stays empty */
};

static inline uint64_t kv_daemon_now(const struct kv_daemon *d)
{
    return d->config.clock.now_ns(d->config.clock.user);
}

#endif
