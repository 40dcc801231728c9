/* kv/daemon/peer_requests.h - serves what other daemons ask: values, and blocks (peer_blocks.c).
 *
 * Trust: messages are decoded with bounds.  A value's key must be ours, else KV_REFUSED; a block's
 * key must be ours in our view, else the answer is our epoch.  Threads: the daemon's.  Lifetime: a
 * call; messages stay the caller's. */
#ifndef HAWSER_KV_DAEMON_PEER_REQUESTS_H
#define HAWSER_KV_DAEMON_PEER_REQUESTS_H

#include "kv/daemon/daemon_impl.h"

/* All that has come, within KV_TURN_BYTES; how many messages. */
uint32_t kv_peer_requests_serve(struct kv_daemon *d);
/* One message about blocks. */
void kv_peer_serve_block(struct kv_daemon *d, struct kv_peer *peer, struct rpc_msg *msg);

#endif
