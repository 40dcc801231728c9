/* kv/common/blockmsg.h - a local client's requests about blocks: the value of a KV_BLOCK request.
 *
 *   request   op u8, flag u8, keys u16, len u32, tenant u64, handle u64, at u64,
 *             then the keys: length u8 and bytes each
 *   answer    by operation, little-endian, only with KV_OK:
 *     PUT_START        ticket u64
 *     PUT_COMMIT       how many copies there are, u32
 *     GET              lease u64, offset u64, checksum u64, len u32, milliseconds that it lasts u32
 *     EXISTS           a byte a key, 0 or 1
 *     LOOK             its end in milliseconds since 1970 u64, len u32
 *     STAT             the fields of struct kv_blocks_stat in order, u64 each
 *     LIST             the next place u32 (0: that was all), keys u32, then KV_BLOCK_LIST_MAX times
 *                      a key: length u8 and KV_BLOCK_KEY_MAX bytes; those past the number are 0
 *     all others       nothing
 *
 *   PUT_START                  a key, tenant and len; flag: the commit replaces a block that is
 *                              there; else handle: it replaces a named value of that checksum, and
 *                              what is older
 *   PUT_COMMIT                 a ticket; at: where in the staging area the bytes are
 *   PUT_STAGED                 the same; len: how many of the first bytes are there already, a hint
 *   PUT_ABORT                  a ticket
 *   GET                        a key
 *   DELETE                     a key; flag: only a named value of checksum `handle`, and what is
 *                              older
 *   VERIFY, RENEW, RELEASE     a lease
 *   EXISTS                     up to KV_BLOCK_CHAIN_MAX keys
 *   LOOK                       a key of a named value
 *   STAT                       tenant: whose names are counted
 *   LIST                       a key, which stands for all that begin with it; handle: the place
 *
 * Trust: decoders take anything and answer -EPROTO for what is short, long or out of range; the
 * input must not change while it is decoded.  Threads: any.  Lifetime: decoded keys are copied. */
#ifndef HAWSER_KV_COMMON_BLOCKMSG_H
#define HAWSER_KV_COMMON_BLOCKMSG_H

#include "kv/store/blocks.h"

enum kv_block_op {
    KV_BLOCK_PUT_START = 1,
    KV_BLOCK_PUT_COMMIT,
    KV_BLOCK_PUT_ABORT,
    KV_BLOCK_GET,
    KV_BLOCK_VERIFY,
    KV_BLOCK_RENEW,
    KV_BLOCK_RELEASE,
    KV_BLOCK_DELETE,
    KV_BLOCK_EXISTS = 10,
    KV_BLOCK_LOOK,
    KV_BLOCK_STAT,
    KV_BLOCK_PUT_STAGED,
    KV_BLOCK_LIST,
    KV_BLOCK_OP_END
};

enum {
    KV_BLOCK_REQUEST_HEAD = 32,
    KV_BLOCK_REQUEST_MAX = KV_BLOCK_REQUEST_HEAD + KV_BLOCK_CHAIN_MAX * (1 + KV_BLOCK_KEY_MAX),
    KV_BLOCK_STAT_FIELDS = sizeof(struct kv_blocks_stat) / sizeof(uint64_t),
    KV_BLOCK_ANSWER_MAX = KV_BLOCK_CHAIN_MAX, /* of an EXISTS */
    KV_BLOCK_LIST_MAX = 15,                   /* keys of one answer, which must fit */
    KV_BLOCK_LIST_BYTES = 8 + KV_BLOCK_LIST_MAX * (1 + KV_BLOCK_KEY_MAX)
};

struct kv_block_request {
    enum kv_block_op op;
    bool flag;
    uint16_t key_count;
    uint32_t len;
    uint64_t tenant, handle, at;
};

/* The bytes written to out, or -EMSGSIZE past `size`. */
int kv_block_request_encode(const struct kv_block_request *request, const struct kv_block_key *keys,
                            uint8_t *out, size_t size) MUST_CHECK;
/* `keys` has room for KV_BLOCK_CHAIN_MAX.  0 or -EPROTO: also for a number of keys that the
 * operation does not take. */
int kv_block_request_decode(const uint8_t *data, size_t len, struct kv_block_request *out,
                            struct kv_block_key *keys) MUST_CHECK;

struct kv_block_granted {
    uint64_t handle, offset, checksum;
    uint32_t len, lasts_ms;
};

/* 0 or -EPROTO. */
int kv_block_list_decode(const uint8_t data[KV_BLOCK_LIST_BYTES], uint32_t *next,
                         struct kv_block_key keys[KV_BLOCK_LIST_MAX], uint32_t *count) MUST_CHECK;

enum {
    KV_BLOCK_GRANTED_BYTES = 32,
    KV_BLOCK_TICKET_BYTES = 8,
    KV_BLOCK_COUNT_BYTES = 4,
    KV_BLOCK_LOOK_BYTES = 12
};

/* KV_BLOCK_LOOK_BYTES. */
uint32_t kv_block_look_encode(const struct kv_blocks_look *look, uint8_t out[KV_BLOCK_LOOK_BYTES]);

void kv_block_granted_encode(const struct kv_block_granted *granted,
                             uint8_t out[KV_BLOCK_GRANTED_BYTES]);
/* 0 or -EPROTO: another length, or bytes that lie outside an arena of that size. */
int kv_block_granted_decode(const uint8_t *data, size_t len, uint64_t arena_bytes,
                            struct kv_block_granted *out) MUST_CHECK;

#endif
