/* unit/kv/value_calls.h - one request for a value and its answer, over kv/client/client.h; a client
 * whose requests are soon given up. */
#ifndef HAWSER_UNIT_KV_VALUE_CALLS_H
#define HAWSER_UNIT_KV_VALUE_CALLS_H

#include "base/clock.h"
#include "kv/client/client.h"

#include <errno.h>

/* A busy machine may take longer to open it than for a request. */
static inline int hasty_client_open(const struct kv_client_options *options,
                                    struct kv_client **client, char why[RPC_WHY_CHARS])
{
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    int rc;
    do
        rc = kv_client_open(options, client, why);
    while (rc == -ETIMEDOUT && hw_now_ns() < until);
    return rc;
}

static inline enum kv_result value_ask(struct kv_client *client, struct kv_ask ask, uint32_t *len)
{
    struct kv_answer answer;
    if (kv_client_batch(client, &ask, &answer, 1))
        return KV_REFUSED;
    if (len && answer.result == KV_OK)
        *len = answer.value_len;
    return answer.result;
}

static inline enum kv_result value_get(struct kv_client *client, struct kv_key key, void *buffer,
                                       uint32_t buffer_len, uint32_t *len)
{
    struct kv_ask ask = {.op = KV_GET, .key = key, .buffer = buffer, .buffer_len = buffer_len};
    return value_ask(client, ask, len);
}

static inline enum kv_result value_put(struct kv_client *client, struct kv_key key,
                                       const void *value, uint32_t len)
{
    struct kv_ask ask = {.op = KV_PUT, .key = key, .value = value, .value_len = len};
    return value_ask(client, ask, NULL);
}

static inline enum kv_result value_delete(struct kv_client *client, struct kv_key key)
{
    struct kv_ask ask = {.op = KV_DELETE, .key = key};
    return value_ask(client, ask, NULL);
}

#endif
