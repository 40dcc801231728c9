/* command/etcd.h - options of commands that register in etcd: where it is, and what it is shown.
 *
 * Trust: files and texts are the user's.  Threads: one.  Lifetime: check/fini; the options outlive
 * what was made of them. */
#ifndef HAWSER_COMMAND_ETCD_H
#define HAWSER_COMMAND_ETCD_H

#include "command/command.h"
#include "kv/cluster/members.h"

struct cmd_etcd_options {
    struct cmd_list urls; /* none: no etcd */
    const char *ca, *cert, *key, *login;
};

/* The option of its urls, as its own command explains it. */
#define CMD_ETCD_OPTION(type, member, what)                                                        \
    {                                                                                              \
        "etcd", 0, CMD_LIST, offsetof(type, member.urls),                                          \
            what ", at http://host:2379 or https://; further ones are tried when the first fails", \
            "URL"                                                                                  \
    }
/* Its other options. */
extern const struct cmd_option cmd_etcd_table[];

struct cmd_etcd {
    struct kv_etcd_access access;
    char *login; /* what access.user and access.password point into */
};

/* CMD_DONE; or, after a message that begins with `command`, CMD_USAGE, CMD_FAILED for a file that
 * cannot be read, or CMD_REFUSED for a password that would be readable on its way.  `etcd` needs no
 * fini then. */
enum cmd_exit cmd_etcd_check(const char *command, const struct cmd_etcd_options *options,
                             struct cmd_etcd *etcd);
void cmd_etcd_fini(struct cmd_etcd *etcd); /* wipes the password; a zeroed one is fine */

/* The exit status for an error of kv_members_start or kv_members_wait. */
enum cmd_exit cmd_etcd_exit(int rc);

#endif
