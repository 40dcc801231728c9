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

/* Rows for the option table of a command whose values hold a struct cmd_etcd_options. */
#define CMD_ETCD_OPTIONS(type, member, what)                                                       \
    {.name = "etcd",                                                                               \
     .kind = CMD_LIST,                                                                             \
     .argument = "URL",                                                                            \
     .offset = offsetof(type, member.urls),                                                        \
     .help = what ", at http://host:2379\nor https://; further ones are tried when the first "     \
                  "fails"},                                                                        \
        {.name = "etcd-ca",                                                                        \
         .kind = CMD_STRING,                                                                       \
         .argument = "FILE",                                                                       \
         .offset = offsetof(type, member.ca),                                                      \
         .help = "etcd's certificate must chain to this PEM file\n"                                \
                 "[default: to the system's authorities]"},                                        \
        {.name = "etcd-cert",                                                                      \
         .kind = CMD_STRING,                                                                       \
         .argument = "FILE",                                                                       \
         .offset = offsetof(type, member.cert),                                                    \
         .help = "the certificate (PEM) that etcd is shown"},                                      \
        {.name = "etcd-key",                                                                       \
         .kind = CMD_STRING,                                                                       \
         .argument = "FILE",                                                                       \
         .offset = offsetof(type, member.key),                                                     \
         .help = "its private key (PEM, mode 0600)"},                                              \
    {                                                                                              \
        .name = "etcd-login", .kind = CMD_STRING, .argument = "FILE",                              \
        .offset = offsetof(type, member.login),                                                    \
        .help = "a file (mode 0600) with NAME:PASSWORD of a user of etcd"                          \
    }

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
