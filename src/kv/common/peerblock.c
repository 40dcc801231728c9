#include "kv/common/peerblock.h"

#include "wire/dec.h"
#include "wire/enc.h"

#include <assert.h>
#include <errno.h>

/* How many keys a method takes. */
static uint32_t keys_max(uint32_t method)
{
    switch (method) {
    case KV_PEER_OPEN_GET:
    case KV_PEER_OPEN_PUT:
    case KV_PEER_DELETE:
    case KV_PEER_LOOK:
    case KV_PEER_CORRUPT:
    case KV_PEER_REPAIR:
        return 1;
    case KV_PEER_EXISTS:
        return KV_BLOCK_CHAIN_MAX;
    default:
        return 0;
    }
}

int kv_peer_request_encode(const struct kv_peer_request *r, const struct kv_block_key *keys,
                           uint8_t *out, size_t size)
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, size);
    wire_put_u64(&e, r->epoch);
    wire_put_u64(&e, r->handle);
    wire_put_u64(&e, r->checksum);
    wire_put_u64(&e, r->tenant);
    wire_put_u32(&e, r->at);
    wire_put_u32(&e, r->len);
    wire_put_u8(&e, r->flag);
    wire_put_u8(&e, 0);
    wire_put_u16(&e, r->key_count);
    kv_block_keys_put(&e, keys, r->key_count);
    int rc = wire_enc_error(&e);
    return rc ? rc : (int)wire_enc_len(&e);
}

int kv_peer_request_decode(uint32_t method, const uint8_t *data, size_t len,
                           struct kv_peer_request *out, struct kv_block_key *keys)
{
    struct wire_dec d;
    if (method < KV_PEER_OPEN_GET || method >= KV_PEER_METHOD_END)
        return -EPROTO;
    wire_dec_init(&d, data, len);
    struct kv_peer_request r = {.method = (enum kv_peer_method)method, .epoch = wire_get_u64(&d)};
    r.handle = wire_get_u64(&d);
    r.checksum = wire_get_u64(&d);
    r.tenant = wire_get_u64(&d);
    r.at = wire_get_u32(&d);
    r.len = wire_get_u32(&d);
    uint8_t flag = wire_get_u8(&d), zero = wire_get_u8(&d);
    r.flag = flag;
    r.key_count = wire_get_u16(&d);
    uint32_t most = keys_max(method);
    if (wire_dec_error(&d) || flag > 1 || zero || r.key_count > most || (most && !r.key_count))
        return -EPROTO;
    kv_block_keys_get(&d, keys, r.key_count);
    if (method == KV_PEER_WRITE) {
        size_t rest = len - KV_PEER_HEAD_BYTES;
        if (rest < 1 || rest > KV_PEER_CHUNK)
            return -EPROTO;
        r.bytes = data + KV_PEER_HEAD_BYTES;
        r.byte_count = (uint32_t)rest;
    } else if (wire_dec_end(&d)) {
        return -EPROTO;
    }
    *out = r;
    return 0;
}

int kv_peer_answer_decode(const uint8_t *data, size_t len, struct kv_peer_answer *out)
{
    if (len < 1)
        return -EPROTO;
    if (data[0] == KV_PEER_STALE_VIEW) {
        if (len != 1 + KV_PEER_EPOCH_BYTES)
            return -EPROTO;
        *out = (struct kv_peer_answer){.stale_view = true, .epoch = wire_load64(data + 1)};
        return 0;
    }
    enum kv_result result = (enum kv_result)data[0];
    bool ours = data[0] >= KV_RESULT_COUNT || result == KV_PEER_LOST || result == KV_TIMEOUT;
    if (ours || (result != KV_OK && len > 1) || len - 1 > KV_PEER_CHUNK)
        return -EPROTO;
    *out = (struct kv_peer_answer){
        .result = result, .payload = data + 1, .payload_len = (uint32_t)(len - 1)};
    return 0;
}

void kv_peer_opened_encode(const struct kv_peer_opened *o, uint8_t out[KV_PEER_OPENED_BYTES])
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, KV_PEER_OPENED_BYTES);
    wire_put_u64(&e, o->lease);
    wire_put_u64(&e, o->checksum);
    wire_put_u64(&e, o->tenant);
    wire_put_u64(&e, o->version);
    wire_put_u64(&e, o->permit);
    wire_put_u32(&e, o->len);
    wire_put_u32(&e, o->chunk);
    wire_put_u8(&e, o->same);
    wire_put_u8(&e, o->agreed);
    assert(wire_enc_error(&e) == 0 && wire_enc_len(&e) == KV_PEER_OPENED_BYTES);
}

int kv_peer_opened_decode(const uint8_t *data, size_t len, struct kv_peer_opened *out)
{
    struct wire_dec d;
    wire_dec_init(&d, data, len);
    struct kv_peer_opened o = {.lease = wire_get_u64(&d)};
    o.checksum = wire_get_u64(&d);
    o.tenant = wire_get_u64(&d);
    o.version = wire_get_u64(&d);
    o.permit = wire_get_u64(&d);
    o.len = wire_get_u32(&d);
    o.chunk = wire_get_u32(&d);
    uint8_t same = wire_get_u8(&d), agreed = wire_get_u8(&d);
    o.same = same;
    o.agreed = agreed;
    if (wire_dec_end(&d) || same > 1 || agreed > 1 || o.len > KV_BLOCK_MAX || o.chunk < 1 ||
        o.chunk > KV_PEER_CHUNK)
        return -EPROTO;
    *out = o;
    return 0;
}
