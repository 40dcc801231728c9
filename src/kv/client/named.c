#include "kv/client/named.h"

#include "wire/le.h"

#include <assert.h>
#include <openssl/evp.h>
#include <string.h>
#include <time.h>

uint64_t kv_named_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / HW_MS;
}

static bool key_of(const struct kv_client *c, const void *name, size_t len,
                   struct kv_block_key *out)
{
    enum { KIND = 5 };
    uint64_t tenant = kv_client_tenant(c);
    uint8_t number[8];
    unsigned digest = 0;
    struct kv_block_key key = {.len = KIND + 32};
    _Static_assert(KIND + 32 <= KV_BLOCK_KEY_MAX, "it fits");
    memcpy(key.bytes, tenant ? "mine" : "name", KIND);
    wire_store64(number, tenant);
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool ok = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) &&
              EVP_DigestUpdate(hash, number, tenant ? sizeof(number) : 0) &&
              EVP_DigestUpdate(hash, name, len) &&
              EVP_DigestFinal_ex(hash, key.bytes + KIND, &digest);
    EVP_MD_CTX_free(hash);
    assert(!ok || digest == 32);
    if (ok)
        *out = key;
    return ok;
}

void kv_named_let_go(struct kv_client *c, struct kv_named *value)
{
    kv_block_let_go(c, &value->block);
    value->data = NULL;
}

static enum kv_result get_key(struct kv_client *c, const struct kv_block_key *key,
                              struct kv_named *out)
{
    struct kv_named v;
    enum kv_result result = kv_block_lease(c, key, &v.block);
    if (result != KV_OK)
        return result;
    result = v.block.len < KV_NAMED_HEAD ? KV_MISS : kv_block_check(c, &v.block);
    v.end_ms = result == KV_OK ? wire_load64(v.block.data) : 0;
    if (result != KV_OK || (v.end_ms && v.end_ms <= kv_named_now_ms())) {
        kv_block_let_go(c, &v.block);
        if (result == KV_OK)
            (void)kv_block_delete(c, key);
        return result == KV_OK ? KV_MISS : result;
    }
    v.data = v.block.data + KV_NAMED_HEAD;
    v.len = v.block.len - KV_NAMED_HEAD;
    *out = v;
    return KV_OK;
}

enum kv_result kv_named_get(struct kv_client *c, const void *name, size_t name_len,
                            struct kv_named *out)
{
    struct kv_block_key key;
    return key_of(c, name, name_len, &key) ? get_key(c, &key, out) : KV_REFUSED;
}

/* Makes the key free for another value.  KV_EXISTS: it has one that must stay. */
static enum kv_result make_way(struct kv_client *c, const struct kv_block_key *key, bool only_new)
{
    struct kv_named v;
    enum kv_result result = only_new ? get_key(c, key, &v) : kv_block_delete(c, key);
    if (only_new && result == KV_OK) {
        kv_named_let_go(c, &v);
        return KV_EXISTS;
    }
    return result == KV_MISS ? KV_OK : result;
}

static enum kv_result put_start(struct kv_client *c, const struct kv_block_key *key,
                                const struct kv_named_set *set, struct kv_block_put *put)
{
    enum kv_result result =
        kv_block_put_start(c, key, kv_client_tenant(c), KV_NAMED_HEAD + set->len, put);
    if (result == KV_OK)
        wire_store64(put->data, set->end_ms);
    return result;
}

enum kv_result kv_named_set_start(struct kv_client *c, const struct kv_named_set *set,
                                  struct kv_block_put *put)
{
    struct kv_block_key key;
    if (set->len > KV_NAMED_MAX)
        return KV_TOO_LARGE;
    if (!key_of(c, set->name, set->name_len, &key))
        return KV_REFUSED;
    enum kv_result result = put_start(c, &key, set, put);
    if (result != KV_EXISTS)
        return result;
    result = make_way(c, &key, set->only_new);
    return result == KV_OK ? put_start(c, &key, set, put) : result;
}

enum kv_result kv_named_set(struct kv_client *c, const struct kv_named_set *set,
                            uint32_t *copies_out)
{
    struct kv_block_put put;
    enum kv_result result = kv_named_set_start(c, set, &put);
    if (result == KV_OK) {
        memcpy(put.data + KV_NAMED_HEAD, set->value, set->len);
        result = kv_block_put_commit(c, &put);
    }
    if (result == KV_OK && copies_out)
        *copies_out = put.copies;
    /* Another set came between: it counts as the later one. */
    return result == KV_EXISTS && !set->only_new ? KV_OK : result;
}

enum kv_result kv_named_exists(struct kv_client *c, const void *name, size_t name_len)
{
    struct kv_block_key key;
    bool there;
    if (!key_of(c, name, name_len, &key))
        return KV_REFUSED;
    enum kv_result result = kv_block_exists(c, &key, 1, &there);
    return result == KV_OK && !there ? KV_MISS : result;
}

enum kv_result kv_named_delete(struct kv_client *c, const void *name, size_t name_len)
{
    struct kv_block_key key;
    return key_of(c, name, name_len, &key) ? kv_block_delete(c, &key) : KV_REFUSED;
}
