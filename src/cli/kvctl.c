/* hawser kvctl - shows and sets the memory that groups of KV workers share. */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/report/out.h"
#include "base/units.h"
#include "page/broadcast/link.h"
#include "page/limit.h"
#include "page/runtime.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 256 }; /* what one machine runs at a time, many times over */

#define ANSWER_NS (5 * HW_SEC) /* a worker is busy with one batch at most */

struct kvctl_options {
    uint64_t interval_ns, count;
    bool json;
};

static const struct cmd_option options[] = {
    {.name = "interval",
     .letter = 'i',
     .kind = CMD_DURATION,
     .argument = "TIME",
     .offset = offsetof(struct kvctl_options, interval_ns),
     .def = "1s",
     .min = 10 * HW_MS,
     .max = 3600 * HW_SEC,
     .help = "watch: time between two looks"},
    {.name = "count",
     .letter = 'n',
     .kind = CMD_U64,
     .argument = "N",
     .offset = offsetof(struct kvctl_options, count),
     .help = "watch: stop after N looks; without it, at ^C"},
    {.name = "json",
     .letter = 'j',
     .kind = CMD_FLAG,
     .offset = offsetof(struct kvctl_options, json),
     .help = "list, watch: one JSON object a look"},
    {NULL},
};

static const struct cmd_env environment[] = {
    {"HAWSER_RUNTIME_DIR", "folder of the groups [default: XDG_RUNTIME_DIR/hawser,\n"
                           "else /tmp/hawser-UID]"},
    {NULL},
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- groups ---- */

struct names {
    char names[GROUPS_MAX][PAGE_GROUP_CHARS];
    size_t count;
    const char *only; /* NULL: all */
};

static bool add_name(void *user, const char *group)
{
    struct names *n = user;
    if (!n->only || strcmp(n->only, group) == 0)
        snprintf(n->names[n->count++], PAGE_GROUP_CHARS, "%s", group);
    return n->count < GROUPS_MAX;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static enum cmd_exit find_groups(struct names *n)
{
    char base[PAGE_PATH_CHARS];
    struct page_error why;
    if (page_runtime_base(NULL, base, &why))
        return cmd_fail(CMD_FAILED, "kvctl: %s", why.text);
    int rc = page_runtime_each(base, add_name, n);
    if (rc)
        return cmd_fail(CMD_FAILED, "kvctl: cannot read %s: %s", base, strerror(-rc));
    qsort(n->names, n->count, sizeof n->names[0], by_name);
    if (n->only && n->count == 0)
        return cmd_fail(CMD_FAILED, "kvctl: there is no group '%s'; see hawser kvctl list",
                        n->only);
    return CMD_DONE;
}

struct group {
    struct page_runtime runtime; /* paths only */
    struct page_limit *limit;
    struct page_limit_user users[PAGE_LIMIT_USERS];
    size_t user_count;
};

static int open_group(struct group *g, const char *name, struct page_error *why)
{
    char path[PAGE_PATH_CHARS];
    int rc = page_runtime_peek(&g->runtime, NULL, name, why);
    if (rc)
        return rc;
    page_runtime_limit(&g->runtime, path);
    rc = page_limit_open(path, &g->limit, why);
    if (rc == 0)
        g->user_count = page_limit_users(g->limit, g->users);
    return rc;
}

static uint64_t reserve_of(const struct page_limit_user *u)
{
    return u->charged_bytes > u->mapped_bytes ? u->charged_bytes - u->mapped_bytes : 0;
}

/* ---- list and watch ---- */

static void add_rows(struct hw_table *t, const char *name, const struct group *g)
{
    char text[HW_FORMAT_CHARS];
    uint64_t limit = page_limit_get(g->limit);
    for (size_t i = 0; i < g->user_count; i++) {
        const struct page_limit_user *u = &g->users[i];
        hw_table_cell(t, "%s", name);
        hw_table_cell(t, "%u", u->rank);
        hw_table_cell(t, "%d", (int)u->pid);
        hw_table_cell(t, "%s", hw_format_size(text, u->mapped_bytes));
        hw_table_cell(t, "%s", hw_format_size(text, reserve_of(u)));
        hw_table_cell(t, "%s", limit ? hw_format_size(text, limit) : "none");
    }
}

static int print_table(const struct names *n)
{
    struct hw_table *t = hw_table_create();
    if (!t)
        return -ENOMEM;
    hw_table_column(t, "group", HW_LEFT);
    hw_table_column(t, "rank", HW_RIGHT);
    hw_table_column(t, "pid", HW_RIGHT);
    hw_table_column(t, "mapped", HW_RIGHT);
    hw_table_column(t, "reserve", HW_RIGHT);
    hw_table_column(t, "group's limit", HW_RIGHT);
    for (size_t i = 0; i < n->count; i++) {
        struct group g;
        struct page_error why;
        if (open_group(&g, n->names[i], &why))
            continue; /* it has ended since */
        add_rows(t, n->names[i], &g);
        page_limit_close(g.limit);
    }
    int rc = hw_table_rows(t) ? hw_table_print(t, stdout) : 0;
    if (rc == 0 && hw_table_rows(t) == 0)
        puts("no groups");
    hw_table_destroy(t);
    return rc;
}

static void json_group(struct hw_json *j, const char *name, const struct group *g)
{
    hw_json_object_begin(j);
    hw_json_key(j, "group");
    hw_json_string(j, name);
    hw_json_key(j, "limit");
    hw_json_u64(j, page_limit_get(g->limit));
    hw_json_key(j, "workers");
    hw_json_array_begin(j);
    for (size_t i = 0; i < g->user_count; i++) {
        hw_json_object_begin(j);
        hw_json_key(j, "rank");
        hw_json_u64(j, g->users[i].rank);
        hw_json_key(j, "pid");
        hw_json_i64(j, g->users[i].pid);
        hw_json_key(j, "mapped");
        hw_json_u64(j, g->users[i].mapped_bytes);
        hw_json_key(j, "reserve");
        hw_json_u64(j, reserve_of(&g->users[i]));
        hw_json_object_end(j);
    }
    hw_json_array_end(j);
    hw_json_object_end(j);
}

static int print_json(const struct names *n)
{
    struct hw_json j;
    hw_json_begin(&j, stdout);
    hw_json_object_begin(&j);
    hw_json_key(&j, "groups");
    hw_json_array_begin(&j);
    for (size_t i = 0; i < n->count; i++) {
        struct group g;
        struct page_error why;
        if (open_group(&g, n->names[i], &why))
            continue;
        json_group(&j, n->names[i], &g);
        page_limit_close(g.limit);
    }
    hw_json_array_end(&j);
    hw_json_object_end(&j);
    return hw_json_finish(&j);
}

static enum cmd_exit look(const struct kvctl_options *o, const char *only)
{
    struct names *n = calloc(1, sizeof *n);
    if (!n)
        return cmd_fail(CMD_FAILED, "out of memory");
    n->only = only;
    enum cmd_exit code = find_groups(n);
    int rc = code != CMD_DONE ? 0 : o->json ? print_json(n) : print_table(n);
    free(n);
    return rc ? cmd_fail(CMD_FAILED, "cannot write the output: %s", strerror(-rc)) : code;
}

static enum cmd_exit watch(const struct kvctl_options *o, const char *only)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    for (uint64_t i = 0; !interrupted; i++) {
        enum cmd_exit code = look(o, only);
        if (code != CMD_DONE || fflush(stdout) || i + 1 == o->count)
            return code;
        if (!o->json)
            putchar('\n');
        (void)poll(NULL, 0, (int)(o->interval_ns / HW_MS)); /* a signal ends it */
    }
    return CMD_DONE;
}

/* ---- limit and trim ---- */

/* Asks every worker to give back what it holds in reserve; the sum, and how many did not answer. */
static uint64_t trim_workers(const struct group *g, size_t *silent)
{
    uint64_t freed = 0;
    *silent = 0;
    for (size_t i = 0; i < g->user_count; i++) {
        char path[PAGE_PATH_CHARS];
        struct page_link *link;
        struct page_error why;
        uint64_t bytes = 0;
        if (g->users[i].rank >= PAGE_RANKS_MAX)
            continue;
        page_runtime_socket(&g->runtime, g->users[i].rank, path);
        int rc = page_link_open(path, ANSWER_NS, &link, &why);
        if (rc == 0) {
            rc = page_link_trim(link, page_host_ns() + ANSWER_NS, &bytes, &why);
            page_link_close(link);
        }
        if (rc)
            cmd_warn("kvctl: rank %u: %s", g->users[i].rank, why.text);
        freed += bytes;
        *silent += rc != 0;
    }
    return freed;
}

static enum cmd_exit trim(const char *name)
{
    struct group g;
    struct page_error why;
    char text[HW_FORMAT_CHARS];
    size_t silent;
    if (open_group(&g, name, &why))
        return cmd_fail(CMD_FAILED, "kvctl: %s", why.text);
    page_limit_ask_trim(g.limit);
    uint64_t freed = trim_workers(&g, &silent);
    printf("%s: %s given back by %zu workers\n", name, hw_format_size(text, freed),
           g.user_count - silent);
    page_limit_close(g.limit);
    return silent ? CMD_FAILED : CMD_DONE;
}

static enum cmd_exit limit(const char *name, const char *size)
{
    struct group g;
    struct page_error why;
    char text[HW_FORMAT_CHARS], over[HW_FORMAT_CHARS];
    uint64_t bytes = 0;
    size_t silent;
    if (strcmp(size, "none") != 0 && (hw_parse_size(size, &bytes) || bytes == 0))
        return cmd_fail(CMD_USAGE, "kvctl: limit: '%s' is not a size such as 16GiB, or none", size);
    if (open_group(&g, name, &why))
        return cmd_fail(CMD_FAILED, "kvctl: %s", why.text);
    page_limit_set(g.limit, bytes);
    if (page_limit_excess(g.limit))
        (void)trim_workers(&g, &silent);
    uint64_t excess = page_limit_excess(g.limit);
    printf("%s: limit %s", name, bytes ? hw_format_size(text, bytes) : "none");
    if (excess)
        printf("; %s more than that is mapped, so nothing can be mapped until it is unmapped",
               hw_format_size(over, excess));
    putchar('\n');
    page_limit_close(g.limit);
    return CMD_DONE;
}

/* ---- the command ---- */

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const char *verb = operands->items[0];
    size_t count = operands->count - 1;
    const char *const *args = operands->items + 1;
    if (strcmp(verb, "list") == 0 && count <= 1)
        return look(values, count ? args[0] : NULL);
    if (strcmp(verb, "watch") == 0 && count <= 1)
        return watch(values, count ? args[0] : NULL);
    if (strcmp(verb, "trim") == 0 && count == 1)
        return trim(args[0]);
    if (strcmp(verb, "limit") == 0 && count == 2)
        return limit(args[0], args[1]);
    return cmd_fail(CMD_USAGE, "kvctl: use list [GROUP], limit GROUP SIZE|none, trim GROUP or"
                               " watch [GROUP]; see hawser kvctl --help");
}

const struct cmd_command cmd_kvctl = {
    .name = "kvctl",
    .summary = "show and set the memory that groups of KV workers share",
    .operands = "list|limit|trim|watch [GROUP] [SIZE]",
    .operands_min = 1,
    .operands_max = 3,
    .description =
        "list [GROUP]             who maps how much, who holds how much in reserve\n"
        "limit GROUP SIZE|none    all workers of the group together may take this much from now\n"
        "                         on; what is mapped stays, reserves shrink\n"
        "trim GROUP               reserves are given back to the device\n"
        "watch [GROUP]            list, again and again",
    .options = options,
    .environment = environment,
    .examples = "hawser kvctl list\n"
                "hawser kvctl limit engine0 40GiB\n"
                "hawser kvctl watch --interval 500ms --json",
    .values_size = sizeof(struct kvctl_options),
    .run = run,
};
