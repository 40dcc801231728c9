/* kv/daemon/remote.h - requests of local clients about blocks that other daemons own; for the
 * daemon's own files only.
 *
 * A remote request belongs to one slot's request, or to nobody (mend).  It has a sub to each owner
 * concerned; a sub is a series of calls to one daemon (or, without calls, what this daemon does
 * itself as one of the owners). Callbacks of calls only note what came; every decision is taken in
 * kv_remotes_step, once a turn, so no call is made or cancelled from inside a callback.
 *
 *   get      one sub after the other: ask, read chunks into a guest copy, lease that
 *   start    all subs at once: ask for room.  What was promised is kept as an remote put
 *   commit   all subs at once: write chunks, then commit with the checksum of what was staged.
 *            It may begin early, with what is staged so far, and waits then to be asked for
 *   keys     all subs at once: which of these keys are there
 *   change   all subs at once: delete or pin
 *   mend     as get, for nobody: a block that we should have, from the other owner
 *
 * A remote request that finds the members changed (an owner answers that it is none, or is lost and
 * the view is another by now) begins again, once; see docs/blocks.md.
 *
 * Invariant: a busy call's record is in a sub of a living remote; its endpoint holds a pointer to
 * it.  So an remote is freed only after its calls were cancelled.
 *
 * Threads: the daemon's.  Lifetime: from a request to its answer, or until its client goes. */
#ifndef HAWSER_KV_DAEMON_REMOTE_H
#define HAWSER_KV_DAEMON_REMOTE_H

#include "kv/common/blockmsg.h"
#include "kv/common/peerblock.h"
#include "kv/daemon/daemon_impl.h"

enum {
    KV_SUB_CALLS = 4, /* chunks in flight of one block */
    KV_PEER_CHUNKS =
        4, /* of all blocks, to or from one daemon: 1 MiB on the way stays in a cache */
    KV_REMOTES_MAX = 1024, /* in progress; at most 90 KiB each */
    KV_REPAIRS_MAX = 4, /* of them: clients go first, and a block that waits is asked for again */
    KV_TURN_BYTES = 1 << 20,             /* some 200 us: copied and hashed in one turn */
    KV_CHUNKS_KEPT = 2 * KV_PEER_CHUNKS, /* for reuse: fresh memory costs page faults */
    KV_REMOTE_PUTS_MAX = 256             /* started and not committed yet */
};

enum kv_sub_phase {
    KV_SUB_BEGIN,
    KV_SUB_OPENING, /* asked for a lease or a ticket, or for all it wants */
    KV_SUB_MOVING,  /* chunks */
    KV_SUB_CLOSING, /* a commit is on its way */
    KV_SUB_DONE
};

struct kv_sub_call {
    struct kv_sub *sub;
    uint32_t id;
    bool busy;
};

struct kv_sub {
    struct kv_remote *remote;
    uint64_t member;
    struct kv_peer *peer; /* NULL: this daemon, or one that cannot be reached (lost) */
    uint32_t session;     /* of the peer's connection when the sub began */
    enum kv_sub_phase phase;
    enum kv_result result; /* once done */
    bool stale_view;       /* the owner says that it is none */
    bool corrupt;          /* what it sent differs from its checksum: it is to be told */
    bool self;
    uint64_t handle; /* the owner's lease or ticket; 0: none */
    uint32_t chunk;
    uint32_t asked, moved; /* bytes */
    uint32_t busy;
    struct kv_sub_call calls[KV_SUB_CALLS];
};

/* What an remote put was promised. */
struct kv_remote_target {
    uint64_t member, ticket;
    uint32_t session;
};

struct kv_remote_put {
    struct kv_block_key key;
    uint64_t tenant, epoch;
    uint32_t len, target_count;
    struct kv_remote_target targets[KV_COPIES_MAX];
};

/* A WRITE on its way to an owner: its bytes are the daemon's own, since the client whose staging
 * area they come from may go. */
struct kv_chunk {
    struct kv_daemon *daemon;
    struct kv_chunk *next; /* spare ones */
    uint8_t data[KV_PEER_HEAD_BYTES + KV_PEER_CHUNK];
};

struct kv_remote;

struct kv_remote_kind {
    /* Makes the subs by the daemon's view; also when it begins again. */
    void (*begin)(struct kv_remote *remote);
    /* Sends what can be sent.  Progress: true. */
    bool (*step)(struct kv_remote *remote, struct kv_sub *sub);
    void (*answered)(struct kv_sub *sub, const struct kv_peer_answer *answer);
    /* Gives back what a sub holds at its owner and here. */
    void (*undo)(struct kv_remote *remote, struct kv_sub *sub);
    /* Every sub is done: the result; its answer, if any, is in the desk. */
    enum kv_result (*finish)(struct kv_remote *remote, uint32_t *answer_len);
};

struct kv_remote {
    const struct kv_remote_kind *kind;
    struct kv_daemon *daemon;
    struct kv_client_slot *client; /* whose it is; NULL: nobody's */
    struct kv_pending *pending;    /* NULL: nobody waits */
    uint64_t deadline_ns;
    struct kv_remote *next, *prev;
    struct kv_block_request request;
    uint64_t epoch;
    uint64_t wait_until_ns; /* for another view; 0: it does not wait */
    bool retried, over;
    uint32_t sub_count, sub_at; /* get: the sub whose turn it is */
    struct kv_sub *subs;
    struct kv_block_key *keys;
    /* get */
    struct kv_peer_opened opened;
    uint64_t ticket; /* of the guest; 0: none */
    bool same;
    /* commit */
    struct kv_remote_put put;
    bool early;      /* not asked for yet: chunks move as they are staged */
    uint32_t staged; /* bytes, from the first on */
    uint32_t summed; /* bytes of the staged block that are in `sum`: as many as any sub has asked */
    uint64_t sum;
    /* keys: which subs are asked for each, and what is known */
    struct kv_key_state {
        uint8_t subs[KV_COPIES_MAX], sub_count;
        bool there;
    } * states;
};

extern const struct kv_remote_kind kv_remote_kind_get, kv_remote_kind_put_start,
    kv_remote_kind_put_commit, kv_remote_kind_keys, kv_remote_kind_change, kv_remote_kind_repair;

/* ---- for the kinds (remote.c) ---- */

/* One that nobody waits for yet, until attach.  NULL: too many, or no memory. */
struct kv_remote *kv_remote_start_early(struct kv_daemon *d, struct kv_client_slot *s,
                                        const struct kv_remote_kind *kind,
                                        const struct kv_block_request *r,
                                        const struct kv_block_key *keys);
void kv_remote_attach(struct kv_remote *remote, struct kv_pending *p);
/* Ends one that nobody waits for. */
void kv_remote_drop(struct kv_remote *remote);

/* Room for the answer. */
uint8_t *kv_value_answer(struct kv_remote *remote);
/* A sub to a member of the view; places as kv_view_owners has them. */
struct kv_sub *kv_remote_add_sub(struct kv_remote *remote, uint32_t place);
/* The owners of keys[0]; how many. */
uint32_t kv_remote_owners(const struct kv_remote *remote, uint32_t owners[KV_COPIES_MAX]);
/* Sends a request, with the epoch filled in.  True: it is on its way.  False: try again in a later
 * turn, or the sub is done, with a failure. */
bool kv_sub_call(struct kv_sub *sub, struct kv_peer_request *request,
                 const struct kv_block_key *keys);
/* The same for a WRITE whose bytes stand in the chunk, behind room for its head.  Takes the chunk.
 */
bool kv_sub_write(struct kv_sub *sub, struct kv_peer_request *request, struct kv_chunk *chunk);
/* The same for one that nobody answers, with at most one key; best effort. */
void kv_sub_post(struct kv_sub *sub, struct kv_peer_request *request,
                 const struct kv_block_key *key);
/* NULL: no memory; a later turn tries again. */
struct kv_chunk *kv_chunk_take(struct kv_daemon *d);
/* Frees the spare ones, when none is on its way any more. */
void kv_chunks_fini(struct kv_daemon *d);
void kv_sub_done(struct kv_sub *sub, enum kv_result result);
/* Whether another chunk may be under way, and whether this turn's bytes allow it. */
bool kv_sub_may_move(const struct kv_sub *sub);

#endif
