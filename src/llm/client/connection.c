#include "llm/client/connection.h"

#include "base/clock.h"
#include "base/counter.h"
#include "base/wait.h"
#include "llm/worker/message.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 256,              /* of texts by id */
    EVENT_BYTES_MAX = 64 << 20, /* that wait for callbacks; a program that never returns from one
                                 * must not fill its memory while others of its threads read */
};

struct text {
    struct text *next; /* in its bucket */
    uint64_t id;
    struct llm_connection *conn;
    const struct llm_connection_ops *ops;
    void *user;
    /* Of the connection's thread. */
    uint32_t received;    /* tokens */
    struct event *answer; /* came before the last tokens; NULL: none */
};

/* What arrived, for the connection's thread: a push, or the end of a text. */
struct event {
    struct event *next;
    struct text *ends; /* NULL: a push */
    int status;
    size_t len;
    uint8_t bytes[];
};

struct llm_connection {
    struct rpc_client *client;
    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock; /* guards all below; taken under the client's lock, never around it */
    pthread_cond_t wake;  /* the thread, once the connection has ended */
    struct event *first, **end;
    size_t event_bytes;
    struct text *buckets[BUCKETS];
    uint32_t running;
    uint64_t ids_given;
    bool closing;
    int broken; /* what the worker did wrong; 0: nothing */
};

/* ---- what arrives ---- */

/* After what breaks the connection only ends count. */
static void append(struct llm_connection *c, struct event *e)
{
    pthread_mutex_lock(&c->lock);
    if (c->broken && !e->ends) {
        pthread_mutex_unlock(&c->lock);
        free(e);
        return;
    }
    e->next = NULL;
    *c->end = e;
    c->end = &e->next;
    c->event_bytes += sizeof *e + e->len;
    if (c->event_bytes > EVENT_BYTES_MAX && !c->broken)
        c->broken = -ENOBUFS;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

static struct event *event_create(struct text *ends, int status, const struct rpc_msg *msg)
{
    size_t len = msg ? msg->len : 0;
    struct event *e = malloc(sizeof *e + len);
    if (!e)
        return NULL;
    *e = (struct event){.ends = ends, .status = status, .len = len};
    if (len)
        memcpy(e->bytes, msg->data, len);
    return e;
}

static void set_broken(struct llm_connection *c, int status)
{
    pthread_mutex_lock(&c->lock);
    if (!c->broken)
        c->broken = status;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

static void on_push(void *user, const struct rpc_msg *push)
{
    struct llm_connection *c = user;
    if (push->method != LLM_METHOD_TOKENS)
        return;
    struct event *e = event_create(NULL, 0, push);
    if (e)
        append(c, e);
    else
        set_broken(c, -ENOMEM); /* a text without some of its tokens is worse than none */
}

/* Every text has an event of its own made ahead, so that its end needs no memory. */
struct ending {
    struct text text;
    struct event *spare; /* without bytes */
};

static void on_reply(void *user, int status, const struct rpc_msg *reply)
{
    struct ending *ending = user;
    struct llm_connection *c = ending->text.conn;
    struct event *e = event_create(&ending->text, status, reply);
    if (!e) {
        e = ending->spare;
        e->status = status ? status : -ENOMEM;
    } else {
        free(ending->spare);
    }
    ending->spare = NULL;
    append(c, e);
}

/* ---- texts ---- */

static struct text **bucket_of(struct llm_connection *c, uint64_t id)
{
    return &c->buckets[id % BUCKETS];
}

static struct text *find(struct llm_connection *c, uint64_t id)
{
    pthread_mutex_lock(&c->lock);
    struct text *t = *bucket_of(c, id);
    while (t && t->id != id)
        t = t->next;
    pthread_mutex_unlock(&c->lock);
    return t;
}

static void add(struct llm_connection *c, struct text *t)
{
    pthread_mutex_lock(&c->lock);
    t->id = c->ids_given++;
    t->next = *bucket_of(c, t->id);
    *bucket_of(c, t->id) = t;
    c->running++;
    pthread_mutex_unlock(&c->lock);
}

static void take_out(struct llm_connection *c, struct text *t)
{
    pthread_mutex_lock(&c->lock);
    struct text **to = bucket_of(c, t->id);
    while (*to != t)
        to = &(*to)->next;
    *to = t->next;
    c->running--;
    pthread_mutex_unlock(&c->lock);
}

/* ---- the connection's thread ---- */

enum { TOKENS_ROOM = 64 }; /* of one callback; a worker pushes one token of a text at a time */

/* ---- ends ---- */

static void gone(struct llm_connection *c, int status, char *why)
{
    char reason[RPC_WHY_CHARS];
    rpc_client_reason(c->client, reason);
    llm_why_set(why, "the worker is gone: %s",
                status == -ECANCELED ? "closed by this side" : reason);
}

static void explain(struct llm_connection *c, const struct event *e, int status, char *why)
{
    if (e->status && e->len)
        llm_why_set(why, "%.*s", (int)(e->len < LLM_WHY_CHARS ? e->len : LLM_WHY_CHARS),
                    (const char *)e->bytes);
    else if (status == -ENOSYS)
        llm_why_set(why, "that server serves no model: start it with --model FILE");
    else if (rpc_client_status(c->client))
        gone(c, status, why);
    else if (status == -EPROTO)
        llm_why_set(why, "the worker's answer is malformed");
    else
        llm_why_set(why, "%s", strerror(-status));
}

/* Takes the event and the text. */
static void end_text(struct llm_connection *c, struct event *e, int status,
                     const struct llm_generate_end *end)
{
    struct text *t = e->ends;
    char why[LLM_WHY_CHARS] = "";
    if (status)
        explain(c, e, status, why);
    take_out(c, t);
    t->ops->on_end(t->user, status, status ? NULL : end, why);
    free(t); /* the head of its ending */
    free(e);
}

static int status_of(struct llm_connection *c, int status)
{
    pthread_mutex_lock(&c->lock);
    int first = c->broken ? c->broken : c->closing ? -ECANCELED : status;
    pthread_mutex_unlock(&c->lock);
    return first;
}

/* An answer may be read before the last tokens, which come with it: then it waits for them. */
static int deliver_end(struct llm_connection *c, struct event *e)
{
    struct llm_generate_end end = {0};
    struct wire_dec d;
    if (e->status) {
        end_text(c, e, status_of(c, e->status), NULL);
        return 0;
    }
    wire_dec_init(&d, e->bytes, e->len);
    int rc = llm_end_get(&d, &end);
    if (rc == 0 && e->ends->received > end.generated)
        rc = -EPROTO;
    if (rc || e->ends->received == end.generated)
        end_text(c, e, rc, &end);
    else
        e->ends->answer = e;
    llm_end_fini(&end);
    return rc;
}

static struct event *unfinished(struct llm_connection *c)
{
    struct event *answer = NULL;
    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < BUCKETS && !answer; i++) {
        for (const struct text *t = c->buckets[i]; t && !answer; t = t->next)
            answer = t->answer;
    }
    pthread_mutex_unlock(&c->lock);
    return answer;
}

/* Nothing comes any more: those that wait for tokens end with the connection's error. */
static void end_unfinished(struct llm_connection *c)
{
    int status = rpc_client_status(c->client);
    struct event *answer;
    while ((answer = unfinished(c)) != NULL)
        end_text(c, answer, status_of(c, status ? status : -EPROTO), NULL);
}

/* ---- tokens ---- */

/* Calls on_tokens for the groups of a push.  Texts that this side does not know have ended. */
static int deliver_push(struct llm_connection *c, const struct event *e)
{
    struct wire_dec d;
    wire_dec_init(&d, e->bytes, e->len);
    while (wire_dec_left(&d) > 0) {
        struct llm_generated tokens[TOKENS_ROOM];
        struct llm_logprob top[TOKENS_ROOM][LLM_TOP_LOGPROBS_MAX];
        struct llm_group g;
        llm_group_get(&d, &g);
        struct text *t = find(c, g.id);
        for (uint32_t done = 0, n; done < g.count; done += n) {
            n = g.count - done < TOKENS_ROOM ? g.count - done : TOKENS_ROOM;
            for (uint32_t i = 0; i < n; i++)
                llm_generated_get(&d, g.tops, &tokens[i], top[i]);
            if (wire_dec_error(&d))
                return -EPROTO;
            if (t && t->ops->on_tokens)
                t->ops->on_tokens(t->user, tokens, n);
        }
        if (t)
            t->received += g.count;
        if (t && t->answer && deliver_end(c, t->answer))
            return -EPROTO;
    }
    return wire_dec_end(&d) ? -EPROTO : 0;
}

static struct event *take_events(struct llm_connection *c)
{
    pthread_mutex_lock(&c->lock);
    struct event *first = c->first;
    c->first = NULL;
    c->end = &c->first;
    c->event_bytes = 0;
    pthread_mutex_unlock(&c->lock);
    return first;
}

/* True when there was something. */
static bool deliver(struct llm_connection *c)
{
    struct event *e = take_events(c);
    bool some = e != NULL;
    while (e) {
        struct event *next = e->next;
        bool is_push = !e->ends;
        int rc = is_push ? deliver_push(c, e) : deliver_end(c, e);
        if (rc)
            set_broken(c, rc);
        if (is_push)
            free(e);
        e = next;
    }
    return some;
}

static bool has_work(void *user)
{
    struct llm_connection *c = user;
    pthread_mutex_lock(&c->lock);
    bool has = c->first || c->closing || c->broken;
    pthread_mutex_unlock(&c->lock);
    return has;
}

static bool should_end(struct llm_connection *c)
{
    pthread_mutex_lock(&c->lock);
    bool ends = c->closing || c->broken;
    pthread_mutex_unlock(&c->lock);
    return ends;
}

/* The connection has ended, and so have all calls: what they left is delivered, then nothing comes
 * any more. */
static void rest(struct llm_connection *c)
{
    bool closing = false;
    while (!closing || deliver(c)) {
        (void)deliver(c);
        end_unfinished(c);
        pthread_mutex_lock(&c->lock);
        while (!c->first && !c->closing)
            pthread_cond_wait(&c->wake, &c->lock);
        closing = c->closing;
        pthread_mutex_unlock(&c->lock);
    }
}

static void *read_and_deliver(void *user)
{
    struct llm_connection *c = user;
    hw_wake_soon();
    while (!should_end(c) && rpc_client_wait(c->client, has_work, c, HW_NEVER) == 0)
        (void)deliver(c);
    while (rpc_client_status(c->client) == 0)
        rpc_client_leave(c->client); /* its calls end now */
    rest(c);
    return NULL;
}

/* ---- life ---- */

/* A port that takes connections and says nothing, or hangs up, may be one for HTTP. */
static void explain_connect(const struct rpc_addr *addr, int rc, const char *cause, char *why)
{
    char text[RPC_ADDR_PATH_CHARS + RPC_ADDR_HOST_CHARS + 16];
    rpc_addr_format(addr, text, sizeof text);
    if (rc == -ETIMEDOUT || rc == -ECONNRESET)
        llm_why_set(why,
                    "%s does not answer as a Hawser server: %s; is it serve's --listen, and "
                    "not its --http?",
                    text, cause);
    else
        llm_why_set(why, "%s", cause);
}

int llm_connection_open(const struct rpc_addr *addr, const struct rpc_net_options *net,
                        const struct rpc_config *config, struct llm_connection **out, char *why)
{
    struct llm_connection *c = calloc(1, sizeof *c);
    if (!c)
        return llm_why(why, -ENOMEM, "no memory for a connection");
    struct rpc_client_options options = {.on_push = on_push, .push_user = c};
    char cause[RPC_WHY_CHARS];
    if (config)
        options.config = *config;
    /* Tokens come a step apart, and the worker waits for nobody: a spin only takes cores from it.
     */
    options.config.wait = RPC_WAIT_BLOCK;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    c->end = &c->first;
    int rc = rpc_client_connect(addr, net, &options, &c->client, cause);
    if (rc)
        explain_connect(addr, rc, cause, why);
    if (rc == 0) {
        rc = -pthread_create(&c->thread, NULL, read_and_deliver, c);
        c->thread_runs = rc == 0;
        if (rc)
            llm_why_set(why, "no thread: %s", strerror(-rc));
    }
    if (rc) {
        llm_connection_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void llm_connection_close(struct llm_connection *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    if (c->client)
        rpc_client_leave(c->client);
    if (c->thread_runs)
        pthread_join(c->thread, NULL);
    rpc_client_destroy(c->client);
    assert(c->running == 0 && !c->first);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

int llm_connection_status(struct llm_connection *c, char *why)
{
    int status = rpc_client_status(c->client);
    pthread_mutex_lock(&c->lock);
    int broken = c->broken;
    pthread_mutex_unlock(&c->lock);
    if (broken && why)
        llm_why_set(why, "the worker is gone: %s",
                    broken == -EPROTO ? "it broke the protocol" : strerror(-broken));
    else if (status && why)
        gone(c, status, why);
    return broken ? broken : status;
}

void llm_connection_traffic(const struct llm_connection *c, struct llm_connection_traffic *out)
{
    const struct rpc_stats *stats = rpc_client_stats(c->client);
    out->sent = hw_counter_load(&stats->bytes_sent);
    out->received = hw_counter_load(&stats->bytes_received);
    out->messages_sent = hw_counter_load(&stats->msgs_sent);
    out->messages_received = hw_counter_load(&stats->msgs_received);
}

/* ---- texts ---- */

static int send_request(struct llm_connection *c, const struct llm_generate *g, struct ending *e)
{
    struct llm_request request = {.method = LLM_METHOD_GENERATE, .id = e->text.id, .generate = *g};
    struct wire_enc enc;
    wire_enc_init(&enc, LLM_REQUEST_BYTES_MAX);
    llm_request_encode(&request, &enc);
    int rc = wire_enc_error(&enc);
    if (rc == 0) {
        struct iovec iov = {.iov_base = (void *)(uintptr_t)wire_enc_data(&enc),
                            .iov_len = wire_enc_len(&enc)};
        struct rpc_send send = {
            .method = LLM_METHOD_GENERATE, .iov = &iov, .iov_count = 1, .timeout_ns = HW_NEVER};
        rc = rpc_client_call_async(c->client, &send, on_reply, e);
    }
    wire_enc_fini(&enc);
    return rc;
}

int llm_connection_start(struct llm_connection *c, const struct llm_generate *g,
                         const struct llm_connection_ops *ops, void *user, uint64_t *id_out,
                         char *why)
{
    char unused[LLM_WHY_CHARS];
    char *text = why ? why : unused;
    int rc = llm_connection_status(c, text);
    if (rc)
        return rc;
    if (g->token_count == 0 || g->sampled > g->token_count)
        return llm_why(text, -EINVAL, "a text begins with at least one token");
    struct ending *e = calloc(1, sizeof *e);
    if (e)
        e->spare = event_create(&e->text, 0, NULL);
    if (!e || !e->spare) {
        free(e);
        return llm_why(text, -ENOMEM, "no memory for a text");
    }
    e->text.conn = c;
    e->text.ops = ops;
    e->text.user = user;
    add(c, &e->text);
    if (id_out)
        *id_out = e->text.id;
    rc = send_request(c, g, e);
    if (rc == 0) {
        (void)rpc_client_flush(c->client); /* a failure ends the call */
        return 0;
    }
    take_out(c, &e->text);
    free(e->spare);
    free(e);
    if (rpc_client_status(c->client))
        gone(c, rc, text);
    else
        llm_why_set(text, "the request cannot be sent: %s", strerror(-rc));
    return rc;
}

void llm_connection_cancel(struct llm_connection *c, uint64_t id)
{
    struct llm_request request = {.method = LLM_METHOD_CANCEL, .id = id};
    uint8_t bytes[WIRE_VARINT_MAX];
    struct wire_enc e;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    llm_request_encode(&request, &e);
    struct iovec iov = {.iov_base = bytes, .iov_len = wire_enc_len(&e)};
    struct rpc_send send = {.method = LLM_METHOD_CANCEL, .iov = &iov, .iov_count = 1};
    if (rpc_client_post(c->client, &send) == 0) /* on failure the text ends with the connection */
        (void)rpc_client_flush(c->client);
}

/* ---- one exchange ---- */

static int exchange(struct llm_connection *c, const struct llm_request *request,
                    uint64_t timeout_ns, struct rpc_answer *answer, char *why)
{
    uint8_t bytes[LLM_SERVED_NAME_CHARS + 32];
    struct wire_enc e;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    llm_request_encode(request, &e);
    assert(wire_enc_error(&e) == 0);
    struct iovec iov = {.iov_base = bytes, .iov_len = wire_enc_len(&e)};
    struct rpc_send send = {.method = request->method,
                            .iov = &iov,
                            .iov_count = iov.iov_len ? 1 : 0,
                            .timeout_ns = timeout_ns};
    int rc = rpc_client_call(c->client, &send, answer);
    if (rc == 0)
        return 0;
    if (rpc_client_status(c->client))
        gone(c, rc, why);
    else if (rc == -ENOSYS)
        llm_why_set(why, "that server serves no model: start it with --model FILE");
    else if (rc == -ENOENT)
        llm_why_set(why, "that worker serves no model '%s'", request->model);
    else if (rc == -EOPNOTSUPP)
        llm_why_set(why, "the worker's model is no GGUF file: its vocabulary cannot be fetched");
    else if (rc == -ETIMEDOUT)
        llm_why_set(why, "the worker does not answer");
    else
        llm_why_set(why, "the worker answers: %s", strerror(-rc));
    return rc;
}

int llm_connection_describe(struct llm_connection *c, uint64_t timeout_ns, struct llm_served *out,
                            char *why)
{
    struct llm_request request = {.method = LLM_METHOD_DESCRIBE};
    struct rpc_answer answer;
    struct wire_dec d;
    int rc = exchange(c, &request, timeout_ns, &answer, why);
    if (rc)
        return rc;
    wire_dec_init(&d, answer.data, answer.len);
    llm_served_get(&d, out);
    if (wire_dec_end(&d))
        rc = llm_why(why, -EPROTO, "the worker's description is malformed");
    rpc_answer_fini(&answer);
    llm_served_make_printable(out);
    return rc;
}

int llm_connection_inspect(struct llm_connection *c, uint64_t timeout_ns,
                           struct llm_inspection *out, char *why)
{
    struct llm_request request = {.method = LLM_METHOD_INSPECT};
    struct rpc_answer answer;
    struct wire_dec d;
    int rc = exchange(c, &request, timeout_ns, &answer, why);
    if (rc)
        return rc;
    wire_dec_init(&d, answer.data, answer.len);
    llm_inspection_get(&d, out);
    if (wire_dec_end(&d))
        rc = llm_why(why, -EPROTO, "the worker's inspection is malformed");
    rpc_answer_fini(&answer);
    return rc;
}

/* One piece into *bytes, which is made when the total is known. */
static int fetch_piece(struct llm_connection *c, struct llm_request *request, uint8_t **bytes,
                       uint64_t *total, char *why)
{
    struct rpc_answer answer;
    struct wire_dec d;
    int rc = exchange(c, request, 0, &answer, why);
    if (rc)
        return rc;
    wire_dec_init(&d, answer.data, answer.len);
    uint64_t size = wire_get_u64(&d);
    const uint8_t *piece = wire_get_bytes(&d, request->length);
    if (wire_dec_end(&d) || size > LLM_HEADER_BYTES_MAX || (*bytes && size != *total))
        rc = llm_why(why, -EPROTO, "the worker's piece of a header is malformed");
    if (rc == 0 && !*bytes) {
        *total = size;
        *bytes = malloc(size ? size : 1);
        rc = *bytes ? 0
                    : llm_why(why, -ENOMEM, "no memory for a header of %llu bytes",
                              (unsigned long long)size);
    }
    if (rc == 0 && request->length)
        memcpy(*bytes + request->offset, piece, request->length);
    rpc_answer_fini(&answer);
    return rc;
}

int llm_connection_header(struct llm_connection *c, const char *model, uint8_t **bytes,
                          uint64_t *size, char *why)
{
    struct llm_request request = {.method = LLM_METHOD_HEADER};
    uint8_t *made = NULL;
    uint64_t total = 0;
    if (model && strlen(model) >= sizeof request.model)
        return llm_why(why, -ENOENT, "no model has so long a name");
    if (model)
        memcpy(request.model, model, strlen(model) + 1);
    int rc = fetch_piece(c, &request, &made, &total, why); /* of 0 bytes: for the total */
    for (; rc == 0 && request.offset < total; request.offset += request.length) {
        uint64_t left = total - request.offset;
        request.length = left < LLM_PIECE_BYTES ? (uint32_t)left : LLM_PIECE_BYTES;
        rc = fetch_piece(c, &request, &made, &total, why);
    }
    if (rc) {
        free(made);
        return rc;
    }
    *bytes = made;
    *size = total;
    return 0;
}

int llm_connection_drain(struct llm_connection *c, bool undo, uint32_t *given, char *why)
{
    struct llm_request request = {.method = LLM_METHOD_DRAIN, .undo = undo};
    struct rpc_answer answer;
    struct wire_dec d;
    int rc = exchange(c, &request, 0, &answer, why);
    if (rc)
        return rc;
    wire_dec_init(&d, answer.data, answer.len);
    uint32_t texts = wire_get_u32(&d);
    if (wire_dec_end(&d))
        rc = llm_why(why, -EPROTO, "the worker's answer is malformed");
    rpc_answer_fini(&answer);
    if (rc == 0 && given)
        *given = texts;
    return rc;
}
