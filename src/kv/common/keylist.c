#include "kv/common/keylist.h"

#include <errno.h>

void kv_keylist_put(struct wire_enc *e, const struct kv_block_key *keys, uint32_t count)
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

void kv_keylist_get(struct wire_dec *d, struct kv_block_key *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        get_key(d, &keys[i]);
}
