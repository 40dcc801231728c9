#include "kv/resp/session_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    IN_KEPT = 8 << 20,                 /* between requests: fresh memory costs page faults */
    IN_FIRST = 64 << 10,               /* of the buffer; it grows with a request */
    IN_MAX = KV_NAMED_MAX + (1 << 20), /* a whole request: a value, its name, options */
    IN_MAX_UNKNOWN = 4 << 10,          /* before AUTH */
    SEND_AT_A_TIME = 4 << 20,          /* of a value, between two looks at its lease */
    TURN_MAX = 256 << 10,              /* a request that is served in the loop */
};

/* ---- replies ---- */

/* Takes what was sent off the front of the parts. */
static void take_sent(struct iovec parts[2], size_t sent)
{
    for (int i = 0; i < 2 && sent > 0; i++) {
        size_t n = sent < parts[i].iov_len ? sent : parts[i].iov_len;
        parts[i].iov_base = (char *)parts[i].iov_base + n;
        parts[i].iov_len -= n;
        sent -= n;
    }
}

/* Sends the replies and then `data`; waits where the session may. */
static void send_all(struct resp_session *s, const void *data, size_t len)
{
    struct iovec parts[2] = {{s->out, s->out_len}, {(void *)(uintptr_t)data, len}};
    resp_leave(s);
    assert(len == 0 || s->may_wait);
    while (parts[0].iov_len + parts[1].iov_len > 0 && !s->broken && !s->must_wait) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t n =
            sendmsg(s->options.fd, &message, MSG_NOSIGNAL | (s->may_wait ? 0 : MSG_DONTWAIT));
        s->must_wait = n < 0 && errno == EAGAIN && !s->may_wait;
        s->broken = n == 0 || /* also where the peer takes nothing for too long */
                    (n < 0 && errno != EINTR && !s->must_wait);
        if (n > 0)
            take_sent(parts, (size_t)n);
    }
    if (s->must_wait)
        memmove(s->out, parts[0].iov_base, parts[0].iov_len);
    s->out_len = s->must_wait ? parts[0].iov_len : 0;
}

static void flush(struct resp_session *s)
{
    if (s->out_len > 0)
        send_all(s, NULL, 0);
}

static bool grow(char **data, size_t *size, size_t need, size_t first)
{
    size_t larger = *size ? *size : first;
    while (larger < need)
        larger *= 2;
    if (larger == *size)
        return true;
    char *moved = realloc(*data, larger);
    if (!moved)
        return false;
    *data = moved;
    *size = larger;
    return true;
}

void resp_send(struct resp_session *s, const void *data, size_t len)
{
    if (s->may_wait && s->out_len + len > RESP_OUT_BYTES) {
        send_all(s, data, len);
        return;
    }
    if (!grow(&s->out, &s->out_size, s->out_len + len, RESP_OUT_BYTES)) {
        s->broken = true;
        return;
    }
    memcpy(s->out + s->out_len, data, len);
    s->out_len += len;
}

static void head(struct resp_session *s, char mark, int64_t number)
{
    char text[24], *at = text + sizeof(text);
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    *--at = '\n';
    *--at = '\r';
    do
        *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        *--at = '-';
    *--at = mark;
    resp_send(s, at, (size_t)(text + sizeof(text) - at));
}

void resp_status(struct resp_session *s, const char *text)
{
    resp_send(s, "+", 1);
    resp_send(s, text, strlen(text));
    resp_send(s, "\r\n", 2);
}

void resp_error(struct resp_session *s, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (char *c = text; *c; c++) /* it may quote the request */
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    resp_send(s, "-", 1);
    resp_send(s, text, strlen(text));
    resp_send(s, "\r\n", 2);
}

void resp_integer(struct resp_session *s, int64_t value)
{
    head(s, ':', value);
}

void resp_array(struct resp_session *s, size_t count)
{
    head(s, '*', (int64_t)count);
}

void resp_map(struct resp_session *s, size_t pairs)
{
    head(s, s->resp3 ? '%' : '*', (int64_t)(s->resp3 ? pairs : 2 * pairs));
}

void resp_bulk(struct resp_session *s, const void *data, size_t len)
{
    head(s, '$', (int64_t)len);
    resp_send(s, data, len);
    resp_send(s, "\r\n", 2);
}

void resp_text(struct resp_session *s, const char *text)
{
    resp_bulk(s, text, strlen(text));
}

void resp_null(struct resp_session *s)
{
    resp_send(s, s->resp3 ? "_\r\n" : "$-1\r\n", s->resp3 ? 3 : 5);
}

static enum kv_result renew(struct resp_session *s, struct resp_value *v)
{
    return v->host ? resp_local_renew(s, v) : kv_block_renew(resp_client(s), &v->named.block);
}

void resp_send_value(struct resp_session *s, struct resp_value *value, uint32_t from, uint32_t len)
{
    struct kv_block_ref *block = &value->named.block;
    const uint8_t *data = value->named.data + from;
    if (!s->may_wait) { /* copied before the lease can end */
        resp_bulk(s, data, len);
        return;
    }
    head(s, '$', len);
    for (uint32_t at = 0, n; at < len && !s->broken; at += n) {
        n = len - at < SEND_AT_A_TIME ? len - at : SEND_AT_A_TIME;
        bool late = hw_now_ns() + block->lasts_ns / 2 > block->expires_ns;
        if (late && renew(s, value) != KV_OK)
            s->broken = true; /* the bytes may be others by now, and a part is sent */
        else
            resp_send(s, data + at, n);
        if (hw_now_ns() > block->expires_ns)
            s->broken = true;
    }
    resp_send(s, "\r\n", 2);
}

/* ---- requests ---- */

static size_t request_max(const struct resp_session *s)
{
    return s->allowed ? IN_MAX : IN_MAX_UNKNOWN;
}

/* Serves the complete requests of the buffer.  False: the end. */
static bool serve_buffer(struct resp_session *s)
{
    ptrdiff_t n;
    const char *why = "";
    do {
        n = resp_parse(s->in + s->in_at, s->in_len - s->in_at, request_max(s), &s->request,
                       &s->need, &why);
        if (n > 0 && s->request.count > 0)
            resp_execute(s);
        if (s->must_wait)
            break;
        s->in_at += n > 0 ? (size_t)n : 0;
        if (s->out_len >= RESP_OUT_BYTES)
            flush(s);
    } while (n > 0 && !s->ends && !s->broken && !s->must_wait);
    if (n == -EMSGSIZE)
        resp_error(s, "ERR Protocol error: a request of more than %zu bytes", request_max(s));
    else if (n < 0)
        resp_error(s, "ERR Protocol error: %s", why);
    s->ends |= n < 0;
    resp_leave(s);
    if (!s->must_wait)
        flush(s);
    if (s->must_wait)
        s->need = 1; /* the thread looks at what is there first */
    return !s->broken && (!s->ends || s->must_wait);
}

/* Room for the rest of the next request. */
static bool make_room(struct resp_session *s)
{
    size_t left = s->in_len - s->in_at;
    if (left == 0 && s->in_size > IN_KEPT && s->need <= IN_KEPT) {
        free(s->in);
        s->in = NULL;
        s->in_size = 0;
    }
    if (left == 0 || s->in_size - s->in_at < s->need || s->in_size - s->in_len < IN_FIRST / 4) {
        if (left > 0)
            memmove(s->in, s->in + s->in_at, left);
        s->in_at = 0;
        s->in_len = left;
    }
    if (grow(&s->in, &s->in_size, s->need, IN_FIRST))
        return true;
    resp_error(s, "ERR no memory for the request");
    flush(s);
    return false;
}

/* One read.  As recv. */
static ssize_t read_some(struct resp_session *s, int flags)
{
    ssize_t n;
    do
        n = recv(s->options.fd, s->in + s->in_len, s->in_size - s->in_len, flags);
    while (n < 0 && errno == EINTR);
    s->in_len += n > 0 ? (size_t)n : 0;
    return n;
}

static bool is_short(const struct resp_session *s)
{
    return s->in_len - s->in_at < s->need;
}

enum resp_turn resp_session_turn(struct resp_session *s)
{
    assert(!s->may_wait && !s->must_wait);
    if (!make_room(s))
        return RESP_TURN_END;
    ssize_t n = read_some(s, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return RESP_TURN_MORE;
    if (n <= 0)
        return RESP_TURN_END;
    if (!is_short(s) && !serve_buffer(s))
        return RESP_TURN_END;
    return s->must_wait || s->need > TURN_MAX ? RESP_TURN_WAIT : RESP_TURN_MORE;
}

void resp_session_run(struct resp_session *s)
{
    s->may_wait = true;
    s->must_wait = false;
    flush(s);
    while (!s->broken && !s->ends && (is_short(s) || serve_buffer(s)))
        do
            if (!make_room(s) || read_some(s, 0) <= 0)
                return;
        while (is_short(s));
}

struct resp_session *resp_session_create(const struct resp_session_options *options)
{
    struct resp_session *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->options = *options;
    s->allowed = options->open || (!options->password && !options->tenants);
    s->need = 1;
    s->hash = kv_named_hash_create(); /* without it every request goes to the client */
    for (uint32_t i = 0; i < KV_DAEMONS_MAX; i++)
        s->holders[i] = (struct kv_block_holder)KV_BLOCK_HOLDER_INIT;
    return s;
}

void resp_session_destroy(struct resp_session *s)
{
    if (!s)
        return;
    resp_local_fini(s);
    kv_client_close(s->client);
    kv_named_hash_destroy(s->hash);
    free(s->out);
    free(s->in);
    free(s);
}
