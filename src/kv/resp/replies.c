/* replies.c - what goes to the peer: short replies are copied together, values stay in the arena
 * and are sent from there with the replies around them. */
#include "kv/resp/session_impl.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    OUT_FIRST = 16 << 10, /* of the buffer */
    OUT_KEPT = 1 << 20,   /* of it, between replies */
    PART_MIN = 4 << 10,   /* shorter values are copied: that costs less than a lease */
    VECTORS = 2 * RESP_PARTS_MAX + 1,
    SEND_LIMIT_MS = 30000 /* a peer that takes nothing for so long is gone */
};

bool resp_grow(char **data, size_t *size, size_t need, size_t first)
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

/* ---- sending ---- */

/* What is left to send. */
struct rest {
    struct iovec vectors[VECTORS];
    int first, count;
    size_t bytes;
};

static void rest_add(struct rest *r, const void *data, size_t len)
{
    assert(r->count < VECTORS);
    if (len > 0)
        r->vectors[r->count++] = (struct iovec){(void *)(uintptr_t)data, len};
    r->bytes += len;
}

static void rest_of(const struct resp_session *s, struct rest *r)
{
    size_t at = 0;
    r->first = r->count = 0;
    r->bytes = 0;
    for (uint32_t i = 0; i < s->part_count; i++) {
        rest_add(r, s->out + at, s->parts[i].at - at);
        rest_add(r, s->parts[i].data, s->parts[i].len);
        at = s->parts[i].at;
    }
    rest_add(r, s->out + at, s->out_len - at);
}

static void rest_sent(struct rest *r, size_t sent)
{
    r->bytes -= sent;
    r->first += rpc_iov_advance(&r->vectors[r->first], r->count - r->first, sent);
}

/* The bytes of the parts are sent or copied.  Those of another process are right if their lease has
 * not ended by now. */
static void let_parts_go(struct resp_session *s)
{
    for (uint32_t i = 0; i < s->part_count; i++) {
        struct resp_value *v = &s->parts[i].value;
        bool leased = v->named.data != NULL;
        s->broken |= leased && !v->host && hw_now_ns() > v->named.block.expires_ns;
        if (leased)
            resp_let_go(s, v);
    }
    resp_leave(s);
    s->part_count = 0;
    s->part_bytes = 0;
}

/* Copies the rest, so that no block is kept for it. */
static void keep_rest(struct resp_session *s, struct rest *r)
{
    size_t size = 0, len = 0;
    char *copy = NULL;
    if (resp_grow(&copy, &size, r->bytes, OUT_FIRST)) {
        for (int i = r->first; i < r->count; len += r->vectors[i++].iov_len)
            memcpy(copy + len, r->vectors[i].iov_base, r->vectors[i].iov_len);
        free(s->out);
        s->out = copy;
        s->out_size = size;
        s->out_len = len;
    }
    s->broken |= !copy;
    let_parts_go(s);
    if (copy)
        rest_of(s, r);
}

/* Until the peer takes more.  False: it does not.  It may keep blocks until half of the first lease
 * has passed; then their bytes are copied. */
static bool await_peer(struct resp_session *s, struct rest *r)
{
    uint64_t now = hw_now_ns();
    bool holds = s->part_count > 0;
    if (holds && now >= s->copy_at_ns) {
        keep_rest(s, r);
        return !s->broken;
    }
    int wait_ms = holds ? (int)((s->copy_at_ns - now) / HW_MS) + 1 : SEND_LIMIT_MS;
    struct rpc_transport *t = s->options.transport;
    struct pollfd look = {.fd = s->options.fd, .events = POLLOUT};
    int n = t ? t->ops->wait(t, RPC_WAIT_SEND, (uint64_t)wait_ms * HW_MS) == 0
              : poll(&look, 1, wait_ms);
    return n > 0 || holds || (n < 0 && errno == EINTR);
}

/* As sendmsg, without waiting. */
static ssize_t send_some(struct resp_session *s, struct iovec *from, uint32_t count)
{
    struct rpc_transport *t = s->options.transport;
    struct msghdr message = {.msg_iov = from, .msg_iovlen = count};
    if (!t)
        return count == 1
                   ? send(s->options.fd, from->iov_base, from->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                   : sendmsg(s->options.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    ssize_t n = t->ops->send(t, from, count < RPC_IOV_MAX ? (int)count : RPC_IOV_MAX);
    errno = n < 0 ? (int)-n : 0;
    return n < 0 ? -1 : n;
}

void resp_flush_out(struct resp_session *s)
{
    struct rest r;
    if (s->out_len == 0 && s->part_count == 0)
        return;
    rest_of(s, &r);
    resp_leave(s);
    while (r.bytes > 0 && !s->broken && !s->must_wait) {
        ssize_t n = send_some(s, r.vectors + r.first, r.count - r.first);
        if (n > 0)
            rest_sent(&r, (size_t)n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            s->broken = true;
        else if (errno == EAGAIN && s->may_wait)
            s->broken |= !await_peer(s, &r);
        else
            s->must_wait = errno == EAGAIN;
    }
    if (s->must_wait)
        keep_rest(s, &r);
    else
        s->out_len = 0;
    if (s->out_len == 0 && s->out_size > OUT_KEPT) {
        free(s->out);
        s->out = NULL;
        s->out_size = 0;
    }
    let_parts_go(s);
}

bool resp_is_full(const struct resp_session *s)
{
    return s->part_count == RESP_PARTS_MAX || s->out_len + s->part_bytes >= RESP_GATHER_BYTES;
}

static void add_part(struct resp_session *s, const void *data, size_t len,
                     const struct resp_value *value)
{
    assert(s->part_count < RESP_PARTS_MAX);
    struct resp_part *part = &s->parts[s->part_count++];
    *part = (struct resp_part){.at = s->out_len, .len = len, .data = data};
    if (value)
        part->value = *value;
    const struct kv_block_ref *block = &part->value.named.block;
    uint64_t copy_at_ns =
        value ? block->expires_ns - block->lasts_ns / 2 : hw_now_ns() + KV_LEASE_LASTS_NS / 2;
    if (s->part_count == 1 || copy_at_ns < s->copy_at_ns)
        s->copy_at_ns = copy_at_ns;
    s->part_bytes += len;
}

/* ---- replies ---- */

static void copy_out(struct resp_session *s, const void *data, size_t len)
{
    if (!resp_grow(&s->out, &s->out_size, s->out_len + len, OUT_FIRST)) {
        s->broken = true;
        return;
    }
    memcpy(s->out + s->out_len, data, len);
    s->out_len += len;
}

static void put(struct resp_session *s, const void *data, size_t len)
{
    if (!s->may_wait || s->out_len + len <= RESP_GATHER_BYTES) {
        copy_out(s, data, len);
        return;
    }
    if (s->part_count == RESP_PARTS_MAX)
        resp_flush_out(s);
    add_part(s, data, len, NULL);
    resp_flush_out(s);
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
    put(s, at, (size_t)(text + sizeof(text) - at));
}

void resp_status(struct resp_session *s, const char *text)
{
    put(s, "+", 1);
    put(s, text, strlen(text));
    put(s, "\r\n", 2);
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
    put(s, "-", 1);
    put(s, text, strlen(text));
    put(s, "\r\n", 2);
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
    put(s, data, len);
    put(s, "\r\n", 2);
}

void resp_text(struct resp_session *s, const char *text)
{
    resp_bulk(s, text, strlen(text));
}

void resp_null(struct resp_session *s)
{
    put(s, s->resp3 ? "_\r\n" : "$-1\r\n", s->resp3 ? 3 : 5);
}

void resp_send_value(struct resp_session *s, struct resp_value *value, uint32_t from, uint32_t len)
{
    const uint8_t *data = value->named.data + from;
    const struct kv_block_ref *block = &value->named.block;
    head(s, '$', len);
    if (len < PART_MIN) {
        copy_out(s, data, len);
        s->broken |=
            !value->host && hw_now_ns() >= block->expires_ns; /* the head may have waited */
        resp_let_go(s, value);
    } else {
        add_part(s, data, len, value);
        if (!value->host)
            resp_flush_out(s); /* its lease ends: without it the reply must have no end either */
    }
    put(s, "\r\n", 2);
}
