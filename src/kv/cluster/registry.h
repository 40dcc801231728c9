/* kv/cluster/registry.h - a daemon's registration in etcd: its key under a lease, and the others'
 * keys.
 *
 * The state machine of kv/cluster/members.h, without its thread.  It outlives connections and goes
 * on at the next endpoint.  Each step does what is missing:
 *
 *   no token         log in, where there is a name and a password
 *   no lease         ask for one
 *   time to renew    renew; if the lease is gone, ask for another
 *   etcd went back   put a higher era
 *   not registered   put our key and read all keys, atomically: that revision is an epoch
 *   out of touch     read all keys: a member that is missing means to register again
 *   no watch         ask for all changes after the revision that we know
 *   else             wait for the next change, or for the time to renew
 *
 * Epochs.  Every daemon must give the same members the same epoch.  So an epoch is always a
 * revision that wrote under the prefix: our own put, or an event that all watchers get.  For the
 * same reason a daemon never takes members from keys that it only reads: after a compaction it puts
 * its own key again.
 *
 * Eras.  Revisions begin anew when etcd lost its data, and go back when it was restored from a
 * backup, but epochs must grow.  So an epoch is an era, KV_ERA_SHIFT bits up, plus a revision.  The
 * era is a key of its own, absent for 0.  A daemon that is shown an epoch below its own puts the
 * next era; all others hear of it and are in it, too.
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

enum { KV_ERA_SHIFT = 40 }; /* 10^12 revisions in an era: 35 years of a thousand a second */

/* X(field, name, kind, help) */
#define KV_MEMBERS_STATS_LIST(X)                                                                   \
    X(epoch, "kv_etcd_epoch", HW_GAUGE,                                                            \
      "number of the last view that etcd gave: its revision, and 2^40 for each time that it lost " \
      "data")                                                                                      \
    X(registrations, "kv_etcd_registrations", HW_COUNTER, "times that this daemon registered")     \
    X(reconnects, "kv_etcd_reconnects", HW_COUNTER, "times that etcd was found again")

struct kv_members_stats {
#define X(field, name, kind, help) _Atomic uint64_t field;
    KV_MEMBERS_STATS_LIST(X)
#undef X
};

struct kv_registry {
    char folder[KV_ETCD_KEY_MAX + 1]; /* of the cluster: what is watched */
    char prefix[KV_ETCD_KEY_MAX + 1], key[KV_ETCD_KEY_MAX + 1], era_key[KV_ETCD_KEY_MAX + 1];
    char name[KV_MEMBER_NAME_CHARS], address[KV_MEMBER_ADDRESS_CHARS];
    uint64_t ttl_ns; /* as asked for */
    int wake_fd;
    kv_members_fn *changed;
    void *user;

    const struct kv_etcd_access *etcd;
    struct kv_poster *poster;
    const char *endpoint; /* of this run */
    char token[KV_ETCD_TOKEN_CHARS];
    bool open_to_all; /* etcd has no users at present, so there is no token */
    struct kv_post *watch;
    uint64_t lease;        /* 0: none */
    uint64_t lease_ttl_ns; /* as granted */
    uint64_t renew_at_ns;
    uint64_t guard;             /* revision of the key that our put may replace; 0: none */
    uint64_t known;             /* changes up to this revision are in the list */
    uint64_t era, era_revision; /* and the revision of its key; 0: there is none */
    uint64_t raise_to;          /* an era that must be put; 0: none */
    bool registered;            /* of the last change that we know */
    bool in_touch;              /* the keys were read since the connection was lost */
    bool was_member;            /* since the start */
    bool troubled; /* set by the caller after a failure; cleared once a watch answers */
    struct kv_members_stats *stats;
    struct kv_view roll;     /* the members so far, in no order */
    struct kv_view view;     /* the last one passed to `changed` */
    char why[RPC_WHY_CHARS]; /* what kv_registry_run ended with */
};

/* The names and the address are valid; see kv_members_start.  0, or an error of kv_poster_create
 * with a sentence in why; fini is fine then, too. */
int kv_registry_init(struct kv_registry *registry, const struct kv_members_options *options,
                     struct kv_members_stats *stats, int wake_fd,
                     char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_registry_fini(struct kv_registry *registry);

/* Steps until one fails.  Never 0:
 *   -ECANCELED   wake_fd is readable
 *   -ESTALE      what we knew does not hold any more; run again, nothing is wrong with the endpoint
 *   -EEXIST      another daemon has our name
 *   -EUSERS      the cluster is full
 *   else         the endpoint failed
 * With a sentence in why, but for the first.  `endpoint` is one of the access's and outlives it. */
int kv_registry_run(struct kv_registry *registry, const char *endpoint) MUST_CHECK;

/* Gives the lease back, if etcd answers before the deadline, so that the others see us leave at
 * once. */
void kv_registry_leave(struct kv_registry *registry, uint64_t deadline_ns);

#endif
