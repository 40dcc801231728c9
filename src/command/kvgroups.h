/* command/kvgroups.h - groups that share KV memory, as kvctl and kvtop look at them.
 *
 * Threads: one at a time.  Lifetime: open/close. */
#ifndef HAWSER_COMMAND_KVGROUPS_H
#define HAWSER_COMMAND_KVGROUPS_H

#include "command/command.h"
#include "page/limit.h"
#include "page/runtime.h"

enum { CMD_KV_GROUPS_MAX = 256 }; /* what one machine runs at a time, many times over */

/* The variables of a command that looks at groups. */
extern const struct cmd_env cmd_kv_env[];

struct cmd_kv_names {
    char names[CMD_KV_GROUPS_MAX][PAGE_GROUP_CHARS]; /* in order */
    size_t count;
    const char *only;
    char base[PAGE_PATH_CHARS]; /* where they are */
};

/* The groups that have members, or only one (NULL: all).  CMD_DONE, or the exit status after a
 * message that begins with the command's name. */
enum cmd_exit cmd_kv_find(struct cmd_kv_names *n, const char *command, const char *only);
/* Says that there are none, where, and what makes one. */
void cmd_kv_print_none(const struct cmd_kv_names *n);

struct cmd_kv_group {
    struct page_runtime runtime;
    struct page_limit *limit;
    struct page_limit_user users[PAGE_LIMIT_USERS]; /* when it was opened */
    size_t user_count;
};

/* 0, or a negative errno and why: -ENOENT when it has ended since. */
int cmd_kv_open(struct cmd_kv_group *g, const char *name, struct page_error *why) MUST_CHECK;
void cmd_kv_close(struct cmd_kv_group *g);

/* Tensor-parallel workers have no name, and a socket instead. */
static inline bool cmd_kv_is_model(const struct page_limit_user *u)
{
    return u->name[0] != '\0';
}

/* What it holds and has not mapped for anything. */
static inline uint64_t cmd_kv_reserve(const struct page_limit_user *u)
{
    return u->charged_bytes > u->mapped_bytes ? u->charged_bytes - u->mapped_bytes : 0;
}

#endif
