#include "kv/resp/session_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    IN_KEPT = 8 << 20,                 /* between requests */
    IN_FIRST = 64 << 10,               /* of the buffer; it grows with a request */
    IN_MAX = KV_NAMED_MAX + (1 << 20), /* a whole request: a value, its name, options */
    IN_MAX_UNKNOWN = 4 << 10,          /* before AUTH */
    SEND_AT_A_TIME = 4 << 20,          /* of a value, between two looks at its lease */
};

/* ---- replies ---- */

static void write_all(struct resp_session *s, const char *data, size_t len)
{
    while (len > 0 && !s->broken) {
        ssize_t n = send(s->options.fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        s->broken = n <= 0; /* also where the peer takes nothing for too long */
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

static void flush(struct resp_session *s)
{
    write_all(s, s->out, s->out_len);
    s->out_len = 0;
}

void resp_send(struct resp_session *s, const void *data, size_t len)
{
    if (len > sizeof(s->out) - s->out_len)
        flush(s);
    if (len > sizeof(s->out)) {
        write_all(s, data, len);
        return;
    }
    memcpy(s->out + s->out_len, data, len);
    s->out_len += len;
}

static void head(struct resp_session *s, char mark, int64_t number)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%c%lld\r\n", mark, (long long)number);
    resp_send(s, text, (size_t)n);
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

void resp_value(struct resp_session *s, struct kv_named *value, uint32_t from, uint32_t len)
{
    head(s, '$', len);
    for (uint32_t at = 0, n; at < len && !s->broken; at += n) {
        n = len - at < SEND_AT_A_TIME ? len - at : SEND_AT_A_TIME;
        uint64_t now = hw_now_ns();
        bool late = now + value->block.lasts_ns / 2 > value->block.expires_ns;
        if (late && kv_block_renew(s->client, &value->block) != KV_OK)
            s->broken = true; /* the bytes may be others by now, and a part is sent */
        else
            resp_send(s, value->data + from + at, n);
        if (hw_now_ns() > value->block.expires_ns)
            s->broken = true;
    }
    resp_send(s, "\r\n", 2);
}

/* ---- requests ---- */

static bool grow(struct resp_session *s, size_t need)
{
    size_t size = s->in_size ? s->in_size : IN_FIRST;
    while (size < need)
        size *= 2;
    if (size == s->in_size)
        return true;
    char *larger = realloc(s->in, size);
    if (!larger)
        return false;
    s->in = larger;
    s->in_size = size;
    return true;
}

/* Reads until there are `need` bytes; false: the connection has ended. */
static bool read_some(struct resp_session *s, size_t need)
{
    if (!grow(s, need)) {
        resp_error(s, "ERR no memory for the request");
        flush(s);
        return false;
    }
    while (s->in_len < need) {
        ssize_t n = recv(s->options.fd, s->in + s->in_len, s->in_size - s->in_len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        s->in_len += (size_t)n;
    }
    return true;
}

/* Executes the complete requests of the buffer; *need: bytes for the next one.  False: the end. */
static bool serve_buffer(struct resp_session *s, size_t *need)
{
    size_t at = 0;
    ptrdiff_t n;
    const char *why = "";
    do {
        size_t max = s->allowed ? IN_MAX : IN_MAX_UNKNOWN;
        n = resp_parse(s->in + at, s->in_len - at, max, &s->request, need, &why);
        if (n > 0 && s->request.count > 0)
            resp_execute(s);
        at += n > 0 ? (size_t)n : 0;
    } while (n > 0 && !s->ends && !s->broken);
    if (n == -EMSGSIZE)
        resp_error(s, "ERR Protocol error: a request of more than %zu bytes",
                   (size_t)(s->allowed ? IN_MAX : IN_MAX_UNKNOWN));
    else if (n < 0)
        resp_error(s, "ERR Protocol error: %s", why);
    s->in_len -= at;
    memmove(s->in, s->in + at, s->in_len);
    flush(s);
    return n >= 0 && !s->ends && !s->broken;
}

void resp_session_run(const struct resp_session_options *options)
{
    struct resp_session *s = calloc(1, sizeof(*s));
    size_t need = 1;
    if (!s)
        return;
    s->options = *options;
    s->allowed = options->open || (!options->password && !options->tenants);
    while (read_some(s, need) && serve_buffer(s, &need))
        if (s->in_len == 0 && s->in_size > IN_KEPT) { /* fresh memory costs page faults */
            free(s->in);
            s->in = NULL;
            s->in_size = 0;
        }
    kv_client_close(s->client);
    free(s->in);
    free(s);
}
