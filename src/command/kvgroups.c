#include "command/kvgroups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct cmd_env cmd_kv_env[] = {
    {"HAWSER_RUNTIME_DIR",
     "folder of the groups [default: XDG_RUNTIME_DIR/hawser, else /tmp/hawser-UID]"},
    {NULL},
};

static bool add_name(void *user, const char *group)
{
    struct cmd_kv_names *n = user;
    if (!n->only || strcmp(n->only, group) == 0)
        snprintf(n->names[n->count++], PAGE_GROUP_CHARS, "%s", group);
    return n->count < CMD_KV_GROUPS_MAX;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

enum cmd_exit cmd_kv_find(struct cmd_kv_names *n, const char *command, const char *only)
{
    struct page_error why;
    n->count = 0;
    n->only = only;
    if (page_runtime_base(NULL, n->base, &why))
        return cmd_fail(CMD_FAILED, "%s: %s", command, why.text);
    int rc = page_runtime_each(n->base, add_name, n);
    if (rc)
        return cmd_fail(CMD_FAILED, "%s: cannot read %s: %s", command, n->base, strerror(-rc));
    qsort(n->names, n->count, sizeof n->names[0], by_name);
    if (only && n->count == 0)
        return cmd_fail(CMD_FAILED, "%s: there is no group '%s'; see hawser kvctl list", command,
                        only);
    return CMD_DONE;
}

void cmd_kv_print_none(const struct cmd_kv_names *n)
{
    printf("no groups in %s: hawser serve --model of this user makes one\n", n->base);
}

int cmd_kv_open(struct cmd_kv_group *g, const char *name, struct page_error *why)
{
    char path[PAGE_PATH_CHARS];
    int rc = page_runtime_visit(&g->runtime, NULL, name, why);
    if (rc)
        return rc;
    page_runtime_limit(&g->runtime, path);
    rc = page_limit_open(path, &g->limit, why);
    if (rc == 0)
        g->user_count = page_limit_users(g->limit, g->users);
    else
        page_runtime_leave(&g->runtime);
    return rc;
}

void cmd_kv_close(struct cmd_kv_group *g)
{
    page_limit_close(g->limit);
    page_runtime_leave(&g->runtime);
}
