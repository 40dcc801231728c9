/* cli/kvmembers.h - the members of kvd's cluster: what its options say, and following etcd.
 *
 * Threads: one, but for cli_members_stop: any, or a signal handler.
 * Lifetime: init by cli_members_check; fini. */
#ifndef HAWSER_CLI_KVMEMBERS_H
#define HAWSER_CLI_KVMEMBERS_H

#include "cli/cli.h"
#include "kv/members.h"

#include <stdatomic.h>

/* As parsed; a part of kvd's options. */
struct cli_members_options {
    struct cli_list list; /* name=address */
    struct cli_list etcd; /* endpoints */
    const char *cluster, *name, *listen;
    uint64_t ttl_ns;
};

struct cli_members {
    const struct cli_members_options *options;
    char name[KV_MEMBER_NAME_CHARS]; /* of this daemon; "": there are ranks instead of members */
    struct rpc_addr listen;          /* its own address */
    char address[KV_MEMBER_ADDRESS_CHARS]; /* the same, as others are told it */
    struct kv_view list;                   /* when there is no etcd */
    struct rpc_addr endpoints[KV_ENDPOINTS_MAX];
    struct kv_members *_Atomic following; /* set by the main thread, read by the signal handler */
    atomic_bool stopping;                 /* the other way round: whichever comes second stops it */
};

/* CLI_DONE or, with a message, CLI_USAGE.  The options must outlive `members`. */
enum cli_exit cli_members_check(const struct cli_members_options *options,
                                struct cli_members *members);

/* Tells the first view, and the next ones in a thread of their own.  CLI_DONE, also when it was
 * stopped; or, with a message, CLI_UNREACHABLE when etcd is, CLI_REFUSED when it has our name
 * already or is full, CLI_FAILED. */
enum cli_exit cli_members_start(struct cli_members *members, kv_members_fn *changed, void *user);
void cli_members_stop(struct cli_members *members);
/* Leaves the cluster; nothing is told any more. */
void cli_members_fini(struct cli_members *members);

#endif
