/* serve/discovery.h - workers that gateways find in etcd.
 *
 * A worker registers its address under a lease; gateways of the same cluster follow who is there
 * (kv/cluster/members.h).  A gateway registers, too, under a name that workers do not have.
 *
 * Trust: whoever may write to etcd decides which workers a gateway asks; a worker still proves
 * itself by certificate and token.  Threads: `changed` comes from a thread of its own.
 * Lifetime: start/stop. */
#ifndef HAWSER_SERVE_DISCOVERY_H
#define HAWSER_SERVE_DISCOVERY_H

#include "base/clock.h"
#include "command/etcd.h"
#include "rpc/transport/addr.h"

struct discovery_options {
    struct cmd_etcd_options etcd; /* no URL: no discovery */
    const char *cluster;
    uint64_t ttl_ns;
};

/* The options of a struct discovery_options but --etcd, which follows CMD_ETCD_OPTION. */
extern const struct cmd_option discovery_table[];

/* The workers that are there now; addrs is valid during the call. */
typedef void discovery_fn(void *user, const struct rpc_addr *addrs, size_t count);

struct discovery;

/* A worker at `address`, or a gateway where it is NULL, which `changed` is told of.  Waits until
 * etcd has answered.  CMD_DONE, or the exit status after a message that begins with `command`. */
enum cmd_exit discovery_start(const char *command, const struct discovery_options *options,
                              const char *address, discovery_fn *changed, void *user,
                              struct discovery **out) MUST_CHECK;
/* Leaves; nothing is told any more.  NULL: nothing. */
void discovery_stop(struct discovery *discovery);

#endif
