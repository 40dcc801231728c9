/* Chunks at a KV daemon on this machine (docs/design/kv-store.md), read in place under a lease.
 *
 * Each channel has its own connection.  The channel's next call opens a lost one again; the rest in
 * shadow.c bounds how often. */
#include "kv/client/client.h"
#include "llm/evict/shadow.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    STAGING_BYTES =
        64 << 20, /* of channels that put: the largest block; untouched pages cost nothing */
    STAGING_NONE = 64 << 10, /* of channels that only get: a client needs some to use blocks */
};

struct llm_shadow_store {
    char socket[KV_SOCKET_CHARS];
    uint64_t tenant, timeout_ns;
    struct kv_client *clients[LLM_SHADOW_CHANNELS]; /* NULL: lost */
};

static int connect_channel(struct llm_shadow_store *s, unsigned channel, char why[RPC_WHY_CHARS])
{
    bool stages = channel == 0 || channel == LLM_SHADOW_STORE_CHANNEL;
    struct kv_client_options options = {.socket = s->socket,
                                        .staging_bytes = stages ? STAGING_BYTES : STAGING_NONE,
                                        .timeout_ns = s->timeout_ns};
    return kv_client_open(&options, &s->clients[channel], why);
}

static void kvd_close(struct llm_shadow_store *s)
{
    for (unsigned i = 0; i < LLM_SHADOW_CHANNELS; i++)
        kv_client_close(s->clients[i]);
    free(s);
}

static int kvd_open(const struct llm_shadow_config *config, struct llm_shadow_store **out,
                    char *why)
{
    char cause[RPC_WHY_CHARS];
    struct llm_shadow_store *s = calloc(1, sizeof *s);
    if (!s)
        return llm_why(why, -ENOMEM, "no memory for a KV store");
    size_t len = strlen(config->socket);
    if (len >= sizeof s->socket) {
        free(s);
        return llm_why(why, -ENAMETOOLONG, "the KV daemon's socket has too long a name");
    }
    memcpy(s->socket, config->socket, len + 1);
    s->tenant = config->tenant;
    s->timeout_ns = config->timeout_ns;
    int rc = 0;
    for (unsigned i = 0; i < LLM_SHADOW_CHANNELS && rc == 0; i++)
        rc = connect_channel(s, i, cause);
    if (rc) {
        kvd_close(s);
        return llm_why(why, rc, "the KV daemon: %s", cause);
    }
    struct kv_blocks_stat stat;
    enum kv_result result = kv_block_stat(s->clients[0], &stat);
    if (result != KV_OK) {
        kvd_close(s);
        return llm_why(why, -EOPNOTSUPP, "the KV daemon keeps no blocks (%s)",
                       kv_result_name(result));
    }
    *out = s;
    return 0;
}

/* The channel's connection; NULL when the daemon cannot be reached. */
static struct kv_client *client_of(struct llm_shadow_store *s, unsigned channel)
{
    char why[RPC_WHY_CHARS];
    if (s->clients[channel] && kv_client_status(s->clients[channel])) {
        kv_client_close(s->clients[channel]);
        s->clients[channel] = NULL;
    }
    if (!s->clients[channel] && connect_channel(s, channel, why))
        return NULL;
    return s->clients[channel];
}

static int error_of(enum kv_result result)
{
    switch (result) {
    case KV_OK:
        return 0;
    case KV_MISS:
        return -ENOENT;
    case KV_FULL:
        return -ENOSPC;
    case KV_TOO_LARGE:
        return -EMSGSIZE;
    case KV_PEER_LOST:
        return -ECONNRESET;
    case KV_TIMEOUT:
    case KV_EXPIRED:
    case KV_PUT_EXPIRED:
        return -ETIMEDOUT;
    case KV_EXISTS:
        return -EEXIST;
    case KV_NOT_OWNER:
    case KV_TOO_FEW:
        return -EAGAIN;
    default:
        return -EPROTO;
    }
}

static int kvd_put(struct llm_shadow_store *s, unsigned channel, const struct kv_block_key *key,
                   const void *bytes, uint32_t len)
{
    struct kv_client *client = client_of(s, channel);
    return client ? error_of(kv_block_put(client, key, s->tenant, bytes, len)) : -ECONNRESET;
}

/* Reads under the lease, then ends it. */
static int read_leased(struct kv_client *client, struct kv_block_ref *ref, llm_shadow_take *take,
                       void *user)
{
    int taken = take(user, ref->data, ref->len);
    int rc = error_of(kv_block_check(client, ref));
    kv_block_let_go(client, ref);
    return rc ? rc : taken;
}

static int kvd_get(struct llm_shadow_store *s, unsigned channel, const struct kv_block_key *key,
                   llm_shadow_take *take, void *user)
{
    struct kv_client *client = client_of(s, channel);
    struct kv_block_ref ref;
    if (!client)
        return -ECONNRESET;
    int rc = error_of(kv_block_lease(client, key, &ref));
    return rc ? rc : read_leased(client, &ref, take, user);
}

static void kvd_get_many(struct llm_shadow_store *s, unsigned channel,
                         const struct llm_shadow_want *wants, uint32_t count, llm_shadow_take *take,
                         llm_shadow_came *came)
{
    struct kv_client *client = client_of(s, channel);
    struct kv_block_key keys[LLM_SHADOW_BATCH];
    struct kv_block_ref refs[LLM_SHADOW_BATCH];
    enum kv_result results[LLM_SHADOW_BATCH];
    assert(count <= LLM_SHADOW_BATCH);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = wants[i].key;
    if (client)
        kv_block_lease_many(client, keys, count, refs, results);
    for (uint32_t i = 0; i < count; i++) {
        int rc = client ? error_of(results[i]) : -ECONNRESET;
        if (rc == 0)
            rc = read_leased(client, &refs[i], take, wants[i].user);
        came(wants[i].user, rc);
    }
}

static int kvd_has(struct llm_shadow_store *s, unsigned channel, const struct kv_block_key *keys,
                   uint32_t count, bool *there)
{
    struct kv_client *client = client_of(s, channel);
    return client ? error_of(kv_block_exists(client, keys, count, there)) : -ECONNRESET;
}

const struct llm_shadow_ops llm_shadow_kvd = {.name = "kvd",
                                              .shared = true,
                                              .open = kvd_open,
                                              .close = kvd_close,
                                              .put = kvd_put,
                                              .get = kvd_get,
                                              .get_many = kvd_get_many,
                                              .has = kvd_has};
