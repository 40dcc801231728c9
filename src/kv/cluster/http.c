#include "kv/cluster/http.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

void kv_http_init(struct kv_http *h, kv_http_sink_fn *sink, void *user)
{
    assert(sink);
    *h = (struct kv_http){.sink = sink, .user = user};
}

/* ---- lines ---- */

/* "HTTP/1.1 200" and then a space or nothing; 1.0 only differs in what it may leave out. */
static int take_status(struct kv_http *h, const char *line)
{
    static const char version[] = "HTTP/1.";
    const size_t at = sizeof(version) - 1;
    if (strncmp(line, version, at) != 0 || (line[at] != '0' && line[at] != '1') ||
        line[at + 1] != ' ')
        return -EPROTO;
    const char *digits = line + at + 2;
    if (strspn(digits, "0123456789") != 3 || (digits[3] != ' ' && digits[3] != '\0'))
        return -EPROTO;
    h->status = (uint16_t)((digits[0] - '0') * 100 + (digits[1] - '0') * 10 + (digits[2] - '0'));
    if (h->status < 200 || h->status > 599)
        return -EPROTO;
    h->state = KV_HTTP_HEADERS;
    return 0;
}

/* Digits of `base` (10 or 16) up to `end`, which follows them at once. */
static int take_number(const char *text, const char *end, unsigned base, uint64_t *out)
{
    uint64_t value = 0;
    if (text == end || end - text > 15) /* 15 digits of either base are no overflow */
        return -EPROTO;
    for (; text < end; text++) {
        static const char all[] = "0123456789abcdef";
        char lower = (char)(*text | ((*text >= 'A' && *text <= 'F') ? 0x20 : 0));
        const char *digit = memchr(all, lower, base);
        if (!digit)
            return -EPROTO;
        value = value * base + (uint64_t)(digit - all);
    }
    *out = value;
    return 0;
}

static int take_length(struct kv_http *h, const char *value)
{
    if (h->has_length || h->chunked)
        return -EPROTO;
    h->has_length = true;
    return take_number(value, value + strlen(value), 10, &h->left);
}

static int take_coding(struct kv_http *h, const char *value)
{
    if (h->has_length || h->chunked || strcasecmp(value, "chunked") != 0)
        return -EPROTO;
    h->chunked = true;
    return 0;
}

/* Cuts the line into name and value and returns the value, or NULL for what is no header. */
static char *split_header(char *line)
{
    size_t name = strcspn(line, ": \t");
    if (name == 0 || line[name] != ':')
        return NULL;
    line[name] = '\0';
    char *value = line + name + 1;
    value += strspn(value, " \t");
    size_t len = strlen(value);
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        value[--len] = '\0';
    return value;
}

static void begin_body(struct kv_http *h)
{
    bool none = h->status == 204 || h->status == 304;
    h->until_end = !h->chunked && !h->has_length;
    if (none || (h->has_length && h->left == 0))
        h->state = KV_HTTP_DONE;
    else
        h->state = h->chunked ? KV_HTTP_CHUNK_SIZE : KV_HTTP_BODY;
}

static int take_header(struct kv_http *h, char *line)
{
    if (!*line) {
        begin_body(h);
        return 0;
    }
    char *value = split_header(line);
    if (!value || ++h->lines > KV_HTTP_LINES_MAX)
        return -EPROTO;
    if (strcasecmp(line, "content-length") == 0)
        return take_length(h, value);
    if (strcasecmp(line, "transfer-encoding") == 0)
        return take_coding(h, value);
    return 0;
}

static int take_chunk_size(struct kv_http *h, const char *line)
{
    const char *end = line + strcspn(line, "; \t"); /* an extension may follow */
    int rc = take_number(line, end, 16, &h->left);
    if (rc)
        return rc;
    h->lines = 0;
    h->state = h->left ? KV_HTTP_CHUNK : KV_HTTP_TRAILERS;
    return 0;
}

/* Trailers say nothing that matters here. */
static int take_trailer(struct kv_http *h, char *line)
{
    if (!*line)
        h->state = KV_HTTP_DONE;
    else if (!split_header(line) || ++h->lines > KV_HTTP_LINES_MAX)
        return -EPROTO;
    return 0;
}

static int take_line(struct kv_http *h, char *line)
{
    switch (h->state) {
    case KV_HTTP_STATUS:
        return take_status(h, line);
    case KV_HTTP_HEADERS:
        return take_header(h, line);
    case KV_HTTP_CHUNK_SIZE:
        return take_chunk_size(h, line);
    case KV_HTTP_CHUNK_END:
        h->state = KV_HTTP_CHUNK_SIZE;
        return *line ? -EPROTO : 0;
    case KV_HTTP_TRAILERS:
        return take_trailer(h, line);
    default:
        return -EPROTO; /* bytes after the end */
    }
}

/* One byte of a line; the line without its CR LF is taken when it is complete. */
static int feed_line(struct kv_http *h, char byte)
{
    if (byte != '\n') {
        if (h->line_len == sizeof(h->line) || byte == '\0')
            return -EPROTO;
        h->line[h->line_len++] = byte;
        return 0;
    }
    if (h->line_len == 0 || h->line[h->line_len - 1] != '\r')
        return -EPROTO;
    h->line[h->line_len - 1] = '\0';
    h->line_len = 0;
    return take_line(h, h->line);
}

/* ---- the body ---- */

static int feed_body(struct kv_http *h, const char *data, size_t len, size_t *taken)
{
    size_t n = h->until_end || h->left > len ? len : (size_t)h->left;
    int rc = h->sink(h->user, data, n);
    if (rc)
        return rc;
    *taken = n;
    if (h->until_end)
        return 0;
    h->left -= n;
    if (h->left == 0)
        h->state = h->state == KV_HTTP_CHUNK ? KV_HTTP_CHUNK_END : KV_HTTP_DONE;
    return 0;
}

int kv_http_feed(struct kv_http *h, const void *data, size_t len)
{
    const char *at = data;
    while (len > 0 && h->error == 0) {
        size_t taken = 1;
        bool body = h->state == KV_HTTP_BODY || h->state == KV_HTTP_CHUNK;
        if (h->state == KV_HTTP_DONE)
            h->error = -EPROTO;
        else
            h->error = body ? feed_body(h, at, len, &taken) : feed_line(h, *at);
        at += taken;
        len -= taken;
    }
    return h->error;
}

int kv_http_end(struct kv_http *h)
{
    if (h->error)
        return h->error;
    if (h->state == KV_HTTP_BODY && h->until_end)
        h->state = KV_HTTP_DONE;
    if (h->state != KV_HTTP_DONE)
        h->error = -EPROTO;
    return h->error;
}
