/* kv/daemon/client_slots.h - what the daemon keeps for each local client: its region, the state of
 * its request slots, whether to wake it.
 *
 * An active client slot is scanned in every turn; a parked one costs nothing until the client
 * rings.
 *
 * Trust: the client may write anything into its region; each field is read once, then checked.
 * Threads: the daemon's.  Lifetime: attach to detach. */
#ifndef HAWSER_KV_DAEMON_CLIENT_SLOTS_H
#define HAWSER_KV_DAEMON_CLIENT_SLOTS_H

#include "kv/daemon/daemon_impl.h"

/* Frees a client slot whose requests are all idle. */
void kv_client_slot_free(struct kv_daemon *d, struct kv_client_slot *s);

static inline bool kv_client_slot_has_request(const struct kv_client_slot *s)
{
    const struct kv_request_line *line = &s->region.requests[s->taken & s->region.mask];
    return atomic_load_explicit(&line->seq, memory_order_acquire) == s->taken + 1;
}
/* Takes the next request.  NULL: the client broke the rules, and its slot is parked for good.
 * *value is in the region: it may change at any time. */
struct kv_pending *kv_client_slot_take(struct kv_daemon *d, struct kv_client_slot *s,
                                       uint32_t *timeout_us, const uint8_t **value);
/* Writes the answer of a busy request slot and frees it. */
void kv_client_slot_answer(struct kv_pending *p, enum kv_result result, const void *value,
                           uint32_t len);
/* Counts an answer by its result. */
void kv_client_slots_count(struct kv_daemon *d, enum kv_result result);
/* Leases a block that is here; confirmed: see kv_blocks_get_confirmed.  With KV_OK the answer is in
 * d->scratch, its length in *len. */
enum kv_result kv_client_slot_lease(struct kv_daemon *d, struct kv_client_slot *s,
                                    const struct kv_block_key *key, bool confirmed, uint32_t *len);

/* It may write to its staging area from now on. */
void kv_client_slot_stages(struct kv_daemon *d, struct kv_client_slot *s);

/* False: a request came first, and it stays active. */
bool kv_client_slot_park(struct kv_daemon *d, struct kv_client_slot *s);
/* All of them; false: a request came first. */
bool kv_client_slots_park(struct kv_daemon *d);
/* Rings the clients that were answered in this turn and sleep. */
void kv_client_slots_wake(struct kv_daemon *d);
/* Tells every client how many threads and peers there are. */
void kv_client_slots_publish(struct kv_daemon *d);

#endif
