/* kv/daemon/peers.h - connections to other daemons: dialling, joining, calls about values, loss.
 *
 * Trust: a connection that has not joined gets KV_REFUSED for everything but JOIN.  Threads: the
 * daemon's.  Lifetime: the daemon's; tickets and leases of a connection end with it. */
#ifndef HAWSER_KV_DAEMON_PEERS_H
#define HAWSER_KV_DAEMON_PEERS_H

#include "kv/daemon/daemon_impl.h"

void kv_peers_fini(struct kv_daemon *d);
uint32_t kv_peers_poll(struct kv_daemon *d);
/* Answers connections that have not joined; how many messages. */
uint32_t kv_peers_serve_unjoined(struct kv_daemon *d);
uint32_t kv_peers_flush(struct kv_daemon *d);
/* True: something is there already. */
bool kv_peers_arm(struct kv_daemon *d);
uint64_t kv_peers_next_tick(const struct kv_daemon *d);
/* For the probe, before the number of requests in flight changes. */
void kv_peers_note_in_flight(struct kv_daemon *d, uint64_t now);

/* Sends a busy request to the rank that owns its key, or answers it when that fails. */
void kv_peer_ask(struct kv_daemon *d, uint32_t rank, struct kv_pending *p);
/* Forgets a request that is called or queued, without an answer. */
void kv_peer_forget(struct kv_pending *p);
void kv_peer_reply(struct rpc_ep *ep, struct rpc_msg *msg, const struct kv_outcome *outcome);
/* Around calls that other files make. */
void kv_peer_in_flight(struct kv_peer *peer, int by);
/* Something is to be sent: the next turn looks at the connection. */
void kv_peer_wake(struct kv_peer *peer);
/* What a call that ended with a status other than 0 means. */
enum kv_result kv_peer_status_result(const struct kv_peer *peer, int status);

#endif
