#include "kv/common/blockmsg.h"

#include "wire/dec.h"
#include "wire/enc.h"
#include "wire/le.h"

#include <assert.h>
#include <errno.h>

_Static_assert(KV_BLOCK_STAT_FIELDS * sizeof(uint64_t) <= KV_BLOCK_ANSWER_MAX,
               "an answer holds it");
_Static_assert((int)KV_BLOCK_LIST_BYTES <= (int)KV_BLOCK_ANSWER_MAX, "and this");

/* How many keys an operation takes. */
static const struct {
    uint16_t min, max;
} keys_of[KV_BLOCK_OP_END] = {
    [KV_BLOCK_PUT_START] = {1, 1}, [KV_BLOCK_GET] = {1, 1},
    [KV_BLOCK_DELETE] = {1, 1},    [KV_BLOCK_EXISTS] = {1, KV_BLOCK_CHAIN_MAX},
    [KV_BLOCK_LIST] = {1, 1},      [KV_BLOCK_LOOK] = {1, 1},
};

int kv_block_request_encode(const struct kv_block_request *r, const struct kv_block_key *keys,
                            uint8_t *out, size_t size)
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, size);
    wire_put_u8(&e, (uint8_t)r->op);
    wire_put_u8(&e, r->flag);
    wire_put_u16(&e, r->key_count);
    wire_put_u32(&e, r->len);
    wire_put_u64(&e, r->tenant);
    wire_put_u64(&e, r->handle);
    wire_put_u64(&e, r->at);
    kv_block_keys_put(&e, keys, r->key_count);
    int rc = wire_enc_error(&e);
    return rc ? rc : (int)wire_enc_len(&e);
}

int kv_block_request_decode(const uint8_t *data, size_t len, struct kv_block_request *out,
                            struct kv_block_key *keys)
{
    struct wire_dec d;
    wire_dec_init(&d, data, len);
    uint8_t op = wire_get_u8(&d), flag = wire_get_u8(&d);
    struct kv_block_request r = {.op = (enum kv_block_op)op, .flag = flag};
    r.key_count = wire_get_u16(&d);
    r.len = wire_get_u32(&d);
    r.tenant = wire_get_u64(&d);
    r.handle = wire_get_u64(&d);
    r.at = wire_get_u64(&d);
    if (wire_dec_error(&d) || op < KV_BLOCK_PUT_START || op >= KV_BLOCK_OP_END || flag > 1 ||
        r.key_count < keys_of[op].min || r.key_count > keys_of[op].max)
        return -EPROTO;
    kv_block_keys_get(&d, keys, r.key_count);
    if (wire_dec_end(&d))
        return -EPROTO;
    *out = r;
    return 0;
}

int kv_block_list_decode(const uint8_t data[KV_BLOCK_LIST_BYTES], uint32_t *next,
                         struct kv_block_key keys[KV_BLOCK_LIST_MAX], uint32_t *count)
{
    uint32_t n = wire_load32(data + 4);
    if (n > KV_BLOCK_LIST_MAX)
        return -EPROTO;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *at = data + 8 + i * (1 + KV_BLOCK_KEY_MAX);
        if (kv_block_key_set(&keys[i], at + 1, at[0]))
            return -EPROTO;
    }
    *next = wire_load32(data);
    *count = n;
    return 0;
}

uint32_t kv_block_look_encode(const struct kv_blocks_look *look, uint8_t out[KV_BLOCK_LOOK_BYTES])
{
    wire_store64(out, look->end_ms);
    wire_store32(out + 8, look->len);
    return KV_BLOCK_LOOK_BYTES;
}

void kv_block_granted_encode(const struct kv_block_granted *g, uint8_t out[KV_BLOCK_GRANTED_BYTES])
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, KV_BLOCK_GRANTED_BYTES);
    wire_put_u64(&e, g->handle);
    wire_put_u64(&e, g->offset);
    wire_put_u64(&e, g->checksum);
    wire_put_u32(&e, g->len);
    wire_put_u32(&e, g->lasts_ms);
    assert(wire_enc_error(&e) == 0 && wire_enc_len(&e) == KV_BLOCK_GRANTED_BYTES);
}

int kv_block_granted_decode(const uint8_t *data, size_t len, uint64_t arena_bytes,
                            struct kv_block_granted *out)
{
    struct wire_dec d;
    wire_dec_init(&d, data, len);
    struct kv_block_granted g = {.handle = wire_get_u64(&d)};
    g.offset = wire_get_u64(&d);
    g.checksum = wire_get_u64(&d);
    g.len = wire_get_u32(&d);
    g.lasts_ms = wire_get_u32(&d);
    if (wire_dec_end(&d) || g.len < 1 || g.len > arena_bytes || g.offset > arena_bytes - g.len)
        return -EPROTO;
    *out = g;
    return 0;
}
