/* kv/daemon/remote/remote.h - remote requests: local clients' requests about blocks that other
 * daemons own.  remote.c has what all kinds share, get.c, put.c and keys.c a kind each.
 *
 * A remote request belongs to one pending request, or to nobody (repair).  It has a sub-request for
 * each owner: a series of calls to that daemon, or what this daemon does itself as an owner.
 * Callbacks of calls only note what came.  Every decision is taken in kv_remotes_step, once a turn,
 * so no call is made or cancelled inside a callback.
 *
 *   get      one sub-request after the other: ask, read chunks into a cached replica, lease it
 *   start    all at once: ask for room.  What the owners promised is kept as a remote put
 *   commit   all at once: write chunks, then commit with the checksum of what was staged.  It may
 *            begin early, with what is staged so far, and then waits for the client's commit
 *   keys     all at once: which of these keys are there
 *   look     all at once: the end and the length of a named value, of the newest one
 *   change   all at once: delete or pin
 *   repair   as get, for nobody: a block that we should have, from another owner
 *   count    as keys, for nobody: which other owners lack blocks that we have (copies.c)
 *
 * A remote request that finds the members changed begins again, once (docs/design/cluster.md): an
 * owner answered that it is none, or was lost and the view is another by now.  One that failed
 * because a connection was cut begins again with the next connection, if that comes soon.
 *
 * Invariant: a busy call's record is in a sub-request of a living remote request, and its endpoint
 * points to it.  So a remote request is freed only after its calls were cancelled.
 *
 * Threads: the daemon's.  Lifetime: from a request to its answer, or until its client goes. */
#ifndef HAWSER_KV_DAEMON_REMOTE_REMOTE_H
#define HAWSER_KV_DAEMON_REMOTE_REMOTE_H

#include "kv/daemon/daemon_impl.h"

enum {
    KV_SUB_CALLS = 4,      /* chunks in flight of one block */
    KV_PEER_CHUNKS = 4,    /* of all blocks, with one daemon: 1 MiB on the way stays in a cache */
    KV_REMOTES_MAX = 1024, /* in progress; at most 90 KiB each */
    KV_REPAIRS_MAX = 4, /* of them: clients go first, and a block that waits is asked for again */
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
    struct kv_peer *peer; /* NULL: this daemon, or one that cannot be reached */
    uint32_t session;     /* of the peer's connection when the sub-request began */
    bool waits;           /* there was none: it begins with the next */
    uint64_t until_ns;    /* when it gives up, unless it is connected or has an answer by then; 0:
                             not known yet */
    enum kv_sub_phase phase;
    enum kv_result result; /* once done */
    bool stale_view;       /* the owner says that it is none */
    bool corrupt;          /* what it sent differs from its checksum: tell it */
    bool self;
    uint64_t handle; /* the owner's lease or ticket; 0: none */
    uint32_t chunk;
    uint32_t asked, moved; /* bytes */
    uint64_t sent_ns;      /* get, commit: before it asked; put_count: kv_blocks_opened then */
    uint32_t put_count;
    bool commits;           /* put: its commit is sent, and was not put off */
    uint64_t not_before_ns; /* of a change that the owner has put off; 0: it has not */
    uint32_t busy;
    struct kv_sub_call calls[KV_SUB_CALLS];
};

/* One owner's promise of room. */
struct kv_remote_target {
    uint64_t member, ticket;
    uint32_t session;
};

/* A put that was started at other daemons. */
struct kv_remote_put {
    struct kv_block_key key;
    uint64_t tenant, epoch;
    uint32_t len, target_count;
    uint64_t there;   /* the owner that has the block already; 0: none */
    uint64_t over;    /* see kv_blocks_swap_start */
    uint64_t version; /* of the block, once room is promised; until then the newest that is there */
    struct kv_remote_target targets[KV_COPIES_MAX];
};

/* A WRITE on its way to an owner.  Its bytes are the daemon's own, since the client whose staging
 * area they come from may go. */
struct kv_chunk {
    struct kv_daemon *daemon;
    struct kv_chunk *next; /* spare ones */
    uint8_t data[KV_PEER_HEAD_BYTES + KV_PEER_CHUNK];
};

struct kv_remote_kind {
    uint32_t subs_max;  /* 0: as many as its keys have owners */
    bool one_by_one;    /* its sub-requests; else all at once */
    bool once;          /* done twice it would answer something else */
    bool asks_versions; /* of keys: which version an owner has, and not only whether it has one */
    /* The same of what it has done so far, also where the view has changed; NULL: never. */
    bool (*is_final)(const struct kv_remote *remote);
    /* Makes the sub-requests by the daemon's view; also when it begins again. */
    void (*begin)(struct kv_remote *remote);
    /* Sends what can be sent.  Progress: true. */
    bool (*step)(struct kv_remote *remote, struct kv_sub *sub);
    void (*answered)(struct kv_sub *sub, const struct kv_peer_answer *answer);
    /* Gives back what a sub-request holds at its owner and here. */
    void (*undo)(struct kv_remote *remote, struct kv_sub *sub);
    /* Whether no owner can be done without; NULL: one can. */
    bool (*needs_all)(const struct kv_remote *remote);
    /* Every sub-request is done: the result; its answer, if any, is in the daemon's scratch. */
    enum kv_result (*finish)(struct kv_remote *remote, uint32_t *answer_len);
};

struct kv_remote {
    const struct kv_remote_kind *kind;
    struct kv_daemon *daemon;
    struct kv_client_slot *client; /* NULL: nobody's */
    struct kv_pending *pending;    /* NULL: nobody waits */
    uint64_t deadline_ns;
    struct kv_remote *next, *prev;
    struct kv_block_request request;
    uint64_t epoch;
    uint64_t wait_until_ns;  /* for another view; 0: it does not wait */
    uint64_t again_until_ns; /* for a connection that was cut; 0: for none */
    bool retried, over;
    uint32_t sub_count, sub_at; /* sub_at: of those that go one by one, the current one */
    struct kv_sub *subs;
    struct kv_block_key *keys;
    /* get */
    struct kv_peer_opened opened;
    uint64_t version; /* of the newest block of a named value that an owner has so far; 0: none.
                         delete: of the newest one that may go */
    uint64_t ticket;  /* of the cached replica; 0: none */
    bool same, asked_twice;
    bool deleted;               /* delete: an owner of an earlier try had the block */
    struct kv_blocks_look look; /* look: the newest */
    /* commit */
    struct kv_remote_put put;
    bool early;      /* the client has not committed yet: chunks move as they are staged */
    uint32_t staged; /* bytes, from the first on */
    uint32_t summed; /* staged bytes that are in `sum`: as many as any sub-request has sent */
    uint64_t sum;
    /* keys: which sub-requests are asked for each, and what is known */
    struct kv_key_state {
        uint16_t subs[KV_COPIES_MAX];
        uint8_t sub_count;
        bool there;
        uint8_t lacks; /* a bit for each of subs that has none, or an older one */
    } * states;
};

extern const struct kv_remote_kind kv_remote_kind_get, kv_remote_kind_put_start,
    kv_remote_kind_keys, kv_remote_kind_look, kv_remote_kind_delete;

/* ---- for the files above ---- */

/* Starts one for a busy request; answers it with KV_FULL when there are too many. */
void kv_remote_start(struct kv_daemon *d, struct kv_pending *p, const struct kv_remote_kind *kind,
                     const struct kv_block_request *request, const struct kv_block_key *keys);
/* Forgets the remote request of a pending one, without an answer. */
void kv_remote_forget(struct kv_pending *p);
uint32_t kv_remotes_step(struct kv_daemon *d);
uint64_t kv_remotes_next_tick(const struct kv_daemon *d);
/* Ends those that nobody waits for, while there are connections still. */
void kv_remotes_fini(struct kv_daemon *d);

/* Whether we have a block of the key of our own, of that version or a newer one. */
bool kv_remote_has(const struct kv_daemon *d, const struct kv_block_key *key, uint64_t version);
/* Fetches a block that we own, and lack or have in an older version, from another owner.  False:
 * too many at once. */
bool kv_remote_repair(struct kv_daemon *d, const struct kv_block_key *key, uint64_t version);
/* Tells the owners that their bytes may be corrupt; they verify them. */
void kv_remote_tell_corrupt(struct kv_daemon *d, const struct kv_block_key *key);

int kv_remote_put_init(struct kv_daemon *d);
void kv_remote_put_fini(struct kv_daemon *d);
/* Which version of a block that is there the PUT_START of a client may replace. */
uint64_t kv_put_over(const struct kv_daemon *d, const struct kv_block_request *request,
                     const struct kv_block_key *key);
/* Whether a ticket is that of a remote put. */
bool kv_remote_put_is(uint64_t ticket);
/* PUT_STAGED: the first bytes of a put are staged and begin to move. */
enum kv_result kv_remote_put_staged(struct kv_daemon *d, struct kv_client_slot *s,
                                    const struct kv_block_request *r);
/* Answers the request, now or later. */
void kv_remote_put_commit(struct kv_daemon *d, struct kv_pending *p,
                          const struct kv_block_request *request);
/* A local put that is all staged, whose key others own by now, or must be asked about: the bytes go
 * to them.  Answers the request, now or later. */
void kv_remote_put_move(struct kv_daemon *d, struct kv_pending *p, const struct kv_blocks_put *put);
enum kv_result kv_remote_put_abort(struct kv_daemon *d, struct kv_client_slot *s, uint64_t ticket);
/* Ends the remote puts of a client that goes. */
void kv_remote_put_leave(struct kv_daemon *d, struct kv_client_slot *s);

/* ---- for kinds that ask for many keys (keys.c) ---- */

void kv_remote_keys_begin(struct kv_remote *remote);
bool kv_remote_keys_step(struct kv_remote *remote, struct kv_sub *sub);
/* Which of the owners that are asked for a key the sub-request goes to; -1: none. */
int kv_remote_asked_as(const struct kv_remote *remote, uint32_t key, const struct kv_sub *sub);

/* ---- for the kinds (remote.c) ---- */

/* One without a client.  NULL: too many, or no memory. */
struct kv_remote *kv_remote_add(struct kv_daemon *d, const struct kv_remote_kind *kind,
                                const struct kv_block_request *request,
                                const struct kv_block_key *keys, uint64_t deadline_ns);
void kv_remote_attach(struct kv_remote *remote, struct kv_pending *p);
/* Whether the owner has said nothing for as long as it is waited for. */
bool kv_sub_is_late(struct kv_sub *sub);
/* Ends one that nobody waits for. */
void kv_remote_drop(struct kv_remote *remote);

/* A sub-request to a member of the view; places as kv_view_owners has them. */
struct kv_sub *kv_remote_add_sub(struct kv_remote *remote, uint32_t place);
/* The owners of keys[0]; how many. */
uint32_t kv_remote_owners(const struct kv_remote *remote, uint32_t owners[KV_COPIES_MAX]);
void kv_sub_done(struct kv_sub *sub, enum kv_result result);
/* Whether an owner was not reached because a connection was cut that may be there again soon; with
 * KV_PEER_LOST from `finish` the request then begins again.  One that has waited for it in vain
 * does not wait twice. */
bool kv_remote_is_cut(const struct kv_remote *remote);
/* Once all are done: KV_OK if an owner has the block; KV_MISS only if every owner said so, since
 * one that was not reached may have it. */
enum kv_result kv_remote_found(const struct kv_remote *remote);
/* Sends a request, with the epoch filled in.  True: it is on its way.  False: try again in a later
 * turn, or the sub-request is done, with a failure. */
bool kv_sub_call(struct kv_sub *sub, struct kv_peer_request *request,
                 const struct kv_block_key *keys);
/* The same for a WRITE whose bytes stand in the chunk, behind room for its head.  Takes the chunk.
 */
bool kv_sub_write(struct kv_sub *sub, struct kv_peer_request *request, struct kv_chunk *chunk);
/* The same for a message that nobody answers, with at most one key; best effort. */
void kv_sub_post(struct kv_sub *sub, struct kv_peer_request *request,
                 const struct kv_block_key *key);
/* Whether the owner's answer to a change puts it off; it is then in phase KV_SUB_MOVING again. */
bool kv_sub_put_off(struct kv_sub *sub, const struct kv_peer_answer *answer);
/* Whether another chunk may be under way, and whether this turn's bytes allow it. */
bool kv_sub_may_move(const struct kv_sub *sub);

/* NULL: no memory; a later turn tries again. */
struct kv_chunk *kv_chunk_take(struct kv_daemon *d);
/* Frees the spare ones, when none is on its way any more. */
void kv_chunks_fini(struct kv_daemon *d);

#endif
