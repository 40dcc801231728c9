#include "kv/daemon/client_slots.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ---- attach and detach ---- */

static void activate(struct kv_daemon *d, struct kv_client_slot *s)
{
    assert(!s->active);
    s->active = true;
    s->used_ns = d->now_ns;
    s->next = NULL;
    s->prev = d->active_last;
    *(s->prev ? &s->prev->next : &d->active) = s;
    d->active_last = s;
    atomic_store_explicit(&s->region.daemon->sleeps, 0, memory_order_relaxed);
}

static void deactivate(struct kv_daemon *d, struct kv_client_slot *s)
{
    assert(s->active);
    s->active = false;
    *(s->prev ? &s->prev->next : &d->active) = s->next;
    *(s->next ? &s->next->prev : &d->active_last) = s->prev;
}

static void publish(struct kv_daemon *d, struct kv_client_slot *s)
{
    atomic_store_explicit(&s->region.daemon->crowd, d->crowd, memory_order_relaxed);
    atomic_store_explicit(&s->region.daemon->peers_up, d->peers_up, memory_order_relaxed);
}

void kv_client_slots_publish(struct kv_daemon *d)
{
    for (struct kv_client_slot *s = d->clients; s; s = s->all_next)
        publish(d, s);
    atomic_store_explicit(&d->stats.clients, d->client_count, memory_order_relaxed);
    atomic_store_explicit(&d->stats.peers_up, d->peers_up, memory_order_relaxed);
}

void kv_daemon_set_crowd(struct kv_daemon *d, uint32_t threads)
{
    if (d->crowd == threads)
        return;
    d->crowd = threads;
    kv_client_slots_publish(d);
}

static void link_client(struct kv_daemon *d, struct kv_client_slot *s)
{
    s->all_next = d->clients;
    if (d->clients)
        d->clients->all_prev = s;
    d->clients = s;
    d->client_count++;
    activate(d, s);
    hw_counter_bump(&d->stats.attached, 1);
    kv_client_slots_publish(d);
}

int kv_daemon_attach(struct kv_daemon *d, void *map, const struct kv_region_shape *shape,
                     kv_ring_fn *ring, void *user, struct kv_client_slot **out)
{
    if (!kv_shape_ok(shape))
        return -EINVAL;
    if (d->client_count >= d->config.max_clients)
        return -EUSERS;
    struct kv_memory *m = &d->config.memory;
    struct kv_client_slot *s =
        m->alloc(m->user, sizeof(*s) + shape->depth * sizeof(struct kv_pending));
    if (!s)
        return -ENOMEM;
    kv_region_map(&s->region, map, shape);
    s->daemon = d;
    s->generation = ++d->generations;
    s->ring = ring;
    s->user = user;
    s->holder = (struct kv_block_holder)KV_BLOCK_HOLDER_INIT;
    s->remote_puts = (struct kv_claim_list)KV_CLAIM_LIST_INIT;
    for (uint32_t i = 0; i < shape->depth; i++) {
        s->pending[i].client = s;
        s->pending[i].slot = (uint16_t)i;
    }
    link_client(d, s);
    *out = s;
    return 0;
}

static void leave_wake_list(struct kv_daemon *d, struct kv_client_slot *s)
{
    struct kv_client_slot **at = &d->wake;
    while (s->to_wake && *at != s)
        at = &(*at)->wake_next;
    if (s->to_wake)
        *at = s->wake_next;
    s->to_wake = false;
}

void kv_client_slot_free(struct kv_daemon *d, struct kv_client_slot *s)
{
    if (s->active)
        deactivate(d, s);
    leave_wake_list(d, s);
    d->staging_clients -= s->staging_left > 0;
    *(s->all_prev ? &s->all_prev->all_next : &d->clients) = s->all_next;
    if (s->all_next)
        s->all_next->all_prev = s->all_prev;
    d->client_count--;
    d->config.memory.release(d->config.memory.user, s);
    kv_client_slots_publish(d);
}

void kv_client_slot_wake(struct kv_daemon *d, struct kv_client_slot *s)
{
    if (!s->active && !s->broken)
        activate(d, s);
}

uint32_t kv_client_slot_generation(const struct kv_client_slot *s)
{
    return s->generation;
}

bool kv_client_slot_broken(const struct kv_client_slot *s)
{
    return s->broken;
}

/* ---- answers ---- */

void kv_client_slots_count(struct kv_daemon *d, enum kv_result result)
{
    _Atomic uint64_t *const counts[KV_RESULT_COUNT] = {
        [KV_OK] = &d->stats.ok,
        [KV_MISS] = &d->stats.miss,
        [KV_FULL] = &d->stats.full,
        [KV_TOO_LARGE] = &d->stats.too_large,
        [KV_PEER_LOST] = &d->stats.peer_lost,
        [KV_TIMEOUT] = &d->stats.timeout,
        [KV_REFUSED] = &d->stats.refused,
        [KV_EXPIRED] = &d->stats.expired,
        [KV_PUT_EXPIRED] = &d->stats.put_expired,
        [KV_NOT_OWNER] = &d->stats.not_owner,
        [KV_TOO_FEW] = &d->stats.too_few,
        [KV_EXISTS] = &d->stats.exists,
    };
    hw_counter_bump(counts[result], 1);
}

static bool is_asleep(const struct kv_client_slot *s)
{
    return atomic_load_explicit(&s->region.client->sleeps, memory_order_relaxed);
}

static void note_answered(struct kv_daemon *d, struct kv_client_slot *s)
{
    if (s->to_wake)
        return;
    s->to_wake = true;
    s->wake_next = d->wake;
    d->wake = s;
}

void kv_client_slot_answer(struct kv_pending *p, enum kv_result result, const void *value,
                           uint32_t len)
{
    struct kv_client_slot *s = p->client;
    assert(p->busy && p->state == PENDING_IDLE && p->generation == s->generation);
    const struct kv_region *r = &s->region;
    if (UNLIKELY(len > r->value_max)) { /* another client had larger slots */
        result = KV_TOO_LARGE;
        len = 0;
    }
    struct kv_response_line *line = &r->responses[s->answered & r->mask];
    line->slot = p->slot;
    line->result = (uint8_t)result;
    line->value_len = len;
    if (len)
        memcpy(len <= KV_RESPONSE_INLINE ? line->value : kv_region_slot(r, p->slot), value, len);
    p->busy = false;
    s->used_ns = s->daemon->now_ns;
    kv_client_slots_count(s->daemon, result);
    /* Pairs with the acquire in kv_port_has_answer. */
    atomic_store_explicit(&line->seq, ++s->answered, memory_order_release);
    note_answered(s->daemon, s);
    if (!s->active && !s->broken)
        activate(s->daemon, s); /* the next request is likely soon: the client need not ring */
}

void kv_client_slots_wake(struct kv_daemon *d)
{
    /* One fence for all answers of this turn.  It pairs with the one in kv_port_arm: either we see
     * that the client sleeps, or the client sees our answer. */
    atomic_thread_fence(memory_order_seq_cst);
    /* Look at all flags before waking anybody: while the daemon wakes one client, another may find
     * its answer, ask again and sleep for the next one. */
    struct kv_client_slot *asleep = NULL;
    while (d->wake) {
        struct kv_client_slot *s = d->wake;
        d->wake = s->wake_next;
        s->to_wake = false;
        if (is_asleep(s)) {
            s->wake_next = asleep;
            asleep = s;
        }
    }
    for (struct kv_client_slot *s = asleep; s; s = s->wake_next) {
        hw_counter_bump(&d->stats.wakeups, 1);
        s->ring(s->user);
    }
}

/* ---- staging areas ---- */

void kv_client_slot_stages(struct kv_daemon *d, struct kv_client_slot *s)
{
    d->staging_clients += s->staging_left == 0 && s->region.staging_bytes > 0;
    s->staging_left = s->region.staging_bytes;
}

bool kv_daemon_staging(const struct kv_daemon *d)
{
    return d->staging_clients > 0;
}

/* A client writes only for a put that the daemon has let it start, and the daemon reads only for
 * one or for a request in progress. */
static bool is_putting(const struct kv_client_slot *s)
{
    bool busy = s->holder.open_puts.count > 0 || s->remote_puts.count > 0;
    for (uint32_t i = 0; i < s->region.depth && !busy; i++)
        busy = s->pending[i].busy;
    return busy;
}

uint8_t *kv_client_slot_unstage(struct kv_client_slot *s, uint64_t idle_since_ns, uint32_t *len)
{
    enum { STEP = 1 << 20 }; /* the kernel takes some 200 us to take so much back */
    if (s->staging_left == 0 || s->used_ns > idle_since_ns || kv_client_slot_has_request(s) ||
        is_putting(s))
        return NULL;
    uint8_t *at = s->region.staging + (s->region.staging_bytes - s->staging_left);
    *len = s->staging_left < STEP ? s->staging_left : STEP;
    s->staging_left -= *len;
    s->daemon->staging_clients -= s->staging_left == 0;
    return at;
}

/* ---- leases ---- */

enum kv_result kv_client_slot_lease(struct kv_daemon *d, struct kv_client_slot *s,
                                    const struct kv_block_key *key, bool confirmed, uint32_t *len)
{
    struct kv_block_lease lease;
    enum kv_result result = (confirmed ? kv_blocks_get_confirmed : kv_blocks_get)(
        d->blocks, &s->holder, key, d->now_ns, &lease);
    if (result != KV_OK)
        return result;
    struct kv_block_granted granted = {.handle = lease.handle,
                                       .offset = lease.offset,
                                       .checksum = lease.checksum,
                                       .len = lease.len,
                                       .lasts_ms =
                                           (uint32_t)((lease.expires_ns - d->now_ns) / HW_MS)};
    kv_block_granted_encode(&granted, d->scratch->answer);
    *len = KV_BLOCK_GRANTED_BYTES;
    return KV_OK;
}

/* ---- requests ---- */

static void client_break(struct kv_daemon *d, struct kv_client_slot *s, const char *how)
{
    hw_warn(HW_CAT_KV, "dropped a client: it %s", how);
    hw_counter_bump(&d->stats.broken, 1);
    s->broken = true;
    deactivate(d, s);
}

struct kv_pending *kv_client_slot_take(struct kv_daemon *d, struct kv_client_slot *s,
                                       uint32_t *timeout_us, const uint8_t **value)
{
    const struct kv_region *r = &s->region;
    const volatile struct kv_request_line *line = &r->requests[s->taken & r->mask];
    uint32_t slot = line->slot, len = line->value_len;
    s->taken++;
    if (slot >= r->depth || s->pending[slot].busy) {
        client_break(d, s,
                     slot >= r->depth ? "named a request slot that it does not have"
                                      : "used a busy request slot");
        return NULL;
    }
    struct kv_pending *p = &s->pending[slot];
    p->busy = true;
    p->generation = s->generation;
    p->op = line->op;
    p->value_len = len;
    p->key = (struct kv_key){.hi = line->key.hi, .lo = line->key.lo};
    *timeout_us = line->timeout_us;
    *value = len <= KV_REQUEST_INLINE ? (const uint8_t *)r->requests[(s->taken - 1) & r->mask].value
                                      : kv_region_slot(r, slot);
    return p;
}

/* Sets the flag that makes the client ring.  True: a request came before the client could see it.
 */
static bool announce_sleep(struct kv_client_slot *s)
{
    atomic_store_explicit(&s->region.daemon->sleeps, 1, memory_order_relaxed);
    /* Pairs with the fence in kv_port_must_ring. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!kv_client_slot_has_request(s))
        return false;
    atomic_store_explicit(&s->region.daemon->sleeps, 0, memory_order_relaxed);
    return true;
}

bool kv_client_slot_park(struct kv_daemon *d, struct kv_client_slot *s)
{
    if (announce_sleep(s))
        return false;
    deactivate(d, s);
    return true;
}

bool kv_client_slots_park(struct kv_daemon *d)
{
    bool all = true;
    for (struct kv_client_slot *s = d->active, *next; s; s = next) {
        next = s->next;
        all &= kv_client_slot_park(d, s);
    }
    return all;
}
