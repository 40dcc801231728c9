/* One HTTP request: its route, its body, its answer.
 *
 * libmicrohttpd calls the handler once with the head, then with pieces of the body, then without;
 * then again whenever a suspended connection was resumed.  A request for texts is suspended until
 * there is something to say, so no thread waits for a worker. */
#include "base/grow.h"
#include "serve/http/impl.h"

#include "serve/http/pages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

struct http_route {
    const char *path; /* one that ends with '/' is followed by a name */
    const char *method;
    /* The whole body is there. */
    enum MHD_Result (*handle)(struct http_exchange *x);
    enum http_api api; /* of texts */
};

static void drop_body(struct http_exchange *x)
{
    http_budget_give(&x->front->bodies, x->body_taken);
    free(x->body);
    x->body = NULL;
    x->body_len = x->body_room = x->body_taken = 0;
}

/* ---- answering ---- */

static bool is_anthropic(const struct http_exchange *x)
{
    return x->route && x->route->api >= HTTP_MESSAGES;
}

static enum MHD_Result respond(struct http_exchange *x, unsigned status,
                               struct MHD_Response *response)
{
    if (response)
        http_cors_add(x, response);
    if (response && x->name[0]) /* clients show it to who asks about a request */
        MHD_add_response_header(response, is_anthropic(x) ? "request-id" : "x-request-id", x->name);
    if (response && (x->preflight || status == MHD_HTTP_METHOD_NOT_ALLOWED))
        MHD_add_response_header(response, "Allow", x->allow);
    return http_respond(x->connection, status, response);
}

static enum MHD_Result respond_json(struct http_exchange *x, unsigned status, char *text,
                                    size_t len)
{
    static char none[] = "{\"type\":\"error\",\"error\":{\"type\":\"server_error\",\"message\":"
                         "\"out of memory\",\"param\":null,\"code\":null}}"; /* in both forms */
    http_clients_expect(&x->front->clients, x->connection, true, len);
    if (text)
        return respond(x, status, http_response("application/json", text, len));
    struct MHD_Response *response =
        MHD_create_response_from_buffer(sizeof none - 1, none, MHD_RESPMEM_PERSISTENT);
    if (response)
        MHD_add_response_header(response, "Content-Type", "application/json");
    return respond(x, MHD_HTTP_SERVICE_UNAVAILABLE, response);
}

static enum MHD_Result respond_error(struct http_exchange *x)
{
    size_t len;
    char *text = http_answer_error(&x->error, is_anthropic(x), &len);
    return respond_json(x, x->error.status, text, len);
}

static enum MHD_Result refuse(struct http_exchange *x, unsigned status, const char *message)
{
    (void)http_error_set(&x->error, status, NULL, NULL, "%s", message);
    return respond_error(x);
}

/* ---- texts ---- */

/* Tells us when the client leaves, which libmicrohttpd does not notice while it is suspended. */
static void watch(struct http_exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = x->id};
    x->fd = info ? (int)info->connect_fd : -1;
    if (x->fd >= 0 && epoll_ctl(x->front->watch, EPOLL_CTL_ADD, x->fd, &event))
        x->fd = -1; /* it is noticed when something is written */
}

static ssize_t read_stream(void *user, uint64_t at, char *to, size_t room)
{
    struct http_exchange *x = user;
    ssize_t given = 0;
    (void)at;
    pthread_mutex_lock(&x->front->lock);
    if (x->out_at == wire_enc_len(&x->out)) {
        http_answer_chunks(x);
        x->out_at = 0;
    }
    size_t left = wire_enc_len(&x->out) - x->out_at;
    if (x->gone || wire_enc_error(&x->out)) {
        given = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (left > 0) {
        given = (ssize_t)(left < room ? left : room);
        memcpy(to, wire_enc_data(&x->out) + x->out_at, (size_t)given);
        x->out_at += (size_t)given;
        if (x->open == 0) {
            x->late += (size_t)given;
            http_clients_expect(&x->front->clients, x->connection, false, x->late);
        }
    } else if (x->done_sent) {
        given = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->front->lock);
    return given;
}

static enum MHD_Result respond_stream(struct http_exchange *x)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 32 << 10, read_stream, x, NULL);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/event-stream; charset=utf-8");
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); /* a proxy passes it on at once */
    return respond(x, MHD_HTTP_OK, response);
}

/* Something of a text is there to show. */
static bool has_news(const struct http_exchange *x)
{
    for (uint32_t i = 0; i < x->choice_count; i++) {
        if (x->choices[i].text.shown > 0 || x->choices[i].finish != HTTP_FINISH_NONE)
            return true;
    }
    return false;
}

/* Without the lock: when no text is open, nobody else changes the choices, and formatting a batch
 * of embeddings takes long. */
static enum MHD_Result respond_whole(struct http_exchange *x)
{
    size_t len = 0;
    char *text = x->request.api == HTTP_EMBEDDINGS ? http_answer_embeddings(x, &len)
                                                   : http_answer_whole(x, &len);
    return respond_json(x, MHD_HTTP_OK, text, len);
}

/* After the texts have begun, and after each resumption. */
static enum MHD_Result go_on(struct http_exchange *x)
{
    enum { WAIT, STREAM, WHOLE, ERROR, GONE } what = WAIT;
    pthread_mutex_lock(&x->front->lock);
    if (x->gone) {
        what = GONE;
    } else if (x->error.status) {
        what = ERROR;
    } else if (x->request.stream && has_news(x)) {
        what = STREAM;
    } else if (x->open == 0) {
        what = WHOLE;
    } else {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->front->lock);
    switch (what) {
    case STREAM:
        return respond_stream(x);
    case WHOLE:
        return respond_whole(x);
    case ERROR:
        return respond_error(x);
    case GONE:
        return MHD_NO;
    default:
        return MHD_YES;
    }
}

static enum MHD_Result post_texts(struct http_exchange *x)
{
    int rc = http_generation_start(x, x->route->api);
    drop_body(x);
    if (rc)
        return respond_error(x);
    watch(x);
    return go_on(x);
}

static enum MHD_Result post_count(struct http_exchange *x)
{
    size_t len;
    int rc = http_generation_count(x, x->route->api);
    drop_body(x);
    if (rc)
        return respond_error(x);
    char *text = http_answer_count(x, &len);
    return respond_json(x, MHD_HTTP_OK, text, len);
}

/* ---- tokens ---- */

/* And its context. */
static struct http_model *find_model(struct http_exchange *x, const char *name)
{
    pthread_mutex_lock(&x->front->lock);
    struct http_model *m = http_model_find(x->front, name, &x->error);
    x->context = m ? http_model_context(x->front, m) : 0;
    pthread_mutex_unlock(&x->front->lock);
    if (m && !m->vocab) {
        (void)http_error_set(&x->error, 400, "model", NULL,
                             "the model '%s' has no vocabulary: %.300s", m->name, m->no_vocab);
        return NULL;
    }
    return m;
}

static char *tokens_json(uint32_t context, const uint32_t *tokens, uint32_t count, size_t *len)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(tokens[i]));
    json_t *answer = json_pack("{s:o, s:I, s:I}", "tokens", list, "count", (json_int_t)count,
                               "max_model_len", (json_int_t)context);
    return http_json_text(answer, len);
}

static enum MHD_Result post_tokenize(struct http_exchange *x)
{
    struct http_tokenize r;
    uint32_t count, *tokens = NULL;
    size_t len = 0;
    if (http_tokenize_parse(x->body ? x->body : "", x->body_len, false, &r, &x->error))
        return respond_error(x);
    const struct http_model *m = find_model(x, r.model);
    if (m)
        tokens = http_encode(m, r.prompt.text, r.prompt.bytes, r.add_special, &count, &x->error);
    char *text = tokens ? tokens_json(x->context, tokens, count, &len) : NULL;
    free(tokens);
    http_tokenize_fini(&r);
    return x->error.status ? respond_error(x) : respond_json(x, MHD_HTTP_OK, text, len);
}

static char *pieces_json(struct http_exchange *x, const struct http_model *m,
                         const struct http_prompt *prompt, size_t *len)
{
    static const struct http_stops none;
    struct http_text t = {0};
    int rc = 0;
    for (uint32_t i = 0; i < prompt->token_count && rc == 0; i++) {
        size_t bytes;
        if (prompt->tokens[i] >= llm_vocab_size(m->vocab)) {
            (void)http_error_set(&x->error, 400, "tokens", NULL,
                                 "'tokens': token %u is not in the model's vocabulary",
                                 prompt->tokens[i]);
            rc = -EINVAL;
            break;
        }
        const char *piece = llm_vocab_piece(m->vocab, prompt->tokens[i], t.len == 0, &bytes);
        rc = http_text_add(&t, &none, piece, bytes);
    }
    if (rc == 0)
        rc = http_text_end(&t, &none);
    json_t *string = rc == 0 ? json_stringn(t.text ? t.text : "", t.len) : NULL;
    json_t *answer = string ? json_pack("{s:O, s:o}", "prompt", string, "content", string) : NULL;
    http_text_fini(&t);
    return http_json_text(answer, len);
}

static enum MHD_Result post_detokenize(struct http_exchange *x)
{
    struct http_tokenize r;
    size_t len = 0;
    if (http_tokenize_parse(x->body ? x->body : "", x->body_len, true, &r, &x->error))
        return respond_error(x);
    const struct http_model *m = find_model(x, r.model);
    char *text = m ? pieces_json(x, m, &r.prompt, &len) : NULL;
    http_tokenize_fini(&r);
    return x->error.status ? respond_error(x) : respond_json(x, MHD_HTTP_OK, text, len);
}

/* ---- the rest ---- */

static enum MHD_Result get_models(struct http_exchange *x)
{
    size_t len;
    pthread_mutex_lock(&x->front->lock);
    char *text = http_answer_models(x->front, &len);
    pthread_mutex_unlock(&x->front->lock);
    return respond_json(x, MHD_HTTP_OK, text, len);
}

static enum MHD_Result get_model(struct http_exchange *x)
{
    size_t len;
    char *text = NULL;
    pthread_mutex_lock(&x->front->lock);
    const struct http_model *m = http_model_find(x->front, x->rest, &x->error);
    if (m)
        text = http_answer_model(x->front, m, &len);
    pthread_mutex_unlock(&x->front->lock);
    return m ? respond_json(x, MHD_HTTP_OK, text, len) : respond_error(x);
}

static enum MHD_Result get_state(struct http_exchange *x)
{
    size_t len;
    pthread_mutex_lock(&x->front->lock);
    bool map = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "map") != NULL;
    char *text = http_state_json(x->front, map, &len);
    pthread_mutex_unlock(&x->front->lock);
    return respond_json(x, MHD_HTTP_OK, text, len);
}

/* A browser gets the page, a program the text. */
static bool wants_html(struct MHD_Connection *c, const char *url)
{
    const char *accepts = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    return strcmp(url, "/") == 0 && accepts && strstr(accepts, "text/html");
}

static enum MHD_Result respond_page(struct http_exchange *x)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        http_page_html_len, (void *)(uintptr_t)http_page_html, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/html; charset=utf-8");
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; script-src "
                            "'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'");
    MHD_add_response_header(response, "Vary", "Accept");
    return respond(x, MHD_HTTP_OK, response);
}

static enum MHD_Result get_health(struct http_exchange *x)
{
    struct http_front *f = x->front;
    bool up = false;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->worker_count; i++)
        up = up || http_worker_takes_texts(&f->workers[i]);
    const char *why = f->finishing ? http_stops : up ? NULL : "no worker is ready";
    pthread_mutex_unlock(&f->lock);
    if (why)
        return refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, why);
    char *text = strdup("{\"status\":\"ok\"}");
    return respond_json(x, MHD_HTTP_OK, text, text ? strlen(text) : 0);
}

static const struct http_route routes[] = {
    {"/v1/completions", "POST", post_texts, HTTP_COMPLETIONS},
    {"/v1/chat/completions", "POST", post_texts, HTTP_CHAT},
    {"/v1/responses", "POST", post_texts, HTTP_RESPONSES},
    {"/v1/messages", "POST", post_texts, HTTP_MESSAGES},
    {"/v1/messages/count_tokens", "POST", post_count, HTTP_COUNT_TOKENS},
    {"/v1/embeddings", "POST", post_texts, HTTP_EMBEDDINGS},
    {"/v1/models", "GET", get_models, 0},
    {"/v1/models/", "GET", get_model, 0},
    {"/tokenize", "POST", post_tokenize, 0},
    {"/detokenize", "POST", post_detokenize, 0},
    {"/healthz", "GET", get_health, 0},
    {"/health", "GET", get_health, 0}, /* as vLLM's and llama.cpp's */
    {"/state", "GET", get_state, 0},
};

/* ---- requests ---- */

static bool is_method(const char *method, const char *wanted)
{
    return strcmp(method, wanted) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(wanted, "GET") == 0);
}

/* What follows the path in the URL; NULL: it is at another one.  Slashes that are too many, as of a
 * base address that ends with one, are not minded. */
static const char *after(const char *url, const char *path)
{
    for (; *path; path++, url++) {
        if (*url != *path)
            return NULL;
        while (url[0] == '/' && url[1] == '/')
            url++;
    }
    return url;
}

static bool is_at(const char *url, const char *path)
{
    const char *rest = after(url, path);
    bool named = path[strlen(path) - 1] == '/';
    return rest && (named ? *rest != '\0' : !*rest || strspn(rest, "/") == strlen(rest));
}

/* Whether the client may ask.  healthz tells nothing and is asked by load balancers; the page tells
 * nothing and asks for the key. */
static bool allowed(struct http_exchange *x, const char *url)
{
    struct http_front *f = x->front;
    x->key = &f->nobody;
    if (f->config.keys.count == 0 || is_at(url, "/healthz") || is_at(url, "/health") ||
        wants_html(x->connection, url))
        return true;
    const char *sent =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const char *plain = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "x-api-key");
    x->key = http_keys_find(&f->config.keys, sent, plain);
    if (!x->key)
        (void)http_error_set(&x->error, 401, NULL, "invalid_api_key",
                             sent || plain ? "the API key is not known here"
                                           : "an API key is needed: Authorization: Bearer KEY, or "
                                             "x-api-key: KEY");
    return x->key != NULL;
}

static void check_method(struct http_exchange *x, const char *url, const char *method,
                         const char *wanted)
{
    x->allow = strcmp(wanted, "GET") == 0 ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
    if (!is_method(method, wanted) && !x->preflight)
        (void)http_error_set(&x->error, MHD_HTTP_METHOD_NOT_ALLOWED, NULL, NULL,
                             "%.120s takes %s, not %.16s", url, wanted, method);
}

/* The path that a client meant whose base address lacks /v1, or has it twice; NULL: another one. */
static const char *meant(const char *url)
{
    static const char base[] = "/v1";
    const char *best = NULL;
    size_t len = strlen(url), longest = 0;
    while (len && url[len - 1] == '/')
        len--;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        const char *path = routes[i].path;
        if (strncmp(path, base, strlen(base)) != 0)
            continue;
        const char *end = path + strlen(base);
        size_t n = strlen(end);
        if (n > longest && n <= len && strncmp(url + len - n, end, n) == 0) {
            longest = n;
            best = path;
        }
    }
    return best;
}

static void find_route(struct http_exchange *x, const char *url, const char *method)
{
    bool known = false;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!is_at(url, routes[i].path))
            continue;
        known = true;
        x->route = &routes[i];
        snprintf(x->rest, sizeof(x->rest), "%s", after(url, routes[i].path));
        size_t n = strlen(x->rest);
        if (n && x->rest[n - 1] == '/')
            x->rest[n - 1] = '\0';
        check_method(x, url, method, routes[i].method);
    }
    const char *near = known ? NULL : meant(url);
    if (!known)
        (void)http_error_set(&x->error, 404, NULL, NULL,
                             "there is nothing at %.120s%s%s%s; see /v1/models, /v1/completions, "
                             "/v1/chat/completions, /v1/responses, /v1/messages, /v1/embeddings, "
                             "/tokenize, /detokenize, "
                             "/healthz, /state, /metrics, /json and /",
                             url, near ? " (did you mean " : "", near ? near : "",
                             near ? "?)" : "");
}

/* The length that the head promises; 0 where it does not say. */
static uint64_t promised_bytes(struct MHD_Connection *c)
{
    const char *text =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text ? strtoull(text, NULL, 10) : 0;
}

static enum MHD_Result count_value(void *count, enum MHD_ValueKind kind, const char *key,
                                   const char *value)
{
    (void)kind, (void)value;
    *(unsigned *)count += strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    return MHD_YES;
}

/* Refuses a body that is packed, and one of which two programs could see different ends: a proxy
 * before this one might take a part of it for the next request. */
static int check_coding(struct http_exchange *x)
{
    const char *transfer = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND,
                                                       MHD_HTTP_HEADER_TRANSFER_ENCODING);
    const char *content = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND,
                                                      MHD_HTTP_HEADER_CONTENT_ENCODING);
    unsigned lengths = transfer != NULL;
    (void)MHD_get_connection_values(x->connection, MHD_HEADER_KIND, count_value, &lengths);
    if (transfer && strcasecmp(transfer, "chunked") != 0)
        return http_error_set(&x->error, 501, NULL, NULL, "Transfer-Encoding must be chunked");
    if (lengths > 1)
        return http_error_set(&x->error, 400, NULL, NULL, "the head tells two lengths of the body");
    if (content && *content && strcasecmp(content, "identity") != 0)
        return http_error_set(&x->error, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, NULL, NULL,
                              "a body in Content-Encoding %.40s; send it as it is", content);
    return 0;
}

static int take_body(struct http_exchange *x, const char *body, size_t len)
{
    if (x->error.status)
        return 0;
    if (len > HTTP_BODY_BYTES_MAX - x->body_len)
        return http_error_set(&x->error, MHD_HTTP_CONTENT_TOO_LARGE, NULL, NULL,
                              "the body is longer than %d bytes", HTTP_BODY_BYTES_MAX);
    if (!hw_grow(&x->body, &x->body_room, x->body_len + len, 1))
        return http_error_set(&x->error, 503, NULL, NULL, "out of memory");
    size_t more = x->body_room > HTTP_BODY_BYTES_SMALL ? x->body_room - x->body_taken : 0;
    if (more && !http_budget_take(&x->front->bodies, more)) {
        drop_body(x);
        return http_error_set(&x->error, 503, NULL, NULL,
                              "requests that are being read have %d bytes together, which is the "
                              "limit; try again soon",
                              HTTP_BODIES_BYTES_MAX);
    }
    x->body_taken += more;
    memcpy(x->body + x->body_len, body, len);
    x->body_len += len;
    http_clients_expect(&x->front->clients, x->connection, false, x->body_len);
    return 0;
}

/* What the body takes once it is parsed, about: its strings, and what jansson allocates for values
 * of each kind. */
static size_t parsed_bytes(const char *body, size_t len)
{
    enum { OBJECT = 256, ARRAY = 128, STRING = 80, VALUE = 40 };
    size_t bytes = len;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        char c = body[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        if (c == '"' && quoted)
            bytes += STRING;
        else if (!quoted)
            bytes += c == '{' ? OBJECT : c == '[' ? ARRAY : c == ',' || c == ':' ? VALUE : 0;
    }
    return bytes;
}

/* Before it is parsed: a request keeps what it was parsed into until its end. */
static int take_parsed(struct http_exchange *x)
{
    size_t bytes = x->body ? parsed_bytes(x->body, x->body_len) : 0;
    if (bytes <= HTTP_BODY_BYTES_SMALL)
        return 0;
    if (bytes > HTTP_PARSED_BYTES_MAX)
        return http_error_set(&x->error, MHD_HTTP_CONTENT_TOO_LARGE, NULL, NULL,
                              "the body has too many values: they would take %zu bytes, and %d are "
                              "the limit",
                              bytes, HTTP_PARSED_BYTES_MAX);
    if (!http_budget_take(&x->front->parsed, bytes))
        return http_error_set(&x->error, 503, NULL, NULL,
                              "requests that are under way take %d bytes together, which is the "
                              "limit; try again soon",
                              HTTP_PARSED_BYTES_MAX);
    x->parsed_taken = bytes;
    return 0;
}

/* The body is not even read: the connection ends with the answer.  So it does for a client that
 * waits for leave to send a body and is refused anyway. */
static bool refuses_body(struct http_exchange *x)
{
    bool huge = promised_bytes(x->connection) > HTTP_BODY_BYTES_MAX;
    bool waits =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT) != NULL;
    if (huge)
        (void)take_body(x, NULL, (size_t)HTTP_BODY_BYTES_MAX + 1);
    return huge || check_coding(x) || (waits && x->error.status);
}

static enum MHD_Result begin(struct http_front *f, struct MHD_Connection *c, const char *url,
                             const char *method, void **state)
{
    struct http_exchange *x = calloc(1, sizeof(*x));
    if (!x)
        return MHD_NO;
    *x = (struct http_exchange){.front = f, .connection = c, .fd = -1};
    wire_enc_init(&x->out, HTTP_CHUNKS_BYTES_MAX);
    *state = x;
    http_clients_expect(&f->clients, c, true, 0);
    x->preflight = strcmp(method, "OPTIONS") == 0;
    if (http_is_page(url))
        check_method(x, url, method, "GET");
    else
        find_route(x, url, method);
    if (!x->preflight)
        (void)allowed(x, url); /* who may not ask is told nothing else */
    return refuses_body(x) ? respond_error(x) : MHD_YES;
}

/* A proxy names the host, too: http://host/path. */
static const char *path_of(const char *url)
{
    const char *host = url[0] == '/' ? NULL : strstr(url, "://");
    if (!host)
        return url;
    const char *path = strchr(host + 3, '/');
    return path ? path : "/";
}

enum MHD_Result http_exchange_handle(void *front, struct MHD_Connection *c, const char *url,
                                     const char *method, const char *version, const char *body,
                                     size_t *body_len, void **state)
{
    struct http_front *f = front;
    struct http_exchange *x = *state;
    (void)version;
    url = path_of(url);
    if (!x)
        return begin(f, c, url, method, state);
    if (*body_len > 0) {
        (void)take_body(x, body, *body_len);
        *body_len = 0;
        return MHD_YES;
    }
    if (x->started)
        return go_on(x);
    http_clients_busy(&f->clients, c);
    if (x->error.status)
        return respond_error(x);
    if (x->preflight)
        return respond(x, MHD_HTTP_NO_CONTENT,
                       MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
    if (x->route)
        return take_parsed(x) ? respond_error(x) : x->route->handle(x);
    if (wants_html(c, url))
        return respond_page(x);
    return respond(x, MHD_HTTP_OK, http_page(url, http_state_print, f));
}

void http_exchange_completed(void *front, struct MHD_Connection *c, void **state,
                             enum MHD_RequestTerminationCode code)
{
    struct http_front *f = front;
    struct http_exchange *x = *state;
    (void)code;
    *state = NULL;
    if (!x)
        return;
    if (x->fd >= 0)
        (void)epoll_ctl(f->watch, EPOLL_CTL_DEL, x->fd, NULL);
    http_generation_fini(x);
    drop_body(x);
    http_budget_give(&f->parsed, x->parsed_taken);
    free(x);
    http_clients_expect(&f->clients, c, true, 0);
}

/* ---- from other threads, under the lock ---- */

static void end_now(struct http_exchange *x)
{
    http_generation_drop(x);
    if (x->suspended) {
        x->suspended = false;
        MHD_resume_connection(x->connection);
    }
}

void http_exchange_gone(struct http_front *f, uint64_t id)
{
    for (struct http_exchange *x = f->exchanges; x; x = x->next) {
        if (x->id == id) {
            x->gone = true;
            end_now(x);
        }
    }
}

void http_exchanges_end(struct http_front *f)
{
    uint64_t until = hw_after(HTTP_GOODBYE_NS);
    for (struct http_exchange *x = f->exchanges; x; x = x->next) {
        if (x->open > 0 && !x->error.status)
            (void)http_error_set(&x->error, 503, NULL, NULL, "%s", http_stops);
        end_now(x);
    }
    while (f->exchanges && hw_cond_wait(&f->ended, &f->lock, until))
        ;
}
