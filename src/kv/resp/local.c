/* local.c - values at this process's daemons, without a request: the session's thread visits the
 * daemon between two of its turns (kv_host_enter).
 *
 * A visit lasts until something may wait, or VISIT_BYTES were copied or hashed: so a pipeline of
 * short requests is one visit. */
#include "kv/daemon/host.h"
#include "kv/resp/session_impl.h"
#include "wire/le.h"

#include <string.h>

enum { VISIT_BYTES = 256 << 10 }; /* some 50 us: a turn of the daemon waits no longer */

void resp_leave(struct resp_session *s)
{
    if (s->visited)
        kv_host_leave(s->visited);
    s->visited = NULL;
}

static void enter(struct resp_session *s, struct kv_host *host)
{
    if (s->visited == host && s->visit_bytes < VISIT_BYTES)
        return;
    resp_leave(s);
    kv_host_enter(host);
    s->visited = host;
    s->visit_bytes = 0;
}

static uint64_t now_of(struct kv_host *host)
{
    return kv_daemon_time(kv_host_daemon(host));
}

void resp_local_fini(struct resp_session *s)
{
    for (uint32_t i = 0; i < s->options.host_count; i++) {
        struct kv_block_holder *holder = &s->holders[i];
        if (holder->leases.count == 0 && holder->open_puts.count == 0)
            continue;
        enter(s, s->options.hosts[i]);
        kv_blocks_leave(kv_daemon_blocks(kv_host_daemon(s->visited)), holder, now_of(s->visited));
    }
    resp_leave(s);
}

/* A key, where it is, and what to ask there. */
struct spot {
    struct kv_block_key key;
    struct kv_host *host;
    struct kv_block_holder *holder;
    struct kv_blocks *blocks; /* while the host is visited */
};

/* Visits the key's daemon.  False: another daemon has a part in it. */
static bool visit(struct resp_session *s, const void *name, size_t name_len, bool change,
                  struct spot *out)
{
    if (s->options.host_count == 0)
        return false;
    out->key = kv_named_key(s->tenant, name, name_len);
    struct kv_key route = kv_key_of(out->key.bytes, out->key.len);
    uint32_t index = kv_place_of(route, 1, s->options.host_count).daemon;
    out->host = s->options.hosts[index];
    out->holder = &s->holders[index];
    enter(s, out->host);
    out->blocks = kv_daemon_sole_blocks(kv_host_daemon(out->host), &out->key, change);
    return out->blocks != NULL;
}

static bool done(struct spot *at, enum kv_result is, enum kv_result *result)
{
    kv_daemon_count_visit(kv_host_daemon(at->host), is);
    *result = is;
    return true;
}

/* ---- reading ---- */

void resp_local_let_go(struct resp_session *s, struct resp_value *v)
{
    enter(s, v->host);
    (void)kv_blocks_release(kv_daemon_blocks(kv_host_daemon(v->host)), v->holder,
                            v->named.block.handle, now_of(v->host));
}

/* A lease on the value and where it is; KV_MISS, KV_FULL. */
static enum kv_result lease(struct resp_session *s, const struct spot *at, struct resp_value *out)
{
    struct kv_block_lease l;
    struct kv_block_ref *block = &out->named.block;
    uint64_t now = now_of(at->host);
    enum kv_result result = kv_blocks_get(at->blocks, at->holder, &at->key, now, &l);
    if (result != KV_OK)
        return result;
    *out = (struct resp_value){.host = at->host, .holder = at->holder};
    *block = (struct kv_block_ref){.len = l.len,
                                   .expires_ns = l.expires_ns,
                                   .lasts_ns = l.expires_ns - now,
                                   .checksum = l.checksum,
                                   .handle = l.handle};
    s->visit_bytes += l.len;
    return kv_blocks_bytes(at->blocks, at->holder, l.handle, 0, l.len, now, &block->data);
}

bool resp_local_get(struct resp_session *s, const struct resp_arg *name, struct resp_value *out,
                    enum kv_result *result)
{
    struct spot at;
    if (!visit(s, name->data, name->len, false, &at))
        return false;
    enum kv_result is = lease(s, &at, out);
    struct kv_named *v = &out->named;
    if (is != KV_OK)
        return done(&at, is, result);
    bool brief = v->block.len <= RESP_BRIEF_MAX;
    if (!brief)
        resp_leave(s); /* the lease keeps its bytes */
    bool intact = (brief || s->may_wait) &&
                  kv_checksum_add(0, v->block.data, v->block.len) == v->block.checksum &&
                  kv_named_read(v);
    bool ended = intact && v->end_ms && v->end_ms <= kv_named_now_ms();
    if (!brief)
        enter(s, at.host);
    if (intact && !ended)
        return done(&at, KV_OK, result);
    (void)kv_blocks_release(at.blocks, at.holder, v->block.handle, now_of(at.host));
    if (!ended || !brief || !kv_daemon_sole_blocks(kv_host_daemon(at.host), &at.key, true))
        return false;
    (void)kv_blocks_delete(at.blocks, &at.key,
                           now_of(at.host)); /* of the same visit: it is what was read */
    return done(&at, KV_MISS, result);
}

bool resp_local_look(struct resp_session *s, const struct resp_arg *name, struct kv_named *out,
                     enum kv_result *result)
{
    struct spot at;
    struct kv_blocks_look is;
    if (!visit(s, name->data, name->len, false, &at))
        return false;
    bool there = kv_blocks_look(at.blocks, &at.key, &is) &&
                 kv_named_read_look(out, is.end_ms, is.len, name->len);
    return done(&at, there ? KV_OK : KV_MISS, result);
}

/* ---- writing ---- */

bool resp_local_place(struct resp_session *s, const struct resp_arg *name, size_t len)
{
    struct spot at;
    struct kv_block_room room;
    if (len > KV_NAMED_MAX || name->len > KV_NAMED_NAME_MAX)
        return false;
    bool found = visit(s, name->data, name->len, true, &at) &&
                 kv_blocks_room_start(at.blocks, at.holder, &at.key, s->tenant,
                                      KV_NAMED_HEAD + len + name->len + KV_NAMED_TAIL,
                                      now_of(at.host), &room) == KV_OK;
    resp_leave(s);
    if (!found)
        return false; /* the request will be told why */
    s->placed = (struct resp_placed){.block = room.bytes,
                                     .len = (uint32_t)len,
                                     .ticket = room.ticket,
                                     .expires_ns = room.expires_ns,
                                     .key = at.key,
                                     .host = at.host,
                                     .holder = at.holder};
    wire_store64(room.bytes, 0);
    return true;
}

/* Hashes the block up to `len`, as soon as the bytes are there: they are in the cache. */
static void hash_placed(struct resp_placed *p, uint32_t len)
{
    p->sum = kv_checksum_add(p->sum, p->block + p->hashed, len - p->hashed);
    p->hashed = len;
}

void resp_local_placed(struct resp_session *s, uint32_t got)
{
    s->placed.got += got;
    hash_placed(&s->placed, KV_NAMED_HEAD + s->placed.got);
}

void resp_local_unplace(struct resp_session *s)
{
    struct resp_placed *p = &s->placed;
    if (!p->block)
        return;
    enter(s, p->host);
    (void)kv_blocks_put_abort(kv_daemon_blocks(kv_host_daemon(p->host)), p->holder, p->ticket,
                              now_of(p->host));
    resp_leave(s);
    p->block = NULL;
}

/* The value is in the store but for what the request says of it. */
static bool set_placed(struct resp_session *s, const struct kv_named_set *set,
                       enum kv_result *result)
{
    struct resp_placed *p = &s->placed;
    uint8_t *tail = p->block + KV_NAMED_HEAD + p->len;
    uint32_t name_len = (uint32_t)set->name_len;
    resp_leave(s);
    if (set->end_ms) {
        wire_store64(p->block, set->end_ms);
        p->sum = p->hashed = 0;
    }
    memcpy(tail, set->name, name_len);
    wire_store32(tail + name_len, name_len);
    hash_placed(p, KV_NAMED_HEAD + p->len + name_len + KV_NAMED_TAIL);
    enter(s, p->host);
    struct spot at = {.key = p->key, .host = p->host, .holder = p->holder};
    at.blocks = kv_daemon_sole_blocks(kv_host_daemon(at.host), &at.key, true);
    if (!at.blocks)
        return false; /* the members have changed meanwhile */
    p->block = NULL;
    return done(&at,
                kv_blocks_room_commit(at.blocks, at.holder, p->ticket, p->sum, !set->only_new,
                                      now_of(at.host)),
                result);
}

/* A put under way. */
struct put {
    struct spot at;
    uint64_t ticket;
    uint32_t written;
};

static enum kv_result append(struct resp_session *s, struct put *p, const void *data, uint32_t len)
{
    enum kv_result result = KV_OK;
    for (uint32_t done = 0, n; done < len && result == KV_OK; done += n) {
        enter(s, p->at.host);
        uint32_t room = VISIT_BYTES - s->visit_bytes;
        n = len - done < room ? len - done : room;
        result = kv_blocks_put_write(p->at.blocks, p->at.holder, p->ticket, p->written,
                                     (const uint8_t *)data + done, n, now_of(p->at.host));
        s->visit_bytes += n;
        p->written += n;
    }
    return result;
}

static enum kv_result fill(struct resp_session *s, struct put *p, const struct kv_named_set *set)
{
    enum { WHOLE = 1024 }; /* short ones are written in one piece */
    uint8_t whole[WHOLE], around[KV_NAMED_NAME_MAX + KV_NAMED_TAIL];
    uint32_t name_len = (uint32_t)set->name_len, tail_len = name_len + KV_NAMED_TAIL;
    bool brief = KV_NAMED_HEAD + set->len + tail_len <= WHOLE;
    uint8_t *tail = brief ? whole + KV_NAMED_HEAD + set->len : around;
    wire_store64(whole, set->end_ms);
    memcpy(tail, set->name, name_len);
    wire_store32(tail + name_len, name_len);
    if (brief) {
        memcpy(whole + KV_NAMED_HEAD, set->value, set->len);
        return append(s, p, whole, KV_NAMED_HEAD + set->len + tail_len);
    }
    enum kv_result result = append(s, p, whole, KV_NAMED_HEAD);
    result = result == KV_OK ? append(s, p, set->value, set->len) : result;
    return result == KV_OK ? append(s, p, tail, tail_len) : result;
}

bool resp_local_set(struct resp_session *s, const struct kv_named_set *set, enum kv_result *result)
{
    struct resp_value old;
    struct put p = {.written = 0};
    struct resp_arg name = {set->name, set->name_len};
    uint32_t len = KV_NAMED_HEAD + set->len + (uint32_t)set->name_len + KV_NAMED_TAIL;
    if (set->only_new) { /* a value past its end, which a get deletes, does not count */
        if (!resp_local_get(s, &name, &old, result))
            return false;
        if (*result == KV_OK)
            resp_local_let_go(s, &old);
        if (*result != KV_MISS) {
            *result = *result == KV_OK ? KV_EXISTS : *result;
            return true;
        }
    }
    if (s->placed.block && set->value == s->placed.block + KV_NAMED_HEAD)
        return set_placed(s, set, result);
    if (!visit(s, set->name, set->name_len, true, &p.at))
        return false;
    enum kv_result is = (set->only_new ? kv_blocks_put_start : kv_blocks_replace_start)(
        p.at.blocks, p.at.holder, &p.at.key, s->tenant, len, now_of(p.at.host), &p.ticket);
    if (is != KV_OK)
        return done(&p.at, is, result);
    is = fill(s, &p, set);
    enter(s, p.at.host);
    uint64_t now = now_of(p.at.host);
    bool sole = kv_daemon_sole_blocks(kv_host_daemon(p.at.host), &p.at.key, true) != NULL;
    if (sole && is == KV_OK)
        is = kv_blocks_put_commit(p.at.blocks, p.at.holder, p.ticket, now);
    else
        (void)kv_blocks_put_abort(p.at.blocks, p.at.holder, p.ticket, now);
    return sole && done(&p.at, is, result); /* else the members have changed meanwhile */
}

bool resp_local_delete(struct resp_session *s, const struct resp_arg *name, enum kv_result *result)
{
    struct spot at;
    return visit(s, name->data, name->len, true, &at) &&
           done(&at, kv_blocks_delete(at.blocks, &at.key, now_of(at.host)), result);
}
