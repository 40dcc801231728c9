#include "kv/common/blockkey.h"

#include "wire/le.h"

#include <errno.h>
#include <openssl/sha.h>
#include <string.h>
#include <xxhash.h>

enum { TOKENS_A_PIECE = 256 };

int kv_block_key_set(struct kv_block_key *key, const void *bytes, size_t len)
{
    if (len < 1 || len > KV_BLOCK_KEY_MAX)
        return -EINVAL;
    *key = (struct kv_block_key){.len = (uint8_t)len};
    memcpy(key->bytes, bytes, len);
    return 0;
}

bool kv_block_key_equal(const struct kv_block_key *a, const struct kv_block_key *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

const char *kv_named_kind(bool of_tenant)
{
    return of_tenant ? "mine" : "name";
}

bool kv_block_key_is_named(const struct kv_block_key *key)
{
    return key->len == KV_NAMED_KIND + SHA256_DIGEST_LENGTH &&
           (memcmp(key->bytes, kv_named_kind(false), KV_NAMED_KIND) == 0 ||
            memcmp(key->bytes, kv_named_kind(true), KV_NAMED_KIND) == 0);
}

/* Tokens are hashed as little-endian bytes, some at a time, each hash chained to the last. */
struct kv_prefix kv_prefix_next(struct kv_prefix before, const uint32_t *tokens, size_t count)
{
    uint8_t piece[sizeof before.hash + 4 * TOKENS_A_PIECE];
    do {
        size_t n = count < TOKENS_A_PIECE ? count : TOKENS_A_PIECE;
        memcpy(piece, before.hash, sizeof before.hash);
        for (size_t i = 0; i < n; i++)
            wire_store32(piece + sizeof before.hash + 4 * i, tokens[i]);
        SHA256(piece, sizeof before.hash + 4 * n, before.hash);
        tokens += n;
        count -= n;
    } while (count > 0);
    return before;
}

struct kv_block_key kv_block_key_make(const char *model, const char *layout, uint64_t tenant,
                                      struct kv_prefix prefix)
{
    struct kv_block_key key = {.len = KV_BLOCK_KEY_MADE};
    wire_store64(key.bytes, XXH3_64bits(model, strlen(model)));
    wire_store64(key.bytes + 8, XXH3_64bits(layout, strlen(layout)));
    wire_store64(key.bytes + 16, tenant);
    memcpy(key.bytes + 24, prefix.hash, sizeof prefix.hash);
    return key;
}

void kv_block_keys_put(struct wire_enc *e, const struct kv_block_key *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        wire_put_u8(e, keys[i].len);
        wire_put_bytes(e, keys[i].bytes, keys[i].len);
    }
}

static void get_key(struct wire_dec *d, struct kv_block_key *key)
{
    uint8_t len = wire_get_u8(d);
    if (len < 1 || len > KV_BLOCK_KEY_MAX) {
        wire_dec_fail(d, -EPROTO);
        return;
    }
    key->len = len;
    wire_get_copy(d, key->bytes, len);
}

void kv_block_keys_get(struct wire_dec *d, struct kv_block_key *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        get_key(d, &keys[i]);
}
