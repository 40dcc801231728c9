/* seat.c - local clients: taking requests from their regions, answering, waking, parking. */
#include "kv/daemon/daemon_impl.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ---- coming and going ---- */

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

void kv_daemon_detach(struct kv_daemon *d, struct kv_client_slot *s)
{
    for (uint32_t i = 0; i < s->region.depth; i++) {
        struct kv_pending *p = &s->pending[i];
        if (p->busy && p->state == PENDING_COPYING)
            kv_local_copy_forget(p);
        else if (p->busy && p->state == PENDING_REMOTE)
            kv_remote_forget(p);
        else if (p->busy)
            kv_peer_forget(p);
    }
    if (d->blocks) {
        kv_remote_put_leave(d, s);
        kv_blocks_leave(d->blocks, &s->holder);
    }
    if (s->active)
        deactivate(d, s);
    leave_wake_list(d, s);
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

static void count_result(struct kv_daemon *d, enum kv_result result)
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
        [KV_STALE] = &d->stats.stale,
        [KV_EXISTS] = &d->stats.exists,
    };
    hw_counter_bump(counts[result], 1);
}

static bool is_asleep(const struct kv_client_slot *s)
{
    return atomic_load_explicit(&s->region.client->sleeps, memory_order_relaxed);
}

static void wake(struct kv_daemon *d, struct kv_client_slot *s)
{
    hw_counter_bump(&d->stats.wakeups, 1);
    s->ring(s->user);
}

static void note_answered(struct kv_daemon *d, struct kv_client_slot *s)
{
    if (d->config.plain) {
        atomic_thread_fence(memory_order_seq_cst); /* as in kv_client_slots_wake */
        if (is_asleep(s))
            wake(d, s);
    } else if (!s->to_wake) {
        s->to_wake = true;
        s->wake_next = d->wake;
        d->wake = s;
    }
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
    count_result(s->daemon, result);
    /* Pairs with the acquire in kv_port_has_answer. */
    atomic_store_explicit(&line->seq, ++s->answered, memory_order_release);
    note_answered(s->daemon, s);
    if (!s->active && !s->broken)
        activate(s->daemon, s); /* the next request is near: it need not ring for it */
}

void kv_client_slots_wake(struct kv_daemon *d)
{
    /* One for all answers of this turn; pairs with the one in kv_port_arm: either we see that the
     * client sleeps, or it sees our answer. */
    atomic_thread_fence(memory_order_seq_cst);
    /* All are looked at before any is woken: a wake-up takes so long that those who found their
     * answer meanwhile have asked again, and may sleep for the next one already. */
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
    for (struct kv_client_slot *s = asleep; s; s = s->wake_next)
        wake(d, s);
}

/* ---- requests ---- */

static bool has_request(const struct kv_client_slot *s)
{
    const struct kv_request_line *line = &s->region.requests[s->taken & s->region.mask];
    return atomic_load_explicit(&line->seq, memory_order_acquire) == s->taken + 1;
}

static void client_break(struct kv_daemon *d, struct kv_client_slot *s, const char *how)
{
    hw_warn(HW_CAT_KV, "a client is let go of: it %s", how);
    hw_counter_bump(&d->stats.broken, 1);
    s->broken = true;
}

/* The request in the next line, each field read once; NULL when the client broke the rules. */
static struct kv_pending *take(struct kv_daemon *d, struct kv_client_slot *s, uint32_t *timeout_us,
                               const uint8_t **value)
{
    const struct kv_region *r = &s->region;
    const volatile struct kv_request_line *line = &r->requests[s->taken & r->mask];
    uint32_t slot = line->slot, len = line->value_len;
    s->taken++;
    if (slot >= r->depth || s->pending[slot].busy) {
        client_break(d, s, slot >= r->depth ? "named a slot that it has not" : "used a slot twice");
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

/* What can be said without looking at any store; KV_OK: go on. */
static enum kv_result check(const struct kv_daemon *d, const struct kv_pending *p,
                            struct kv_place place)
{
    if (p->op < KV_GET || p->op >= KV_OP_END || place.daemon != d->config.index ||
        (p->op != KV_PUT && p->value_len > 0))
        return KV_REFUSED;
    return p->value_len > p->client->region.value_max ? KV_TOO_LARGE : KV_OK;
}

/* An eighth of the deadline is left for the answer's way back, so that the client hears our word
 * before it gives up by itself. */
static uint64_t deadline(const struct kv_daemon *d, uint32_t timeout_us)
{
    uint64_t ns = timeout_us ? timeout_us * HW_US : KV_TIMEOUT_DEFAULT_NS;
    return d->now_ns + ns - ns / 8;
}

static void serve(struct kv_daemon *d, struct kv_client_slot *s)
{
    uint32_t timeout_us;
    const uint8_t *value;
    struct kv_pending *p = take(d, s, &timeout_us, &value);
    if (UNLIKELY(!p))
        return;
    hw_counter_bump(&d->stats.requests, 1);
    if (p->op == KV_BLOCK) {
        p->deadline_ns = deadline(d, timeout_us);
        kv_local_serve_block(d, p, value);
        return;
    }
    struct kv_place place = kv_place_of(p->key, d->config.ranks, d->config.daemons);
    enum kv_result result = check(d, p, place);
    if (UNLIKELY(result != KV_OK)) {
        kv_client_slot_answer(p, result, NULL, 0);
    } else if (place.rank == d->config.rank) {
        hw_counter_bump(&d->stats.local, 1);
        struct kv_outcome o = kv_daemon_execute(d, (enum kv_op)p->op, p->key, value, p->value_len);
        kv_client_slot_answer(p, o.result, o.value, o.len);
    } else {
        hw_counter_bump(&d->stats.remote, 1);
        if (p->value_len <= KV_REQUEST_INLINE)
            memcpy(p->value, value, p->value_len);
        p->deadline_ns = deadline(d, timeout_us);
        kv_peer_ask(d, place.rank, p);
    }
}

/* The entry of the request after this one travels to the cache meanwhile.  Its key may still
 * change under us: a wrong guess costs nothing. */
static void fetch_ahead(const struct kv_daemon *d, const struct kv_client_slot *s)
{
    const volatile struct kv_request_line *line =
        &s->region.requests[(s->taken + 1) & s->region.mask];
    kv_store_prefetch(d->store, (struct kv_key){.hi = line->key.hi, .lo = line->key.lo});
}

/* Sets the flag that makes the client ring; true when a request came before it could see it. */
static bool announce_sleep(struct kv_client_slot *s)
{
    atomic_store_explicit(&s->region.daemon->sleeps, 1, memory_order_relaxed);
    /* Pairs with the fence in kv_port_must_ring. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!has_request(s))
        return false;
    atomic_store_explicit(&s->region.daemon->sleeps, 0, memory_order_relaxed);
    return true;
}

/* Serves what is in a seat's ring; how many.  It may become inactive. */
static uint32_t scan_client(struct kv_daemon *d, struct kv_client_slot *s)
{
    uint32_t n = 0;
    while (n <= s->region.mask && !s->broken && has_request(s)) {
        if (s->region.mask > 0 && !d->config.plain)
            fetch_ahead(d, s);
        serve(d, s);
        n++;
    }
    if (n > 0)
        s->used_ns = d->now_ns;
    else if (d->now_ns - s->used_ns >= KV_PARK_NS && d->active->next && !announce_sleep(s))
        deactivate(d, s); /* others keep us awake: this one rings when it wants something */
    if (s->broken && s->active)
        deactivate(d, s);
    return n;
}

uint32_t kv_client_slots_scan(struct kv_daemon *d)
{
    uint32_t events = 0;
    for (struct kv_client_slot *s = d->active, *next; s; s = next) {
        next = s->next;
        events += scan_client(d, s);
    }
    if (d->blocks) {
        kv_blocks_tick(d->blocks, d->now_ns);
        events += kv_local_copies_advance(d);
        events += d->remotes ? kv_remotes_step(d) : 0;
    }
    return events;
}

bool kv_client_slots_park(struct kv_daemon *d)
{
    bool ready = false;
    for (struct kv_client_slot *s = d->active, *next; s; s = next) {
        next = s->next;
        if (announce_sleep(s))
            ready = true;
        else
            deactivate(d, s);
    }
    return ready;
}
