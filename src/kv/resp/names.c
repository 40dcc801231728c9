/* names.c - names of values: KEYS, SCAN, FLUSHDB. */
#include "kv/resp/session_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_BYTES_MAX = 64 << 20 }; /* of one KEYS: a connection's memory is bounded */

/* Names that fit a pattern, one after the other: length u32 and bytes. */
struct names {
    const struct resp_arg *pattern; /* NULL: any */
    char *data;
    size_t len, size, count;
    bool full;
};

static void add_name(void *user, const char *name, size_t len)
{
    struct names *n = user;
    uint32_t head = (uint32_t)len;
    if (n->full || (n->pattern && !kv_named_fits(n->pattern->data, n->pattern->len, name, len)))
        return;
    size_t need = n->len + sizeof(head) + len, size = n->size ? n->size : 4096;
    while (size < need)
        size *= 2;
    char *data = n->data;
    if (size != n->size)
        data = size <= NAMES_BYTES_MAX ? realloc(n->data, size) : NULL;
    if (!data) {
        n->full = true;
        return;
    }
    n->data = data;
    n->size = size;
    memcpy(data + n->len, &head, sizeof(head));
    memcpy(data + n->len + sizeof(head), name, len);
    n->len = need;
    n->count++;
}

static void reply_names(struct resp_session *s, const struct names *n)
{
    uint32_t len;
    resp_array(s, n->count);
    for (size_t at = 0; at < n->len; at += sizeof(len) + len) {
        memcpy(&len, n->data + at, sizeof(len));
        resp_bulk(s, n->data + at + sizeof(len), len);
    }
}

/* At least `count` names from the cursor on, if there are so many.  False: told why not. */
static bool find_names(struct resp_session *s, struct names *n, uint64_t *cursor, size_t count)
{
    enum kv_result result;
    do
        result = kv_named_list(resp_client(s), cursor, add_name, n);
    while (result == KV_OK && *cursor && n->count < count && !n->full);
    if (n->full)
        resp_error(s, "OOM too many names: use SCAN");
    else if (result != KV_OK)
        resp_result_error(s, result);
    return result == KV_OK && !n->full;
}

void resp_keys(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct names n = {.pattern = &args[1]};
    uint64_t cursor = 0;
    (void)count;
    if (find_names(s, &n, &cursor, SIZE_MAX))
        reply_names(s, &n);
    free(n.data);
}

struct scan {
    int64_t cursor, count;
    const struct resp_arg *pattern;
    bool strings; /* there are no values of another type */
};

/* False: told why not. */
static bool read_scan(struct resp_session *s, const struct resp_arg *args, uint32_t count,
                      struct scan *out)
{
    struct scan scan = {.count = 10, .strings = true};
    bool number = true, ok = count % 2 == 0;
    if (!resp_number(&args[1], &scan.cursor) || scan.cursor < 0) {
        resp_error(s, "ERR invalid cursor");
        return false;
    }
    for (uint32_t i = 2; i < count && ok && number; i += 2) {
        if (resp_is(&args[i], "MATCH"))
            scan.pattern = &args[i + 1];
        else if (resp_is(&args[i], "COUNT"))
            number = resp_number(&args[i + 1], &scan.count);
        else if (resp_is(&args[i], "TYPE"))
            scan.strings = resp_is(&args[i + 1], "string");
        else
            ok = false;
        ok &= scan.count > 0;
    }
    if (!number)
        resp_not_a_number(s);
    else if (!ok)
        resp_error(s, "ERR syntax error");
    *out = scan;
    return ok && number;
}

void resp_scan(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct scan scan;
    if (!read_scan(s, args, count, &scan))
        return;
    struct names n = {.pattern = scan.pattern};
    uint64_t at = scan.strings ? (uint64_t)scan.cursor : 0;
    if (!scan.strings || find_names(s, &n, &at, (size_t)scan.count)) {
        char text[24];
        snprintf(text, sizeof(text), "%llu", (unsigned long long)at);
        resp_array(s, 2);
        resp_text(s, text);
        reply_names(s, &n);
    }
    free(n.data);
}

/* False: told why not. */
static bool delete_names(struct resp_session *s, const struct names *n)
{
    uint32_t len;
    for (size_t at = 0; at < n->len; at += sizeof(len) + len) {
        memcpy(&len, n->data + at, sizeof(len));
        enum kv_result result = kv_named_delete(resp_client(s), n->data + at + sizeof(len), len);
        if (result != KV_OK && result != KV_MISS) {
            resp_result_error(s, result);
            return false;
        }
    }
    return true;
}

/* The values of its tenant, or those of none; never what workers keep. */
void resp_flush(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct names n = {.pattern = NULL};
    uint64_t cursor = 0;
    bool ok;
    (void)args;
    (void)count;
    if (!s->options.may_flush) {
        resp_error(s, "NOPERM start kvd with --allow-flush, or delete by name");
        return;
    }
    do {
        n.len = n.count = 0;
        ok = find_names(s, &n, &cursor, 1) && delete_names(s, &n);
    } while (ok && cursor);
    if (ok)
        resp_status(s, "OK");
    free(n.data);
}
