/* kv/daemon/errand.h - requests of local clients about blocks that other daemons own; for the
 * daemon's own files only.
 *
 * An errand belongs to one slot's request, or to nobody (mend).  It has a leg to each owner
 * concerned; a leg is a series of calls to one daemon (or, without calls, what this daemon does
 * itself as one of the owners). Callbacks of calls only note what came; every decision is taken in
 * kv_errands_step, once a turn, so no call is made or cancelled from inside a callback.
 *
 *   get      one leg after the other: ask, read pieces into a guest copy, lease that
 *   start    all legs at once: ask for room.  What was promised is kept as an away put
 *   commit   all legs at once: write pieces, then commit with the checksum of what was staged.
 *            It may begin early, with what is staged so far, and waits then to be asked for
 *   keys     all legs at once: which of these keys are there
 *   change   all legs at once: delete or pin
 *   mend     as get, for nobody: a block that we should have, from the other owner
 *
 * An errand that finds the members changed (an owner answers that it is none, or is lost and the
 * view is another by now) begins again, once; see docs/blocks.md.
 *
 * Invariant: a busy call's record is in a leg of a living errand; its endpoint holds a pointer to
 * it.  So an errand is freed only after its calls were cancelled.
 *
 * Threads: the daemon's.  Lifetime: from a request to its answer, or until its client goes. */
#ifndef HAWSER_KV_DAEMON_ERRAND_H
#define HAWSER_KV_DAEMON_ERRAND_H

#include "kv/common/blockmsg.h"
#include "kv/common/peerblock.h"
#include "kv/daemon/daemon_impl.h"

enum {
    KV_LEG_CALLS = 4, /* pieces in flight of one block */
    KV_PEER_PIECES =
        4, /* of all blocks, to or from one daemon: 1 MiB on the way stays in a cache */
    KV_ERRANDS_MAX = 1024, /* in progress; at most 90 KiB each */
    KV_MENDS_MAX = 4, /* of them: clients go first, and a block that waits is asked for again */
    KV_TURN_BYTES = 1 << 20,             /* some 200 us: copied and hashed in one turn */
    KV_PIECES_KEPT = 2 * KV_PEER_PIECES, /* for reuse: fresh memory costs page faults */
    KV_AWAY_PUTS = 256                   /* started and not committed yet */
};

enum kv_leg_phase {
    KV_LEG_BEGIN,
    KV_LEG_OPENING, /* asked for a lease or a ticket, or for all it wants */
    KV_LEG_MOVING,  /* pieces */
    KV_LEG_CLOSING, /* a commit is on its way */
    KV_LEG_DONE
};

struct kv_leg_call {
    struct kv_leg *leg;
    uint32_t id;
    bool busy;
};

struct kv_leg {
    struct kv_errand *errand;
    uint64_t member;
    struct kv_peer *peer; /* NULL: this daemon, or one that cannot be reached (lost) */
    uint32_t session;     /* of the peer's connection when the leg began */
    enum kv_leg_phase phase;
    enum kv_result result; /* once done */
    bool stale_view;       /* the owner says that it is none */
    bool spoilt;           /* what it sent differs from its checksum: it is to be told */
    bool self;
    uint64_t handle; /* the owner's lease or ticket; 0: none */
    uint32_t piece;
    uint32_t asked, moved; /* bytes */
    uint32_t busy;
    struct kv_leg_call calls[KV_LEG_CALLS];
};

/* What an away put was promised. */
struct kv_away_target {
    uint64_t member, ticket;
    uint32_t session;
};

struct kv_away {
    struct kv_block_key key;
    uint64_t tenant, epoch;
    uint32_t len, target_count;
    struct kv_away_target targets[KV_COPIES_MAX];
};

/* A WRITE on its way to an owner: its bytes are the daemon's own, since the client whose staging
 * area they come from may go. */
struct kv_piece {
    struct kv_daemon *daemon;
    struct kv_piece *next; /* spare ones */
    uint8_t data[KV_PEER_HEAD_BYTES + KV_PEER_PIECE];
};

struct kv_errand;

struct kv_errand_kind {
    /* Makes the legs by the daemon's view; also when it begins again. */
    void (*begin)(struct kv_errand *e);
    /* Sends what can be sent.  Progress: true. */
    bool (*step)(struct kv_errand *e, struct kv_leg *leg);
    void (*answered)(struct kv_leg *leg, const struct kv_peer_answer *answer);
    /* Gives back what a leg holds at its owner and here. */
    void (*undo)(struct kv_errand *e, struct kv_leg *leg);
    /* Every leg is done: the result; its answer, if any, is in the desk. */
    enum kv_result (*finish)(struct kv_errand *e, uint32_t *answer_len);
};

struct kv_errand {
    const struct kv_errand_kind *kind;
    struct kv_daemon *daemon;
    struct kv_seat *seat;       /* whose it is; NULL: nobody's */
    struct kv_pending *pending; /* NULL: nobody waits */
    uint64_t deadline_ns;
    struct kv_errand *next, *prev;
    struct kv_block_request request;
    uint64_t epoch;
    uint64_t wait_until_ns; /* for another view; 0: it does not wait */
    bool retried, over;
    uint32_t leg_count, leg_at; /* get: the leg whose turn it is */
    struct kv_leg *legs;
    struct kv_block_key *keys;
    /* get */
    struct kv_peer_opened opened;
    uint64_t ticket; /* of the guest; 0: none */
    bool same;
    /* commit */
    struct kv_away away;
    bool early;      /* not asked for yet: pieces move as they are staged */
    uint32_t staged; /* bytes, from the first on */
    uint32_t summed; /* bytes of the staged block that are in `sum`: as many as any leg has asked */
    uint64_t sum;
    /* keys: which legs are asked for each, and what is known */
    struct kv_key_state {
        uint8_t legs[KV_COPIES_MAX], leg_count;
        bool there;
    } * states;
};

extern const struct kv_errand_kind kv_errand_get, kv_errand_put_start, kv_errand_put_commit,
    kv_errand_keys, kv_errand_change, kv_errand_mending;

/* ---- for the kinds (errand.c) ---- */

/* One that nobody waits for yet, until attach.  NULL: too many, or no memory. */
struct kv_errand *kv_errand_start_early(struct kv_daemon *d, struct kv_seat *s,
                                        const struct kv_errand_kind *kind,
                                        const struct kv_block_request *r,
                                        const struct kv_block_key *keys);
void kv_errand_attach(struct kv_errand *e, struct kv_pending *p);
/* Ends one that nobody waits for. */
void kv_errand_drop(struct kv_errand *e);

/* Room for the answer. */
uint8_t *kv_errand_answer(struct kv_errand *e);
/* A leg to a member of the view; places as kv_view_owners has them. */
struct kv_leg *kv_errand_add_leg(struct kv_errand *e, uint32_t place);
/* The owners of keys[0]; how many. */
uint32_t kv_errand_owners(const struct kv_errand *e, uint32_t owners[KV_COPIES_MAX]);
/* Sends a request, with the epoch filled in.  True: it is on its way.  False: try again in a later
 * turn, or the leg is done, with a failure. */
bool kv_leg_call(struct kv_leg *leg, struct kv_peer_request *request,
                 const struct kv_block_key *keys);
/* The same for a WRITE whose bytes stand in the piece, behind room for its head.  Takes the piece.
 */
bool kv_leg_write(struct kv_leg *leg, struct kv_peer_request *request, struct kv_piece *piece);
/* The same for one that nobody answers, with at most one key; best effort. */
void kv_leg_post(struct kv_leg *leg, struct kv_peer_request *request,
                 const struct kv_block_key *key);
/* NULL: no memory; a later turn tries again. */
struct kv_piece *kv_piece_take(struct kv_daemon *d);
/* Frees the spare ones, when none is on its way any more. */
void kv_pieces_fini(struct kv_daemon *d);
void kv_leg_done(struct kv_leg *leg, enum kv_result result);
/* Whether another piece may be under way, and whether this turn's bytes allow it. */
bool kv_leg_may_move(const struct kv_leg *leg);

#endif
