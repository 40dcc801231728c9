#include "wire/tokens.h"

#include <errno.h>

void wire_put_tokens(struct wire_enc *e, const uint32_t *tokens, size_t count)
{
    if (count > WIRE_TOKENS_MAX) {
        wire_enc_fail(e, -EMSGSIZE);
        return;
    }
    wire_put_u32(e, (uint32_t)count);
    for (size_t i = 0; i < count; i++)
        wire_put_varint(e, tokens[i]);
}

uint32_t wire_get_token_count(struct wire_dec *d, uint32_t limit)
{
    return wire_dec_count(d, 1, limit < WIRE_TOKENS_MAX ? limit : WIRE_TOKENS_MAX);
}

void wire_get_tokens(struct wire_dec *d, uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t v = wire_get_varint(d);
        if (v > UINT32_MAX) {
            wire_dec_fail(d, -EPROTO);
            v = 0;
        }
        tokens[i] = (uint32_t)v;
    }
}
