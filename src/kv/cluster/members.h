/* kv/cluster/members.h - where the members of a cluster come from: a list, or etcd.
 *
 * With etcd every daemon registers its name and address under a lease, reads the other members and
 * watches for changes.  Each change gives a new view (kv/cluster/view.h), whose epoch is etcd's
 * revision.  While etcd cannot be reached, the last view stays in force; endpoints are tried in
 * turn, 50 ms to 3 s apart, and a registration that has lapsed is renewed.  An etcd whose data were
 * replaced or lost is registered with again.  See docs/design/cluster.md.
 *
 *     kv_members_start(&options, &members, why);
 *     kv_members_wait(members, 30 * HW_SEC, why);     `changed` has been called with the first view
 *     ...                                             it is called again with each later one
 *     kv_members_destroy(members);                    leaves the cluster
 *
 * Trust: etcd decides who is a member; its answers are bounded and checked (kv/cluster/etcd.h).
 * Threads: members have a thread of their own, which calls `changed` and renews the lease, so
 * `changed` must not block for long.  kv_members_stop from any thread or a signal handler; the
 * other calls from one.  Lifetime: start/destroy; options are copied. */
#ifndef HAWSER_KV_CLUSTER_MEMBERS_H
#define HAWSER_KV_CLUSTER_MEMBERS_H

#include "base/clock.h"
#include "kv/cluster/http_post.h"
#include "kv/cluster/view.h"

enum {
    KV_ENDPOINTS_MAX = 8,      /* etcd recommends at most 7 servers */
    KV_CLUSTER_NAME_CHARS = 64 /* with its NUL; as a member's */
};

#define KV_MEMBER_TTL_MIN (2 * HW_SEC) /* etcd grants no less with its default election time */
#define KV_MEMBER_TTL_MAX (3600 * HW_SEC)
#define KV_MEMBERS_BYE_NS (2 * HW_SEC) /* at most for leaving, when etcd does not answer */

typedef void kv_members_fn(void *user, const struct kv_view *view);

/* Where etcd is and what it is shown; texts are the owner's. */
struct kv_etcd_access {
    char urls[KV_ENDPOINTS_MAX][KV_POST_URL_CHARS]; /* see kv_members_endpoint */
    uint32_t url_count;
    struct kv_post_tls tls;
    const char *user, *password; /* NULL: none */
};

struct kv_members_options {
    const struct kv_etcd_access *etcd; /* must outlive the members */
    const char *cluster;
    const char *name, *address; /* of this daemon */
    uint64_t ttl_ns;
    kv_members_fn *changed;
    void *user;
};

struct kv_members;

/* Adds "http://host[:port]" or the same with https, port 2379 unless told, in the form that libcurl
 * takes.  0; -E2BIG; -EINVAL; with cause and remedy in why. */
int kv_members_endpoint(struct kv_etcd_access *etcd, const char *url,
                        char why[RPC_WHY_CHARS]) MUST_CHECK;
/* A list of "name=address", of epoch 1, no two at one address.  0, or an error of kv_view_make with
 * a sentence in why. */
int kv_members_list(char *const *items, size_t count, struct kv_view *out,
                    char why[RPC_WHY_CHARS]) MUST_CHECK;
/* 0 or -EINVAL: a name of a cluster or member has 1 to 63 of [A-Za-z0-9._-]. */
int kv_members_check_name(const char *name) MUST_CHECK;

/* 0; -EINVAL for options that are not as above; -ENOENT where libcurl is missing; -ENOMEM or
 * another errno.  A sentence in why. */
int kv_members_start(const struct kv_members_options *options, struct kv_members **out,
                     char why[RPC_WHY_CHARS]) MUST_CHECK;
/* Waits for the first view: 0.  -EEXIST: another daemon has the name and keeps it for longer than a
 * lease; -EUSERS: the cluster is full; -ECANCELED after kv_members_stop; -ETIMEDOUT, with etcd's
 * problem in why: it goes on trying. */
int kv_members_wait(struct kv_members *members, uint64_t timeout_ns,
                    char why[RPC_WHY_CHARS]) MUST_CHECK;
/* No further call of `changed`; the registration is given back. */
void kv_members_stop(struct kv_members *members);
/* Stops, waits for the thread, frees. */
void kv_members_destroy(struct kv_members *members);

#endif
