/* Chunks in a Redis or Valkey Cluster, or in one Redis (kv/redis/cluster.h).  A node that is lost
 * takes its chunks with it; the store rests only when none can be reached. */
#include "kv/redis/cluster.h"
#include "llm/evict/shadow.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOGIN_BYTES_MAX = 1024 };

struct llm_shadow_store {
    struct kv_redis *redis;
};

static const char plain[] = "redis://", with_tls[] = "rediss://";

/* [NAME]:PASSWORD, or a PASSWORD alone; cuts the line in two. */
static void read_login(char *line, struct kv_redis_options *o)
{
    line[strcspn(line, "\r\n")] = '\0';
    char *colon = strchr(line, ':');
    o->password = colon ? colon + 1 : line;
    if (!colon || colon == line)
        return;
    *colon = '\0';
    o->user = line;
}

static int open_with(const struct llm_shadow_config *config, char *login,
                     const struct rpc_security *security, struct llm_shadow_store **out,
                     char why[RPC_WHY_CHARS])
{
    struct kv_redis_options o = {.servers = strstr(config->url, "//") + 2,
                                 .security = security,
                                 .channels = LLM_SHADOW_CHANNELS,
                                 .timeout_ns = config->timeout_ns};
    struct llm_shadow_store *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    if (login)
        read_login(login, &o);
    int rc = kv_redis_open(&o, &s->redis, why);
    if (rc) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

static int redis_open(const struct llm_shadow_config *config, struct llm_shadow_store **out,
                      char *why)
{
    char cause[RPC_WHY_CHARS] = "no memory", *login = NULL;
    struct rpc_security security = {0};
    size_t len = 0;
    bool tls = strncmp(config->url, with_tls, sizeof with_tls - 1) == 0;
    if (!tls && strncmp(config->url, plain, sizeof plain - 1) != 0)
        return llm_why(why, -EINVAL, "%.60s: redis:// or rediss:// and addresses", config->url);
    if (tls != (config->ca != NULL))
        return llm_why(why, -EINVAL, "%s",
                       tls ? "rediss:// needs --shadow-ca, the file of the CA that Redis' "
                             "certificate is from"
                           : "--shadow-ca is for rediss://, Redis over TLS");
    struct rpc_security_files files = {.ca = config->ca};
    int rc = tls ? rpc_security_load(&security, &files, false, cause) : 0;
    if (rc == 0 && config->login)
        rc = rpc_security_read("--shadow-login", config->login, true, LOGIN_BYTES_MAX, &login, &len,
                               cause);
    if (rc == 0)
        rc = open_with(config, login, &security, out, cause);
    else
        rc = -EINVAL; /* of a file here: nobody was asked */
    if (login)
        explicit_bzero(login, len);
    free(login);
    rpc_security_fini(&security);
    return rc ? llm_why(why, rc, "Redis: %s", cause) : 0;
}

static void redis_close(struct llm_shadow_store *s)
{
    kv_redis_close(s->redis);
    free(s);
}

static int redis_put(struct llm_shadow_store *s, unsigned channel, const struct kv_block_key *key,
                     const void *bytes, uint32_t len)
{
    return kv_redis_put(s->redis, channel, key, bytes, len);
}

static int redis_get(struct llm_shadow_store *s, unsigned channel, const struct kv_block_key *key,
                     llm_shadow_take *take, void *user)
{
    return kv_redis_get(s->redis, channel, key, take, user);
}

static void redis_get_many(struct llm_shadow_store *s, unsigned channel,
                           const struct llm_shadow_want *wants, uint32_t count,
                           llm_shadow_take *take, llm_shadow_came *came)
{
    struct kv_redis_want ours[LLM_SHADOW_BATCH];
    assert(count <= LLM_SHADOW_BATCH);
    for (uint32_t i = 0; i < count; i++)
        ours[i] = (struct kv_redis_want){.key = wants[i].key, .user = wants[i].user};
    kv_redis_get_many(s->redis, channel, ours, count, take, came);
}

static int redis_has(struct llm_shadow_store *s, unsigned channel, const struct kv_block_key *keys,
                     uint32_t count, bool *there)
{
    return kv_redis_has(s->redis, channel, keys, count, there);
}

const struct llm_shadow_ops llm_shadow_redis = {.name = "Redis",
                                                .shared = true,
                                                .open = redis_open,
                                                .close = redis_close,
                                                .put = redis_put,
                                                .get = redis_get,
                                                .get_many = redis_get_many,
                                                .has = redis_has};
