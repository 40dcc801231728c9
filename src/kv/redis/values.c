#include "kv/redis/values.h"

#include "base/units.h"
#include "kv/redis/conn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 20,     /* of a value: each has the whole timeout */
    LIST_COUNT = 512,    /* names that are asked for at once */
    INFO_MAX = 64 << 10, /* Redis' own has some 6 KiB */
    NUMBER_CHARS = 24
};

struct kv_values {
    struct kv_redis_conn *conn;
    bool tls;
    int lost; /* 0, or why the connection is of no more use */
    char why[RPC_WHY_CHARS];
    char name[KV_NAMED_NAME_MAX];
};

static int fail(struct kv_values *v, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct kv_values *v, int rc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(v->why, sizeof v->why, format, args);
    va_end(args);
    return rc;
}

static int lose(struct kv_values *v, int rc)
{
    v->lost = rc;
    if (rc == -EPROTO && !v->tls)
        return fail(v, rc, "it does not answer as Redis does; where it speaks TLS, use tls:");
    return fail(v, rc, "the connection is lost: %.120s; is \"hawser kvd --resp\" there%s",
                kv_redis_cause(v->conn, rc), v->tls ? "?" : "? Where it speaks TLS, use tls:");
}

/* What an error of the server means. */
static int refused(struct kv_values *v, const char *text)
{
    static const struct {
        const char *begin, *remedy;
        int rc;
    } errors[] = {
        {"NOAUTH", "it wants a token: give --token-file", -EACCES},
        {"NOPERM", "it does not allow that", -EPERM},
        {"OOM", "it has no room that can be made by eviction: give kvd more --blocks", -ENOSPC},
        {"TRYAGAIN", "try again", -EAGAIN},
        {"NOREPLICAS", "try again when more members are up", -EAGAIN},
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (strncmp(text, errors[i].begin, strlen(errors[i].begin)) == 0)
            return fail(v, errors[i].rc, "%s (%.150s)", errors[i].remedy, text);
    return fail(v, -EIO, "it answers %.200s", text);
}

/* The next answer, which must be of that kind, or NIL where `nil`. */
static int answer(struct kv_values *v, enum kv_redis_kind kind, bool nil,
                  struct kv_redis_reply *reply)
{
    int rc = kv_redis_next(&v->conn->reader, reply);
    if (rc)
        return lose(v, rc);
    if (reply->kind == KV_REDIS_ERROR)
        return refused(v, reply->text);
    return reply->kind == kind || (nil && reply->kind == KV_REDIS_NIL) ? 0 : lose(v, -EPROTO);
}

static int ask(struct kv_values *v, const struct kv_redis_arg *args, unsigned count,
               enum kv_redis_kind kind, bool nil, struct kv_redis_reply *reply)
{
    int rc = v->lost ? v->lost : kv_redis_ask(v->conn, args, count);
    return rc ? lose(v, rc) : answer(v, kind, nil, reply);
}

static int check_name(struct kv_values *v, size_t len)
{
    return len <= KV_NAMED_NAME_MAX
               ? 0
               : fail(v, -EFBIG, "a name has at most %d bytes", KV_NAMED_NAME_MAX);
}

/* ---- one value ---- */

static int write_value(struct kv_values *v, const struct kv_named_set *set)
{
    char begin[48], middle[32], end[80];
    uint64_t now = kv_named_now_ms();
    int begin_len = snprintf(begin, sizeof begin, "*%d\r\n$3\r\nSET\r\n$%zu\r\n",
                             3 + set->only_new + 2 * (set->end_ms != 0), set->name_len);
    int middle_len = snprintf(middle, sizeof middle, "\r\n$%u\r\n", set->len);
    int end_len = snprintf(end, sizeof end, "\r\n%s", set->only_new ? "$2\r\nNX\r\n" : "");
    if (set->end_ms) { /* how long: the hosts' clocks may differ */
        char left[NUMBER_CHARS];
        int n = snprintf(left, sizeof left, "%llu",
                         (unsigned long long)(set->end_ms > now ? set->end_ms - now : 1));
        end_len += snprintf(end + end_len, sizeof end - (size_t)end_len,
                            "$2\r\nPX\r\n$%d\r\n%s\r\n", n, left);
    }
    struct iovec head[] = {{begin, (size_t)begin_len},
                           {(void *)(uintptr_t)set->name, set->name_len},
                           {middle, (size_t)middle_len}};
    int rc = kv_redis_write(v->conn, head, 3);
    for (uint32_t at = 0, n; at < set->len && rc == 0; at += n) {
        n = set->len - at < PIECE ? set->len - at : PIECE;
        struct iovec piece = {(char *)(uintptr_t)set->value + at, n};
        rc = kv_redis_write(v->conn, &piece, 1);
    }
    struct iovec tail = {end, (size_t)end_len};
    return rc ? rc : kv_redis_write(v->conn, &tail, 1);
}

int kv_values_set(struct kv_values *v, const struct kv_named_set *set)
{
    struct kv_redis_reply reply;
    int rc = check_name(v, set->name_len);
    if (rc == 0 && set->len > KV_NAMED_MAX)
        rc = fail(v, -EFBIG, "a value has at most %d bytes", KV_NAMED_MAX);
    if (rc)
        return rc;
    rc = v->lost ? v->lost : write_value(v, set);
    rc = rc ? lose(v, rc) : answer(v, KV_REDIS_STATUS, set->only_new, &reply);
    return rc == 0 && reply.kind == KV_REDIS_NIL ? -EEXIST : rc;
}

/* The bytes of a bulk, in pieces. */
static int read_value(struct kv_values *v, uint8_t *to, size_t len)
{
    size_t at = 0;
    int rc;
    do {
        size_t n = len - at < PIECE ? len - at : PIECE;
        kv_redis_extend(v->conn);
        rc = kv_redis_bulk(&v->conn->reader, to + at, n, at + n == len);
        at += n;
    } while (at < len && rc == 0);
    return rc ? lose(v, rc) : 0;
}

int kv_values_get(struct kv_values *v, const char *name, size_t name_len, uint8_t **data,
                  uint32_t *len)
{
    const struct kv_redis_arg args[] = {{"GET", 3}, {name, name_len}};
    struct kv_redis_reply reply;
    int rc = ask(v, args, 2, KV_REDIS_BULK, true, &reply);
    if (rc || reply.kind == KV_REDIS_NIL)
        return rc ? rc : -ENOENT;
    size_t bytes = (size_t)reply.number; /* at most KV_REDIS_BULK_MAX */
    uint8_t *value = malloc(bytes ? bytes : 1);
    if (!value) {
        v->lost = -ENOMEM;
        return fail(v, -ENOMEM, "no memory for a value of %zu bytes", bytes);
    }
    rc = read_value(v, value, bytes);
    if (rc) {
        free(value);
        return rc;
    }
    *data = value;
    *len = (uint32_t)bytes;
    return 0;
}

static int ask_number(struct kv_values *v, const char *verb, const char *name, size_t name_len,
                      int64_t *out)
{
    const struct kv_redis_arg args[] = {{verb, strlen(verb)}, {name, name_len}};
    struct kv_redis_reply reply;
    int rc = ask(v, args, 2, KV_REDIS_INTEGER, false, &reply);
    if (rc == 0)
        *out = reply.number;
    return rc;
}

int kv_values_length(struct kv_values *v, const char *name, size_t name_len, uint32_t *len)
{
    int64_t there, bytes;
    int rc = ask_number(v, "EXISTS", name, name_len, &there);
    if (rc == 0 && there == 0)
        return -ENOENT;
    if (rc == 0)
        rc = ask_number(v, "STRLEN", name, name_len, &bytes);
    if (rc == 0)
        *len = (uint32_t)bytes;
    return rc;
}

int kv_values_delete(struct kv_values *v, const char *name, size_t name_len)
{
    int64_t gone;
    int rc = ask_number(v, "DEL", name, name_len, &gone);
    return rc == 0 && gone == 0 ? -ENOENT : rc;
}

/* ---- names ---- */

/* A bulk of at most `max` bytes. */
static int read_text(struct kv_values *v, char *to, size_t max, size_t *len)
{
    struct kv_redis_reply reply;
    int rc = answer(v, KV_REDIS_BULK, false, &reply);
    if (rc == 0 && (size_t)reply.number > max)
        rc = lose(v, -EPROTO);
    if (rc == 0)
        rc = read_value(v, (uint8_t *)to, *len = (size_t)reply.number);
    return rc;
}

/* The head of an array. */
static int read_array(struct kv_values *v, int64_t *count)
{
    struct kv_redis_reply reply;
    int rc = answer(v, KV_REDIS_ARRAY, false, &reply);
    *count = rc ? 0 : reply.number;
    return rc;
}

int kv_values_list(struct kv_values *v, const char *pattern, uint64_t *cursor, kv_named_each *each,
                   void *user)
{
    char from[NUMBER_CHARS], count[NUMBER_CHARS];
    const char *words[] = {"SCAN", from, "COUNT", count, "MATCH", pattern};
    struct kv_redis_arg args[6] = {0};
    unsigned used = pattern ? 6 : 4;
    struct kv_redis_reply reply;
    int64_t names = 0;
    size_t len = 0;
    snprintf(from, sizeof from, "%llu", (unsigned long long)*cursor);
    snprintf(count, sizeof count, "%d", LIST_COUNT);
    for (unsigned i = 0; i < used; i++)
        args[i] = (struct kv_redis_arg){words[i], strlen(words[i])};
    int rc = ask(v, args, used, KV_REDIS_ARRAY, false, &reply);
    if (rc == 0 && reply.number != 2)
        rc = lose(v, -EPROTO);
    if (rc == 0)
        rc = read_text(v, from, sizeof from - 1, &len);
    from[len] = '\0';
    if (rc == 0 && hw_parse_u64(from, 0, UINT64_MAX, cursor))
        rc = lose(v, -EPROTO);
    if (rc == 0)
        rc = read_array(v, &names);
    for (int64_t i = 0; i < names && rc == 0; i++) {
        rc = read_text(v, v->name, sizeof v->name, &len);
        if (rc == 0)
            each(user, v->name, len);
    }
    return rc;
}

/* ---- figures ---- */

/* Whether the text has all of the figures. */
static bool read_figures(char *text, struct kv_blocks_stat *out)
{
    uint32_t found = 0;
    _Static_assert(KV_BLOCKS_FIGURES < 32, "a bit for each");
    char *rest = NULL;
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        char *colon = strchr(line, ':');
        for (unsigned i = 0; i < KV_BLOCKS_FIGURES && colon; i++)
            if (strlen(kv_blocks_figures[i].name) == (size_t)(colon - line) &&
                memcmp(kv_blocks_figures[i].name, line, (size_t)(colon - line)) == 0 &&
                hw_parse_u64(colon + 1, 0, UINT64_MAX, kv_blocks_figure(out, i)) == 0)
                found |= UINT32_C(1) << i;
    }
    return found == (UINT32_C(1) << KV_BLOCKS_FIGURES) - 1;
}

int kv_values_stat(struct kv_values *v, struct kv_blocks_stat *out)
{
    const struct kv_redis_arg info = {"INFO", 4};
    struct kv_redis_reply reply;
    struct kv_blocks_stat stat = {0};
    int rc = ask(v, &info, 1, KV_REDIS_BULK, false, &reply);
    size_t len = rc ? 0 : (size_t)reply.number;
    if (rc == 0 && len > INFO_MAX)
        rc = lose(v, -EPROTO);
    if (rc)
        return rc;
    char *text = malloc(len + 1);
    if (!text) {
        v->lost = -ENOMEM;
        return fail(v, -ENOMEM, "out of memory");
    }
    rc = read_value(v, (uint8_t *)text, len);
    text[len] = '\0';
    if (rc == 0 && !read_figures(text, &stat))
        rc = fail(v, -EPERM,
                  "it tells no figures of a store: it is a Redis, or the token is a "
                  "tenant's");
    free(text);
    if (rc == 0)
        *out = stat;
    return rc;
}

/* ---- life ---- */

int kv_values_open(const struct kv_values_options *o, struct kv_values **out,
                   char why[RPC_WHY_CHARS])
{
    char where[RPC_ADDR_HOST_CHARS + 16], cause[RPC_WHY_CHARS];
    const struct rpc_security *sec = o->security;
    bool token = sec->token_len > 0 && !sec->host_token;
    rpc_addr_format(&o->addr, where, sizeof where);
    if (token && !o->tls && !rpc_addr_is_local(&o->addr)) {
        snprintf(why, RPC_WHY_CHARS,
                 "%.100s would be sent the token for all to read: use tls:, which wants --ca or "
                 "--fingerprint",
                 where);
        return -EPERM;
    }
    struct kv_redis_login login = {.password = {sec->token, token ? sec->token_len : 0}};
    struct kv_values *v = calloc(1, sizeof *v);
    snprintf(cause, sizeof cause, "out of memory");
    int rc = v ? kv_redis_conn_open(&o->addr, o->tls ? sec : NULL, &login, o->timeout_ns, &v->conn,
                                    cause)
               : -ENOMEM;
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "%.60s: %.120s; %s", where, cause,
                 rc == -EACCES ? "check --token-file, --ca and --fingerprint"
                 : o->tls      ? "is \"hawser kvd --resp\" there?"
                               : "is \"hawser kvd --resp\" there, without TLS?");
        free(v);
        return rc;
    }
    v->tls = o->tls;
    *out = v;
    return 0;
}

void kv_values_close(struct kv_values *v)
{
    if (v)
        kv_redis_conn_close(v->conn);
    free(v);
}

const char *kv_values_why(const struct kv_values *v)
{
    return v->why;
}
