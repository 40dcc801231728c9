/* JSON of a hostile etcd, to each of the decoders.  What they tell is within bounds and a text;
 * what they refuse changes nothing; base64 that is taken has one form. */
#include "base/text/base64.h"
#include "fuzz.h"
#include "kv/cluster/etcd.h"

#include <string.h>

static void told(void *user, const struct kv_etcd_pair *pair)
{
    size_t *count = user;
    require(strlen(pair->key) <= KV_ETCD_KEY_MAX && strlen(pair->value) <= KV_ETCD_VALUE_MAX);
    require(pair->lease <= INT64_MAX && pair->revision <= INT64_MAX);
    ++*count;
}

static void try_base64(const char *text, size_t size)
{
    char bytes[256], again[HW_BASE64_CHARS(sizeof(bytes))];
    size_t len;
    if (hw_base64_decode(text, size, bytes, sizeof(bytes), &len))
        return;
    hw_base64_encode(bytes, len, again);
    require(strlen(again) == size && memcmp(again, text, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct kv_etcd_entered entered = {.revision = 1};
    struct kv_etcd_news news;
    uint64_t lease = 0, ttl_s = 0;
    size_t count = 0;
    char why[RPC_WHY_CHARS];
    if (kv_etcd_grant_answer(text, size, &lease, &ttl_s) == 0)
        require(lease > 0 && lease <= INT64_MAX && ttl_s > 0);
    if (kv_etcd_renew_answer(text, size, &ttl_s) == 0)
        require(ttl_s <= INT64_MAX);
    if (kv_etcd_enter_answer(text, size, told, &count, &entered) == 0)
        require(entered.revision > 0);
    else
        require(entered.revision == 1 && !entered.done);
    require(kv_etcd_watch_answer(text, size, told, &count, &news) <= 0);
    require(count <= size); /* each pair has bytes of its own, in either answer */
    bool done;
    require(kv_etcd_put_answer(text, size, &done) <= 0);
    char token[KV_ETCD_TOKEN_CHARS];
    if (kv_etcd_login_answer(text, size, token) == 0)
        require(strlen(token) > 0 && !strpbrk(token, "\r\n "));
    kv_etcd_error_answer(text, size, why);
    require(strlen(why) < sizeof(why));
    try_base64(text, size);
    return 0;
}
