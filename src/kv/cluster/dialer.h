/* kv/cluster/dialer.h - dials other daemons in threads of its own: a dial may block, a daemon may
 * not.  Several at a time, so that a host that does not answer delays few others.
 *
 * Threads: one caller; the dialer has its own.  Lifetime: create/destroy; destroy waits for dials
 * that are under way, at most KV_DIAL_NS. */
#ifndef HAWSER_KV_CLUSTER_DIALER_H
#define HAWSER_KV_CLUSTER_DIALER_H

#include "rpc/transport/net.h"

#define KV_DIAL_NS (UINT64_C(1000) * 1000 * 1000)

struct kv_dialer;

/* The options' security must outlive it.  0 or a negative errno. */
int kv_dialer_create(const struct rpc_net_options *options, struct kv_dialer **out) MUST_CHECK;
void kv_dialer_destroy(struct kv_dialer *dialer);

/* Dials the address, which is copied.  0 or -ENOMEM. */
int kv_dialer_ask(struct kv_dialer *dialer, uint32_t index, const struct rpc_addr *addr) MUST_CHECK;
/* True: a dial has ended; its index, and the transport, NULL when it failed. */
bool kv_dialer_take(struct kv_dialer *dialer, uint32_t *index, struct rpc_transport **out);
/* Readable after a dial has ended; kv_dialer_take clears it. */
int kv_dialer_fd(const struct kv_dialer *dialer);

#endif
