/* EVP takes more than twice as long for the hash of a short name as these functions, which OpenSSL
 * would have replaced by it. */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "kv/client/named.h"

#include "kv/common/blockmsg.h"
#include "wire/le.h"

#include <assert.h>
#include <openssl/sha.h>
#include <string.h>
#include <time.h>

uint64_t kv_named_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / HW_MS;
}

struct kv_block_key kv_named_key(uint64_t tenant, const void *name, size_t len)
{
    struct kv_block_key key = {.len = KV_NAMED_KIND + SHA256_DIGEST_LENGTH};
    uint8_t number[8];
    SHA256_CTX hash;
    _Static_assert(KV_NAMED_KIND + SHA256_DIGEST_LENGTH <= KV_BLOCK_KEY_MAX, "it fits");
    memcpy(key.bytes, kv_named_kind(tenant != 0), KV_NAMED_KIND);
    wire_store64(number, tenant);
    SHA256_Init(&hash);
    SHA256_Update(&hash, number, tenant ? sizeof(number) : 0);
    SHA256_Update(&hash, name, len);
    SHA256_Final(key.bytes + KV_NAMED_KIND, &hash);
    return key;
}

static struct kv_block_key key_of(const struct kv_client *c, const void *name, size_t len)
{
    return kv_named_key(kv_client_tenant(c), name, len);
}

void kv_named_let_go(struct kv_client *c, struct kv_named *value)
{
    kv_block_let_go(c, &value->block);
    value->data = NULL;
}

bool kv_named_read(struct kv_named *v)
{
    uint32_t len = v->block.len, around = KV_NAMED_HEAD + KV_NAMED_TAIL;
    if (len < around)
        return false;
    uint32_t name_len = wire_load32(v->block.data + len - KV_NAMED_TAIL);
    if (name_len > len - around)
        return false;
    v->end_ms = wire_load64(v->block.data);
    v->data = v->block.data + KV_NAMED_HEAD;
    v->len = len - around - name_len;
    v->name_len = name_len;
    return true;
}

static bool is_ended(const struct kv_named *v)
{
    return v->end_ms && v->end_ms <= kv_named_now_ms();
}

/* What a lease on a block of the key is worth; unless it is a value, the lease ends. */
static enum kv_result judge_leased(struct kv_client *c, const struct kv_block_key *key,
                                   struct kv_named *v)
{
    enum kv_result result = !kv_named_read(v) ? KV_MISS : kv_block_check(c, &v->block);
    if (result == KV_OK && !is_ended(v))
        return KV_OK;
    kv_block_let_go(c, &v->block);
    if (result == KV_OK)
        (void)kv_block_delete_seen(c, key, v->block.checksum);
    return result == KV_OK ? KV_MISS : result;
}

static enum kv_result get_key(struct kv_client *c, const struct kv_block_key *key,
                              struct kv_named *out)
{
    enum kv_result result = kv_block_lease(c, key, &out->block);
    return result == KV_OK ? judge_leased(c, key, out) : result;
}

void kv_named_get_many(struct kv_client *c, const struct kv_block_key *keys, uint32_t count,
                       struct kv_named *out, enum kv_result *results)
{
    struct kv_block_ref refs[KV_NAMED_MANY];
    assert(count <= KV_NAMED_MANY);
    kv_block_lease_many(c, keys, count, refs, results);
    for (uint32_t i = 0; i < count; i++) {
        if (results[i] != KV_OK)
            continue;
        out[i].block = refs[i];
        results[i] = judge_leased(c, &keys[i], &out[i]);
    }
}

enum kv_result kv_named_get(struct kv_client *c, const void *name, size_t name_len,
                            struct kv_named *out)
{
    struct kv_block_key key = key_of(c, name, name_len);
    return get_key(c, &key, out);
}

/* Looks for what stands in the way of a new value.  KV_OK: nothing (*seen: 0), or a value past its
 * end; KV_EXISTS: a value. */
static enum kv_result find_ended(struct kv_client *c, const struct kv_block_key *key,
                                 uint64_t *seen)
{
    struct kv_named v;
    enum kv_result result = kv_block_lease(c, key, &v.block);
    *seen = 0;
    if (result != KV_OK)
        return result == KV_MISS ? KV_OK : result;
    if (kv_named_read(&v) && !is_ended(&v))
        result = KV_EXISTS;
    else if (kv_block_check(c, &v.block) == KV_OK)
        *seen = v.block.checksum;
    kv_named_let_go(c, &v);
    return result;
}

static enum kv_result put_start(struct kv_client *c, const struct kv_block_key *key,
                                const struct kv_named_set *set, uint64_t seen,
                                struct kv_block_put *put)
{
    uint32_t name_len = (uint32_t)set->name_len;
    uint32_t len = KV_NAMED_HEAD + set->len + name_len + KV_NAMED_TAIL;
    uint64_t tenant = kv_client_tenant(c);
    enum kv_result result = set->only_new ? kv_block_swap_start(c, key, tenant, len, seen, put)
                                          : kv_block_replace_start(c, key, tenant, len, put);
    if (result != KV_OK)
        return result;
    uint8_t *tail = put->data + KV_NAMED_HEAD + set->len;
    wire_store64(put->data, set->end_ms);
    memcpy(tail, set->name, name_len);
    wire_store32(tail + name_len, name_len);
    return KV_OK;
}

enum kv_result kv_named_set_start(struct kv_client *c, const struct kv_named_set *set,
                                  struct kv_block_put *put)
{
    if (set->len > KV_NAMED_MAX || set->name_len > KV_NAMED_NAME_MAX)
        return KV_TOO_LARGE;
    struct kv_block_key key = key_of(c, set->name, set->name_len);
    uint64_t seen;
    enum kv_result result = put_start(c, &key, set, 0, put);
    if (result != KV_EXISTS)
        return result;
    result = find_ended(c, &key, &seen);
    return result == KV_OK ? put_start(c, &key, set, seen, put) : result;
}

enum kv_result kv_named_set(struct kv_client *c, const struct kv_named_set *set,
                            uint32_t *copies_out)
{
    struct kv_block_put put;
    enum kv_result result = kv_named_set_start(c, set, &put);
    if (result == KV_OK) {
        if (set->len > 0) /* of none there may be no bytes */
            memcpy(put.data + KV_NAMED_HEAD, set->value, set->len);
        result = kv_block_put_commit(c, &put);
    }
    if (result == KV_OK && copies_out)
        *copies_out = put.copies;
    return result;
}

bool kv_named_read_look(struct kv_named *v, uint64_t end_ms, uint32_t block_len, size_t name_len)
{
    size_t around = KV_NAMED_HEAD + name_len + KV_NAMED_TAIL;
    *v = (struct kv_named){.len = block_len > around ? block_len - (uint32_t)around : 0,
                           .name_len = (uint32_t)name_len,
                           .end_ms = end_ms};
    return !is_ended(v);
}

enum kv_result kv_named_look(struct kv_client *c, const void *name, size_t name_len,
                             struct kv_named *out)
{
    struct kv_block_key key = key_of(c, name, name_len);
    uint64_t end_ms;
    uint32_t len;
    enum kv_result result = kv_block_look(c, &key, &end_ms, &len);
    return result == KV_OK && !kv_named_read_look(out, end_ms, len, name_len) ? KV_MISS : result;
}

enum kv_result kv_named_delete(struct kv_client *c, const void *name, size_t name_len)
{
    struct kv_block_key key = key_of(c, name, name_len);
    const struct kv_named_set ended = {
        .name = name, .name_len = name_len, .end_ms = KV_NAMED_DELETED};
    struct kv_named v;
    enum kv_result result = kv_block_delete(c, &key);
    if (result != KV_PEER_LOST)
        return result;
    /* An owner that is away may have a value.  One that is past its end is newer. */
    result = get_key(c, &key, &v);
    bool there = result == KV_OK;
    if (there)
        kv_named_let_go(c, &v);
    else if (result != KV_MISS && result != KV_PEER_LOST)
        return result;
    result = kv_named_set(c, &ended, NULL);
    return result == KV_OK && !there ? KV_MISS : result;
}

/* ---- names ---- */

/* The name of a block, if it is a value of the client's tenant.  The name is checked by its hash:
 * the whole value need not be read. */
static enum kv_result list_one(struct kv_client *c, const struct kv_block_key *key,
                               kv_named_each *each, void *user)
{
    struct kv_named v;
    enum kv_result result = kv_block_lease(c, key, &v.block);
    if (result != KV_OK)
        return result == KV_MISS ? KV_OK : result;
    if (kv_named_read(&v) && v.name_len <= KV_NAMED_NAME_MAX) {
        char name[KV_NAMED_NAME_MAX + 1];
        memcpy(name, v.data + v.len, v.name_len);
        struct kv_block_key made = key_of(c, name, v.name_len);
        if (!is_ended(&v) && kv_block_key_equal(&made, key))
            each(user, name, v.name_len);
    }
    kv_named_let_go(c, &v);
    return KV_OK;
}

enum kv_result kv_named_list(struct kv_client *c, uint64_t *cursor, kv_named_each *each, void *user)
{
    struct kv_block_key prefix = {.len = KV_NAMED_KIND}, keys[KV_BLOCK_LIST_MAX];
    uint64_t at = *cursor;
    uint32_t count = 0;
    memcpy(prefix.bytes, kv_named_kind(kv_client_tenant(c) != 0), KV_NAMED_KIND);
    enum kv_result result = kv_block_list(c, &prefix, &at, keys, &count);
    for (uint32_t i = 0; result == KV_OK && i < count; i++)
        result = list_one(c, &keys[i], each, user);
    if (result == KV_OK)
        *cursor = at;
    return result;
}

/* A set of characters, p[0] is '['; its length in the pattern.  One that never closes is as if it
 * did. */
static size_t fits_set(const char *p, size_t len, char c, bool *fits)
{
    bool not = len > 1 && p[1] == '^', found = false;
    unsigned char x = (unsigned char)c;
    size_t i = 1 + not ;
    for (; i < len && p[i] != ']'; i++) {
        i += p[i] == '\\' && i + 1 < len;
        bool range = i + 2 < len && p[i + 1] == '-' && p[i + 2] != ']';
        unsigned char low = (unsigned char)p[i], high = (unsigned char)(range ? p[i + 2] : p[i]);
        found |= low <= high ? x >= low && x <= high : x >= high && x <= low;
        i += range ? 2 : 0;
    }
    *fits = found != not ;
    return i < len ? i + 1 : len;
}

/* One character of a name against what p begins with; that one's length in the pattern. */
static size_t fits_one(const char *p, size_t len, char c, bool *fits)
{
    if (p[0] == '[')
        return fits_set(p, len, c, fits);
    bool itself = p[0] == '\\' && len > 1;
    *fits = itself ? p[1] == c : p[0] == '?' || p[0] == c;
    return itself ? 2 : 1;
}

bool kv_named_fits(const char *pattern, size_t pattern_len, const char *name, size_t name_len)
{
    size_t p = 0, n = 0, star = SIZE_MAX, from = 0;
    while (n < name_len) {
        bool fits = false;
        size_t used = 0;
        if (p < pattern_len && pattern[p] == '*') {
            star = ++p; /* what the earlier ones stand for need not change any more */
            from = n;
            continue;
        }
        if (p < pattern_len)
            used = fits_one(pattern + p, pattern_len - p, name[n], &fits);
        if (fits) {
            p += used;
            n++;
        } else if (star != SIZE_MAX) {
            p = star;
            n = ++from;
        } else {
            return false;
        }
    }
    while (p < pattern_len && pattern[p] == '*')
        p++;
    return p == pattern_len;
}
