/* command/kvmembers.h - the members of kvd's cluster: what its options say, and following etcd.
 *
 * Threads: one, but for cmd_members_stop: any, or a signal handler.
 * Lifetime: init by cmd_members_check; fini. */
#ifndef HAWSER_COMMAND_KVMEMBERS_H
#define HAWSER_COMMAND_KVMEMBERS_H

#include "command/etcd.h"

#include <stdatomic.h>

/* As parsed; a part of kvd's options. */
struct cmd_members_options {
    struct cmd_list list; /* name=address */
    struct cmd_etcd_options etcd;
    const char *cluster, *name, *listen;
    uint64_t ttl_ns;
    uint64_t copies;
};

struct cmd_members {
    const struct cmd_members_options *options;
    char name[KV_MEMBER_NAME_CHARS]; /* of this daemon; "": there are ranks instead of members */
    struct rpc_addr listen;          /* its own address */
    char address[KV_MEMBER_ADDRESS_CHARS]; /* the same, as others are told it */
    struct kv_view list;                   /* when there is no etcd */
    struct cmd_etcd etcd;
    struct kv_members *_Atomic following; /* set by the main thread, read by the signal handler */
    atomic_bool stopping;                 /* the other way round: whichever comes second stops it */
};

/* CMD_DONE; or, with a message, CMD_USAGE or an error of cmd_etcd_check.  The options must outlive
 * `members`. */
enum cmd_exit cmd_members_check(const struct cmd_members_options *options,
                                struct cmd_members *members);

/* Tells the first view, and the next ones in a thread of their own.  CMD_DONE, also when it was
 * stopped; or, with a message, CMD_UNREACHABLE when etcd is, CMD_REFUSED when it has our name
 * already or is full, CMD_FAILED. */
enum cmd_exit cmd_members_start(struct cmd_members *members, kv_members_fn *changed, void *user);
void cmd_members_stop(struct cmd_members *members);
/* Leaves the cluster; no view comes any more. */
void cmd_members_fini(struct cmd_members *members);

#endif
