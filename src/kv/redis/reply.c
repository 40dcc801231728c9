#include "kv/redis/reply.h"

#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

void kv_redis_reader_init(struct kv_redis_reader *r, kv_redis_read_fn *read, void *user)
{
    r->read = read;
    r->user = user;
    r->at = r->end = 0;
}

static int fill(struct kv_redis_reader *r)
{
    ssize_t n = r->read(r->user, r->ahead, sizeof r->ahead);
    if (n <= 0)
        return n ? (int)n : -EPROTO;
    assert((size_t)n <= sizeof r->ahead);
    r->at = 0;
    r->end = (size_t)n;
    return 0;
}

/* A line without its end. */
static int read_line(struct kv_redis_reader *r, char line[KV_REDIS_LINE_MAX])
{
    for (size_t n = 0; n < KV_REDIS_LINE_MAX; n++) {
        int rc = r->at == r->end ? fill(r) : 0;
        if (rc)
            return rc;
        line[n] = (char)r->ahead[r->at++];
        if (line[n] == '\n') {
            if (n == 0 || line[n - 1] != '\r')
                return -EPROTO;
            line[n - 1] = '\0';
            return strlen(line) == n - 1 ? 0 : -EPROTO;
        }
    }
    return -EPROTO;
}

static int read_number(const char *text, int64_t most, int64_t *out)
{
    bool negative = text[0] == '-';
    uint64_t n;
    if (hw_parse_u64(text + negative, 0, INT64_MAX, &n))
        return -EPROTO;
    *out = negative ? -(int64_t)n : (int64_t)n;
    return *out <= most ? 0 : -EPROTO;
}

/* A length; -1 is none. */
static int read_length(const char *text, int64_t most, enum kv_redis_kind kind,
                       struct kv_redis_reply *out)
{
    int rc = read_number(text, most, &out->number);
    if (rc || out->number < -1)
        return -EPROTO;
    out->kind = out->number < 0 ? KV_REDIS_NIL : kind;
    return 0;
}

int kv_redis_next(struct kv_redis_reader *r, struct kv_redis_reply *out)
{
    char line[KV_REDIS_LINE_MAX];
    int rc = read_line(r, line);
    if (rc)
        return rc;
    out->number = 0;
    out->text[0] = '\0';
    switch (line[0]) {
    case '+':
    case '-':
        out->kind = line[0] == '+' ? KV_REDIS_STATUS : KV_REDIS_ERROR;
        memcpy(out->text, line + 1, strlen(line));
        return 0;
    case ':':
        out->kind = KV_REDIS_INTEGER;
        return read_number(line + 1, INT64_MAX, &out->number);
    case '$':
        return read_length(line + 1, KV_REDIS_BULK_MAX, KV_REDIS_BULK, out);
    case '*':
        return read_length(line + 1, KV_REDIS_ARRAY_MAX, KV_REDIS_ARRAY, out);
    default:
        return -EPROTO;
    }
}

int kv_redis_bulk(struct kv_redis_reader *r, void *to, size_t len, bool last)
{
    uint8_t *at = to;
    char end[2];
    size_t ready = r->end - r->at < len ? r->end - r->at : len;
    memcpy(at, r->ahead + r->at, ready);
    r->at += ready;
    for (size_t done = ready; done < len;) {
        ssize_t n = r->read(r->user, at + done, len - done);
        if (n <= 0)
            return n ? (int)n : -EPROTO;
        done += (size_t)n;
    }
    for (size_t i = 0; i < sizeof end && last; i++) {
        int rc = r->at == r->end ? fill(r) : 0;
        if (rc)
            return rc;
        end[i] = (char)r->ahead[r->at++];
    }
    return last && memcmp(end, "\r\n", 2) != 0 ? -EPROTO : 0;
}

static int skip_bulk(struct kv_redis_reader *r, int64_t len)
{
    uint8_t some[512];
    do {
        size_t n = (size_t)len < sizeof some ? (size_t)len : sizeof some;
        len -= (int64_t)n;
        int rc = kv_redis_bulk(r, some, n, len == 0);
        if (rc)
            return rc;
    } while (len > 0);
    return 0;
}

int kv_redis_skip(struct kv_redis_reader *r, const struct kv_redis_reply *head)
{
    int64_t left[KV_REDIS_DEPTH_MAX] = {1};
    struct kv_redis_reply reply = *head;
    for (unsigned depth = 0;;) {
        int rc = 0;
        left[depth]--;
        if (reply.kind == KV_REDIS_BULK)
            rc = skip_bulk(r, reply.number);
        else if (reply.kind == KV_REDIS_ARRAY && depth + 1 == KV_REDIS_DEPTH_MAX)
            rc = -EPROTO;
        else if (reply.kind == KV_REDIS_ARRAY)
            left[++depth] = reply.number;
        while (depth > 0 && left[depth] == 0)
            depth--;
        if (rc || left[depth] == 0)
            return rc;
        rc = kv_redis_next(r, &reply);
        if (rc)
            return rc;
    }
}

/* ---- slots ---- */

static int next_is(struct kv_redis_reader *r, enum kv_redis_kind kind, int64_t least, int64_t most,
                   struct kv_redis_reply *out)
{
    int rc = kv_redis_next(r, out);
    if (rc)
        return rc;
    return out->kind == kind && out->number >= least && out->number <= most ? 0 : -EPROTO;
}

/* The address of a node: a name, a port, and more that we do not need. */
static int read_node(struct kv_redis_reader *r, struct kv_redis_range *range)
{
    struct kv_redis_reply node, part;
    int rc = next_is(r, KV_REDIS_ARRAY, 2, KV_REDIS_ARRAY_MAX, &node);
    if (rc == 0)
        rc = kv_redis_next(r, &part);
    range->host[0] = '\0';
    if (rc == 0 && part.kind == KV_REDIS_BULK && part.number < (int64_t)sizeof range->host) {
        rc = kv_redis_bulk(r, range->host, (size_t)part.number, true);
        range->host[part.number] = '\0';
        if (rc == 0 && strlen(range->host) != (size_t)part.number)
            rc = -EPROTO;
    } else if (rc == 0 && part.kind != KV_REDIS_NIL) {
        rc = -EPROTO;
    }
    if (rc == 0)
        rc = next_is(r, KV_REDIS_INTEGER, 1, UINT16_MAX, &part);
    range->port = rc ? 0 : (uint16_t)part.number;
    for (int64_t i = 2; i < node.number && rc == 0; i++) {
        rc = kv_redis_next(r, &part);
        rc = rc ? rc : kv_redis_skip(r, &part);
    }
    return rc;
}

static int read_range(struct kv_redis_reader *r, struct kv_redis_range *out)
{
    struct kv_redis_reply whole, part;
    int rc = next_is(r, KV_REDIS_ARRAY, 3, KV_REDIS_ARRAY_MAX, &whole);
    if (rc == 0)
        rc = next_is(r, KV_REDIS_INTEGER, 0, KV_REDIS_SLOTS - 1, &part);
    out->first = rc ? 0 : (uint16_t)part.number;
    if (rc == 0)
        rc = next_is(r, KV_REDIS_INTEGER, out->first, KV_REDIS_SLOTS - 1, &part);
    out->last = rc ? 0 : (uint16_t)part.number;
    if (rc == 0)
        rc = read_node(r, out);
    for (int64_t i = 3; i < whole.number && rc == 0; i++) { /* replicas */
        rc = kv_redis_next(r, &part);
        rc = rc ? rc : kv_redis_skip(r, &part);
    }
    return rc;
}

int kv_redis_ranges(struct kv_redis_reader *r, kv_redis_range_fn *each, void *user)
{
    struct kv_redis_reply all;
    int rc = kv_redis_next(r, &all);
    if (rc == 0 && all.kind == KV_REDIS_ERROR) /* else NOAUTH, NOPERM */
        return strncmp(all.text, "ERR ", 4) == 0 ? -EOPNOTSUPP : -EACCES;
    if (rc == 0 && all.kind != KV_REDIS_ARRAY)
        return -EPROTO;
    for (int64_t i = 0; i < all.number && rc == 0; i++) {
        struct kv_redis_range range;
        rc = read_range(r, &range);
        rc = rc ? rc : each(user, &range);
    }
    return rc;
}

int kv_redis_redirect(const char *text, struct kv_redis_range *out)
{
    uint64_t slot, port;
    const char *number = strchr(text, ' ');
    const char *host = number ? strchr(number + 1, ' ') : NULL;
    const char *colon = host ? strrchr(host, ':') : NULL;
    char digits[8];
    if (!colon || host - number > (ptrdiff_t)sizeof digits ||
        colon - host > (ptrdiff_t)sizeof out->host)
        return -EPROTO;
    memcpy(digits, number + 1, (size_t)(host - number - 1));
    digits[host - number - 1] = '\0';
    if (hw_parse_u64(digits, 0, KV_REDIS_SLOTS - 1, &slot) ||
        hw_parse_u64(colon + 1, 1, UINT16_MAX, &port))
        return -EPROTO;
    out->first = out->last = (uint16_t)slot;
    out->port = (uint16_t)port;
    memcpy(out->host, host + 1, (size_t)(colon - host - 1));
    out->host[colon - host - 1] = '\0';
    return 0;
}

uint16_t kv_redis_slot(const void *key, size_t len)
{
    const uint8_t *bytes = key;
    uint32_t crc = 0; /* CRC-16/XMODEM */
    for (size_t i = 0; i < len; i++) {
        crc ^= (uint32_t)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
    }
    return (uint16_t)(crc & (KV_REDIS_SLOTS - 1));
}
