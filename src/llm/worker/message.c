#include "llm/worker/message.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

const char *llm_method_name(uint32_t method)
{
    static const char *const names[] = {
        "upload",
        "find_weights_remote",
        "load_weights_remote",
        "download_weights_remote",
        "run_stateless_forward_remote",
        "download_kv_remote",
        "run_prefill_with_handle",
        "run_decode_with_handle",
        "run_prefill_semantic",
        "run_decode_step_semantic",
        "release",
        "reset",
        "metrics",
        "get_network_counters",
        "probe",
        "evict_kv_layers",
        "fetch_missing_kv_layers",
        "set_recovery",
        "resume_sequence",
        "describe_models",
        "download_header",
        "generate",
        "cancel",
        "drain",
        "tokens",
        "inspect",
    };
    _Static_assert(sizeof names / sizeof *names == LLM_METHOD_LAST - LLM_METHOD_FIRST + 1, "all");
    if (method < LLM_METHOD_FIRST || method > LLM_METHOD_LAST)
        return "unknown method";
    return names[method - LLM_METHOD_FIRST];
}

enum llm_class llm_request_class(const struct llm_request *r)
{
    switch (r->method) {
    case LLM_METHOD_UPLOAD:
        return r->upload == LLM_UPLOAD_WEIGHTS ? LLM_WEIGHTS : LLM_KV_REGULAR;
    case LLM_METHOD_STATELESS:
    case LLM_METHOD_PREFILL_HANDLE:
    case LLM_METHOD_DECODE_HANDLE:
    case LLM_METHOD_PREFILL_SEMANTIC:
    case LLM_METHOD_DECODE_SEMANTIC:
    case LLM_METHOD_GENERATE:
        return LLM_TOKENS;
    default:
        return LLM_CONTROL;
    }
}

enum llm_class llm_answer_class(uint32_t method)
{
    switch (method) {
    case LLM_METHOD_DOWNLOAD_WEIGHTS:
        return LLM_WEIGHTS;
    case LLM_METHOD_DOWNLOAD_KV:
        return LLM_KV_REGULAR;
    case LLM_METHOD_FETCH_KV:
        return LLM_KV_DELTA;
    case LLM_METHOD_STATELESS:
    case LLM_METHOD_PREFILL_HANDLE:
    case LLM_METHOD_DECODE_HANDLE:
        return LLM_LOGITS;
    case LLM_METHOD_PREFILL_SEMANTIC:
    case LLM_METHOD_DECODE_SEMANTIC:
    case LLM_METHOD_TOKENS:
        return LLM_TOKENS; /* a client that wished for logits counts them as such */
    default:
        return LLM_CONTROL;
    }
}

/* ---- requests to bytes ---- */

void llm_put_layers(struct wire_enc *e, const struct llm_layers *layers)
{
    uint8_t bytes = LLM_LAYERS_MAX / 8;
    while (bytes > 0 && !(layers->words[(bytes - 1) / 8] >> (bytes - 1) % 8 * 8 & 0xff))
        bytes--;
    wire_put_u8(e, bytes);
    for (unsigned i = 0; i < bytes; i++)
        wire_put_u8(e, (uint8_t)(layers->words[i / 8] >> i % 8 * 8));
}

static void put_tokens(struct wire_enc *e, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        wire_put_varint(e, tokens[i]);
}

void llm_put_wish(struct wire_enc *e, const struct llm_wish *w)
{
    wire_put_u8(e, (uint8_t)w->kind);
    switch (w->kind) {
    case LLM_WISH_TOKENS:
        wire_put_f32(e, w->sampling.temperature);
        wire_put_varint(e, w->sampling.top_k);
        wire_put_f32(e, w->sampling.top_p);
        wire_put_u64(e, w->sampling.seed);
        break;
    case LLM_WISH_TOP_K:
        wire_put_varint(e, w->top_k);
        break;
    case LLM_WISH_LOGITS:
        wire_put_u8(e, w->lossy);
        wire_put_varint(e, w->link_rate);
        break;
    }
}

void llm_put_policy(struct wire_enc *e, const struct llm_eviction_policy *policy)
{
    wire_put_u8(e, (uint8_t)policy->recovery);
    wire_put_u8(e, (uint8_t)policy->pack);
}

void llm_request_encode(const struct llm_request *r, struct wire_enc *e)
{
    switch (r->method) {
    case LLM_METHOD_UPLOAD:
        wire_put_u8(e, (uint8_t)r->upload);
        wire_put_u64(e, r->total);
        wire_put_u64(e, r->offset);
        wire_put_bytes(e, r->bytes, r->length);
        break;
    case LLM_METHOD_FIND_WEIGHTS:
        wire_put_bytes(e, r->hash, sizeof r->hash);
        wire_put_u64(e, r->total);
        break;
    case LLM_METHOD_DOWNLOAD_WEIGHTS:
    case LLM_METHOD_DOWNLOAD_KV:
        wire_put_u64(e, r->offset);
        wire_put_u32(e, r->length);
        break;
    case LLM_METHOD_STATELESS:
        wire_put_u32(e, r->positions);
        put_tokens(e, r->tokens, r->token_count);
        break;
    case LLM_METHOD_PREFILL_HANDLE:
        put_tokens(e, r->tokens, r->token_count);
        break;
    case LLM_METHOD_DECODE_HANDLE:
        wire_put_bytes(e, r->handle, sizeof r->handle);
        wire_put_varint(e, r->value);
        break;
    case LLM_METHOD_PREFILL_SEMANTIC:
        llm_put_wish(e, &r->wish);
        put_tokens(e, r->tokens, r->token_count);
        break;
    case LLM_METHOD_DECODE_SEMANTIC:
        wire_put_varint(e, r->id);
        wire_put_varint(e, r->value);
        break;
    case LLM_METHOD_RELEASE:
    case LLM_METHOD_RESUME:
        wire_put_bytes(e, r->handle, sizeof r->handle);
        break;
    case LLM_METHOD_PROBE:
        wire_put_u32(e, r->length);
        break;
    case LLM_METHOD_EVICT_KV:
        wire_put_bytes(e, r->handle, sizeof r->handle);
        llm_put_layers(e, &r->layers);
        break;
    case LLM_METHOD_FETCH_KV:
        wire_put_bytes(e, r->handle, sizeof r->handle);
        wire_put_u32(e, r->from);
        llm_put_layers(e, &r->layers);
        break;
    case LLM_METHOD_SET_RECOVERY:
        llm_put_policy(e, &r->policy);
        break;
    case LLM_METHOD_HEADER:
        wire_put_str(e, r->model);
        wire_put_u64(e, r->offset);
        wire_put_u32(e, r->length);
        break;
    case LLM_METHOD_GENERATE:
        llm_generate_put(e, r->id, &r->generate);
        break;
    case LLM_METHOD_CANCEL:
        wire_put_varint(e, r->id);
        break;
    case LLM_METHOD_DRAIN:
        wire_put_u8(e, r->undo);
        break;
    default: /* an empty message */
        break;
    }
}

/* ---- bytes to requests ---- */

int64_t llm_get_tokens(struct wire_dec *d, uint32_t *tokens, size_t room)
{
    size_t count = 0;
    while (wire_dec_left(d) > 0) {
        uint32_t token = llm_get_varint32(d);
        if (count == room)
            return -EMSGSIZE;
        tokens[count++] = token;
    }
    int rc = wire_dec_error(d);
    return rc ? rc : (int64_t)count;
}

/* A token takes at least a byte: the message's length bounds the allocation. */
static int take_tokens(struct wire_dec *d, struct llm_request *out)
{
    size_t room = wire_dec_left(d);
    if (wire_dec_error(d) || room == 0)
        return -EPROTO;
    if (room > 5 * (size_t)WIRE_TOKENS_MAX)
        return -EMSGSIZE;
    if (room > WIRE_TOKENS_MAX)
        room = WIRE_TOKENS_MAX;
    out->tokens = malloc(room * sizeof *out->tokens);
    if (!out->tokens)
        return -ENOMEM;
    int64_t count = llm_get_tokens(d, out->tokens, room);
    if (count < 0)
        return (int)count;
    out->token_count = (uint32_t)count;
    return 0;
}

void llm_get_wish(struct wire_dec *d, struct llm_wish *w)
{
    w->kind = (enum llm_wish_kind)wire_get_u8(d);
    switch (w->kind) {
    case LLM_WISH_TOKENS:
        w->sampling.temperature = wire_get_f32(d);
        w->sampling.top_k = llm_get_varint32(d);
        w->sampling.top_p = wire_get_f32(d);
        w->sampling.seed = wire_get_u64(d);
        break;
    case LLM_WISH_TOP_K:
        w->top_k = llm_get_varint32(d);
        if (w->top_k == 0)
            wire_dec_fail(d, -EPROTO);
        if (w->top_k > LLM_TOP_K_MAX)
            wire_dec_fail(d, -EMSGSIZE);
        break;
    case LLM_WISH_LOGITS: {
        uint8_t lossy = wire_get_u8(d);
        w->lossy = lossy == 1;
        w->link_rate = wire_get_varint(d);
        if (lossy > 1)
            wire_dec_fail(d, -EPROTO);
        break;
    }
    default:
        wire_dec_fail(d, -EPROTO);
    }
}

static void get_upload(struct wire_dec *d, struct llm_request *r)
{
    r->upload = (enum llm_upload)wire_get_u8(d);
    r->total = wire_get_u64(d);
    r->offset = wire_get_u64(d);
    size_t left = wire_dec_left(d);
    r->bytes = wire_get_bytes(d, left);
    r->length = (uint32_t)left;
    if (left > LLM_PIECE_BYTES_MOST)
        wire_dec_fail(d, -EMSGSIZE);
    else if ((r->upload != LLM_UPLOAD_WEIGHTS && r->upload != LLM_UPLOAD_KV) || left == 0 ||
             r->offset > r->total || left > r->total - r->offset)
        wire_dec_fail(d, -EPROTO);
}

static void get_piece(struct wire_dec *d, struct llm_request *r)
{
    r->offset = wire_get_u64(d);
    r->length = wire_get_u32(d);
    if (r->length > LLM_PIECE_BYTES_MOST)
        wire_dec_fail(d, -EMSGSIZE);
}

void llm_get_layers(struct wire_dec *d, struct llm_layers *layers)
{
    uint8_t bytes = wire_get_u8(d);
    *layers = (struct llm_layers){0};
    if (bytes > LLM_LAYERS_MAX / 8) {
        wire_dec_fail(d, -EMSGSIZE);
        return;
    }
    uint8_t last = 1;
    for (unsigned i = 0; i < bytes; i++) {
        last = wire_get_u8(d);
        layers->words[i / 8] |= (uint64_t)last << i % 8 * 8;
    }
    if (last == 0) /* each set has one encoding */
        wire_dec_fail(d, -EPROTO);
}

void llm_get_policy(struct wire_dec *d, struct llm_eviction_policy *policy)
{
    policy->recovery = (enum llm_recovery)wire_get_u8(d);
    policy->pack = (enum llm_pack)wire_get_u8(d);
    if (policy->recovery < LLM_RECOVER_DELTA || policy->recovery > LLM_RECOVER_COMPUTE ||
        policy->pack < LLM_PACK_AUTO || policy->pack > LLM_PACK_ALWAYS)
        wire_dec_fail(d, -EPROTO);
}

static void get_undo(struct wire_dec *d, struct llm_request *r)
{
    uint8_t undo = wire_get_u8(d);
    r->undo = undo == 1;
    if (undo > 1)
        wire_dec_fail(d, -EPROTO);
}

static int get_body(struct wire_dec *d, struct llm_request *r)
{
    switch (r->method) {
    case LLM_METHOD_UPLOAD:
        get_upload(d, r);
        return 0;
    case LLM_METHOD_FIND_WEIGHTS:
        wire_get_copy(d, r->hash, sizeof r->hash);
        r->total = wire_get_u64(d);
        return 0;
    case LLM_METHOD_DOWNLOAD_WEIGHTS:
    case LLM_METHOD_DOWNLOAD_KV:
        get_piece(d, r);
        return 0;
    case LLM_METHOD_STATELESS:
        r->positions = wire_get_u32(d);
        return take_tokens(d, r);
    case LLM_METHOD_PREFILL_HANDLE:
        return take_tokens(d, r);
    case LLM_METHOD_DECODE_HANDLE:
        wire_get_copy(d, r->handle, sizeof r->handle);
        r->value = llm_get_varint32(d);
        return 0;
    case LLM_METHOD_PREFILL_SEMANTIC:
        llm_get_wish(d, &r->wish);
        return wire_dec_error(d) ? 0 : take_tokens(d, r);
    case LLM_METHOD_DECODE_SEMANTIC:
        r->id = wire_get_varint(d);
        r->value = llm_get_varint32(d);
        return 0;
    case LLM_METHOD_RELEASE:
    case LLM_METHOD_RESUME:
        wire_get_copy(d, r->handle, sizeof r->handle);
        return 0;
    case LLM_METHOD_EVICT_KV:
        wire_get_copy(d, r->handle, sizeof r->handle);
        llm_get_layers(d, &r->layers);
        return 0;
    case LLM_METHOD_FETCH_KV:
        wire_get_copy(d, r->handle, sizeof r->handle);
        r->from = wire_get_u32(d);
        llm_get_layers(d, &r->layers);
        return 0;
    case LLM_METHOD_SET_RECOVERY:
        llm_get_policy(d, &r->policy);
        return 0;
    case LLM_METHOD_HEADER:
        wire_get_str_copy(d, r->model, sizeof r->model);
        get_piece(d, r);
        return 0;
    case LLM_METHOD_GENERATE:
        return llm_generate_get(d, &r->id, &r->generate);
    case LLM_METHOD_CANCEL:
        r->id = wire_get_varint(d);
        return 0;
    case LLM_METHOD_DRAIN:
        get_undo(d, r);
        return 0;
    case LLM_METHOD_PROBE:
        r->length = wire_get_u32(d);
        if (r->length > LLM_PROBE_BYTES_MAX)
            wire_dec_fail(d, -EMSGSIZE);
        return 0;
    case LLM_METHOD_LOAD_WEIGHTS:
    case LLM_METHOD_RESET:
    case LLM_METHOD_METRICS:
    case LLM_METHOD_NETWORK_COUNTERS:
    case LLM_METHOD_DESCRIBE:
    case LLM_METHOD_INSPECT:
        return 0;
    default:
        return -ENOSYS;
    }
}

int llm_request_decode(uint32_t method, const void *body, size_t bytes, struct llm_request *out)
{
    struct llm_request r = {.method = method};
    struct wire_dec d;
    wire_dec_init(&d, body, bytes);
    int rc = get_body(&d, &r);
    if (rc == 0)
        rc = wire_dec_end(&d);
    if (rc) {
        llm_request_fini(&r);
        return rc;
    }
    *out = r;
    return 0;
}

void llm_request_fini(struct llm_request *r)
{
    free(r->tokens);
    if (r->method == LLM_METHOD_GENERATE)
        llm_generate_fini(&r->generate);
    r->tokens = NULL;
    r->token_count = 0;
}

void llm_handle_format(const uint8_t handle[LLM_HANDLE_BYTES], char text[LLM_HANDLE_CHARS])
{
    char *at = text;
    for (int i = 0; i < LLM_HANDLE_BYTES; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(at, 4, "%s%02x", dash ? "-" : "", handle[i]);
    }
    assert(at - text == LLM_HANDLE_CHARS - 1);
}
