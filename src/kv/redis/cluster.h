/* kv/redis/cluster.h - blocks in a Redis or Valkey Cluster that somebody else runs, or in one
 * Redis.
 *
 * The key of a block is "hawser:" and its bytes in hex; the value is a checksum (8 bytes,
 * little-endian, kv/common/checksum.h) of this key and the block, and the block.  The first put of
 * a key stays.  What Redis evicts, or loses with a node, is a miss.
 *
 * A block lies at the node that serves the key's slot.  Which one that is comes from CLUSTER SLOTS,
 * and is learnt again from MOVED, or when a node is lost.  A lost node is left alone for
 * KV_REDIS_REST_NS; the other nodes go on.
 *
 * Why not hiredis: Debian 12's (0.14) has no TLS, and copies a value twice on its way.
 *
 * Trust: the servers may answer anything; a value that does not fit its checksum is -EPROTO.
 * Threads: one at a time for a channel; channels at the same time.  Lifetime: open/close. */
#ifndef HAWSER_KV_REDIS_CLUSTER_H
#define HAWSER_KV_REDIS_CLUSTER_H

#include "base/clock.h"
#include "kv/common/blockkey.h"
#include "rpc/security/security.h"

enum {
    KV_REDIS_NODES_MAX = 256,   /* that ever served a slot */
    KV_REDIS_CHANNELS_MAX = 16, /* each has a connection to each node */
    KV_REDIS_PORT = 6379        /* where an address has none */
};

#define KV_REDIS_REST_NS HW_SEC

struct kv_redis_options {
    const char *servers; /* HOST[:PORT],...: some of the nodes */
    const char *user;    /* NULL: Redis' default user */
    const char *password;
    const struct rpc_security *security; /* NULL, or without TLS: plain; copied */
    uint32_t channels;
    uint64_t timeout_ns; /* of one request to one node */
};

struct kv_redis;

/* Whether a list of servers can be read.  0, -EINVAL or -ENAMETOOLONG with a sentence in why. */
int kv_redis_check(const char *servers, char why[RPC_WHY_CHARS]) MUST_CHECK;

/* 0, or a negative errno with cause and remedy in why. */
int kv_redis_open(const struct kv_redis_options *options, struct kv_redis **out,
                  char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_redis_close(struct kv_redis *redis);

/* Gets the bytes of a block; they are valid until it returns. */
typedef int kv_redis_take(void *user, const uint8_t *bytes, uint32_t len);
/* The outcome of one of several gets: 0, what take answered, or as kv_redis_get. */
typedef void kv_redis_came(void *user, int status);
struct kv_redis_want {
    struct kv_block_key key;
    void *user;
};

/* 0; -EEXIST; -ENOSPC: Redis is full; -EAGAIN: no node serves the key now; -ECONNRESET: no node can
 * be reached; -EPROTO. */
int kv_redis_put(struct kv_redis *redis, uint32_t channel, const struct kv_block_key *key,
                 const void *bytes, uint32_t len) MUST_CHECK;
/* 0 or what take answered; -ENOENT, also when no node serves the key now; -ECONNRESET, -EPROTO,
 * -ENOMEM. */
int kv_redis_get(struct kv_redis *redis, uint32_t channel, const struct kv_block_key *key,
                 kv_redis_take *take, void *user) MUST_CHECK;
/* The same for several, asked for at once.  `came` is called once for each; those that had to be
 * asked for again come last. */
void kv_redis_get_many(struct kv_redis *redis, uint32_t channel, const struct kv_redis_want *wants,
                       uint32_t count, kv_redis_take *take, kv_redis_came *came);
/* there[i] is written only on 0; a key that no node serves now is not there. */
int kv_redis_has(struct kv_redis *redis, uint32_t channel, const struct kv_block_key *keys,
                 uint32_t count, bool *there) MUST_CHECK;

#endif
