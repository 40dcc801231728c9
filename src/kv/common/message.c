#include "kv/common/message.h"

#include "wire/dec.h"
#include "wire/enc.h"

#include <assert.h>
#include <errno.h>

void kv_join_encode(const struct kv_join *join, uint8_t out[KV_JOIN_BYTES])
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, KV_JOIN_BYTES);
    wire_put_u32(&e, KV_JOIN_VERSION);
    wire_put_u32(&e, join->ranks);
    wire_put_u32(&e, join->daemons);
    wire_put_u32(&e, join->rank);
    wire_put_u32(&e, join->index);
    wire_put_u64(&e, join->incarnation);
    wire_put_u64(&e, join->member);
    wire_put_u32(&e, join->copies);
    assert(wire_enc_error(&e) == 0 && wire_enc_len(&e) == KV_JOIN_BYTES);
}

int kv_join_decode(const uint8_t *data, size_t len, struct kv_join *out)
{
    struct wire_dec d;
    wire_dec_init(&d, data, len);
    uint32_t version = wire_get_u32(&d);
    struct kv_join join = {.ranks = wire_get_u32(&d)};
    join.daemons = wire_get_u32(&d);
    join.rank = wire_get_u32(&d);
    join.index = wire_get_u32(&d);
    join.incarnation = wire_get_u64(&d);
    join.member = wire_get_u64(&d);
    join.copies = wire_get_u32(&d);
    if (wire_dec_error(&d) == 0 && version != KV_JOIN_VERSION)
        return -EPROTONOSUPPORT;
    if (wire_dec_end(&d) || join.ranks > KV_RANKS_MAX || join.daemons > KV_DAEMONS_MAX ||
        join.rank >= join.ranks || join.index >= join.daemons)
        return -EPROTO;
    *out = join;
    return 0;
}

void kv_joined_encode(const struct kv_joined *joined, uint8_t out[KV_JOINED_BYTES])
{
    wire_store64(out, joined->incarnation);
    wire_store64(out + 8, joined->member);
}

int kv_joined_decode(const uint8_t *data, size_t len, struct kv_joined *out)
{
    if (len != KV_JOINED_BYTES)
        return -EPROTO;
    *out = (struct kv_joined){.incarnation = wire_load64(data), .member = wire_load64(data + 8)};
    return 0;
}

void kv_key_encode(struct kv_key key, uint8_t out[KV_KEY_BYTES])
{
    wire_store64(out, key.hi);
    wire_store64(out + 8, key.lo);
}

int kv_value_request_decode(uint32_t method, const uint8_t *data, size_t len,
                            struct kv_value_request *out)
{
    if (method < KV_GET || method >= KV_OP_END || len < KV_KEY_BYTES)
        return -EPROTO;
    size_t rest = len - KV_KEY_BYTES;
    if (rest > (method == KV_METHOD_PUT ? KV_VALUE_MAX : 0))
        return -EPROTO;
    *out = (struct kv_value_request){
        .op = (enum kv_op)method,
        .key = {.hi = wire_load64(data), .lo = wire_load64(data + 8)},
        .value = data + KV_KEY_BYTES,
        .value_len = (uint32_t)rest,
    };
    return 0;
}

int kv_value_answer_decode(const uint8_t *data, size_t len, struct kv_value_answer *out)
{
    if (len < 1 || len - 1 > KV_VALUE_MAX || data[0] > KV_REFUSED)
        return -EPROTO;
    enum kv_result result = (enum kv_result)data[0];
    if (result == KV_PEER_LOST || result == KV_TIMEOUT || (result != KV_OK && len > 1))
        return -EPROTO;
    *out = (struct kv_value_answer){
        .result = result, .value = data + 1, .value_len = (uint32_t)(len - 1)};
    return 0;
}

enum kv_result kv_result_of_status(int status, bool connected)
{
    if (!connected)
        return KV_PEER_LOST;
    return status == -ETIMEDOUT ? KV_TIMEOUT : KV_REFUSED;
}
