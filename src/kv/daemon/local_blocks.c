/* local_blocks.c - requests of local clients about blocks, and copies out of their staging areas.
 *
 * A commit copies first and hashes the copy (kv_blocks_put_write).  So the block is the same for
 * every reader, whatever the client does to its staging area meanwhile.  A large copy takes several
 * turns, so that requests for small values do not wait for it. */
#include "kv/daemon/client_slots.h"
#include "kv/daemon/local_requests.h"
#include "kv/daemon/permits.h"
#include "kv/daemon/remote/remote.h"
#include "kv/daemon/view_peers.h"

#include "wire/le.h"

#include <assert.h>
#include <string.h>

/* ---- copies ---- */

static void copy_add(struct kv_daemon *d, struct kv_pending *p, const struct kv_block_request *r)
{
    p->state = PENDING_COPYING;
    p->copy = (struct kv_block_copy){.ticket = r->handle, .at = (uint32_t)r->at, .len = r->len};
    p->next = NULL;
    p->prev = d->copying_last;
    *(d->copying_last ? &d->copying_last->next : &d->copying) = p;
    d->copying_last = p;
}

static void copy_remove(struct kv_daemon *d, struct kv_pending *p)
{
    assert(p->state == PENDING_COPYING);
    *(p->prev ? &p->prev->next : &d->copying) = p->next;
    *(p->next ? &p->next->prev : &d->copying_last) = p->prev;
    p->state = PENDING_IDLE;
}

void kv_local_copy_forget(struct kv_pending *p)
{
    copy_remove(p->client->daemon, p);
    p->busy = false;
}

/* Goes on copying the first c->len bytes of a block, as far as this turn allows; c->done: how far.
 */
static enum kv_result copy_some(struct kv_daemon *d, struct kv_client_slot *s,
                                struct kv_block_copy *c)
{
    uint64_t done;
    enum kv_result result =
        kv_blocks_put_written(d->blocks, &s->holder, c->ticket, d->now_ns, &done);
    if (result != KV_OK)
        return result;
    uint32_t most = d->turn_bytes < KV_TURN_BYTES ? KV_TURN_BYTES - d->turn_bytes : 0;
    uint32_t n = done < c->len ? c->len - (uint32_t)done : 0;
    n = n < most ? n : most;
    c->done = (uint32_t)done + n;
    d->turn_bytes += n;
    return kv_blocks_put_write(d->blocks, &s->holder, c->ticket, done,
                               s->region.staging + c->at + done, n, d->now_ns);
}

static void copy_advance(struct kv_daemon *d, struct kv_pending *p)
{
    struct kv_block_holder *holder = &p->client->holder;
    struct kv_blocks_put put;
    enum kv_result result = copy_some(d, p->client, &p->copy);
    if (result == KV_OK && p->copy.done < p->copy.len)
        return;
    copy_remove(d, p);
    if (result == KV_OK && kv_blocks_put_look(d->blocks, holder, p->copy.ticket, &put) &&
        !kv_daemon_sole_blocks(d, &put.key, true)) { /* the view has changed since its start */
        kv_remote_put_move(d, p, &put);
        return;
    }
    if (result == KV_OK)
        result = kv_blocks_put_commit(d->blocks, holder, p->copy.ticket, d->now_ns);
    wire_store32(d->scratch->answer, 1);
    kv_client_slot_answer(p, result, d->scratch->answer,
                          result == KV_OK ? KV_BLOCK_COUNT_BYTES : 0);
}

uint32_t kv_local_copies_advance(struct kv_daemon *d)
{
    uint32_t events = 0;
    while (d->copying && d->turn_bytes < KV_TURN_BYTES) {
        copy_advance(d, d->copying);
        events++;
    }
    return events;
}

/* ---- requests ---- */

struct answer {
    enum kv_result result;
    uint32_t len;
};

static struct answer put_start(struct kv_daemon *d, struct kv_client_slot *s,
                               const struct kv_block_request *r)
{
    uint64_t ticket;
    struct kv_scratch *scratch = d->scratch;
    if (d->config.min_copies > 1) /* nobody else is there to take one */
        return (struct answer){KV_TOO_FEW, 0};
    enum kv_result result =
        kv_blocks_swap_start(d->blocks, &s->holder, &scratch->keys[0], r->tenant, r->len,
                             kv_put_over(d, r, scratch->keys), d->now_ns, &ticket);
    if (result != KV_OK)
        return (struct answer){result, 0};
    wire_store64(scratch->answer, ticket);
    return (struct answer){KV_OK, KV_BLOCK_TICKET_BYTES};
}

static struct answer get(struct kv_daemon *d, struct kv_client_slot *s)
{
    struct answer a = {.len = 0};
    a.result = kv_client_slot_lease(d, s, &d->scratch->keys[0], false, &a.len);
    return a;
}

static enum kv_result verify(struct kv_daemon *d, struct kv_client_slot *s, uint64_t lease)
{
    struct kv_block_key key;
    bool known = kv_blocks_leased_key(d->blocks, &s->holder, lease, &key);
    enum kv_result result = kv_blocks_verify(d->blocks, &s->holder, lease, d->now_ns);
    if (result == KV_MISS && known) {
        kv_remote_tell_corrupt(d, &key); /* the owner's bytes may be corrupt, too */
        (void)kv_remote_repair(d, &key, 0);
    }
    return result;
}

static struct answer exists(struct kv_daemon *d, uint32_t count)
{
    struct kv_scratch *scratch = d->scratch;
    for (uint32_t i = 0; i < count; i++)
        scratch->answer[i] = kv_blocks_owns(d->blocks, &scratch->keys[i]);
    return (struct answer){KV_OK, count};
}

static struct answer look(struct kv_daemon *d)
{
    struct kv_blocks_look is;
    if (!kv_blocks_look(d->blocks, d->scratch->keys, &is))
        return (struct answer){KV_MISS, 0};
    return (struct answer){KV_OK, kv_block_look_encode(&is, d->scratch->answer)};
}

static struct answer stat(struct kv_daemon *d, uint64_t tenant)
{
    uint64_t fields[KV_BLOCK_STAT_FIELDS];
    struct kv_blocks_stat figures;
    kv_blocks_stat(d->blocks, &figures);
    figures.below_copies = hw_counter_load(&d->stats.block_below_copies);
    figures.names = kv_blocks_names(d->blocks, tenant, &figures.ends);
    memcpy(fields, &figures, sizeof(fields));
    for (uint32_t i = 0; i < KV_BLOCK_STAT_FIELDS; i++)
        wire_store64(d->scratch->answer + 8 * i, fields[i]);
    return (struct answer){KV_OK, sizeof(fields)};
}

static struct answer list(struct kv_daemon *d, uint64_t place)
{
    enum { STEPS = 1024 }; /* entries of the store in one request */
    const struct kv_block_key prefix = d->scratch->keys[0];
    struct kv_block_key keys[KV_BLOCK_LIST_MAX];
    uint8_t *out = d->scratch->answer;
    uint32_t count = KV_BLOCK_LIST_MAX, kept = 0;
    if (place > UINT32_MAX)
        return (struct answer){KV_REFUSED, 0};
    uint32_t next = kv_blocks_walk(d->blocks, (uint32_t)place, STEPS, keys, &count);
    memset(out, 0, KV_BLOCK_LIST_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        if (keys[i].len < prefix.len || memcmp(keys[i].bytes, prefix.bytes, prefix.len) != 0)
            continue;
        uint8_t *at = out + 8 + kept++ * (1 + KV_BLOCK_KEY_MAX);
        at[0] = keys[i].len;
        memcpy(at + 1, keys[i].bytes, keys[i].len);
    }
    wire_store32(out, next);
    wire_store32(out + 4, kept);
    return (struct answer){KV_OK, KV_BLOCK_LIST_BYTES};
}

static bool in_staging(const struct kv_region *region, uint64_t at, uint64_t len)
{
    return len > 0 && len <= region->staging_bytes && at <= region->staging_bytes - len;
}

static enum kv_result put_staged(struct kv_daemon *d, struct kv_client_slot *s,
                                 const struct kv_block_request *r)
{
    struct kv_block_copy copy = {.ticket = r->handle, .at = (uint32_t)r->at, .len = r->len};
    if (!in_staging(&s->region, r->at, r->len))
        return KV_REFUSED;
    return kv_remote_put_is(r->handle) ? kv_remote_put_staged(d, s, r) : copy_some(d, s, &copy);
}

/* All operations but a commit, which is answered when its copy is done. */
static struct answer execute(struct kv_daemon *d, struct kv_client_slot *s,
                             const struct kv_block_request *r)
{
    struct kv_blocks *b = d->blocks;
    const struct kv_block_key *key = &d->scratch->keys[0];
    uint64_t expires;
    switch (r->op) {
    case KV_BLOCK_PUT_START:
        return put_start(d, s, r);
    case KV_BLOCK_PUT_ABORT:
        return (struct answer){kv_remote_put_is(r->handle)
                                   ? kv_remote_put_abort(d, s, r->handle)
                                   : kv_blocks_put_abort(b, &s->holder, r->handle, d->now_ns),
                               0};
    case KV_BLOCK_GET:
        return get(d, s);
    case KV_BLOCK_VERIFY:
        return (struct answer){verify(d, s, r->handle), 0};
    case KV_BLOCK_RENEW:
        return (struct answer){kv_blocks_renew(b, &s->holder, r->handle, d->now_ns, &expires), 0};
    case KV_BLOCK_RELEASE:
        return (struct answer){kv_blocks_release(b, &s->holder, r->handle, d->now_ns), 0};
    case KV_BLOCK_DELETE:
        if (r->flag && !kv_blocks_version_of(b, key, r->handle))
            return (struct answer){KV_MISS, 0};
        return (struct answer){kv_blocks_delete(b, key, d->now_ns), 0};
    case KV_BLOCK_EXISTS:
        return exists(d, r->key_count);
    case KV_BLOCK_LOOK:
        return look(d);
    case KV_BLOCK_STAT:
        return stat(d, r->tenant);
    case KV_BLOCK_LIST:
        return list(d, r->handle);
    case KV_BLOCK_PUT_STAGED:
        return (struct answer){put_staged(d, s, r), 0};
    case KV_BLOCK_PUT_COMMIT:
    case KV_BLOCK_OP_END:
        break;
    }
    return (struct answer){KV_REFUSED, 0};
}

/* ---- local or remote ---- */

static bool is_sole(const struct kv_daemon *d, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (kv_share_of(d, &d->scratch->keys[i]) != KV_SHARE_SOLE)
            return false;
    return true;
}

/* Whether the key's block is here and may be read without asking another owner.  Of a named value
 * another owner may have a newer one. */
static bool may_read(struct kv_daemon *d, const struct kv_block_key *key)
{
    if (kv_block_key_is_named(key))
        return kv_permit_reads(d, key);
    return kv_share_of(d, key) == KV_SHARE_COPY && kv_blocks_owns(d->blocks, key);
}

/* Whether a change of a named value has to wait also where nobody else owns it. */
static bool must_wait(const struct kv_daemon *d, const struct kv_block_key *key)
{
    return d->now_ns < d->permits_until_ns && kv_block_key_is_named(key);
}

struct kv_blocks *kv_daemon_sole_blocks(struct kv_daemon *d, const struct kv_block_key *key,
                                        bool change)
{
    if (!d->blocks || (change && (d->config.min_copies > 1 || must_wait(d, key))))
        return NULL;
    bool here = kv_share_of(d, key) == KV_SHARE_SOLE || (!change && may_read(d, key));
    return here ? d->blocks : NULL;
}

void kv_daemon_count_visit(struct kv_daemon *d, enum kv_result result)
{
    hw_counter_bump(&d->stats.requests, 1);
    kv_client_slots_count(d, result);
}

/* The remote request that this needs; NULL: none. */
static const struct kv_remote_kind *remote_for(struct kv_daemon *d,
                                               const struct kv_block_request *r)
{
    const struct kv_block_key *key = &d->scratch->keys[0];
    bool change = r->op == KV_BLOCK_PUT_START || r->op == KV_BLOCK_DELETE;
    if (r->key_count == 0 ||
        ((d->alone || is_sole(d, r->key_count)) && !(change && must_wait(d, key))))
        return NULL;
    switch (r->op) {
    case KV_BLOCK_PUT_START:
        return &kv_remote_kind_put_start;
    case KV_BLOCK_GET:
        return may_read(d, key) ? NULL : &kv_remote_kind_get;
    case KV_BLOCK_LOOK:
        return may_read(d, key) ? NULL : &kv_remote_kind_look;
    case KV_BLOCK_DELETE:
        return &kv_remote_kind_delete;
    case KV_BLOCK_EXISTS:
        return &kv_remote_kind_keys;
    default:
        return NULL;
    }
}

/* Starts what takes more than this turn.  True: started, or answered. */
static bool serve_later(struct kv_daemon *d, struct kv_pending *p, const struct kv_block_request *r)
{
    const struct kv_remote_kind *kind = remote_for(d, r);
    if (kind) {
        kv_remote_start(d, p, kind, r, d->scratch->keys);
        return true;
    }
    if (r->op != KV_BLOCK_PUT_COMMIT || !in_staging(&p->client->region, r->at, r->len))
        return false;
    if (kv_remote_put_is(r->handle))
        kv_remote_put_commit(d, p, r);
    else
        copy_add(d, p, r);
    return true;
}

void kv_local_serve_block(struct kv_daemon *d, struct kv_pending *p, const uint8_t *value)
{
    struct kv_client_slot *s = p->client;
    struct kv_block_request r;
    struct answer a = {.result = KV_REFUSED};
    if (p->value_len > s->region.value_max) {
        a.result = KV_TOO_LARGE;
    } else if (d->blocks) {
        memcpy(d->scratch->request, value, p->value_len);
        if (kv_block_request_decode(d->scratch->request, p->value_len, &r, d->scratch->keys) == 0) {
            if (r.op == KV_BLOCK_PUT_START)
                kv_client_slot_stages(d, s);
            if (serve_later(d, p, &r))
                return;
            a = execute(d, s, &r);
        }
    }
    kv_client_slot_answer(p, a.result, d->scratch ? d->scratch->answer : NULL, a.len);
}
