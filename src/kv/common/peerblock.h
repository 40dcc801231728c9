/* kv/common/peerblock.h - messages between daemons about blocks, inside copyrpc's calls and posts.
 *
 *   request   epoch u64, handle u64, checksum u64, tenant u64, at u32, len u32, flag u8, 0 u8,
 *             keys u16; then the keys: length u8 and bytes each; WRITE: then bytes to the end
 *   answer    result u8; KV_PEER_STALE_VIEW: the epoch of who answers, u64; with KV_OK:
 *     OPEN_GET    lease u64, checksum u64, tenant u64, version u64, permit u64, len u32, chunk u32,
 *                 same u8, agreed u8
 *     OPEN_PUT    ticket u64, version u64 of the key's block (0: none)
 *     READ        `len` bytes
 *     EXISTS      a byte a key, 0 or 1; with flag u64 a key, 0 or its block's version plus 1
 *     LOOK        version u64, end u64, len u32
 *     COMMIT, DELETE  nothing: done; or u64: not done, to be asked again in so many ns.  To the
 * other owner of a named value COMMIT answers permit u64, agreed u8: done all others  nothing
 *
 *   OPEN_GET       a key, and the checksum of our cached replica (0: none); same: it is the owner's
 *                  block, and no lease is given.  handle: the version of what the asker has from an
 *                  owner; same: the owner's block is not newer.  permit, agreed: see
 *                  kv/daemon/permits.h; 0: none.  len 0: there is no block, and a permit
 *   READ           a lease, at and len, at most `chunk`
 *   CLOSE          a lease; posted
 *   OPEN_PUT       a key, tenant and len; handle: to replace what is there, up to that version
 *   WRITE          a ticket and at
 *   COMMIT         a ticket and the checksum; tenant: the version; flag: another owner promised no
 *                  room; len: 1 when asked again; at: 1 where another owner has decided that it
 *                  takes place.  Put off by 0 ns: to be asked again with the first version after
 *                  what the put is over (kv_blocks_put_version)
 *   ABORT          a ticket; posted
 *   DELETE         a key; flag: unless its block is newer than version `handle`; len: 1 when asked
 *                  again
 *   EXISTS         up to KV_BLOCK_CHAIN_MAX keys; flag: of blocks, not of cached replicas
 *   LOOK           a key of a named value
 *   CORRUPT        a key; posted: bytes that came from there differ from their checksum
 *   REPAIR         a key and len; posted: another owner has the block and this one lacks it, or has
 *                  an older one.  checksum: the version
 *
 * Trust: decoders take anything and answer -EPROTO for what is short, long or out of range.
 * Threads: any.  Lifetime: decoded keys are copied, decoded bytes point into the message. */
#ifndef HAWSER_KV_COMMON_PEERBLOCK_H
#define HAWSER_KV_COMMON_PEERBLOCK_H

#include "kv/store/blocks.h"

enum kv_peer_method {
    KV_PEER_OPEN_GET = 32, /* apart from the methods of kv/common/message.h */
    KV_PEER_READ,
    KV_PEER_CLOSE,
    KV_PEER_OPEN_PUT,
    KV_PEER_WRITE,
    KV_PEER_COMMIT,
    KV_PEER_ABORT,
    KV_PEER_DELETE,
    KV_PEER_LOOK,
    KV_PEER_EXISTS,
    KV_PEER_CORRUPT,
    KV_PEER_REPAIR,
    KV_PEER_METHOD_END
};

enum {
    KV_PEER_HEAD_BYTES = 44,
    KV_PEER_CHUNK = 252 << 10, /* of a block, in one message: with its head a chunk of copyrpc's,
                                  and copied and hashed while a cache has it */
    KV_PEER_REQUEST_MAX = KV_PEER_HEAD_BYTES + KV_BLOCK_CHAIN_MAX * (1 + KV_BLOCK_KEY_MAX),
    KV_PEER_STALE_VIEW = 128, /* no client sees it: not the owner in my view */
    KV_PEER_ANSWER_MAX = 1 + 8 * KV_BLOCK_CHAIN_MAX /* without the bytes of a READ */
};

struct kv_peer_request {
    enum kv_peer_method method;
    uint64_t epoch, handle, checksum, tenant;
    uint32_t at, len;
    bool flag;
    uint16_t key_count;
    const uint8_t *bytes; /* WRITE */
    uint32_t byte_count;
};

/* Head and keys; the bytes of a WRITE are sent behind them.  The bytes written to out, or -EMSGSIZE
 * past `size`. */
int kv_peer_request_encode(const struct kv_peer_request *request, const struct kv_block_key *keys,
                           uint8_t *out, size_t size) MUST_CHECK;
/* `keys` has room for KV_BLOCK_CHAIN_MAX.  0 or -EPROTO: also for a number of keys that the method
 * does not take, and for bytes that are none or more than KV_PEER_CHUNK. */
int kv_peer_request_decode(uint32_t method, const uint8_t *data, size_t len,
                           struct kv_peer_request *out, struct kv_block_key *keys) MUST_CHECK;

struct kv_peer_answer {
    bool stale_view;
    uint64_t epoch; /* with stale_view */
    enum kv_result result;
    const uint8_t *payload; /* with KV_OK */
    uint32_t payload_len;
};

/* 0 or -EPROTO: also for a payload with another result than KV_OK, and for results that only the
 * asking side can find (KV_PEER_LOST, KV_TIMEOUT). */
int kv_peer_answer_decode(const uint8_t *data, size_t len, struct kv_peer_answer *out) MUST_CHECK;

enum {
    KV_PEER_OPENED_BYTES = 50,
    KV_PEER_TICKET_BYTES = 16,
    KV_PEER_EPOCH_BYTES = 8,
    KV_PEER_LOOK_BYTES = 20,
    KV_PEER_WAIT_BYTES = 8,
    KV_PEER_PERMIT_BYTES = 9
};

struct kv_peer_opened {
    uint64_t lease, checksum, tenant, version, permit;
    uint32_t len, chunk;
    bool same, agreed;
};

void kv_peer_opened_encode(const struct kv_peer_opened *opened, uint8_t out[KV_PEER_OPENED_BYTES]);
/* 0 or -EPROTO: another length, a block past KV_BLOCK_MAX, no chunk. */
int kv_peer_opened_decode(const uint8_t *data, size_t len, struct kv_peer_opened *out) MUST_CHECK;

#endif
