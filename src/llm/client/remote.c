#include "llm/client/remote.h"

#include "base/clock.h"
#include "llm/model/why.h"
#include "wire/codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The answer of the current call.  Part of the connection, so that a late end of a call finds it.
 */
struct reply {
    bool done;
    int status;
    uint8_t *data; /* grows to the largest answer */
    size_t len, room;
};

struct llm_remote {
    struct rpc_client *client;
    struct llm_byte_account account;
    struct wire_enc enc;
    struct reply reply;
    uint64_t timeout_ns;
    uint64_t rpc_ns;
};

/* Takes the client, also on failure. */
static int create(struct rpc_client *client, uint64_t timeout_ns, struct llm_remote **out)
{
    struct llm_remote *r = calloc(1, sizeof *r);
    if (!r) {
        rpc_client_destroy(client);
        return -ENOMEM;
    }
    r->client = client;
    r->timeout_ns = timeout_ns;
    wire_enc_init(&r->enc, LLM_REQUEST_BYTES_MAX);
    *out = r;
    return 0;
}

int llm_remote_open(const struct rpc_addr *addr, const struct rpc_net_options *net,
                    const struct rpc_client_options *options, uint64_t timeout_ns,
                    struct llm_remote **out, char *why)
{
    struct rpc_client *client;
    char cause[RPC_WHY_CHARS];
    int rc = rpc_client_connect(addr, net, options, &client, cause);
    if (rc)
        return llm_why(why, rc, "%s", cause);
    rc = create(client, timeout_ns, out);
    return rc ? llm_why(why, rc, "no memory for a connection") : 0;
}

void llm_remote_close(struct llm_remote *r)
{
    if (!r)
        return;
    rpc_client_destroy(r->client);
    wire_enc_fini(&r->enc);
    free(r->reply.data);
    free(r);
}

/* ---- calls ---- */

static void on_reply(void *user, int status, const struct rpc_msg *reply)
{
    struct reply *p = user;
    size_t len = reply ? reply->len : 0;
    p->done = true;
    p->status = status;
    p->len = 0;
    if (len > p->room) {
        uint8_t *larger = realloc(p->data, len);
        if (!larger) {
            p->status = status ? status : -ENOMEM;
            return;
        }
        p->data = larger;
        p->room = len;
    }
    if (len)
        memcpy(p->data, reply->data, len);
    p->len = len;
}

static bool is_done(void *user)
{
    return ((struct reply *)user)->done;
}

/* Why a call failed: the worker's text, the connection's end, or the deadline. */
static int explain(struct llm_remote *r, uint32_t method, int rc, char *why)
{
    char reason[RPC_WHY_CHARS];
    if (rpc_client_status(r->client)) {
        rpc_client_reason(r->client, reason);
        return llm_why(why, rc, "the worker is gone: %s", reason);
    }
    if (rc == -ETIMEDOUT)
        return llm_why(why, rc, "no answer to %s within %llu ms", llm_method_name(method),
                       (unsigned long long)(r->timeout_ns / HW_MS));
    if (rc == -ENOSYS)
        return llm_why(why, rc, "that server is no LLM worker: start it with --model FILE");
    bool has_name = method <= LLM_METHOD_LAST; /* a stage's has none */
    return llm_why(why, rc, "%s%s%s%.*s", has_name ? llm_method_name(method) : "",
                   has_name ? ": " : "", r->reply.len ? "" : strerror(-rc), (int)r->reply.len,
                   r->reply.len ? (const char *)r->reply.data : "");
}

static int exchange(struct llm_remote *r, uint32_t method, const struct iovec *iov, int iov_count)
{
    struct rpc_send send = {
        .method = method, .iov = iov, .iov_count = iov_count, .timeout_ns = r->timeout_ns};
    r->reply.done = false;
    r->reply.len = 0;
    int rc = rpc_client_call_async(r->client, &send, on_reply, &r->reply);
    if (rc == 0)
        rc = rpc_client_wait(r->client, is_done, &r->reply, HW_NEVER);
    return r->reply.done ? r->reply.status : rc;
}

int llm_remote_exchange(struct llm_remote *r, uint32_t method, const struct iovec *iov,
                        int iov_count, struct wire_dec *answer, char *why)
{
    int rc = exchange(r, method, iov, iov_count);
    if (rc)
        return explain(r, method, rc, why);
    wire_dec_init(answer, r->reply.data, r->reply.len);
    return 0;
}

struct rpc_client *llm_remote_client(const struct llm_remote *r)
{
    return r->client;
}

void llm_remote_set_timeout(struct llm_remote *r, uint64_t timeout_ns)
{
    r->timeout_ns = timeout_ns;
}

int llm_remote_status(const struct llm_remote *r)
{
    return rpc_client_status(r->client);
}

int llm_remote_call(struct llm_remote *r, const struct llm_request *request,
                    enum llm_class received, struct wire_dec *answer, char *why)
{
    wire_enc_reset(&r->enc);
    llm_request_encode(request, &r->enc);
    int rc = wire_enc_error(&r->enc);
    if (rc)
        return llm_why(why, rc, "%s: the request is too large", llm_method_name(request->method));
    struct iovec iov = {.iov_base = (void *)(uintptr_t)wire_enc_data(&r->enc),
                        .iov_len = wire_enc_len(&r->enc)};
    uint64_t began = hw_now_ns();
    rc = exchange(r, request->method, &iov, iov.iov_len ? 1 : 0);
    r->rpc_ns += hw_now_ns() - began;
    llm_byte_account_mark(&r->account, rpc_client_stats(r->client), llm_request_class(request),
                          rc ? LLM_CONTROL : received);
    if (rc)
        return explain(r, request->method, rc, why);
    wire_dec_init(answer, r->reply.data, r->reply.len);
    return 0;
}

/* ---- pieces ---- */

static uint32_t piece_length(uint64_t left)
{
    return left < LLM_PIECE_BYTES ? (uint32_t)left : LLM_PIECE_BYTES;
}

static int post_piece(struct llm_remote *r, const struct llm_request *request)
{
    struct llm_request head = *request;
    head.length = 0; /* the second iovec has the bytes */
    wire_enc_reset(&r->enc);
    llm_request_encode(&head, &r->enc);
    if (wire_enc_error(&r->enc))
        return wire_enc_error(&r->enc);
    struct iovec iov[2] = {
        {.iov_base = (void *)(uintptr_t)wire_enc_data(&r->enc), .iov_len = wire_enc_len(&r->enc)},
        {.iov_base = (void *)(uintptr_t)request->bytes, .iov_len = request->length}};
    struct rpc_send send = {
        .method = request->method, .iov = iov, .iov_count = 2, .timeout_ns = r->timeout_ns};
    return rpc_client_post(r->client, &send);
}

int llm_remote_upload(struct llm_remote *r, enum llm_upload kind, const void *bytes, uint64_t size,
                      char *why)
{
    const uint8_t *at = bytes;
    struct llm_request request = {.method = LLM_METHOD_UPLOAD, .upload = kind, .total = size};
    uint64_t began = hw_now_ns();
    int rc = 0;
    for (; request.offset < size && rc == 0; request.offset += request.length) {
        request.bytes = at + request.offset;
        request.length = piece_length(size - request.offset);
        rc = post_piece(r, &request);
    }
    if (rc == 0)
        rc = rpc_client_flush(r->client);
    r->rpc_ns += hw_now_ns() - began;
    enum llm_class c = llm_request_class(&request);
    llm_byte_account_mark(&r->account, rpc_client_stats(r->client), c, c);
    r->reply.len = 0;
    return rc ? explain(r, request.method, rc, why) : 0;
}

/* One piece, in place, and the total bytes that the worker has. */
static int fetch_piece(struct llm_remote *r, const struct llm_request *request,
                       const uint8_t **bytes, uint64_t *total, char *why)
{
    struct wire_dec d;
    int rc = llm_remote_call(r, request, llm_answer_class(request->method), &d, why);
    if (rc)
        return rc;
    *total = wire_get_u64(&d);
    *bytes = wire_get_bytes(&d, request->length);
    return wire_dec_end(&d)
               ? llm_why(why, -EPROTO, "a piece of %u bytes has another length", request->length)
               : 0;
}

int llm_remote_fetch_kv(struct llm_remote *r, uint8_t *dst, uint64_t size, char *why)
{
    struct llm_request request = {.method = LLM_METHOD_DOWNLOAD_KV};
    for (; request.offset < size; request.offset += request.length) {
        const uint8_t *bytes;
        uint64_t total;
        request.length = piece_length(size - request.offset);
        int rc = fetch_piece(r, &request, &bytes, &total, why);
        if (rc)
            return rc;
        if (total != size)
            return llm_why(why, -EPROTO, "the worker's cache has %llu bytes, not %llu",
                           (unsigned long long)total, (unsigned long long)size);
        memcpy(dst + request.offset, bytes, request.length);
    }
    return 0;
}

int llm_remote_fetch_file(struct llm_remote *r,
                          int (*take)(void *user, const void *bytes, size_t size), void *user,
                          char *why)
{
    struct llm_request request = {.method = LLM_METHOD_DOWNLOAD_WEIGHTS};
    const uint8_t *bytes;
    uint64_t size, total;
    int rc = fetch_piece(r, &request, &bytes, &size, why); /* of 0 bytes: for the total */
    for (; rc == 0 && request.offset < size; request.offset += request.length) {
        request.length = piece_length(size - request.offset);
        rc = fetch_piece(r, &request, &bytes, &total, why);
        if (rc == 0 && total != size)
            rc = llm_why(why, -EPROTO, "the worker's file changed its length");
        if (rc == 0) {
            rc = take(user, bytes, request.length);
            if (rc)
                llm_why_set(why, "%s", strerror(-rc));
        }
    }
    return rc;
}

static int has_file(struct llm_remote *r, const void *bytes, uint64_t size, bool *has, char *why)
{
    struct llm_request request = {.method = LLM_METHOD_FIND_WEIGHTS, .total = size};
    llm_file_hash(bytes, size, request.hash);
    struct wire_dec d;
    int rc = llm_remote_call(r, &request, LLM_CONTROL, &d, why);
    if (rc)
        return rc;
    uint8_t found = wire_get_u8(&d);
    if (wire_dec_end(&d) || found > 1)
        return llm_why(why, -EPROTO, "the worker's answer is malformed");
    *has = found;
    return 0;
}

int llm_remote_use_file(struct llm_remote *r, const struct llm_file *file, bool blind, char *why)
{
    uint64_t size;
    bool has = false;
    const void *bytes = llm_file_bytes(file, &size);
    int rc = blind ? 0 : has_file(r, bytes, size, &has, why);
    if (rc || has)
        return rc;
    struct llm_request request = {.method = LLM_METHOD_LOAD_WEIGHTS};
    struct wire_dec d;
    rc = llm_remote_upload(r, LLM_UPLOAD_WEIGHTS, bytes, size, why);
    return rc ? rc : llm_remote_call(r, &request, LLM_CONTROL, &d, why);
}

/* ---- figures ---- */

static int probe(struct llm_remote *r, uint32_t bytes, uint64_t *ns, char *why)
{
    struct llm_request request = {.method = LLM_METHOD_PROBE, .length = bytes};
    struct wire_dec d;
    uint64_t began = hw_now_ns();
    int rc = llm_remote_call(r, &request, LLM_CONTROL, &d, why);
    *ns = hw_now_ns() - began;
    if (rc == 0 && wire_dec_left(&d) != bytes)
        return llm_why(why, -EPROTO, "a probe of %u bytes brought %zu", bytes, wire_dec_left(&d));
    return rc;
}

int llm_remote_link_rate(struct llm_remote *r, uint64_t *rate, char *why)
{
    uint64_t empty_ns, full_ns;
    int rc = probe(r, 0, &empty_ns, why);
    if (rc == 0)
        rc = probe(r, LLM_PROBE_BYTES_MAX, &full_ns, why);
    if (rc)
        return rc;
    *rate = full_ns > empty_ns ? LLM_PROBE_BYTES_MAX * HW_SEC / (full_ns - empty_ns) : 0;
    return 0;
}

int llm_remote_metrics(struct llm_remote *r, uint64_t values[LLM_METRICS], char *why)
{
    struct llm_request request = {.method = LLM_METHOD_METRICS};
    struct wire_dec d;
    uint64_t got[LLM_METRICS];
    int rc = llm_remote_call(r, &request, LLM_CONTROL, &d, why);
    if (rc)
        return rc;
    for (int i = 0; i < LLM_METRICS; i++)
        got[i] = wire_get_u64(&d);
    if (wire_dec_end(&d))
        return llm_why(why, -EPROTO, "the worker's metrics are malformed");
    memcpy(values, got, sizeof got);
    return 0;
}

static void get_account(struct wire_dec *d, struct llm_byte_account *l)
{
    for (int i = 0; i < LLM_CLASSES; i++) {
        l->received[i] = wire_get_u64(d);
        l->sent[i] = wire_get_u64(d);
    }
}

int llm_remote_counters(struct llm_remote *r, struct llm_counters *out, char *why)
{
    struct llm_request request = {.method = LLM_METHOD_NETWORK_COUNTERS};
    struct wire_dec d;
    struct llm_counters got = {0};
    int rc = llm_remote_call(r, &request, LLM_CONTROL, &d, why);
    if (rc)
        return rc;
    get_account(&d, &got.link);
    get_account(&d, &got.store);
    if (wire_dec_end(&d))
        return llm_why(why, -EPROTO, "the worker's counters are malformed");
    *out = got;
    return 0;
}

/* ---- evicted KV ---- */

static struct llm_request about(uint32_t method, const uint8_t handle[LLM_HANDLE_BYTES])
{
    struct llm_request request = {.method = method};
    memcpy(request.handle, handle, LLM_HANDLE_BYTES);
    return request;
}

int llm_remote_evict(struct llm_remote *r, const uint8_t handle[LLM_HANDLE_BYTES],
                     const struct llm_layers *layers, uint32_t *missing, char *why)
{
    struct llm_request request = about(LLM_METHOD_EVICT_KV, handle);
    struct wire_dec d;
    request.layers = *layers;
    int rc = llm_remote_call(r, &request, LLM_CONTROL, &d, why);
    if (rc)
        return rc;
    uint32_t count = wire_get_u32(&d);
    if (wire_dec_end(&d))
        return llm_why(why, -EPROTO, "the worker's answer is malformed");
    *missing = count;
    return 0;
}

/* Takes the blocks of one answer out of `left`. */
static int take_layers(struct wire_dec *d, struct llm_layers *left, uint64_t bytes,
                       struct wire_codec_ctx *codec, void *rows, llm_remote_take *take, void *user)
{
    struct llm_layers came;
    bool some = false;
    llm_get_layers(d, &came);
    for (uint32_t l = 0; l < LLM_LAYERS_MAX && !wire_dec_error(d); l++) {
        struct wire_block block;
        if (!llm_layers_has(&came, l))
            continue;
        if (!llm_layers_has(left, l) || wire_codec_parse(d, bytes, &block) ||
            block.dtype != WIRE_DTYPE_F16 || block.lossy)
            return -EPROTO;
        int rc = wire_codec_decode(codec, &block, rows, bytes);
        if (rc)
            return rc == -ENOMEM ? rc : -EPROTO;
        rc = take(user, l, rows, bytes);
        if (rc)
            return rc;
        llm_layers_remove(left, l);
        some = true;
    }
    return wire_dec_end(d) || !some ? -EPROTO : 0;
}

int llm_remote_fetch_layers(struct llm_remote *r, const uint8_t handle[LLM_HANDLE_BYTES],
                            const struct llm_layers *layers, uint32_t from, uint64_t row_bytes,
                            llm_remote_take *take, void *user, uint32_t *length, char *why)
{
    struct llm_request request = about(LLM_METHOD_FETCH_KV, handle);
    struct wire_codec_ctx *codec;
    void *rows = NULL;
    int rc = wire_codec_ctx_create(&codec);
    if (rc)
        return llm_why(why, rc, "no memory for a codec");
    request.from = from;
    request.layers = *layers;
    for (uint32_t has = from; rc == 0 && llm_layers_count(&request.layers);) {
        struct wire_dec d;
        rc = llm_remote_call(r, &request, LLM_KV_DELTA, &d, why);
        if (rc)
            break;
        uint32_t now = wire_get_u32(&d);
        if (!rows && now >= from && now - from <= WIRE_TENSOR_MAX / row_bytes) {
            rows = malloc((now - from) * row_bytes + 1);
            has = now;
        }
        rc = now != has ? -EPROTO : !rows ? -ENOMEM : 0;
        if (rc == 0)
            rc =
                take_layers(&d, &request.layers, (now - from) * row_bytes, codec, rows, take, user);
        if (rc)
            llm_why_set(why, "the worker's layers: %s", strerror(-rc));
        else
            *length = now;
    }
    free(rows);
    wire_codec_ctx_destroy(codec);
    return rc;
}

int llm_remote_set_recovery(struct llm_remote *r, struct llm_eviction_policy policy, char *why)
{
    struct llm_request request = {.method = LLM_METHOD_SET_RECOVERY, .policy = policy};
    struct wire_dec d;
    return llm_remote_call(r, &request, LLM_CONTROL, &d, why);
}

int llm_remote_resume(struct llm_remote *r, const uint8_t handle[LLM_HANDLE_BYTES], uint64_t *id,
                      uint32_t *length, char *why)
{
    struct llm_request request = about(LLM_METHOD_RESUME, handle);
    struct wire_dec d;
    int rc = llm_remote_call(r, &request, LLM_CONTROL, &d, why);
    if (rc)
        return rc;
    uint64_t number = wire_get_varint(&d);
    uint32_t rows = wire_get_u32(&d);
    if (wire_dec_end(&d))
        return llm_why(why, -EPROTO, "the worker's answer is malformed");
    *id = number;
    *length = rows;
    return 0;
}

/* ---- the connection ---- */

const struct llm_byte_account *llm_remote_account(struct llm_remote *r)
{
    llm_byte_account_mark(&r->account, rpc_client_stats(r->client), LLM_CONTROL, LLM_CONTROL);
    return &r->account;
}

const struct rpc_stats *llm_remote_stats(const struct llm_remote *r)
{
    return rpc_client_stats(r->client);
}

uint64_t llm_remote_rpc_ns(const struct llm_remote *r)
{
    return r->rpc_ns;
}
