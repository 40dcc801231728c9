/* kv/cluster/registry.h - a daemon's registration in etcd: its key under a lease, and the others'
 * keys.
 *
 * The state machine of kv/cluster/members.h, without its thread.  It outlives connections and goes
 * on at the next endpoint.  Each step does what is missing:
 *
 *   no lease         ask for one
 *   time to renew    renew; if the lease is gone, ask for another
 *   not registered   put our key and read all keys, atomically: that revision is an epoch
 *   no watch         ask for all changes after that revision
 *   else             wait for the next change, or for the time to renew
 *
 * Epochs.  Every daemon must give the same members the same epoch.  So an epoch is always a
 * revision that wrote under the prefix: our own put, or an event that all watchers get.  For the
 * same reason a daemon never only reads the keys: after a compaction it puts its own key again.
 *
 * A name belongs to the lease that its key is under.  A key with our name and our address is left
 * from an earlier start of this daemon, since nobody else can listen there: the daemon takes it
 * over, once, at the start.  A key with our name and another address is refused.
 *
 * Trust: as kv/cluster/etcd.h.  Threads: one at a time, which calls `changed`.  Lifetime:
 * init/fini. */
#ifndef HAWSER_KV_CLUSTER_REGISTRY_H
#define HAWSER_KV_CLUSTER_REGISTRY_H

#include "base/counter.h"
#include "kv/cluster/etcd.h"
#include "kv/cluster/members.h"

struct kv_post;

/* X(field, name, kind, help) */
#define KV_MEMBERS_STATS_LIST(X)                                                                   \
    X(epoch, "kv_etcd_epoch", HW_GAUGE, "revision of the last view that etcd gave")                \
    X(registrations, "kv_etcd_registrations", HW_COUNTER, "times that this daemon registered")     \
    X(reconnects, "kv_etcd_reconnects", HW_COUNTER, "times that etcd was found again")

struct kv_members_stats {
#define X(field, name, kind, help) _Atomic uint64_t field;
    KV_MEMBERS_STATS_LIST(X)
#undef X
};

struct kv_registry {
    char prefix[KV_ETCD_KEY_MAX + 1], key[KV_ETCD_KEY_MAX + 1];
    char name[KV_MEMBER_NAME_CHARS], address[KV_MEMBER_ADDRESS_CHARS];
    uint64_t ttl_ns; /* as asked for */
    int wake_fd;
    kv_members_fn *changed;
    void *user;

    const struct rpc_addr *endpoint; /* of this run */
    struct kv_post *watch;
    uint64_t lease;        /* 0: none */
    uint64_t lease_ttl_ns; /* as granted */
    uint64_t renew_at_ns;
    uint64_t guard;  /* revision of the key that our put may replace; 0: none */
    bool registered; /* of the last change that we know */
    bool was_member; /* since the start */
    bool troubled;   /* set by the caller after a failure; cleared once a watch answers */
    struct kv_members_stats *stats;
    struct kv_view roll;     /* the members so far, in no order; its epoch is the revision */
    struct kv_view view;     /* the last one passed to `changed` */
    char why[RPC_WHY_CHARS]; /* what kv_registry_run ended with */
};

/* The names and the address are valid; see kv_members_start. */
void kv_registry_init(struct kv_registry *registry, const struct kv_members_options *options,
                      struct kv_members_stats *stats, int wake_fd);
void kv_registry_fini(struct kv_registry *registry);

/* Steps until one fails.  Never 0:
 *   -ECANCELED   wake_fd is readable
 *   -ESTALE      what we knew does not hold any more; run again, nothing is wrong with the endpoint
 *   -EEXIST      another daemon has our name
 *   -EUSERS      the cluster is full
 *   else         the endpoint failed
 * With a sentence in why, but for the first. */
int kv_registry_run(struct kv_registry *registry, const struct rpc_addr *endpoint) MUST_CHECK;

/* Gives the lease back, if etcd answers before the deadline, so that the others see us leave at
 * once. */
void kv_registry_leave(struct kv_registry *registry, uint64_t deadline_ns);

#endif
