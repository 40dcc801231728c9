/* kv/daemon_impl.h - the daemon's insides, shared by daemon.c, seat.c, seat_blocks.c and
 * peers.c only.
 *
 * Invariants: a slot is busy from the moment its request is taken until its answer is written; a
 * pending request is in exactly one of four states (idle; called: the endpoint holds a pointer to
 * it; queued: in its peer's list; copying: in the daemon's list of copies).  So a seat may be freed
 * once each of its slots is idle.
 *
 * Threads: the daemon's.  Lifetime: the daemon's. */
#ifndef HAWSER_KV_DAEMON_IMPL_H
#define HAWSER_KV_DAEMON_IMPL_H

#include "kv/daemon.h"
#include "kv/store.h"

enum pending_state { PENDING_IDLE, PENDING_CALLED, PENDING_QUEUED, PENDING_COPYING };

/* A block on its way out of a client's staging area. */
struct kv_block_copy {
    uint64_t ticket;
    uint32_t at, len, done;
};

/* One slot's request. */
struct kv_pending {
    struct kv_seat *seat;
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
    uint8_t value[KV_REQUEST_INLINE];
};

struct kv_seat {
    struct kv_region region;
    struct kv_daemon *daemon;
    struct kv_seat *next, *prev;         /* all, or the active ones */
    struct kv_seat *all_next, *all_prev; /* every seat of the daemon */
    uint32_t taken, answered;            /* positions */
    uint32_t generation;                 /* unique in the daemon's life */
    uint64_t used_ns;                    /* when it last wanted something */
    bool active, broken, to_wake;
    struct kv_seat *wake_next;
    kv_ring_fn *ring;
    void *user;
    struct kv_block_holder holder;
    struct kv_pending pending[]; /* depth of them */
};

struct kv_peer {
    struct rpc_ep *ep; /* NULL: not connected */
    struct kv_daemon *daemon;
    uint32_t rank;
    bool dialled, dialling, joining, up, blocked;
    uint32_t in_flight;
    uint32_t quiet; /* fruitless polls in a row */
    uint64_t dial_at_ns;
    uint32_t failures;
    struct kv_pending *queue, *queue_last; /* waiting for room to send */
};

struct kv_daemon {
    struct kv_daemon_config config;
    struct kv_store *store;
    struct kv_blocks *blocks; /* NULL: none */
    struct kv_block_desk *block_desk;
    struct kv_pending *copies, *copies_last; /* one after the other */
    struct kv_stats stats;
    uint64_t now_ns; /* of this turn */
    uint64_t incarnation;
    bool measuring, gauges_stale;
    struct kv_seat *active, *seats;
    struct kv_seat *wake;
    uint32_t seat_count, generations, crowd, peers_up, in_flight;
    struct rpc_ep *strangers[KV_STRANGERS_MAX];
    uint32_t stranger_count; /* so that none cost nothing */
    struct kv_peer peers[];  /* ranks of them; our own stays empty */
};

static inline uint64_t kv_daemon_now(const struct kv_daemon *d)
{
    return d->config.clock.now_ns(d->config.clock.user);
}

/* seat.c */
uint32_t kv_seats_scan(struct kv_daemon *d);
void kv_seats_wake(struct kv_daemon *d);
bool kv_seats_park_all(struct kv_daemon *d);
void kv_seats_publish(struct kv_daemon *d);
/* Writes the answer of a busy slot and frees it. */
void kv_seat_answer(struct kv_pending *p, enum kv_result result, const void *value, uint32_t len);

/* seat_blocks.c */
int kv_seat_blocks_init(struct kv_daemon *d);
void kv_seat_blocks_fini(struct kv_daemon *d);
/* Serves a busy slot's request about blocks. */
void kv_seat_serve_block(struct kv_daemon *d, struct kv_pending *p, const uint8_t *value);
/* A slice of the copies that are due; how many it worked on. */
uint32_t kv_seat_copies_advance(struct kv_daemon *d);
/* Forgets a request that is copying, without an answer. */
void kv_seat_copy_forget(struct kv_pending *p);

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
