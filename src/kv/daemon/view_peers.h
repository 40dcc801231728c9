/* kv/daemon/view_peers.h - the view's members as peers, and who owns a block.
 *
 * With ranks a peer's number is its rank, fixed for the daemon's life.  With members a peer keeps
 * its number from its first view to its last; then another member, or a caller, may get it.
 *
 * Threads: the daemon's.  Lifetime: the daemon's. */
#ifndef HAWSER_KV_DAEMON_VIEW_PEERS_H
#define HAWSER_KV_DAEMON_VIEW_PEERS_H

#include "kv/daemon/daemon_impl.h"

void kv_view_peers_init(struct kv_daemon *d);
/* Gives numbers to the members of d->view that have none, and publishes the view. */
void kv_view_peers_place(struct kv_daemon *d);
/* NULL: no such peer. */
struct kv_peer *kv_peer_of(struct kv_daemon *d, uint64_t member);
/* A number that nobody has and nobody is dialling.  NULL: none. */
struct kv_peer *kv_peer_spare(struct kv_daemon *d);
void kv_peer_free(struct kv_peer *peer);
/* It is dialled, unless it is connected. */
void kv_peer_want(struct kv_peer *peer);

enum kv_share { KV_SHARE_NONE, KV_SHARE_COPY, KV_SHARE_SOLE };
/* Whether this daemon owns a block: not at all, as one of several owners, or alone. */
enum kv_share kv_share_of(const struct kv_daemon *d, const struct kv_block_key *key);

/* Drops named values that this daemon, a member of the view, does not own any more, some at a time:
 * their new owner gets newer ones, and ours would be found again when it leaves.  While
 * d->disowning. */
uint32_t kv_view_disown(struct kv_daemon *d);

#endif
