/* kv/common/cpus.h - which cores daemons and clients run on.
 *
 * The cores that this process may use are ordered by NUMA node and divided among the ranks of the
 * host.  In its share a rank's daemons take the first cores and its clients the others, so that
 * cache lines travel within a node.  With fewer cores than threads, threads share cores; with one
 * node the order is the kernel's.
 *
 * Threads: any, after init.  Lifetime: a value. */
#ifndef HAWSER_KV_COMMON_CPUS_H
#define HAWSER_KV_COMMON_CPUS_H

#include "base/attr.h"

#include <sched.h>
#include <stdint.h>

struct kv_cpus {
    uint16_t order[CPU_SETSIZE]; /* by node, then number */
    uint32_t count;
    uint32_t nodes;
};

/* Of the cores that this process may use.  0 or a negative errno. */
int kv_cpus_init(struct kv_cpus *cpus) MUST_CHECK;

typedef int kv_node_fn(uint32_t cpu);
/* The same for a given set of cores; `node` says where each is.  0, or -ENODEV: no core. */
int kv_cpus_order(const cpu_set_t *set, kv_node_fn *node, struct kv_cpus *cpus) MUST_CHECK;

struct kv_cpus_share {
    uint32_t rank, ranks; /* on this host */
    uint32_t daemons;     /* of each */
};

/* The core of daemon or client number `index` of that rank. */
uint32_t kv_cpus_of_daemon(const struct kv_cpus *cpus, const struct kv_cpus_share *share,
                           uint32_t index);
uint32_t kv_cpus_of_client(const struct kv_cpus *cpus, const struct kv_cpus_share *share,
                           uint32_t index);
/* Pins the calling thread.  0 or a negative errno. */
int kv_cpus_pin(uint32_t cpu);

#endif
