/* kv/client/client.h - a local client: attach to this rank's daemons, ask, wait.
 *
 * A client has a region with each daemon of its rank and sends each request to the one that is
 * responsible for the key.  Every request that was taken ends in exactly one answer, by its
 * deadline at the latest; a slot whose request ran out of time is used again only when its late
 * answer has come, which is dropped.
 *
 * Waiting spins while that pays and then sleeps (base/wait.h); while both sides are awake no
 * system call is made.
 *
 * Trust: the daemon's answers are checked for form.  Threads: one at a time for a client.
 * Lifetime: open/close.  After fork it is the parent's. */
#ifndef HAWSER_KV_CLIENT_CLIENT_H
#define HAWSER_KV_CLIENT_CLIENT_H

#include "kv/common/kv.h"
#include "kv/store/blocks.h"
#include "rpc/rpc.h"
#include "rpc/transport/addr.h"

#include <stdbool.h>

struct kv_client;

struct kv_client_options {
    const char *socket;      /* of the rank's first daemon; the others follow from it */
    uint32_t depth;          /* in flight to each daemon; 0: 16 */
    uint32_t value_max;      /* 0: KV_VALUE_DEFAULT */
    uint32_t staging_bytes;  /* room for the blocks being put, with each daemon; 0: no blocks */
    uint64_t timeout_ns;     /* of a request and of open, an hour at most; 0:
                                KV_TIMEOUT_DEFAULT_NS */
    enum rpc_wait_mode wait; /* adaptive unless told otherwise */
    uint64_t tenant;         /* whose named values (kv/client/named.h); 0: nobody's in particular */
};

/* 0, or a negative errno with cause and remedy in why. */
int kv_client_open(const struct kv_client_options *options, struct kv_client **out,
                   char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_client_close(struct kv_client *client);

struct kv_ask {
    enum kv_op op; /* of values, not KV_BLOCK */
    struct kv_key key;
    const void *value; /* KV_PUT; copied before return */
    uint32_t value_len;
    void *buffer; /* KV_GET: where the value goes; must stay until the answer; NULL: nowhere */
    uint32_t buffer_len;
    uint64_t timeout_ns; /* 0: the client's */
    void *user;
};

struct kv_answer {
    void *user;
    enum kv_result result; /* KV_TOO_LARGE also when the buffer is too short: nothing was copied */
    uint32_t value_len;
    uint64_t asked_ns;
};

/* 0; -EAGAIN when every slot of that daemon is in use; -EMSGSIZE past value_max; -EINVAL;
 * -ECONNRESET when that daemon is gone. */
int kv_client_submit(struct kv_client *client, const struct kv_ask *ask) MUST_CHECK;
/* Up to `max` answers, waiting at most timeout_ns (0: not at all) for the first.  Their number; 0
 * when none came in time or none is due. */
int kv_client_wait(struct kv_client *client, struct kv_answer *answers, int max,
                   uint64_t timeout_ns) MUST_CHECK;

/* Values go to the rank that owns their key.  With members instead of ranks they stay at this
 * host's daemons: a value can change, and a member that comes back could serve an old one.  What
 * all members shall see is a block (below) or a named value (kv/client/named.h).
 *
 * Many requests together, each with its own result; `user` is ignored.  They are no transaction and
 * run in any order.  0, or -EBUSY while others are in flight. */
int kv_client_batch(struct kv_client *client, const struct kv_ask *asks, struct kv_answer *answers,
                    uint32_t count) MUST_CHECK;

/* ---- blocks ----
 *
 * Of the whole cluster, through this rank's daemons, for a client with a staging area; else, and
 * where the daemons keep no blocks, every call is KV_REFUSED.  One at a time: nothing else may be
 * in flight.  Besides the results of kv/store/blocks.h each can end in KV_PEER_LOST (the daemon, or
 * the owner behind it, is gone), KV_TIMEOUT or KV_REFUSED (other requests are in flight). */

/* Whole blocks, copied in and out.  A get verifies what it copied.  KV_MISS also when the block is
 * corrupt, which the daemon then counts and drops; KV_EXPIRED when the copy took longer than the
 * lease; KV_TOO_LARGE past buffer_len.  *len is the block's length, with KV_OK and KV_TOO_LARGE. */
enum kv_result kv_block_put(struct kv_client *client, const struct kv_block_key *key,
                            uint64_t tenant, const void *data, uint32_t len);
enum kv_result kv_block_get(struct kv_client *client, const struct kv_block_key *key, void *buffer,
                            uint32_t buffer_len, uint32_t *len);

/* A block being written into the staging area. */
struct kv_block_put {
    uint8_t *data; /* `len` bytes to fill before commit */
    uint32_t len;
    uint32_t copies; /* set by a commit that is KV_OK: how many there are */
    uint32_t staged; /* private, like the rest */
    uint64_t ticket, at;
    struct kv_key route;
};

/* KV_FULL also when the staging area has no room.  A started put ends with commit or abort. */
enum kv_result kv_block_put_start(struct kv_client *client, const struct kv_block_key *key,
                                  uint64_t tenant, uint32_t len, struct kv_block_put *out);
/* The same for a key that may have a block, which stays until the commit. */
enum kv_result kv_block_replace_start(struct kv_client *client, const struct kv_block_key *key,
                                      uint64_t tenant, uint32_t len, struct kv_block_put *out);
/* The same for a named value that is to replace the one of checksum `seen`, which the client had a
 * lease on just now, or what is older; KV_EXISTS where another is there. */
enum kv_result kv_block_swap_start(struct kv_client *client, const struct kv_block_key *key,
                                   uint64_t tenant, uint32_t len, uint64_t seen,
                                   struct kv_block_put *out);
/* A hint: the first `len` bytes are written and will not change, so the daemon may begin with them.
 */
void kv_block_put_staged(struct kv_client *client, const struct kv_block_put *put, uint32_t len);
/* After KV_TIMEOUT the block may or may not be there. */
enum kv_result kv_block_put_commit(struct kv_client *client, struct kv_block_put *put);
enum kv_result kv_block_put_abort(struct kv_client *client, struct kv_block_put *put);

/* A block in the arena, read-only, until the lease ends. */
struct kv_block_ref {
    const uint8_t *data;
    uint32_t len;
    uint64_t expires_ns; /* of hw_now_ns: an eighth earlier than the daemon's */
    uint64_t checksum, handle, lasts_ns;
    struct kv_key route;
};

/* KV_OK, KV_MISS, KV_FULL.  Release it when done. */
enum kv_result kv_block_lease(struct kv_client *client, const struct kv_block_key *key,
                              struct kv_block_ref *out);
/* Many at once, with a result for each; refs[i] is set where results[i] is KV_OK.  Blocks of other
 * daemons travel at the same time. */
void kv_block_lease_many(struct kv_client *client, const struct kv_block_key *keys, uint32_t count,
                         struct kv_block_ref *refs, enum kv_result *results);
/* After reading in place: KV_OK; KV_EXPIRED when the lease ended meanwhile, KV_MISS when the bytes
 * differ: then what was read must not be used. */
enum kv_result kv_block_check(struct kv_client *client, const struct kv_block_ref *ref);
enum kv_result kv_block_renew(struct kv_client *client, struct kv_block_ref *ref);
enum kv_result kv_block_release(struct kv_client *client, struct kv_block_ref *ref);
/* The same without waiting for the answer. */
void kv_block_let_go(struct kv_client *client, struct kv_block_ref *ref);

enum kv_result kv_block_delete(struct kv_client *client, const struct kv_block_key *key);
/* The same for the block of that checksum only, and for older ones of the key. */
enum kv_result kv_block_delete_seen(struct kv_client *client, const struct kv_block_key *key,
                                    uint64_t checksum);
/* The end of a named value and the length of its block, without its bytes and unverified.  KV_OK,
 * KV_MISS. */
enum kv_result kv_block_look(struct kv_client *client, const struct kv_block_key *key,
                             uint64_t *end_ms, uint32_t *len);
/* Which of many keys have a block.  Written only with KV_OK. */
enum kv_result kv_block_exists(struct kv_client *client, const struct kv_block_key *keys,
                               uint32_t count, bool *there);
/* Keys that begin with `prefix`, of blocks that this rank's daemons own.  *cursor: 0 at first, and
 * 0 again after the last; else more may come, also when there were none.  A block that is there all
 * the time is listed once; others may be.  `keys` has room for KV_BLOCK_LIST_MAX. */
enum kv_result kv_block_list(struct kv_client *client, const struct kv_block_key *prefix,
                             uint64_t *cursor, struct kv_block_key *keys, uint32_t *count);
/* Summed over this rank's daemons. */
enum kv_result kv_block_stat(struct kv_client *client, struct kv_blocks_stat *out);

/* 0, or -ECONNRESET once a daemon of this rank is gone. */
int kv_client_status(const struct kv_client *client);
uint64_t kv_client_tenant(const struct kv_client *client);
uint32_t kv_client_in_flight(const struct kv_client *client);
/* The cluster as the daemons see it. */
uint32_t kv_client_ranks(const struct kv_client *client);
uint32_t kv_client_daemons(const struct kv_client *client);
/* Other daemons that every daemon of this rank is connected to now. */
uint32_t kv_client_peers_up(const struct kv_client *client);

enum { KV_SOCKET_CHARS = RPC_ADDR_PATH_CHARS };
/* The socket of daemon `index`: the base for the first, "BASE.1" for the next.  0 or
 * -ENAMETOOLONG. */
int kv_socket_path(const char *base, uint32_t index, char out[KV_SOCKET_CHARS]) MUST_CHECK;

#endif
