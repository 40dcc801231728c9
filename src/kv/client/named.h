/* kv/client/named.h - values with a name and perhaps an end, each a block of the cluster.
 *
 * The block's key is the SHA-256 of the name, so nobody can find two names of one key.  The values
 * of a tenant (struct kv_client_options) have keys of their own: the hash is of its number and the
 * name.  The block's bytes are the end in milliseconds since 1970 (u64, little-endian; 0: none),
 * the value, the name, and the name's length (u32).  A value past its end is a miss; who finds it
 * deletes it.
 *
 * Blocks never change: a set puts a newer block in the place of the old one, at every owner that
 * can be reached, and a get takes the newest that an owner has which can be reached
 * (docs/design/cluster.md).  Of two sets of one name at the same time one remains.
 *
 * Trust: names and values may be anything.  Threads: as the client's.  Lifetime: a value that was
 * got stays until it is let go or its lease ends. */
#ifndef HAWSER_KV_CLIENT_NAMED_H
#define HAWSER_KV_CLIENT_NAMED_H

#include "kv/client/client.h"

enum {
    KV_NAMED_TAIL = 4, /* after the name */
    KV_NAMED_NAME_MAX = 4096,
    KV_NAMED_MAX = KV_BLOCK_MAX - KV_NAMED_HEAD - KV_NAMED_TAIL - KV_NAMED_NAME_MAX,
    KV_NAMED_STAGING = KV_BLOCK_MAX, /* what a client that sets values needs */
    KV_NAMED_MANY = 16
};

struct kv_named {
    const uint8_t *data;
    uint32_t len, name_len; /* the name follows the value */
    uint64_t end_ms;        /* 0: none */
    struct kv_block_ref block;
};

/* KV_OK: a lease on the value, which was verified.  Else as kv_block_lease. */
enum kv_result kv_named_get(struct kv_client *client, const void *name, size_t name_len,
                            struct kv_named *out);
/* The same for several keys (kv_named_key), at most KV_NAMED_MANY, which are asked for together. */
void kv_named_get_many(struct kv_client *client, const struct kv_block_key *keys, uint32_t count,
                       struct kv_named *out, enum kv_result *results);
void kv_named_let_go(struct kv_client *client, struct kv_named *value);

struct kv_named_set {
    const void *name, *value;
    size_t name_len;
    uint32_t len;
    uint64_t end_ms;
    bool only_new; /* KV_EXISTS where the name has a value */
};
/* As kv_block_put; KV_TOO_LARGE past KV_NAMED_MAX and for a longer name than KV_NAMED_NAME_MAX.
 * *copies_out may be NULL; it is written where this value is the one that stays. */
enum kv_result kv_named_set(struct kv_client *client, const struct kv_named_set *set,
                            uint32_t *copies_out);
/* The same in two steps, without a copy: fill put->data + KV_NAMED_HEAD, then kv_block_put_commit
 * or kv_block_put_abort.  `value` is not read.  A value of that name may be gone from the start on.
 */
enum kv_result kv_named_set_start(struct kv_client *client, const struct kv_named_set *set,
                                  struct kv_block_put *put);
/* KV_OK, with the length and the end alone, or KV_MISS.  No bytes move. */
enum kv_result kv_named_look(struct kv_client *client, const void *name, size_t name_len,
                             struct kv_named *out);
/* Names of values of the client's tenant, as kv_block_list; `each` gets one after the other, valid
 * until it returns. */
typedef void kv_named_each(void *user, const char *name, size_t name_len);
enum kv_result kv_named_list(struct kv_client *client, uint64_t *cursor, kv_named_each *each,
                             void *user);
/* Whether the name fits the pattern: * for any part, ? for a character, [a-z] and [^a-z] for one of
 * some; a backslash stands before a character that means itself. */
bool kv_named_fits(const char *pattern, size_t pattern_len, const char *name, size_t name_len);
/* KV_OK, KV_MISS.  Where an owner cannot be reached the others get a value that is past its end. */
enum kv_result kv_named_delete(struct kv_client *client, const void *name, size_t name_len);

/* ---- for those who have the block's bytes by other means ---- */

struct kv_block_key kv_named_key(uint64_t tenant, const void *name, size_t name_len);
/* Fills in all but the block, which has the bytes.  False: they are no named value. */
bool kv_named_read(struct kv_named *value);
/* The length and the end of a value of a name of that length, from its block's.  False: it is past
 * its end. */
bool kv_named_read_look(struct kv_named *value, uint64_t end_ms, uint32_t block_len,
                        size_t name_len);

/* Milliseconds since 1970. */
uint64_t kv_named_now_ms(void);

#endif
