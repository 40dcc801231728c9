#include "llm/worker/message.h"

#include <assert.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a request carries, each with its encoding below. */
enum field {
    END, /* of a list */
    UPLOAD,
    HASH,
    TOTAL,
    OFFSET_AND_LENGTH,
    PROBE_LENGTH,
    POSITIONS,
    TOKENS, /* the rest of the message */
    HANDLE,
    ID,
    VALUE,
    WISH,
    FROM,
    LAYERS,
    POLICY,
    MODEL,
    TEXT,
    UNDO,
    NO_REQUEST /* the worker pushes it */
};

static const struct {
    const char *name;
    enum llm_class request, answer; /* in the byte account */
    uint8_t fields[4];
} methods[] = {
#define METHOD(what) [LLM_METHOD_##what - LLM_METHOD_FIRST]
    METHOD(UPLOAD) = {"upload", LLM_WEIGHTS, LLM_CONTROL, {UPLOAD}},
    METHOD(FIND_WEIGHTS) = {"find_weights_remote", LLM_CONTROL, LLM_CONTROL, {HASH, TOTAL}},
    METHOD(LOAD_WEIGHTS) = {"load_weights_remote", LLM_CONTROL, LLM_CONTROL, {END}},
    METHOD(DOWNLOAD_WEIGHTS) = {"download_weights_remote",
                                LLM_CONTROL,
                                LLM_WEIGHTS,
                                {OFFSET_AND_LENGTH}},
    METHOD(
        STATELESS) = {"run_stateless_forward_remote", LLM_TOKENS, LLM_LOGITS, {POSITIONS, TOKENS}},
    METHOD(DOWNLOAD_KV) = {"download_kv_remote", LLM_CONTROL, LLM_KV_REGULAR, {OFFSET_AND_LENGTH}},
    METHOD(PREFILL_HANDLE) = {"run_prefill_with_handle", LLM_TOKENS, LLM_LOGITS, {TOKENS}},
    METHOD(DECODE_HANDLE) = {"run_decode_with_handle", LLM_TOKENS, LLM_LOGITS, {HANDLE, VALUE}},
    /* A client that wished for logits counts them as such. */
    METHOD(PREFILL_SEMANTIC) = {"run_prefill_semantic", LLM_TOKENS, LLM_TOKENS, {WISH, TOKENS}},
    METHOD(DECODE_SEMANTIC) = {"run_decode_step_semantic", LLM_TOKENS, LLM_TOKENS, {ID, VALUE}},
    METHOD(RELEASE) = {"release", LLM_CONTROL, LLM_CONTROL, {HANDLE}},
    METHOD(RESET) = {"reset", LLM_CONTROL, LLM_CONTROL, {END}},
    METHOD(METRICS) = {"metrics", LLM_CONTROL, LLM_CONTROL, {END}},
    METHOD(NETWORK_COUNTERS) = {"get_network_counters", LLM_CONTROL, LLM_CONTROL, {END}},
    METHOD(PROBE) = {"probe", LLM_CONTROL, LLM_CONTROL, {PROBE_LENGTH}},
    METHOD(EVICT_KV) = {"evict_kv_layers", LLM_CONTROL, LLM_CONTROL, {HANDLE, LAYERS}},
    METHOD(
        FETCH_KV) = {"fetch_missing_kv_layers", LLM_CONTROL, LLM_KV_DELTA, {HANDLE, FROM, LAYERS}},
    METHOD(SET_RECOVERY) = {"set_recovery", LLM_CONTROL, LLM_CONTROL, {POLICY}},
    METHOD(RESUME) = {"resume_sequence", LLM_CONTROL, LLM_CONTROL, {HANDLE}},
    METHOD(DESCRIBE) = {"describe_models", LLM_CONTROL, LLM_CONTROL, {END}},
    METHOD(HEADER) = {"download_header", LLM_CONTROL, LLM_CONTROL, {MODEL, OFFSET_AND_LENGTH}},
    METHOD(GENERATE) = {"generate", LLM_TOKENS, LLM_CONTROL, {TEXT}},
    METHOD(CANCEL) = {"cancel", LLM_CONTROL, LLM_CONTROL, {ID}},
    METHOD(DRAIN) = {"drain", LLM_CONTROL, LLM_CONTROL, {UNDO}},
    METHOD(TOKENS) = {"tokens", LLM_CONTROL, LLM_TOKENS, {NO_REQUEST}},
    METHOD(INSPECT) = {"inspect", LLM_CONTROL, LLM_CONTROL, {END}},
};
_Static_assert(ARRAY_LEN(methods) == LLM_METHOD_LAST - LLM_METHOD_FIRST + 1, "all");

static bool is_known(uint32_t method)
{
    return method >= LLM_METHOD_FIRST && method <= LLM_METHOD_LAST;
}

static const uint8_t *fields_of(uint32_t method)
{
    return methods[method - LLM_METHOD_FIRST].fields;
}

const char *llm_method_name(uint32_t method)
{
    return is_known(method) ? methods[method - LLM_METHOD_FIRST].name : "unknown method";
}

enum llm_class llm_request_class(const struct llm_request *r)
{
    if (r->method == LLM_METHOD_UPLOAD && r->upload != LLM_UPLOAD_WEIGHTS)
        return LLM_KV_REGULAR;
    return is_known(r->method) ? methods[r->method - LLM_METHOD_FIRST].request : LLM_CONTROL;
}

enum llm_class llm_answer_class(uint32_t method)
{
    return is_known(method) ? methods[method - LLM_METHOD_FIRST].answer : LLM_CONTROL;
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

static void put_field(struct wire_enc *e, const struct llm_request *r, enum field field)
{
    switch (field) {
    case UPLOAD:
        wire_put_u8(e, (uint8_t)r->upload);
        wire_put_u64(e, r->total);
        wire_put_u64(e, r->offset);
        wire_put_bytes(e, r->bytes, r->length);
        break;
    case HASH:
        wire_put_bytes(e, r->hash, sizeof r->hash);
        break;
    case TOTAL:
        wire_put_u64(e, r->total);
        break;
    case OFFSET_AND_LENGTH:
        wire_put_u64(e, r->offset);
        wire_put_u32(e, r->length);
        break;
    case PROBE_LENGTH:
        wire_put_u32(e, r->length);
        break;
    case POSITIONS:
        wire_put_u32(e, r->positions);
        break;
    case TOKENS:
        llm_put_tokens(e, r->tokens, r->token_count);
        break;
    case HANDLE:
        wire_put_bytes(e, r->handle, sizeof r->handle);
        break;
    case ID:
        wire_put_varint(e, r->id);
        break;
    case VALUE:
        wire_put_varint(e, r->value);
        break;
    case WISH:
        llm_put_wish(e, &r->wish);
        break;
    case FROM:
        wire_put_u32(e, r->from);
        break;
    case LAYERS:
        llm_put_layers(e, &r->layers);
        break;
    case POLICY:
        llm_put_policy(e, &r->policy);
        break;
    case MODEL:
        wire_put_str(e, r->model);
        break;
    case TEXT:
        llm_generate_put(e, r->id, &r->generate);
        break;
    case UNDO:
        wire_put_u8(e, r->undo);
        break;
    case END:
    case NO_REQUEST:
        break;
    }
}

void llm_request_encode(const struct llm_request *r, struct wire_enc *e)
{
    assert(is_known(r->method));
    for (const uint8_t *field = fields_of(r->method); *field != END; field++)
        put_field(e, r, (enum field) * field);
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

static int get_field(struct wire_dec *d, struct llm_request *r, enum field field)
{
    switch (field) {
    case UPLOAD:
        get_upload(d, r);
        break;
    case HASH:
        wire_get_copy(d, r->hash, sizeof r->hash);
        break;
    case TOTAL:
        r->total = wire_get_u64(d);
        break;
    case OFFSET_AND_LENGTH:
        r->offset = wire_get_u64(d);
        r->length = wire_get_u32(d);
        return r->length > LLM_PIECE_BYTES_MOST ? -EMSGSIZE : 0;
    case PROBE_LENGTH:
        r->length = wire_get_u32(d);
        return r->length > LLM_PROBE_BYTES_MAX ? -EMSGSIZE : 0;
    case POSITIONS:
        r->positions = wire_get_u32(d);
        break;
    case TOKENS:
        return take_tokens(d, r);
    case HANDLE:
        wire_get_copy(d, r->handle, sizeof r->handle);
        break;
    case ID:
        r->id = wire_get_varint(d);
        break;
    case VALUE:
        r->value = llm_get_varint32(d);
        break;
    case WISH:
        llm_get_wish(d, &r->wish);
        break;
    case FROM:
        r->from = wire_get_u32(d);
        break;
    case LAYERS:
        llm_get_layers(d, &r->layers);
        break;
    case POLICY:
        llm_get_policy(d, &r->policy);
        break;
    case MODEL:
        wire_get_str_copy(d, r->model, sizeof r->model);
        break;
    case TEXT:
        return llm_generate_get(d, &r->id, &r->generate);
    case UNDO:
        get_undo(d, r);
        break;
    case END:
        break;
    case NO_REQUEST:
        return -ENOSYS;
    }
    return wire_dec_error(d);
}

int llm_request_decode(uint32_t method, const void *body, size_t bytes, struct llm_request *out)
{
    struct llm_request r = {.method = method};
    struct wire_dec d;
    wire_dec_init(&d, body, bytes);
    int rc = is_known(method) ? 0 : -ENOSYS;
    for (size_t i = 0; rc == 0 && fields_of(method)[i] != END; i++)
        rc = get_field(&d, &r, (enum field)fields_of(method)[i]);
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

void llm_file_hash(const void *bytes, uint64_t size, uint8_t out[LLM_HASH_BYTES])
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256(bytes, size, digest);
    memcpy(out, digest, LLM_HASH_BYTES);
}
