/* kv/daemon/local_requests.h - serves what local clients ask: values, and blocks (local_blocks.c).
 *
 * Trust: requests may be anything; a value in a request slot may change while it is read.  Threads:
 * the daemon's.  Lifetime: from a request to its answer, or until its client goes. */
#ifndef HAWSER_KV_DAEMON_LOCAL_REQUESTS_H
#define HAWSER_KV_DAEMON_LOCAL_REQUESTS_H

#include "kv/daemon/daemon_impl.h"

/* The requests of all active clients; how many. */
uint32_t kv_local_requests_serve(struct kv_daemon *d);

/* A busy request about blocks; the value is its encoded request. */
void kv_local_serve_block(struct kv_daemon *d, struct kv_pending *p, const uint8_t *value);
/* Goes on with copies out of staging areas, within KV_TURN_BYTES; how many it worked on. */
uint32_t kv_local_copies_advance(struct kv_daemon *d);
/* Forgets a request that is copying, without an answer. */
void kv_local_copy_forget(struct kv_pending *p);

#endif
