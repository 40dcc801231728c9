/* kv/common/blockkey.h - the names of blocks: up to 64 bytes, compared whole.
 *
 * A block of a KV cache is named by what its bytes depend on: the model, the cache's layout, the
 * tenant, and every token up to the block's end.  The tokens are a hash that is carried from block
 * to block, so equal prefixes have equal names on every host and in every process.
 *
 *   offset 0   model        u64, XXH3 of its name
 *          8   layout       u64, XXH3 of a text that says types, heads, layers and tokens a block
 *         16   tenant       u64
 *         24   prefix hash  32 bytes, SHA-256
 *
 * Numbers are little-endian.  The store compares names, not tokens, and clients choose the tokens:
 * hence a cryptographic hash for those.  The operator chooses the layout; a model that a client
 * uploads has the SHA-256 of its file as its name.  Tenants that must not read each other's blocks
 * need different tenant numbers.
 *
 * A named value's key is the SHA-256 of its name behind a word.  Only such a key gets other bytes
 * in the course of time; the bytes have a version then (kv/store/blocks.h).  They begin with the
 * value's end (kv/client/named.h).
 *
 * Trust: the decoder takes anything.  Threads: any (no state).  Lifetime: values. */
#ifndef HAWSER_KV_COMMON_BLOCKKEY_H
#define HAWSER_KV_COMMON_BLOCKKEY_H

#include "base/attr.h"
#include "wire/dec.h"
#include "wire/enc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KV_BLOCK_KEY_MAX = 64, /* a cache line; kv_block_key_make needs 56 */
    KV_BLOCK_KEY_MADE = 56
};

struct kv_block_key {
    uint8_t len; /* 1 to KV_BLOCK_KEY_MAX */
    uint8_t bytes[KV_BLOCK_KEY_MAX];
};

/* 0 or -EINVAL: empty or too long. */
int kv_block_key_set(struct kv_block_key *key, const void *bytes, size_t len) MUST_CHECK;
bool kv_block_key_equal(const struct kv_block_key *a, const struct kv_block_key *b);

enum {
    KV_NAMED_KIND = 5,   /* bytes of the word, with its NUL */
    KV_NAMED_HEAD = 8,   /* bytes of the end: milliseconds since 1970, little-endian; 0: none */
    KV_NAMED_DELETED = 1 /* the end of a value that stands for a delete */
};
/* The word of the values of a tenant, or of those that belong to none. */
const char *kv_named_kind(bool of_tenant);
bool kv_block_key_is_named(const struct kv_block_key *key);

struct kv_prefix {
    uint8_t hash[32];
};

/* The prefix that ends with these tokens, after `before`; all zeros before the first block. */
struct kv_prefix kv_prefix_next(struct kv_prefix before, const uint32_t *tokens, size_t count);

struct kv_block_key kv_block_key_make(const char *model, const char *layout, uint64_t tenant,
                                      struct kv_prefix prefix);

/* The keys of a message, length u8 and bytes each, in a row; the message's head has their number.
 * Errors are the encoder's, and the decoder's: -EPROTO for a key of a wrong length. */
void kv_block_keys_put(struct wire_enc *e, const struct kv_block_key *keys, uint32_t count);
void kv_block_keys_get(struct wire_dec *d, struct kv_block_key *keys, uint32_t count);

#endif
