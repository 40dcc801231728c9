#include "kv/redis/cluster.h"

#include "base/log.h"
#include "kv/common/checksum.h"
#include "kv/redis/conn.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRIES = 5, /* of one request: a slot that moves on and on is not served */
    NO_NODE = UINT16_MAX,
    PIPELINE = 64,    /* small requests on their way at once */
    LOGIN_CHARS = 512 /* of a name and of a password */
};

#define MAP_EVERY_NS (100 * HW_MS) /* between two questions for all slots */

static const char key_prefix[] = "hawser:";
enum {
    NAME_CHARS = sizeof key_prefix + 2 * KV_BLOCK_KEY_MAX,
    HEAD_CHARS = NAME_CHARS + 64, /* a command up to its value */
};

struct node {
    struct rpc_addr addr;
    _Atomic uint64_t rests_until_ns; /* relaxed: a thread that misses it dials once more */
};

struct channel {
    struct kv_redis_conn *conns[KV_REDIS_NODES_MAX]; /* NULL: not connected */
    uint64_t opened;
    uint8_t *value;
    size_t room;
};

struct kv_redis {
    struct rpc_security security;
    bool tls;
    char user[LOGIN_CHARS], password[LOGIN_CHARS];
    uint64_t timeout_ns;
    uint32_t channel_count;
    pthread_mutex_t lock;
    struct node nodes[KV_REDIS_NODES_MAX]; /* those below node_count never change */
    uint32_t node_count;                   /* (lock) */
    uint16_t owner[KV_REDIS_SLOTS];        /* (lock) */
    uint64_t map_asked_ns;                 /* (lock) */
    struct channel channels[];
};

struct name {
    char text[NAME_CHARS];
    uint32_t len;
};

static struct name name_of(const struct kv_block_key *key)
{
    static const char digits[] = "0123456789abcdef";
    struct name n = {.len = sizeof key_prefix - 1};
    memcpy(n.text, key_prefix, n.len);
    for (uint32_t i = 0; i < key->len; i++) {
        n.text[n.len++] = digits[key->bytes[i] >> 4];
        n.text[n.len++] = digits[key->bytes[i] & 15];
    }
    return n;
}

/* ---- nodes ---- */

static bool node_rests(struct kv_redis *r, uint32_t node)
{
    return hw_now_ns() < atomic_load_explicit(&r->nodes[node].rests_until_ns, memory_order_relaxed);
}

static void rest_node(struct kv_redis *r, uint32_t node, const char *cause)
{
    char name[RPC_ADDR_HOST_CHARS + 8];
    rpc_addr_format(&r->nodes[node].addr, name, sizeof name);
    if (!node_rests(r, node))
        hw_warn(HW_CAT_KV, "the Redis node %s is lost (%s): no requests to it for a second", name,
                cause);
    atomic_store_explicit(&r->nodes[node].rests_until_ns, hw_now_ns() + KV_REDIS_REST_NS,
                          memory_order_relaxed);
}

static uint32_t node_count(struct kv_redis *r)
{
    pthread_mutex_lock(&r->lock);
    uint32_t count = r->node_count;
    pthread_mutex_unlock(&r->lock);
    return count;
}

static bool all_rest(struct kv_redis *r)
{
    uint32_t i = 0, count = node_count(r);
    while (i < count && node_rests(r, i))
        i++;
    return i == count;
}

/* The number of the node at that address, known or new; under the lock.  NO_NODE: too many. */
static uint16_t number_of(struct kv_redis *r, const struct rpc_addr *addr)
{
    uint32_t i = 0;
    while (i < r->node_count &&
           (r->nodes[i].addr.port != addr->port || strcmp(r->nodes[i].addr.host, addr->host) != 0))
        i++;
    if (i == KV_REDIS_NODES_MAX)
        return NO_NODE;
    if (i == r->node_count)
        r->nodes[r->node_count++].addr = *addr;
    return (uint16_t)i;
}

/* As the node `from` names it. */
static struct rpc_addr addr_of(const struct kv_redis *r, uint32_t from,
                               const struct kv_redis_range *range)
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_TCP, .port = range->port};
    const char *host = range->host[0] ? range->host : r->nodes[from].addr.host;
    snprintf(addr.host, sizeof addr.host, "%s", host);
    return addr;
}

static void lose(struct channel *ch, uint32_t node)
{
    kv_redis_conn_close(ch->conns[node]);
    ch->conns[node] = NULL;
}

/* The connection's place in its channel. */
static void lose_conn(struct channel *ch, const struct kv_redis_conn *c)
{
    for (uint32_t i = 0; i < KV_REDIS_NODES_MAX; i++)
        if (ch->conns[i] == c) {
            lose(ch, i);
            return;
        }
}

/* The list of servers is checked once, but a server may name any other as the owner of slots. */
static bool is_password_safe(const struct kv_redis *r, const struct rpc_addr *addr,
                             char why[RPC_WHY_CHARS])
{
    bool safe = !r->password[0] || r->tls || rpc_addr_is_local(addr);
    if (!safe)
        snprintf(why, RPC_WHY_CHARS,
                 "%.100s would be sent the password for all to read: use rediss://", addr->host);
    return safe;
}

/* The channel's connection to a node.  NULL: it is lost, and why if it was only found now. */
static struct kv_redis_conn *conn_of(struct kv_redis *r, struct channel *ch, uint32_t node,
                                     char why[RPC_WHY_CHARS])
{
    if (ch->conns[node] || node_rests(r, node))
        return ch->conns[node];
    struct kv_redis_login login = {{r->user, strlen(r->user)}, {r->password, strlen(r->password)}};
    const struct rpc_addr *addr = &r->nodes[node].addr;
    if (!is_password_safe(r, addr, why) ||
        kv_redis_conn_open(addr, &r->security, &login, r->timeout_ns, &ch->conns[node], why))
        rest_node(r, node, why);
    else
        ch->conns[node]->number = ++ch->opened;
    return ch->conns[node];
}

/* ---- slots ---- */

struct mapping {
    struct kv_redis *redis;
    uint32_t from;
    uint16_t owner[KV_REDIS_SLOTS];
};

static int note_range(void *user, const struct kv_redis_range *range)
{
    struct mapping *m = user;
    struct rpc_addr addr = addr_of(m->redis, m->from, range);
    pthread_mutex_lock(&m->redis->lock);
    uint16_t node = number_of(m->redis, &addr);
    pthread_mutex_unlock(&m->redis->lock);
    for (uint32_t s = range->first; s <= range->last; s++)
        m->owner[s] = node;
    return 0;
}

/* Asks one node which slots are where. */
static int map_from(struct kv_redis *r, struct channel *ch, uint32_t node, char why[RPC_WHY_CHARS])
{
    struct kv_redis_conn *c = conn_of(r, ch, node, why);
    if (!c)
        return -ECONNRESET;
    struct mapping *m = malloc(sizeof *m);
    if (!m)
        return -ENOMEM;
    m->redis = r;
    m->from = node;
    for (uint32_t s = 0; s < KV_REDIS_SLOTS; s++)
        m->owner[s] = NO_NODE;
    const struct kv_redis_arg args[] = {{"CLUSTER", 7}, {"SLOTS", 5}};
    int rc = kv_redis_ask(c, args, 2);
    if (rc == 0)
        rc = kv_redis_ranges(&c->reader, note_range, m);
    if (rc == -EOPNOTSUPP) { /* it is in no cluster: it has every key */
        for (uint32_t s = 0; s < KV_REDIS_SLOTS; s++)
            m->owner[s] = (uint16_t)node;
        rc = 0;
    } else if (rc) {
        snprintf(why, RPC_WHY_CHARS, "CLUSTER SLOTS: %.200s", kv_redis_cause(c, rc));
        lose(ch, node);
        rest_node(r, node, why);
    }
    if (rc == 0) {
        pthread_mutex_lock(&r->lock);
        memcpy(r->owner, m->owner, sizeof r->owner);
        pthread_mutex_unlock(&r->lock);
    }
    free(m);
    return rc;
}

/* Asks the first node that answers.  No answer may be under way on the channel. */
static int map_again(struct kv_redis *r, struct channel *ch)
{
    uint64_t now = hw_now_ns();
    pthread_mutex_lock(&r->lock);
    bool soon = r->map_asked_ns && now - r->map_asked_ns < MAP_EVERY_NS;
    if (!soon)
        r->map_asked_ns = now;
    pthread_mutex_unlock(&r->lock);
    int rc = soon ? 0 : -ECONNRESET;
    char why[RPC_WHY_CHARS];
    for (uint32_t i = 0; rc && i < node_count(r); i++)
        rc = map_from(r, ch, i, why);
    return rc;
}

static uint16_t owner_of(struct kv_redis *r, uint16_t slot)
{
    pthread_mutex_lock(&r->lock);
    uint16_t node = r->owner[slot];
    pthread_mutex_unlock(&r->lock);
    return node;
}

/* Where MOVED or ASK points to; MOVED is remembered. */
static uint16_t follow(struct kv_redis *r, uint32_t from, const char *text, bool moved)
{
    struct kv_redis_range range;
    if (kv_redis_redirect(text, &range))
        return NO_NODE;
    struct rpc_addr addr = addr_of(r, from, &range);
    pthread_mutex_lock(&r->lock);
    uint16_t node = number_of(r, &addr);
    if (moved)
        r->owner[range.first] = node;
    pthread_mutex_unlock(&r->lock);
    return node;
}

/* ---- one request ---- */

/* GET, EXISTS, or SET with a value. */
struct request {
    const char *verb;
    struct name name;
    const void *value; /* NULL: none */
    uint32_t len;
};

static struct request request_for(const char *verb, const struct kv_block_key *key)
{
    return (struct request){.verb = verb, .name = name_of(key)};
}

/* Of the key, too: an answer to another request is not taken for ours. */
static uint64_t sum_of(const struct name *name, const void *value, size_t len)
{
    return kv_checksum_add(kv_checksum_add(0, name->text, name->len), value, len);
}

static int write_request(struct kv_redis_conn *c, const struct request *q, bool asking)
{
    static char ask[] = "*1\r\n$6\r\nASKING\r\n", end[] = "\r\n$2\r\nNX\r\n";
    char head[HEAD_CHARS + 32];
    uint8_t sum[8];
    int n = snprintf(head, sizeof head, "*%d\r\n$%zu\r\n%s\r\n$%u\r\n%.*s\r\n", q->value ? 4 : 2,
                     strlen(q->verb), q->verb, q->name.len, (int)q->name.len, q->name.text);
    if (q->value)
        n += snprintf(head + n, sizeof head - (size_t)n, "$%zu\r\n", sizeof sum + q->len);
    assert((size_t)n < sizeof head);
    uint64_t check = q->value ? sum_of(&q->name, q->value, q->len) : 0;
    for (unsigned i = 0; i < sizeof sum; i++)
        sum[i] = (uint8_t)(check >> 8 * i);
    struct iovec iov[] = {{ask, asking ? sizeof ask - 1 : 0},
                          {head, (size_t)n},
                          {sum, sizeof sum},
                          {(void *)(uintptr_t)q->value, q->len},
                          {end, sizeof end - 1}};
    return kv_redis_write(c, iov + !asking, q->value ? 5 - !asking : 2 - !asking);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* What an error that is no redirection means; -EAGAIN: later, or elsewhere. */
static int error_of(const char *text)
{
    static const char *const later[] = {"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN",
                                        "READONLY"};
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        if (begins(text, later[i]))
            return -EAGAIN;
    if (begins(text, "OOM"))
        return -ENOSPC;
    hw_warn(HW_CAT_KV, "Redis answers %.100s", text);
    return -EPROTO;
}

/* Sends a request to whoever serves its slot; *conn has the rest of the answer.  0, -EAGAIN,
 * -ENOSPC, -ECONNRESET, -EPROTO. */
static int perform(struct kv_redis *r, struct channel *ch, const struct request *q,
                   struct kv_redis_reply *reply, struct kv_redis_conn **conn)
{
    uint16_t slot = kv_redis_slot(q->name.text, q->name.len), node = owner_of(r, slot);
    bool asking = false;
    char why[RPC_WHY_CHARS];
    for (int tries = 0; tries < TRIES; tries++) {
        struct kv_redis_conn *c = node == NO_NODE ? NULL : conn_of(r, ch, node, why);
        if (!c) {
            if (map_again(r, ch) && all_rest(r))
                return -ECONNRESET;
            uint16_t before = node;
            node = owner_of(r, slot);
            asking = false;
            if (node == before)
                return -EAGAIN;
            continue;
        }
        int rc = write_request(c, q, asking);
        if (rc == 0 && asking) /* the answer to ASKING */
            rc = kv_redis_next(&c->reader, reply);
        if (rc == 0)
            rc = kv_redis_next(&c->reader, reply);
        if (rc) { /* an idle connection may have ended: dial again, once the node is given a rest */
            lose(ch, node);
            if (rc == -ETIMEDOUT || tries > 0)
                rest_node(r, node, strerror(-rc));
            continue;
        }
        bool moved = reply->kind == KV_REDIS_ERROR && begins(reply->text, "MOVED ");
        bool ask = reply->kind == KV_REDIS_ERROR && begins(reply->text, "ASK ");
        if (!moved && !ask) {
            *conn = c;
            return reply->kind == KV_REDIS_ERROR ? error_of(reply->text) : 0;
        }
        asking = ask;
        node = follow(r, node, reply->text, moved);
    }
    return -EAGAIN;
}

int kv_redis_put(struct kv_redis *r, uint32_t channel, const struct kv_block_key *key,
                 const void *bytes, uint32_t len)
{
    assert(channel < r->channel_count);
    struct request q = request_for("SET", key);
    struct kv_redis_reply reply;
    struct kv_redis_conn *c;
    q.value = len ? bytes : "";
    q.len = len;
    int rc = perform(r, &r->channels[channel], &q, &reply, &c);
    if (rc)
        return rc;
    if (reply.kind == KV_REDIS_STATUS || reply.kind == KV_REDIS_NIL)
        return reply.kind == KV_REDIS_NIL ? -EEXIST : 0;
    lose_conn(&r->channels[channel], c);
    return -EPROTO;
}

/* ---- reading ---- */

static int make_room(struct channel *ch, size_t len)
{
    if (len <= ch->room && ch->value)
        return 0;
    uint8_t *larger = realloc(ch->value, len ? len : 1);
    if (!larger)
        return -ENOMEM;
    ch->value = larger;
    ch->room = len;
    return 0;
}

/* The value behind the head of an answer to GET.  *broken: the connection is of no more use. */
static int take_value(struct channel *ch, struct kv_redis_conn *c, const struct kv_block_key *key,
                      const struct kv_redis_reply *head, kv_redis_take *take, void *user,
                      bool *broken)
{
    uint8_t sum[8];
    if (head->kind == KV_REDIS_NIL)
        return -ENOENT;
    size_t len = head->kind == KV_REDIS_BULK ? (size_t)head->number : 0;
    if (len < sizeof sum || make_room(ch, len - sizeof sum)) {
        *broken = true;
        return len < sizeof sum ? -EPROTO : -ENOMEM;
    }
    len -= sizeof sum;
    int rc = kv_redis_bulk(&c->reader, sum, sizeof sum, false);
    if (rc == 0)
        rc = kv_redis_bulk(&c->reader, ch->value, len, true);
    if (rc) {
        *broken = true;
        return rc;
    }
    uint64_t told = 0;
    for (unsigned i = 0; i < sizeof sum; i++)
        told |= (uint64_t)sum[i] << 8 * i;
    struct name name = name_of(key);
    if (told != sum_of(&name, ch->value, len))
        return -EPROTO;
    return take(user, ch->value, (uint32_t)len);
}

int kv_redis_get(struct kv_redis *r, uint32_t channel, const struct kv_block_key *key,
                 kv_redis_take *take, void *user)
{
    assert(channel < r->channel_count);
    struct channel *ch = &r->channels[channel];
    struct request q = request_for("GET", key);
    struct kv_redis_reply reply;
    struct kv_redis_conn *c;
    bool broken = false;
    int rc = perform(r, ch, &q, &reply, &c);
    if (rc)
        return rc == -EAGAIN ? -ENOENT : rc;
    rc = take_value(ch, c, key, &reply, take, user, &broken);
    if (broken)
        lose_conn(ch, c);
    return broken && rc != -ENOMEM ? -ENOENT : rc;
}

/* A request whose answer was not waited for. */
struct sent {
    uint16_t node;
    uint64_t conn; /* its number; 0: it could not be sent */
};

/* Sends to where the map points. */
static struct sent send_ahead(struct kv_redis *r, struct channel *ch, const struct request *q)
{
    uint16_t node = owner_of(r, kv_redis_slot(q->name.text, q->name.len));
    char why[RPC_WHY_CHARS];
    struct kv_redis_conn *c = node == NO_NODE ? NULL : conn_of(r, ch, node, why);
    if (c && write_request(c, q, false) == 0)
        return (struct sent){node, c->number};
    if (c)
        lose(ch, node); /* with it, what was sent before: it is asked again */
    return (struct sent){0};
}

/* The head of the next answer of that node.  NULL: lost, or an error: ask again alone. */
static struct kv_redis_conn *next_answer(struct channel *ch, struct sent sent,
                                         struct kv_redis_reply *reply)
{
    struct kv_redis_conn *c = sent.conn ? ch->conns[sent.node] : NULL;
    if (!c || c->number != sent.conn)
        return NULL;
    kv_redis_extend(c);
    if (kv_redis_next(&c->reader, reply)) {
        lose(ch, sent.node);
        return NULL;
    }
    return reply->kind == KV_REDIS_ERROR ? NULL : c;
}

void kv_redis_get_many(struct kv_redis *r, uint32_t channel, const struct kv_redis_want *wants,
                       uint32_t count, kv_redis_take *take, kv_redis_came *came)
{
    assert(channel < r->channel_count && count <= PIPELINE);
    struct channel *ch = &r->channels[channel];
    struct sent sent[PIPELINE];
    bool again[PIPELINE];
    for (uint32_t i = 0; i < count; i++) {
        struct request q = request_for("GET", &wants[i].key);
        sent[i] = send_ahead(r, ch, &q);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct kv_redis_reply reply;
        bool broken = false;
        struct kv_redis_conn *c = next_answer(ch, sent[i], &reply);
        int rc = c ? take_value(ch, c, &wants[i].key, &reply, take, wants[i].user, &broken) : 0;
        if (broken)
            lose(ch, sent[i].node);
        again[i] = !c || broken;
        if (!again[i])
            came(wants[i].user, rc);
    }
    for (uint32_t i = 0; i < count; i++)
        if (again[i])
            came(wants[i].user, kv_redis_get(r, channel, &wants[i].key, take, wants[i].user));
}

static int has_one(struct kv_redis *r, struct channel *ch, const struct kv_block_key *key,
                   bool *there)
{
    struct request q = request_for("EXISTS", key);
    struct kv_redis_reply reply;
    struct kv_redis_conn *c;
    int rc = perform(r, ch, &q, &reply, &c);
    *there = false;
    if (rc)
        return rc == -EAGAIN ? 0 : rc;
    if (reply.kind != KV_REDIS_INTEGER) {
        lose_conn(ch, c);
        return -EPROTO;
    }
    *there = reply.number == 1;
    return 0;
}

static int has_some(struct kv_redis *r, struct channel *ch, const struct kv_block_key *keys,
                    uint32_t count, bool *there)
{
    struct sent sent[PIPELINE];
    bool again[PIPELINE];
    for (uint32_t i = 0; i < count; i++) {
        struct request q = request_for("EXISTS", &keys[i]);
        sent[i] = send_ahead(r, ch, &q);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct kv_redis_reply reply;
        struct kv_redis_conn *c = next_answer(ch, sent[i], &reply);
        again[i] = !c || reply.kind != KV_REDIS_INTEGER;
        if (c && again[i])
            lose(ch, sent[i].node);
        there[i] = !again[i] && reply.number == 1;
    }
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = again[i] ? has_one(r, ch, &keys[i], &there[i]) : 0;
    return rc;
}

int kv_redis_has(struct kv_redis *r, uint32_t channel, const struct kv_block_key *keys,
                 uint32_t count, bool *there)
{
    assert(channel < r->channel_count);
    bool some[PIPELINE];
    bool *all = calloc(count ? count : 1, sizeof *all);
    int rc = all ? 0 : -ENOMEM;
    for (uint32_t at = 0, n; at < count && rc == 0; at += n) {
        n = count - at < PIPELINE ? count - at : PIPELINE;
        rc = has_some(r, &r->channels[channel], keys + at, n, some);
        memcpy(all + at, some, n * sizeof *all);
    }
    if (rc == 0)
        memcpy(there, all, count * sizeof *all);
    free(all);
    return rc;
}

/* ---- life ---- */

void kv_redis_close(struct kv_redis *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < r->channel_count; i++) {
        for (uint32_t n = 0; n < r->node_count; n++)
            kv_redis_conn_close(r->channels[i].conns[n]);
        free(r->channels[i].value);
    }
    rpc_security_fini(&r->security);
    explicit_bzero(r->password, sizeof r->password);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* One HOST[:PORT] of the list. */
static int read_server(const char *text, size_t len, struct rpc_addr *out, char why[RPC_WHY_CHARS])
{
    char one[RPC_ADDR_HOST_CHARS + 8];
    if (len + sizeof ":6379" > sizeof one) {
        snprintf(why, RPC_WHY_CHARS, "%.60s...: too long for an address", text);
        return -ENAMETOOLONG;
    }
    memcpy(one, text, len);
    one[len] = '\0';
    const char *bracket = strrchr(one, ']');
    if (!strchr(bracket ? bracket : one, ':'))
        snprintf(one + len, sizeof one - len, ":%d", KV_REDIS_PORT);
    int rc = rpc_addr_parse(one, out, why);
    if (rc)
        return rc;
    if (out->scheme == RPC_SCHEME_TCP && out->host[0])
        return 0;
    snprintf(why, RPC_WHY_CHARS, "'%.*s' is not HOST or HOST:PORT", (int)len, text);
    return -EINVAL;
}

int kv_redis_check(const char *servers, char why[RPC_WHY_CHARS])
{
    for (;; servers++) {
        struct rpc_addr addr;
        size_t len = strcspn(servers, ",");
        int rc = read_server(servers, len, &addr, why);
        servers += len;
        if (rc || !*servers)
            return rc;
    }
}

static int add_server(struct kv_redis *r, const char *text, size_t len, char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr;
    int rc = read_server(text, len, &addr, why);
    if (rc)
        return rc;
    if (number_of(r, &addr) == NO_NODE) {
        snprintf(why, RPC_WHY_CHARS, "more than %d servers", KV_REDIS_NODES_MAX);
        return -EINVAL;
    }
    return is_password_safe(r, &addr, why) ? 0 : -EPERM;
}

static int add_servers(struct kv_redis *r, const char *text, char why[RPC_WHY_CHARS])
{
    for (;; text++) {
        size_t len = strcspn(text, ",");
        int rc = add_server(r, text, len, why);
        text += len;
        if (rc || !*text)
            return rc;
    }
}

/* The first map; says why there is none. */
static int find_slots(struct kv_redis *r, char why[RPC_WHY_CHARS])
{
    char cause[RPC_WHY_CHARS] = "no memory", name[RPC_ADDR_HOST_CHARS + 8];
    int rc = -ECONNRESET;
    uint32_t i = 0;
    for (uint32_t count = r->node_count; i < count && rc; i++)
        rc = map_from(r, &r->channels[0], i, cause);
    rpc_addr_format(&r->nodes[i - 1].addr, name, sizeof name);
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "%.80s: %.150s", name, cause);
    return rc;
}

int kv_redis_open(const struct kv_redis_options *o, struct kv_redis **out, char why[RPC_WHY_CHARS])
{
    assert(o->channels > 0 && o->channels <= KV_REDIS_CHANNELS_MAX && o->timeout_ns > 0);
    struct kv_redis *r = calloc(1, sizeof *r + o->channels * sizeof r->channels[0]);
    snprintf(why, RPC_WHY_CHARS, "%s", "");
    if (!r)
        return -ENOMEM;
    pthread_mutex_init(&r->lock, NULL);
    r->channel_count = o->channels;
    r->timeout_ns = o->timeout_ns;
    rpc_security_copy(&r->security, o->security);
    r->tls = r->security.tls != NULL;
    const char *user = o->user ? o->user : "", *password = o->password ? o->password : "";
    int rc = strlen(user) < LOGIN_CHARS && strlen(password) < LOGIN_CHARS ? 0 : -ENAMETOOLONG;
    snprintf(r->user, sizeof r->user, "%s", user);
    snprintf(r->password, sizeof r->password, "%s", password);
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "name or password is longer than %d", LOGIN_CHARS - 1);
    for (uint32_t s = 0; s < KV_REDIS_SLOTS; s++)
        r->owner[s] = NO_NODE;
    if (rc == 0)
        rc = add_servers(r, o->servers, why);
    if (rc == 0)
        rc = find_slots(r, why);
    if (rc) {
        kv_redis_close(r);
        return rc;
    }
    *out = r;
    return 0;
}
