/* kv/daemon/permits.h - when one of two owners may serve a named value without asking the other.
 *
 * Two owners agree on a value when one has asked the other (OPEN_GET) and both have the same block,
 * or none, and no put of it is in progress (kv_blocks_may_agree).  With its answer the other owner
 * gives a permit: a number, good for KV_PERMIT_NS.  An owner serves a value at once while it has a
 * permit and they agreed on the value under that permit's number.  Time counts from before the
 * question at the one, from the answer at the other: only the rates of their clocks matter.
 *
 * What replaces or deletes a value first asks both owners for room or for their versions; a promise
 * of room ends what they agreed on.  A commit for which the other owner has promised nothing is
 * *alone*: who commits withdraws the other's permit, so that its next one has another number, and
 * waits until the last one has run out.  So an owner that was stopped or cut off never serves what
 * was replaced.  An earlier life of this daemon may have given a permit, too: for as long as one
 * lasts after the start, a commit that is alone waits.  When the view changes every commit waits,
 * since others then decide who owns a value, and so it does after a start where the view may have
 * been another before.
 *
 * Threads: the daemon's.  Lifetime: the daemon's. */
#ifndef HAWSER_KV_DAEMON_PERMITS_H
#define HAWSER_KV_DAEMON_PERMITS_H

#include "kv/daemon/daemon_impl.h"

#define KV_PERMIT_NS (250 * HW_MS) /* what a set may have to wait for an owner that is lost */

/* Whether the key's block here is the newest one, or there is none: no owner need be asked. */
bool kv_permit_reads(struct kv_daemon *d, const struct kv_block_key *key);
/* Fills in the permit, if any, of an answer to `peer` about the first key in the scratch.  handle
 * and checksum of the request: what the peer has. */
void kv_permit_give(struct kv_daemon *d, const struct kv_peer *peer,
                    const struct kv_peer_request *request, struct kv_peer_opened *opened);
/* Takes the permit of an answer; asked_ns: before the question was sent; put_count:
 * kv_blocks_opened then. */
void kv_permit_take(struct kv_daemon *d, struct kv_peer *peer, const struct kv_block_key *key,
                    const struct kv_peer_opened *opened, uint64_t asked_ns, uint32_t put_count);
/* How long a change of a named value has to wait here; alone: the other owner did not promise room.
 * Who has waited asks again, not alone. */
uint64_t kv_permit_wait(struct kv_daemon *d, const struct kv_block_key *key, bool alone);
/* The view changes. */
void kv_permits_end(struct kv_daemon *d);

#endif
