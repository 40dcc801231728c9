/* library.c - libhawser-kv: kv/client/named.h with names and types that stay. */
#include "kv/library/hawser-kv.h"

#include "kv/client/named.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

_Static_assert(HAWSER_KV_VALUE_MAX == KV_NAMED_MAX && HAWSER_KV_NAME_MAX == KV_NAMED_NAME_MAX,
               "the same limits");
_Static_assert((int)HAWSER_KV_WHY_CHARS == (int)RPC_WHY_CHARS, "one buffer");

struct hawser_kv {
    struct kv_client *client;
    struct kv_block_put put;
    bool writing;
};

static int result_of(enum kv_result result)
{
    switch (result) {
    case KV_OK:
        return HAWSER_KV_OK;
    case KV_MISS:
        return HAWSER_KV_MISS;
    case KV_FULL:
        return HAWSER_KV_FULL;
    case KV_TOO_LARGE:
        return HAWSER_KV_TOO_LARGE;
    case KV_PEER_LOST:
        return HAWSER_KV_LOST;
    case KV_TIMEOUT:
    case KV_PUT_EXPIRED:
    case KV_NOT_OWNER:
        return HAWSER_KV_TIMEOUT;
    case KV_EXPIRED:
        return HAWSER_KV_EXPIRED;
    case KV_EXISTS:
        return HAWSER_KV_EXISTS;
    case KV_TOO_FEW:
        return HAWSER_KV_TOO_FEW;
    default:
        return HAWSER_KV_REFUSED;
    }
}

PUBLIC const char *hawser_kv_result_name(int result)
{
    static const char *const names[] = {"ok",      "miss",    "full",    "too large", "lost",
                                        "timeout", "refused", "expired", "exists",    "too few"};
    return result >= 0 && (size_t)result < ARRAY_LEN(names) ? names[result] : "unknown";
}

PUBLIC struct hawser_kv *hawser_kv_open(const char *socket, uint32_t timeout_ms,
                                        char why[HAWSER_KV_WHY_CHARS])
{
    char unread[RPC_WHY_CHARS];
    struct kv_client_options options = {.socket = socket ? socket : "/tmp/hawser-kvd.sock",
                                        .staging_bytes = KV_NAMED_STAGING,
                                        .timeout_ns = timeout_ms * HW_MS};
    why = why ? why : unread;
    struct hawser_kv *kv = calloc(1, sizeof(*kv));
    if (!kv)
        snprintf(why, RPC_WHY_CHARS, "out of memory");
    else if (kv_client_open(&options, &kv->client, why) == 0)
        return kv;
    free(kv);
    return NULL;
}

PUBLIC void hawser_kv_close(struct hawser_kv *kv)
{
    if (!kv)
        return;
    kv_client_close(kv->client);
    free(kv);
}

/* ---- writing ---- */

static struct kv_named_set set_of(const void *name, size_t name_len, size_t len, uint64_t ttl_ms,
                                  unsigned flags)
{
    uint64_t now = kv_named_now_ms();
    uint64_t end = ttl_ms < UINT64_MAX - now ? now + ttl_ms : UINT64_MAX;
    return (struct kv_named_set){.name = name,
                                 .name_len = name_len,
                                 .len = len < UINT32_MAX ? (uint32_t)len : UINT32_MAX,
                                 .end_ms = ttl_ms ? end : 0,
                                 .only_new = flags & HAWSER_KV_ONLY_NEW};
}

PUBLIC int hawser_kv_put(struct hawser_kv *kv, const void *name, size_t name_len, const void *data,
                         size_t len, uint64_t ttl_ms, unsigned flags, uint32_t *copies)
{
    struct kv_named_set set = set_of(name, name_len, len, ttl_ms, flags);
    uint32_t unread;
    set.value = data;
    return result_of(kv_named_set(kv->client, &set, copies ? copies : &unread));
}

PUBLIC int hawser_kv_write_start(struct hawser_kv *kv, const void *name, size_t name_len,
                                 size_t len, uint64_t ttl_ms, unsigned flags,
                                 struct hawser_kv_write *out)
{
    struct kv_named_set set = set_of(name, name_len, len, ttl_ms, flags);
    if (kv->writing)
        return HAWSER_KV_REFUSED;
    enum kv_result result = kv_named_set_start(kv->client, &set, &kv->put);
    if (result == KV_OK) {
        kv->writing = true;
        *out = (struct hawser_kv_write){.data = kv->put.data + KV_NAMED_HEAD, .len = len};
    }
    return result_of(result);
}

PUBLIC int hawser_kv_write_commit(struct hawser_kv *kv, uint32_t *copies)
{
    if (!kv->writing)
        return HAWSER_KV_REFUSED;
    kv->writing = false;
    enum kv_result result = kv_block_put_commit(kv->client, &kv->put);
    if (result == KV_OK && copies)
        *copies = kv->put.copies;
    return result_of(result);
}

PUBLIC int hawser_kv_write_abort(struct hawser_kv *kv)
{
    if (!kv->writing)
        return HAWSER_KV_REFUSED;
    kv->writing = false;
    return result_of(kv_block_put_abort(kv->client, &kv->put));
}

/* ---- reading ---- */

PUBLIC int hawser_kv_get(struct hawser_kv *kv, const void *name, size_t name_len,
                         struct hawser_kv_value *out)
{
    struct kv_named *lease = calloc(1, sizeof(*lease));
    if (!lease)
        return HAWSER_KV_FULL;
    enum kv_result result = kv_named_get(kv->client, name, name_len, lease);
    if (result == KV_OK)
        *out = (struct hawser_kv_value){.data = lease->data, .len = lease->len, .lease = lease};
    else
        free(lease);
    return result_of(result);
}

PUBLIC int hawser_kv_check(struct hawser_kv *kv, const struct hawser_kv_value *value)
{
    const struct kv_named *lease = value->lease;
    return lease ? result_of(kv_block_check(kv->client, &lease->block)) : HAWSER_KV_REFUSED;
}

PUBLIC int hawser_kv_renew(struct hawser_kv *kv, const struct hawser_kv_value *value)
{
    struct kv_named *lease = value->lease;
    return lease ? result_of(kv_block_renew(kv->client, &lease->block)) : HAWSER_KV_REFUSED;
}

PUBLIC void hawser_kv_release(struct hawser_kv *kv, struct hawser_kv_value *value)
{
    if (value->lease)
        kv_named_let_go(kv->client, value->lease);
    free(value->lease);
    *value = (struct hawser_kv_value){.data = NULL};
}

PUBLIC int hawser_kv_exists(struct hawser_kv *kv, const void *name, size_t name_len)
{
    struct kv_named v;
    return result_of(kv_named_look(kv->client, name, name_len, &v));
}

PUBLIC int hawser_kv_delete(struct hawser_kv *kv, const void *name, size_t name_len)
{
    return result_of(kv_named_delete(kv->client, name, name_len));
}

PUBLIC int hawser_kv_list(struct hawser_kv *kv, uint64_t *cursor, hawser_kv_each *each, void *user)
{
    return result_of(kv_named_list(kv->client, cursor, each, user));
}
