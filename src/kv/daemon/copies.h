/* kv/daemon/copies.h - keeps the number of copies of our blocks, in the background.
 *
 * A daemon walks through its own blocks, some at a time, and asks the other owners for theirs.  It
 * counts blocks that lack copies and tells owners that lack one to fetch it.  Such an owner fetches
 * at a bounded rate.  So copies come back after an eviction, a corrupt block, a lost daemon or
 * another view, also of blocks that nobody reads.
 *
 * Threads: the daemon's.  Lifetime: the daemon's. */
#ifndef HAWSER_KV_DAEMON_COPIES_H
#define HAWSER_KV_DAEMON_COPIES_H

#include "kv/daemon/daemon_impl.h"

/* Nothing where each block has one copy.  0 or -ENOMEM. */
int kv_copies_init(struct kv_daemon *d) MUST_CHECK;
void kv_copies_fini(struct kv_daemon *d);

/* The rest only where d->copies_kept is set. */
uint32_t kv_copies_step(struct kv_daemon *d);
uint64_t kv_copies_next_tick(const struct kv_daemon *d);
/* Whether other owners are being asked. */
bool kv_copies_counting(const struct kv_daemon *d);

/* Another owner has the block, of `len` bytes and that version, and we lack it or have an older
 * one: fetch it when the rate allows.  Best effort: the other owner comes again.  Also without
 * copies_kept. */
void kv_copies_restore(struct kv_daemon *d, const struct kv_block_key *key, uint32_t len,
                       uint64_t version);

#endif
