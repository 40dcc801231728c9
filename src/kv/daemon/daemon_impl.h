/* kv/daemon/daemon_impl.h - the daemon's insides, shared by daemon.c, view_peers.c, client_slots.c,
 * local_blocks.c, peer*.c and remote*.c only.
 *
 * Invariants: a slot is busy from the moment its request is taken until its answer is written; a
 * pending request is in exactly one of five states (idle; called: the endpoint holds a pointer to
 * it; queued: in its peer's list; copying: in the daemon's list of copies; remote: it has one).  So
 * a seat may be freed once each of its slots is idle.
 *
 * Threads: the daemon's.  Lifetime: the daemon's. */
#ifndef HAWSER_KV_DAEMON_DAEMON_IMPL_H
#define HAWSER_KV_DAEMON_DAEMON_IMPL_H

#include "kv/common/blockmsg.h"
#include "kv/common/peerblock.h"
#include "kv/daemon/daemon.h"
#include "kv/store/store.h"

enum pending_state {
    PENDING_IDLE,
    PENDING_CALLED,
    PENDING_QUEUED,
    PENDING_COPYING,
    PENDING_REMOTE
};

struct kv_remote;
struct kv_remote_kind;
struct kv_remote_put;
struct kv_block_request;

enum { KV_PEER_NONE = UINT32_MAX };

/* A block on its way out of a client's staging area. */
struct kv_block_copy {
    uint64_t ticket;
    uint32_t at, len, done;
};

/* One slot's request. */
struct kv_pending {
    struct kv_client_slot *client;
    uint32_t generation; /* of the seat when the request was taken */
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
    struct kv_client_slot *next, *prev;         /* all, or the active ones */
    struct kv_client_slot *all_next, *all_prev; /* every seat of the daemon */
    uint32_t taken, answered;                   /* positions */
    uint32_t generation;                        /* unique in the daemon's life */
    uint64_t used_ns;                           /* when it last wanted or got something */
    bool active, broken, to_wake;
    struct kv_client_slot *wake_next;
    kv_ring_fn *ring;
    void *user;
    struct kv_block_holder holder;
    struct kv_claim_list remote_puts;
    struct kv_pending pending[]; /* depth of them */
};

struct kv_peer {
    struct rpc_ep *ep; /* NULL: not connected */
    struct kv_daemon *daemon;
    uint32_t number;                       /* in the daemon's peers: with ranks, the rank */
    uint64_t id;                           /* of the member; 0: the slot is free */
    char address[KV_MEMBER_ADDRESS_CHARS]; /* with members */
    bool we_dial;                          /* of two, one does */
    bool dialling, joining, up, blocked;
    uint32_t session; /* counts connections: what was promised in one ends with it */
    uint32_t chunks;  /* calls of remotes in flight */
    struct kv_block_holder holder;
    uint32_t in_flight;
    uint32_t quiet; /* fruitless polls in a row */
    uint64_t dial_at_ns;
    uint32_t failures;
    struct kv_pending *queue, *queue_last; /* waiting for room to send */
};

/* Where a request is taken apart: its slot may change under us. */
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
    struct kv_blocks *blocks; /* NULL: none */
    struct kv_scratch *scratch;
    struct kv_pending *copies, *copies_last; /* one after the other */
    struct kv_remote *remotes, *remotes_last;
    uint32_t remote_count;
    bool remotes_blocked; /* some wait for room to send */
    bool more_to_serve;   /* messages were left for the next turn */
    uint32_t turn_bytes;  /* of blocks, moved in this turn */
    struct kv_block_holder cache_holder;
    struct kv_claims *remote_put_claims;
    struct kv_remote_put *remote_puts;
    struct kv_chunk *chunks; /* spare ones */
    uint32_t chunk_count;
    uint64_t self; /* our id in the view */
    bool alone;    /* the only member: every block is ours */
    struct kv_view view;
    uint32_t peer_of[KV_MEMBERS_MAX]; /* by place in the view; KV_PEER_NONE: ourselves, or none */
    uint32_t peer_count;              /* numbers below it are used, or were */
    struct kv_stats stats;
    uint64_t now_ns; /* of this turn */
    uint64_t incarnation;
    bool measuring, gauges_stale;
    struct kv_client_slot *active, *active_last, *clients;
    struct kv_client_slot *wake;
    uint32_t client_count, generations, crowd, peers_up, in_flight;
    struct rpc_ep *unjoined[KV_UNJOINED_MAX];
    uint32_t unjoined_count; /* so that none cost nothing */
    struct kv_peer peers[];  /* by slot; our own stays empty */
};

static inline uint64_t kv_daemon_now(const struct kv_daemon *d)
{
    return d->config.clock.now_ns(d->config.clock.user);
}

/* seat.c */
uint32_t kv_client_slots_scan(struct kv_daemon *d);
void kv_client_slots_wake(struct kv_daemon *d);
bool kv_client_slots_park(struct kv_daemon *d);
void kv_client_slots_publish(struct kv_daemon *d);
/* Writes the answer of a busy slot and frees it. */
void kv_client_slot_answer(struct kv_pending *p, enum kv_result result, const void *value,
                           uint32_t len);

/* seat_blocks.c */
int kv_local_blocks_init(struct kv_daemon *d);
void kv_local_blocks_fini(struct kv_daemon *d);
/* Serves a busy slot's request about blocks. */
void kv_local_serve_block(struct kv_daemon *d, struct kv_pending *p, const uint8_t *value);
/* A slice of the copies that are due; how many it worked on. */
uint32_t kv_local_copies_advance(struct kv_daemon *d);
/* Forgets a request that is copying, without an answer. */
void kv_local_copy_forget(struct kv_pending *p);
/* Leases a block that is here; the answer goes into the desk, its length to *len with KV_OK. */
enum kv_result kv_client_slot_lease(struct kv_daemon *d, struct kv_client_slot *client,
                                    const struct kv_block_key *key, uint32_t *len);
/* view_peers.c */
void kv_view_peers_init(struct kv_daemon *d);
/* Slots for members that have none. */
void kv_view_peers_place(struct kv_daemon *d);
/* NULL: no such peer. */
struct kv_peer *kv_peer_of(struct kv_daemon *d, uint64_t member);
enum kv_share { KV_SHARE_NONE, KV_SHARE_COPY, KV_SHARE_SOLE }; /* of a block's ownership */
enum kv_share kv_share_of(const struct kv_daemon *d, const struct kv_block_key *key);

/* remote.c */
void kv_remote_start(struct kv_daemon *d, struct kv_pending *p, const struct kv_remote_kind *kind,
                     const struct kv_block_request *request, const struct kv_block_key *keys);
/* Brings a block that we should have and lack from its other owner, some time; best effort. */
void kv_remote_repair(struct kv_daemon *d, const struct kv_block_key *key);
/* Ends those that nobody waits for, while there are connections still. */
void kv_remotes_fini(struct kv_daemon *d);
/* Forgets a request on an remote, without an answer. */
void kv_remote_forget(struct kv_pending *p);
uint32_t kv_remotes_step(struct kv_daemon *d);
uint64_t kv_remotes_next_tick(const struct kv_daemon *d);

/* remote_get.c: the owners see for themselves whether their bytes are corrupt. */
void kv_remote_tell_corrupt(struct kv_daemon *d, const struct kv_block_key *key);

/* remote_put.c */
int kv_remote_put_init(struct kv_daemon *d);
void kv_remote_put_fini(struct kv_daemon *d);
/* The first bytes of a put are staged, as PUT_STAGED says: they begin to move. */
enum kv_result kv_remote_put_staged(struct kv_daemon *d, struct kv_client_slot *s,
                                    const struct kv_block_request *r);
void kv_remote_put_leave(struct kv_daemon *d, struct kv_client_slot *client);
/* Whether a ticket is that of an remote put. */
bool kv_remote_put_is(uint64_t ticket);
void kv_remote_put_commit(struct kv_daemon *d, struct kv_pending *p,
                          const struct kv_block_request *request);
enum kv_result kv_remote_put_abort(struct kv_daemon *d, struct kv_client_slot *client,
                                   uint64_t ticket);

/* peer_blocks.c: serves a message about blocks; it stays the caller's. */
void kv_peer_serve_block(struct kv_daemon *d, struct kv_peer *peer, struct rpc_msg *msg);

/* peers.c */
void kv_peers_fini(struct kv_daemon *d);
uint32_t kv_peers_poll(struct kv_daemon *d);
uint32_t kv_peers_serve(struct kv_daemon *d);
uint32_t kv_peers_flush(struct kv_daemon *d);
bool kv_peers_arm(struct kv_daemon *d);
uint64_t kv_peers_next_tick(const struct kv_daemon *d);
/* Sends a busy slot's request to the rank that owns its key; answers it when that cannot be. */
void kv_peer_ask(struct kv_daemon *d, uint32_t rank, struct kv_pending *p);
/* Forgets a request that is called or queued, without an answer. */
void kv_peer_forget(struct kv_pending *p);
/* The connection ends, if there is one, with all that was promised in it. */
void kv_peer_down(struct kv_daemon *d, struct kv_peer *peer);
/* Before and after a call of another file's. */
void kv_peer_in_flight(struct kv_peer *peer, int by);
/* What a call that ended with a status other than 0 means. */
enum kv_result kv_peer_status_result(const struct kv_peer *peer, int status);

/* daemon.c */
struct kv_outcome {
    enum kv_result result;
    const void *value;
    uint32_t len;
};
/* Serves one operation on our own store. */
struct kv_outcome kv_daemon_execute(struct kv_daemon *d, enum kv_op op, struct kv_key key,
                                    const void *value, uint32_t len);
/* Before the number of requests in flight changes. */
void kv_daemon_note_in_flight(struct kv_daemon *d, uint64_t now);

#endif
