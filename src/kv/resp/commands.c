/* commands.c - what a cache needs of Redis' commands; docs/reference/resp.md lists them. */
#include "kv/resp/session_impl.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* What clients that look at the version are told: the commands are of that time. */
#define REDIS_VERSION "7.0.0"

bool resp_is(const struct resp_arg *arg, const char *word)
{
    return arg->len == strlen(word) && strncasecmp(arg->data, word, arg->len) == 0;
}

static void syntax_error(struct resp_session *s)
{
    resp_error(s, "ERR syntax error");
}

void resp_not_a_number(struct resp_session *s)
{
    resp_error(s, "ERR value is not an integer or out of range");
}

/* ---- the store ---- */

/* A client costs a region of memory at the daemon, so a session has one only when something needs
 * it. False: the daemon does not take it; resp_result_error says why. */
static bool attach(struct resp_session *s)
{
    struct kv_client_options options = {.socket = s->options.socket,
                                        .staging_bytes = KV_NAMED_STAGING,
                                        .timeout_ns = s->options.timeout_ns,
                                        .tenant = s->tenant};
    if (s->client && kv_client_status(s->client) == 0 && kv_client_tenant(s->client) == s->tenant)
        return true;
    resp_leave(s);
    kv_client_close(s->client);
    if (kv_client_open(&options, &s->client, s->why))
        s->client = NULL;
    return s->client != NULL;
}

struct kv_client *resp_client(struct resp_session *s)
{
    assert(s->may_wait);
    resp_leave(s);
    return s->client;
}

void resp_result_error(struct resp_session *s, enum kv_result result)
{
    if (s->why[0]) {
        resp_error(s, "ERR the KV daemon: %s", s->why);
        return;
    }
    switch (result) {
    case KV_FULL:
        resp_error(s, "OOM the store is full of what cannot be evicted");
        return;
    case KV_TOO_LARGE:
        resp_error(s,
                   "ERR longer than the store takes: a name of %d bytes, a value of %d, or of what "
                   "--blocks and --tenant-max allow",
                   KV_NAMED_NAME_MAX, KV_NAMED_MAX);
        return;
    case KV_PEER_LOST:
    case KV_TIMEOUT:
    case KV_NOT_OWNER:
        resp_error(s, "TRYAGAIN the owner of the key does not answer (%s)", kv_result_name(result));
        return;
    case KV_TOO_FEW:
        resp_error(s, "NOREPLICAS fewer members than --min-copies have the value");
        return;
    default:
        resp_error(s, "ERR the store answers %s", kv_result_name(result));
    }
}

/* Whether the client can be asked; else the request is served again, in a thread, or fails. */
static bool may_ask(struct resp_session *s)
{
    s->must_wait = !s->may_wait;
    return s->may_wait && attach(s);
}

enum { AHEAD_PAUSE = 256 }; /* gets, after one of several failed */

/* Adds a name to those that are asked for together.  False: no more, or it is among them: the
 * second get of a name begins when the first one is done. */
static bool ahead_add(struct resp_session *s, const struct resp_arg *name)
{
    struct resp_ahead *a = &s->ahead;
    struct kv_block_key key = kv_named_key(s->tenant, name->data, name->len);
    bool is_new = a->count < RESP_AHEAD_MAX;
    for (uint32_t i = 0; i < a->count && is_new; i++)
        is_new = !kv_block_key_equal(&a->keys[i], &key);
    if (is_new)
        a->keys[a->count++] = key;
    return is_new;
}

/* The names of the GETs that have come behind this one. */
static void ahead_pipeline(struct resp_session *s)
{
    struct resp_request r;
    size_t need;
    const char *why;
    ptrdiff_t n;
    for (size_t at = s->next_at; !s->placed.block && at < s->in_len; at += (size_t)n) {
        n = resp_parse(s->in + at, s->in_len - at, RESP_LINE_MAX, NULL, &r, &need, &why);
        if (n <= 0 || r.count != 2 || !resp_is(&r.args[0], "GET") || !ahead_add(s, &r.args[1]))
            return;
    }
}

/* Asks for the value and for those of the gets that follow: of the same MGET, or in the pipeline.
 */
static void ahead_fill(struct resp_session *s, const struct resp_arg *name)
{
    const struct resp_request *r = &s->request;
    struct resp_ahead *a = &s->ahead;
    a->at = a->count = 0;
    (void)ahead_add(s, name);
    if (resp_is(&r->args[0], "GET"))
        ahead_pipeline(s);
    for (const struct resp_arg *next = name + 1; resp_is(&r->args[0], "MGET"); next++)
        if (next == r->args + r->count || !ahead_add(s, next))
            break;
    kv_named_get_many(resp_client(s), a->keys, a->count, a->values, a->results);
}

/* Takes the next of those that were asked for.  False: it must be asked for alone, since its lease
 * has become old, or several at once were too much for the store or the time. */
static bool ahead_take(struct resp_session *s, struct kv_named *out, enum kv_result *result)
{
    struct resp_ahead *a = &s->ahead;
    uint32_t i = a->at++;
    *result = a->results[i];
    *out = a->values[i];
    if (*result == KV_MISS ||
        (*result == KV_OK && hw_now_ns() < out->block.expires_ns - out->block.lasts_ns / 2))
        return true;
    if (*result != KV_OK)
        a->singly = AHEAD_PAUSE;
    for (; i < a->count; i++)
        if (a->results[i] == KV_OK)
            kv_named_let_go(resp_client(s), &a->values[i]);
    a->at = a->count = 0;
    return false;
}

static enum kv_result get(struct resp_session *s, const struct resp_arg *key,
                          struct resp_value *out)
{
    enum kv_result result = KV_REFUSED;
    struct resp_ahead *a = &s->ahead;
    if (s->may_wait && resp_is_full(s))
        resp_flush_out(s); /* the peer may be waited for: not under the lease of what comes next */
    bool begun = a->at < a->count;
    if (!begun && (resp_local_get(s, key, out, &result) || !may_ask(s)))
        return result;
    out->host = NULL;
    if (!begun && a->singly == 0)
        ahead_fill(s, key);
    a->singly -= a->singly > 0;
    if (a->at < a->count && ahead_take(s, &out->named, &result))
        return result;
    return kv_named_get(resp_client(s), key->data, key->len, &out->named);
}

/* The length and the end of a value alone: however long it is, its bytes stay where they are. */
static enum kv_result look(struct resp_session *s, const struct resp_arg *key, struct kv_named *out)
{
    enum kv_result result = KV_REFUSED;
    if (resp_local_look(s, key, out, &result) || !may_ask(s))
        return result;
    return kv_named_look(resp_client(s), key->data, key->len, out);
}

void resp_let_go(struct resp_session *s, struct resp_value *v)
{
    if (v->host)
        resp_local_let_go(s, v);
    else
        kv_named_let_go(resp_client(s), &v->named);
}

/* ---- reading ---- */

static void reply_value(struct resp_session *s, const struct resp_arg *key)
{
    struct resp_value v;
    enum kv_result result = get(s, key, &v);
    if (result == KV_OK)
        resp_send_value(s, &v, 0, v.named.len);
    else if (result == KV_MISS)
        resp_null(s);
    else
        resp_result_error(s, result);
}

static void do_get(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    (void)count;
    reply_value(s, &args[1]);
}

static void do_mget(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    resp_array(s, count - 1);
    for (uint32_t i = 1; i < count && !s->broken; i++)
        reply_value(s, &args[i]); /* values before one that fails may be sent already */
}

static void do_exists(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    int64_t found = 0;
    for (uint32_t i = 1; i < count; i++) {
        struct kv_named v;
        enum kv_result result = look(s, &args[i], &v);
        if (result != KV_OK && result != KV_MISS) {
            resp_result_error(s, result);
            return;
        }
        found += result == KV_OK;
    }
    resp_integer(s, found);
}

/* What STRLEN, TYPE, TTL and their like ask of a value. */
static void describe(struct resp_session *s, const struct resp_arg *args, const struct kv_named *v)
{
    uint64_t now = kv_named_now_ms();
    int64_t end = !v ? -2 : !v->end_ms ? -1 : (int64_t)v->end_ms;
    int64_t left = end < 0 ? end : v->end_ms > now ? (int64_t)(v->end_ms - now) : 0;
    if (resp_is(&args[0], "STRLEN"))
        resp_integer(s, v ? v->len : 0);
    else if (resp_is(&args[0], "TYPE"))
        resp_status(s, v ? "string" : "none");
    else if (resp_is(&args[0], "PTTL"))
        resp_integer(s, left);
    else if (resp_is(&args[0], "PEXPIRETIME"))
        resp_integer(s, end);
    else if (resp_is(&args[0], "EXPIRETIME"))
        resp_integer(s, end > 0 ? (int64_t)(((uint64_t)end + 500) / 1000) : end);
    else
        resp_integer(s, left > 0 ? (int64_t)(((uint64_t)left + 500) / 1000) : left);
}

static void do_describe(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct kv_named v;
    enum kv_result result = look(s, &args[1], &v);
    (void)count;
    if (result == KV_OK || result == KV_MISS)
        describe(s, args, result == KV_OK ? &v : NULL);
    else
        resp_result_error(s, result);
}

/* MEMORY USAGE, as redis-cli --memkeys asks: what of --blocks the value takes. */
static void do_memory(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct kv_named v;
    if (count < 3 || !resp_is(&args[1], "USAGE")) {
        resp_error(s, "ERR MEMORY takes USAGE alone; INFO tells of the store");
        return;
    }
    enum kv_result result = look(s, &args[2], &v);
    if (result == KV_OK)
        resp_integer(s, (int64_t)(KV_NAMED_HEAD + v.len + args[2].len + KV_NAMED_TAIL));
    else if (result == KV_MISS)
        resp_null(s);
    else
        resp_result_error(s, result);
}

static void do_getrange(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct resp_value v;
    int64_t from, to;
    (void)count;
    if (!resp_number(&args[2], &from) || !resp_number(&args[3], &to)) {
        resp_not_a_number(s);
        return;
    }
    enum kv_result result = get(s, &args[1], &v);
    if (result == KV_MISS) {
        resp_text(s, "");
        return;
    }
    if (result != KV_OK) {
        resp_result_error(s, result);
        return;
    }
    int64_t len = v.named.len;
    bool none = from < 0 && to < 0 && from > to;
    from = from < 0 ? from + len : from;
    to = to < 0 ? to + len : to;
    from = from < 0 ? 0 : from;
    to = to < 0 ? 0 : to; /* an end before the first byte means that byte, as in Redis */
    to = to >= len ? len - 1 : to;
    if (from <= to && !none) {
        resp_send_value(s, &v, (uint32_t)from, (uint32_t)(to - from + 1));
    } else {
        resp_text(s, "");
        resp_let_go(s, &v);
    }
}

/* ---- writing ---- */

/* False: told why not. */
static bool end_of(struct resp_session *s, const char *command, const struct resp_arg *unit,
                   const struct resp_arg *arg, uint64_t *end_ms)
{
    int64_t n;
    bool seconds = resp_is(unit, "EX") || resp_is(unit, "EXAT"),
         at = resp_is(unit, "EXAT") || resp_is(unit, "PXAT");
    if (!resp_number(arg, &n)) {
        resp_not_a_number(s);
        return false;
    }
    int64_t scale = seconds ? 1000 : 1, from = at ? 0 : (int64_t)kv_named_now_ms();
    bool fits = n > 0 && n <= (INT64_MAX - from) / scale;
    if (fits)
        *end_ms = (uint64_t)(n * scale + from);
    else
        resp_error(s, "ERR invalid expire time in '%s' command", command);
    return fits;
}

static enum kv_result set(struct resp_session *s, const struct kv_named_set *set)
{
    enum kv_result result = KV_REFUSED;
    if (set->len > KV_NAMED_MAX || set->name_len > KV_NAMED_NAME_MAX)
        return KV_TOO_LARGE;
    if (resp_local_set(s, set, &result) || !may_ask(s))
        return result;
    return kv_named_set(resp_client(s), set, NULL);
}

static struct kv_named_set set_of(const struct resp_arg *key, const struct resp_arg *value)
{
    return (struct kv_named_set){.name = key->data,
                                 .name_len = key->len,
                                 .value = value->data,
                                 .len =
                                     value->len > UINT32_MAX ? UINT32_MAX : (uint32_t)value->len};
}

static void reply_set(struct resp_session *s, const struct kv_named_set *what)
{
    enum kv_result result = set(s, what);
    if (result == KV_OK)
        resp_status(s, "OK");
    else if (result == KV_EXISTS && what->only_new)
        resp_null(s);
    else
        resp_result_error(s, result);
}

static void do_set(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct kv_named_set what = set_of(&args[1], &args[2]);
    for (uint32_t i = 3; i < count; i++) {
        bool ends = resp_is(&args[i], "EX") || resp_is(&args[i], "PX") ||
                    resp_is(&args[i], "EXAT") || resp_is(&args[i], "PXAT");
        if (resp_is(&args[i], "NX")) {
            what.only_new = true;
        } else if (resp_is(&args[i], "XX") || resp_is(&args[i], "GET") ||
                   resp_is(&args[i], "KEEPTTL")) {
            resp_error(s, "ERR kvd's SET has no %.*s, only NX, EX, PX, EXAT and PXAT",
                       (int)args[i].len, args[i].data);
            return;
        } else if (!ends || what.end_ms || i + 1 == count) {
            syntax_error(s);
            return;
        } else if (!end_of(s, "set", &args[i], &args[i + 1], &what.end_ms)) {
            return;
        } else {
            i++;
        }
    }
    reply_set(s, &what);
}

static void do_setnx(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct kv_named_set what = set_of(&args[1], &args[2]);
    (void)count;
    what.only_new = true;
    enum kv_result result = set(s, &what);
    if (result == KV_OK || result == KV_EXISTS)
        resp_integer(s, result == KV_OK);
    else
        resp_result_error(s, result);
}

static void do_setex(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct kv_named_set what = set_of(&args[1], &args[3]);
    struct resp_arg unit =
        resp_is(&args[0], "SETEX") ? (struct resp_arg){"EX", 2} : (struct resp_arg){"PX", 2};
    (void)count;
    if (!end_of(s, unit.data[0] == 'E' ? "setex" : "psetex", &unit, &args[2], &what.end_ms))
        return;
    reply_set(s, &what);
}

static void do_mset(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    if (count % 2 == 0) {
        resp_error(s, "ERR wrong number of arguments for 'mset' command");
        return;
    }
    for (uint32_t i = 1; i < count; i += 2) {
        struct kv_named_set what = set_of(&args[i], &args[i + 1]);
        enum kv_result result = set(s, &what);
        if (result != KV_OK) {
            resp_result_error(s, result);
            return;
        }
    }
    resp_status(s, "OK");
}

static enum kv_result del(struct resp_session *s, const struct resp_arg *key)
{
    enum kv_result result = KV_REFUSED;
    if (resp_local_delete(s, key, &result) || !may_ask(s))
        return result;
    return kv_named_delete(resp_client(s), key->data, key->len);
}

static void do_del(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    int64_t gone = 0;
    for (uint32_t i = 1; i < count; i++) {
        enum kv_result result = del(s, &args[i]);
        if (result != KV_OK && result != KV_MISS) {
            resp_result_error(s, result);
            return;
        }
        gone += result == KV_OK;
    }
    resp_integer(s, gone);
}

/* ---- about the server ---- */

static bool stat_of(struct resp_session *s, struct kv_blocks_stat *out)
{
    enum kv_result result = kv_block_stat(resp_client(s), out);
    if (result != KV_OK)
        resp_result_error(s, result);
    return result == KV_OK;
}

static void do_dbsize(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct kv_blocks_stat stat;
    (void)args;
    (void)count;
    if (stat_of(s, &stat))
        resp_integer(s, (int64_t)stat.names);
}

enum { INFO_CHARS = 2048 };

/* What INFO says: the sections that were asked for, or all. */
struct info {
    const struct resp_arg *args;
    uint32_t count;
    char text[INFO_CHARS];
    size_t len;
};

__attribute__((format(printf, 3, 4))) static void info_section(struct info *info, const char *name,
                                                               const char *format, ...)
{
    static const char *const every[] = {"default", "all", "everything"};
    bool wanted = info->count == 1;
    for (uint32_t i = 1; i < info->count && !wanted; i++) {
        wanted = resp_is(&info->args[i], name);
        for (size_t k = 0; k < ARRAY_LEN(every) && !wanted; k++)
            wanted = resp_is(&info->args[i], every[k]);
    }
    if (!wanted)
        return;
    va_list values;
    va_start(values, format);
    int n = snprintf(info->text + info->len, INFO_CHARS - info->len, "%s# %s\r\n",
                     info->len ? "\r\n" : "", name);
    n += vsnprintf(info->text + info->len + n, INFO_CHARS - info->len - (size_t)n, format, values);
    va_end(values);
    info->len += (size_t)n;
    assert(info->len < INFO_CHARS);
}

static void info_blocks(struct info *info, struct kv_blocks_stat *b)
{
    char lines[INFO_CHARS / 2];
    int n = 0;
    for (unsigned i = 0; i < KV_BLOCKS_FIGURES; i++)
        n += snprintf(lines + n, sizeof(lines) - (size_t)n, "%s:%llu\r\n",
                      kv_blocks_figures[i].name, (unsigned long long)*kv_blocks_figure(b, i));
    assert((size_t)n < sizeof(lines));
    info_section(info, "Blocks", "%s", lines);
}

/* Of connections: a tenant is told of its own alone. */
static void info_clients(const struct resp_session *s, struct info *info,
                         const struct kv_blocks_stat *b)
{
    const struct resp_counts *c = s->options.counts;
    unsigned long long connected = 1, received = 1, commands = s->commands;
    if (!s->tenant) {
        connected = atomic_load_explicit(&c->connected, memory_order_relaxed);
        received = atomic_load_explicit(&c->received, memory_order_relaxed);
        commands += atomic_load_explicit(&c->commands, memory_order_relaxed);
    }
    info_section(info, "Clients",
                 "connected_clients:%llu\r\nmaxclients:%d\r\nblocked_clients:0\r\n", connected,
                 RESP_SESSIONS_MAX);
    info_section(info, "Stats",
                 "total_connections_received:%llu\r\ntotal_commands_processed:%llu\r\n"
                 "keyspace_hits:%llu\r\nkeyspace_misses:%llu\r\nevicted_keys:%llu\r\n",
                 received, commands, (unsigned long long)b->hits, (unsigned long long)b->misses,
                 (unsigned long long)b->evicted);
}

static void do_info(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct info info = {.args = args, .count = count};
    struct kv_blocks_stat b;
    if (!stat_of(s, &b))
        return;
    if (s->tenant) /* no other figures: how much others keep is not its business */
        b = (struct kv_blocks_stat){.room = b.room, .names = b.names, .ends = b.ends};
    info_section(&info, "Server",
                 "redis_version:" REDIS_VERSION "\r\nredis_mode:standalone\r\n"
                 "hawser_version:" HAWSER_VERSION "\r\nprocess_id:%d\r\n"
                 "uptime_in_seconds:%llu\r\n",
                 (int)getpid(),
                 (unsigned long long)((hw_now_ns() - s->options.counts->started_ns) / HW_SEC));
    info_section(&info, "Memory", "used_memory:%llu\r\nmaxmemory:%llu\r\n",
                 (unsigned long long)b.room_used, (unsigned long long)b.room);
    info_section(&info, "Persistence", "loading:0\r\n"); /* clients wait for it */
    info_clients(s, &info, &b);
    info_section(&info, "Replication", "role:master\r\nbelow_copies:%llu\r\nrepaired:%llu\r\n",
                 (unsigned long long)b.below_copies, (unsigned long long)b.repaired);
    info_section(&info, "Cluster", "cluster_enabled:0\r\n");
    info_section(&info, "Keyspace", "db0:keys=%llu,expires=%llu,avg_ttl=0\r\n",
                 (unsigned long long)b.names, (unsigned long long)b.ends);
    if (!s->tenant)
        info_blocks(&info, &b);
    resp_bulk(s, info.text, info.len);
}

static void do_ping(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    if (count == 1)
        resp_status(s, "PONG");
    else
        resp_bulk(s, args[1].data, args[1].len);
}

static void do_echo(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    (void)count;
    resp_bulk(s, args[1].data, args[1].len);
}

static void do_quit(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    (void)args;
    (void)count;
    resp_status(s, "OK");
    s->ends = true;
}

static void do_select(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    int64_t index;
    (void)count;
    if (!resp_number(&args[1], &index))
        resp_not_a_number(s);
    else if (index != 0)
        resp_error(s, "ERR DB index is out of range");
    else
        resp_status(s, "OK");
}

/* What holds here of the settings that clients look at. */
struct setting {
    const char *name;
    char value[32];
};
enum { SETTINGS = 8 };

static void settings_of(const struct resp_session *s, struct setting out[SETTINGS])
{
    const struct resp_store *store = &s->options.store;
    const struct setting all[SETTINGS] = {
        {"save", ""},       {"appendonly", "no"}, /* nothing is written to disk */
        {"timeout", "0"},   {"databases", "1"},        {"maxmemory", ""}, {"maxmemory-policy", ""},
        {"maxclients", ""}, {"proto-max-bulk-len", ""}};
    memcpy(out, all, sizeof(all));
    snprintf(out[4].value, sizeof(out->value), "%llu", (unsigned long long)store->room);
    snprintf(out[5].value, sizeof(out->value), "allkeys-%s", kv_policy_names[store->policy]);
    snprintf(out[6].value, sizeof(out->value), "%d", RESP_SESSIONS_MAX);
    snprintf(out[7].value, sizeof(out->value), "%d", KV_NAMED_MAX);
}

static bool setting_fits(const char *name, const struct resp_arg *patterns, uint32_t count)
{
    char lower[32];
    bool fits = false;
    for (uint32_t k = 0; k < count && !fits; k++) {
        size_t len = patterns[k].len;
        for (size_t i = 0; i < len && i < sizeof(lower); i++)
            lower[i] = (char)tolower((unsigned char)patterns[k].data[i]);
        fits = len <= sizeof(lower) && kv_named_fits(lower, len, name, strlen(name));
    }
    return fits;
}

static void do_config(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct setting all[SETTINGS];
    size_t n = 0;
    if (count < 3 || !resp_is(&args[1], "GET")) {
        resp_error(s, "ERR CONFIG takes GET alone; settings are options of hawser kvd");
        return;
    }
    settings_of(s, all);
    for (uint32_t i = 0; i < SETTINGS; i++)
        if (setting_fits(all[i].name, args + 2, count - 2))
            all[n++] = all[i];
    resp_map(s, n);
    for (size_t i = 0; i < n; i++) {
        resp_text(s, all[i].name);
        resp_text(s, all[i].value);
    }
}

/* The name of the connection.  False: told why not. */
static bool set_name(struct resp_session *s, const struct resp_arg *name)
{
    bool fine = name->len < sizeof(s->name);
    for (size_t i = 0; i < name->len && fine; i++)
        fine = name->data[i] > ' ' && name->data[i] <= '~';
    if (fine)
        snprintf(s->name, sizeof(s->name), "%.*s", (int)name->len, name->data);
    else
        resp_error(s, "ERR a client's name has at most %d printable characters and no spaces",
                   RESP_NAME_CHARS - 1);
    return fine;
}

static void do_client(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    if (count == 2 && resp_is(&args[1], "ID"))
        resp_integer(s, (int64_t)s->options.id);
    else if (count == 2 && resp_is(&args[1], "GETNAME") && s->name[0])
        resp_text(s, s->name);
    else if (count == 2 && resp_is(&args[1], "GETNAME"))
        resp_null(s);
    else if (count == 3 && resp_is(&args[1], "SETNAME")) {
        if (set_name(s, &args[2]))
            resp_status(s, "OK");
    } else if (count >= 3 && (resp_is(&args[1], "SETINFO") || resp_is(&args[1], "NO-EVICT") ||
                              resp_is(&args[1], "NO-TOUCH")))
        resp_status(s, "OK");
    else
        resp_error(s,
                   "ERR unknown subcommand or wrong number of arguments for '%.*s': CLIENT takes "
                   "ID, GETNAME, SETNAME, SETINFO, NO-EVICT or NO-TOUCH",
                   (int)(args[1].len < 64 ? args[1].len : 64), args[1].data);
}

/* ---- who may ---- */

static bool right_password(const struct resp_session *s, const struct resp_arg *given)
{
    unsigned char differs = given->len != s->options.password_len;
    for (size_t i = 0; i < s->options.password_len; i++) /* as long for a wrong one */
        differs |= (unsigned char)(s->options.password[i] ^
                                   (uint8_t)(i < given->len ? given->data[i] : 0));
    return !differs;
}

/* False: told why not. */
static bool let_in(struct resp_session *s, const struct resp_arg *user,
                   const struct resp_arg *given)
{
    bool open = !s->options.password && !s->options.tenants;
    if (open && !user) {
        resp_error(s, "ERR AUTH <password> called without any password configured for the default "
                      "user. Are you sure your configuration is correct?");
        return false;
    }
    uint64_t tenant = s->options.tenants
                          ? resp_tenants_find(s->options.tenants, user ? user->data : NULL,
                                              user ? user->len : 0, given->data, given->len)
                          : 0;
    bool all = (!user || resp_is(user, "default")) &&
               (open || (s->options.password && right_password(s, given)));
    if (!tenant && !all) {
        resp_error(s, "WRONGPASS invalid username-password pair or user is disabled.");
        s->ends = !open; /* each guess costs a connection */
        return false;
    }
    s->allowed = true;
    s->tenant = tenant;
    return true;
}

static void do_auth(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    if (let_in(s, count == 3 ? &args[1] : NULL, &args[count - 1]))
        resp_status(s, "OK");
}

/* As if the connection were new. */
static void do_reset(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    (void)args;
    (void)count;
    s->resp3 = false;
    s->name[0] = 0;
    s->tenant = 0;
    resp_multi_forget(s);
    resp_session_ask(s);
    resp_status(s, "RESET");
}

/* Members divide the values among themselves: a client may ask any of them. */
static void do_cluster(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    (void)args;
    (void)count;
    resp_error(s, "ERR This instance has cluster support disabled");
}

static void do_hello(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    int64_t version = s->resp3 ? 3 : 2;
    if (count > 1 && !resp_number(&args[1], &version)) {
        resp_error(s, "ERR Protocol version is not an integer or out of range");
        return;
    }
    if (version < 2 || version > 3) {
        resp_error(s, "NOPROTO unsupported protocol version");
        return;
    }
    for (uint32_t i = 2; i < count;) {
        if (resp_is(&args[i], "AUTH") && i + 2 < count) {
            if (!let_in(s, &args[i + 1], &args[i + 2]))
                return;
            i += 3;
        } else if (resp_is(&args[i], "SETNAME") && i + 1 < count) {
            if (!set_name(s, &args[i + 1]))
                return;
            i += 2;
        } else {
            resp_error(s, "ERR Syntax error in HELLO option '%.*s'",
                       (int)(args[i].len < 64 ? args[i].len : 64), args[i].data);
            return;
        }
    }
    if (!s->allowed) {
        resp_error(s, "NOAUTH HELLO must be called with the client already authenticated");
        return;
    }
    s->resp3 = version == 3;
    resp_map(s, 7);
    resp_text(s, "server");
    resp_text(s, "redis");
    resp_text(s, "version");
    resp_text(s, REDIS_VERSION);
    resp_text(s, "proto");
    resp_integer(s, version);
    resp_text(s, "id");
    resp_integer(s, (int64_t)s->options.id);
    resp_text(s, "mode");
    resp_text(s, "standalone");
    resp_text(s, "role");
    resp_text(s, "master");
    resp_text(s, "modules");
    resp_array(s, 0);
}

/* ---- the table ---- */

typedef void command_fn(struct resp_session *s, const struct resp_arg *args, uint32_t count);

static command_fn do_command;

enum {
    ANYBODY = 1, /* before AUTH, too */
    STORE = 2,   /* of the store */
    CLIENT = 4,  /* by the client alone */
    AT_ONCE = 8  /* also behind MULTI */
};

static const struct command {
    const char *name;
    command_fn *run;
    uint32_t min, max; /* arguments, with the name */
    uint8_t flags;
    uint8_t brief_max; /* with so many it is about one key and may be tried without waiting */
    uint8_t value;     /* the argument that is a value to set, after its key; 0: none */
} commands[] = {
    {"GET", do_get, 2, 2, STORE, 2},
    {"SET", do_set, 3, 8, STORE, 8, 2},
    {"MGET", do_mget, 2, RESP_ARGS_MAX, STORE},
    {"MSET", do_mset, 3, RESP_ARGS_MAX, STORE},
    {"SETNX", do_setnx, 3, 3, STORE, 3, 2},
    {"SETEX", do_setex, 4, 4, STORE, 4, 3},
    {"PSETEX", do_setex, 4, 4, STORE, 4, 3},
    {"DEL", do_del, 2, RESP_ARGS_MAX, STORE, 2},
    {"UNLINK", do_del, 2, RESP_ARGS_MAX, STORE, 2},
    {"EXISTS", do_exists, 2, RESP_ARGS_MAX, STORE, 2},
    {"STRLEN", do_describe, 2, 2, STORE, 2},
    {"TTL", do_describe, 2, 2, STORE, 2},
    {"PTTL", do_describe, 2, 2, STORE, 2},
    {"EXPIRETIME", do_describe, 2, 2, STORE, 2},
    {"PEXPIRETIME", do_describe, 2, 2, STORE, 2},
    {"TYPE", do_describe, 2, 2, STORE, 2},
    {"MEMORY", do_memory, 2, 5, STORE, 5},
    {"GETRANGE", do_getrange, 4, 4, STORE, 4},
    {"SUBSTR", do_getrange, 4, 4, STORE, 4},
    {"DBSIZE", do_dbsize, 1, 1, STORE | CLIENT},
    {"INFO", do_info, 1, RESP_ARGS_MAX, STORE | CLIENT},
    {"KEYS", resp_keys, 2, 2, STORE | CLIENT},
    {"SCAN", resp_scan, 2, 8, STORE | CLIENT},
    {"FLUSHDB", resp_flush, 1, 2, STORE | CLIENT},
    {"FLUSHALL", resp_flush, 1, 2, STORE | CLIENT},
    {"PING", do_ping, 1, 2, 0},
    {"ECHO", do_echo, 2, 2, 0},
    {"SELECT", do_select, 2, 2, 0},
    {"CONFIG", do_config, 2, RESP_ARGS_MAX, 0},
    {"CLIENT", do_client, 2, RESP_ARGS_MAX, 0},
    {"COMMAND", do_command, 1, RESP_ARGS_MAX, 0},
    {"HELLO", do_hello, 1, 8, ANYBODY},
    {"AUTH", do_auth, 2, 3, ANYBODY},
    {"RESET", do_reset, 1, 1, ANYBODY | AT_ONCE},
    {"CLUSTER", do_cluster, 2, RESP_ARGS_MAX, 0},
    {"QUIT", do_quit, 1, RESP_ARGS_MAX, ANYBODY | AT_ONCE},
    {"MULTI", resp_multi, 1, 1, AT_ONCE},
    {"EXEC", resp_exec, 1, 1, STORE | AT_ONCE},
    {"DISCARD", resp_discard, 1, 1, AT_ONCE},
};

static const struct command *const commands_end = commands + ARRAY_LEN(commands);

/* As Redis writes it; valid until the next one. */
static const char *lower_name(const struct command *c)
{
    static _Thread_local char name[16];
    size_t i = 0;
    for (; c->name[i]; i++)
        name[i] = (char)(c->name[i] | 0x20);
    assert(i < sizeof(name));
    name[i] = 0;
    return name;
}

/* COUNT and LIST are true; the rest is for help texts. */
static void do_command(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    bool list = count > 1 && resp_is(&args[1], "LIST");
    if (count > 1 && resp_is(&args[1], "COUNT")) {
        resp_integer(s, ARRAY_LEN(commands));
        return;
    }
    if (count > 1 && resp_is(&args[1], "DOCS"))
        resp_map(s, 0);
    else
        resp_array(s, list ? ARRAY_LEN(commands) : 0);
    for (const struct command *c = commands; c < commands_end && list; c++)
        resp_text(s, lower_name(c));
}

static const struct command *find(const struct resp_arg *name)
{
    const struct command *c = commands;
    while (c < commands_end && !resp_is(name, c->name))
        c++;
    return c;
}

uint32_t resp_value_index(const struct resp_arg *name, uint32_t count)
{
    const struct command *c = find(name);
    return c < commands_end && count >= c->min && count <= c->max ? c->value : 0;
}

static void refuse(struct resp_session *s, const struct resp_arg *name)
{
    static const char *const ends[] = {"EXPIRE",    "PEXPIRE", "EXPIREAT",
                                       "PEXPIREAT", "PERSIST", "GETEX"};
    int shown = name->len < 64 ? (int)name->len : 64;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (resp_is(name, ends[i])) {
            resp_error(s, "ERR unknown command '%.*s': when a value ends is set with it, by SET",
                       shown, name->data);
            return;
        }
    }
    resp_error(s, "ERR unknown command '%.*s', kvd has those of COMMAND LIST", shown, name->data);
}

void resp_execute(struct resp_session *s)
{
    const struct resp_arg *args = s->request.args;
    uint32_t count = s->request.count;
    const struct command *c = find(&args[0]), *end = commands_end;
    size_t before = s->out_len;
    s->why[0] = 0;
    if (c == end && (resp_is(&args[0], "POST") || resp_is(&args[0], "Host:"))) {
        /* A page in a browser may send requests here, but not without these lines before them. */
        resp_error(s, "ERR this is no HTTP server");
        s->ends = true;
    } else if (!s->allowed && (c == end || !(c->flags & ANYBODY)))
        resp_error(s, "NOAUTH Authentication required.");
    else if (c == end) {
        s->queue.bad = true;
        refuse(s, &args[0]);
    } else if (count < c->min || count > c->max) {
        s->queue.bad = true;
        resp_error(s, "ERR wrong number of arguments for '%s' command", lower_name(c));
    } else if (s->queue.open && !(c->flags & AT_ONCE))
        resp_multi_keep(s);
    else if (!(c->flags & STORE))
        c->run(s, args, count);
    else if (s->may_wait ? !(c->flags & CLIENT) || attach(s) : count <= c->brief_max)
        c->run(s, args, count);
    else if (s->may_wait)
        resp_result_error(s, KV_PEER_LOST);
    else
        s->must_wait = true;
    if (s->must_wait)
        s->out_len = before; /* what was replied so far means nothing */
}
