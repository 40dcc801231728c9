#include "llm/worker/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT32_C(0x31534c48) /* "HLS1" */

void llm_record_encode(const struct llm_record *r, struct wire_enc *e)
{
    wire_put_u32(e, MAGIC);
    wire_put_bytes(e, r->hash, sizeof r->hash);
    llm_put_policy(e, &r->policy);
    wire_put_u8(e, r->wish.kind != 0);
    if (r->wish.kind)
        llm_put_wish(e, &r->wish);
    wire_put_u32(e, r->prompt);
    wire_put_u32(e, r->last);
    for (uint32_t i = 0; i < r->token_count; i++)
        wire_put_varint(e, r->tokens[i]);
}

/* A token takes at least a byte. */
static int get_tokens(struct wire_dec *d, struct llm_record *r)
{
    size_t room = wire_dec_left(d);
    if (wire_dec_error(d) || room == 0)
        return -EPROTO;
    room = room < WIRE_TOKENS_MAX ? room : WIRE_TOKENS_MAX;
    r->own = malloc(room * sizeof *r->own);
    if (!r->own)
        return -ENOMEM;
    int64_t count = llm_get_tokens(d, r->own, room);
    if (count <= 0)
        return -EPROTO;
    r->tokens = r->own;
    r->token_count = (uint32_t)count;
    return 0;
}

int llm_record_decode(const void *bytes, size_t len, struct llm_record *out)
{
    struct llm_record r = {0};
    struct wire_dec d;
    wire_dec_init(&d, bytes, len);
    if (wire_get_u32(&d) != MAGIC)
        return -EPROTO;
    wire_get_copy(&d, r.hash, sizeof r.hash);
    llm_get_policy(&d, &r.policy);
    uint8_t wishes = wire_get_u8(&d);
    if (wishes > 1)
        return -EPROTO;
    if (wishes)
        llm_get_wish(&d, &r.wish);
    r.prompt = wire_get_u32(&d);
    r.last = wire_get_u32(&d);
    int rc = get_tokens(&d, &r);
    if (rc == 0 && (r.prompt == 0 || r.prompt > r.token_count))
        rc = -EPROTO;
    if (rc) {
        llm_record_fini(&r);
        return rc;
    }
    *out = r;
    return 0;
}

void llm_record_fini(struct llm_record *r)
{
    free(r->own);
    *r = (struct llm_record){0};
}

struct kv_block_key llm_record_key(const uint8_t handle[LLM_HANDLE_BYTES], uint32_t version)
{
    static const char kind[4] = "seq";
    struct kv_block_key key = {.len = sizeof kind + LLM_HANDLE_BYTES + sizeof version};
    memcpy(key.bytes, kind, sizeof kind);
    memcpy(key.bytes + sizeof kind, handle, LLM_HANDLE_BYTES);
    wire_store32(key.bytes + sizeof kind + LLM_HANDLE_BYTES, version);
    return key;
}
