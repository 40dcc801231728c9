#include "kv/daemon/local_requests.h"

#include "kv/daemon/client_slots.h"
#include "kv/daemon/peers.h"
#include "kv/daemon/remote/remote.h"

#include <string.h>

/* Whether the request is well formed and for this daemon. */
static enum kv_result check(const struct kv_daemon *d, const struct kv_pending *p,
                            struct kv_place place)
{
    if (p->op < KV_GET || p->op >= KV_OP_END || place.daemon != d->config.index ||
        (p->op != KV_PUT && p->value_len > 0))
        return KV_REFUSED;
    return p->value_len > p->client->region.value_max ? KV_TOO_LARGE : KV_OK;
}

/* An eighth of the time is kept for the answer's way back, so that it comes before the client gives
 * up. */
static uint64_t deadline(const struct kv_daemon *d, uint32_t timeout_us)
{
    uint64_t ns = timeout_us ? timeout_us * HW_US : KV_TIMEOUT_DEFAULT_NS;
    return d->now_ns + ns - ns / 8;
}

static void serve(struct kv_daemon *d, struct kv_client_slot *s)
{
    uint32_t timeout_us;
    const uint8_t *value;
    struct kv_pending *p = kv_client_slot_take(d, s, &timeout_us, &value);
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
        struct kv_outcome o =
            kv_store_execute(d->store, (enum kv_op)p->op, p->key, value, p->value_len);
        kv_client_slot_answer(p, o.result, o.value, o.len);
    } else {
        hw_counter_bump(&d->stats.remote, 1);
        if (p->value_len <= KV_REQUEST_INLINE)
            memcpy(p->value, value, p->value_len);
        p->deadline_ns = deadline(d, timeout_us);
        kv_peer_ask(d, place.rank, p);
    }
}

/* Prefetches the entry of the next request.  The client may still change its key: a wrong guess
 * costs nothing. */
static void fetch_ahead(const struct kv_daemon *d, const struct kv_client_slot *s)
{
    const volatile struct kv_request_line *line =
        &s->region.requests[(s->taken + 1) & s->region.mask];
    kv_store_prefetch(d->store, (struct kv_key){.hi = line->key.hi, .lo = line->key.lo});
}

/* Serves the requests in one client's ring; how many.  Its slot may become inactive. */
static uint32_t scan_client(struct kv_daemon *d, struct kv_client_slot *s)
{
    uint32_t n = 0;
    while (n <= s->region.mask && !s->broken && kv_client_slot_has_request(s)) {
        if (s->region.mask > 0)
            fetch_ahead(d, s);
        serve(d, s);
        n++;
    }
    if (n > 0)
        s->used_ns = d->now_ns;
    else if (d->now_ns - s->used_ns >= KV_PARK_NS && d->active->next)
        (void)kv_client_slot_park(d,
                                  s); /* other clients keep the daemon awake: this one must ring */
    return n;
}

uint32_t kv_local_requests_serve(struct kv_daemon *d)
{
    uint32_t events = 0;
    for (struct kv_client_slot *s = d->active, *next; s; s = next) {
        next = s->next;
        events += scan_client(d, s);
    }
    return events;
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
        kv_blocks_leave(d->blocks, &s->holder, d->now_ns);
    }
    kv_client_slot_free(d, s);
}
