/* hawser kvctl - shows and sets the memory that groups of KV workers or served models share. */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/report/out.h"
#include "base/units.h"
#include "command/interrupt.h"
#include "command/kvgroups.h"
#include "page/broadcast/link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 10 /* between two looks whether a model has answered */
};

#define ANSWER_NS (5 * HW_SEC) /* a worker is busy with one batch at most, a model with a step */
#define SHRINK_NS (2 * HW_SEC) /* models look between two steps, and ten times a second */

struct kvctl_options {
    uint64_t interval_ns, count;
    bool json;
};

#define AT(field) offsetof(struct kvctl_options, field)
static const struct cmd_option options[] = {
    {"interval", 'i', CMD_DURATION, AT(interval_ns), "watch: time between two looks", "TIME", "1s",
     10 * HW_MS, 3600 * HW_SEC},
    {"count", 'n', CMD_U64, AT(count), "watch: stop after N looks; without it, at ^C", "N"},
    {"json", 'j', CMD_FLAG, AT(json), "list, watch: one JSON object a look"},
    {NULL},
};

/* ---- list and watch ---- */

static void add_rows(struct hw_table *t, const char *name, const struct cmd_kv_group *g)
{
    char text[HW_FORMAT_CHARS];
    uint64_t limit = page_limit_get(g->limit);
    for (size_t i = 0; i < g->user_count; i++) {
        const struct page_limit_user *u = &g->users[i];
        hw_table_cell(t, "%s", name);
        hw_table_cell(t, "%u", u->rank);
        hw_table_cell(t, "%s", cmd_kv_is_model(u) ? u->name : "-");
        hw_table_cell(t, "%d", (int)u->pid);
        hw_table_cell(t, "%s",
                      cmd_kv_is_model(u) ? hw_format_size(text, u->state.used_bytes) : "-");
        hw_table_cell(t, "%s", hw_format_size(text, u->mapped_bytes));
        hw_table_cell(t, "%s", hw_format_size(text, cmd_kv_reserve(u)));
        hw_table_cell(t, "%s", limit ? hw_format_size(text, limit) : "none");
    }
}

/* False: it has ended since, or what is wrong with it was said and it is one more of `unread`. */
static bool open_group(struct cmd_kv_group *g, const char *name, size_t *unread)
{
    struct page_error why;
    int rc = cmd_kv_open(g, name, &why);
    if (rc && rc != -ENOENT) {
        cmd_warn("kvctl: %s: %s", name, why.text);
        ++*unread;
    }
    return rc == 0;
}

static int print_table(const struct cmd_kv_names *n, size_t *unread)
{
    struct hw_table *t = hw_table_create();
    if (!t)
        return -ENOMEM;
    hw_table_head(t, "group\trank\t<model\tpid\tused\tmapped\treserve\tgroup's limit");
    for (size_t i = 0; i < n->count; i++) {
        struct cmd_kv_group g;
        if (!open_group(&g, n->names[i], unread))
            continue;
        add_rows(t, n->names[i], &g);
        cmd_kv_close(&g);
    }
    int rc = hw_table_rows(t) ? hw_table_print(t, stdout) : 0;
    if (rc == 0 && hw_table_rows(t) == 0 && *unread == 0)
        cmd_kv_print_none(n);
    hw_table_destroy(t);
    return rc;
}

static void json_model(struct hw_json *j, const struct page_limit_user *u)
{
    hw_json_put_string(j, "model", u->name);
    hw_json_put_u64(j, "used", u->state.used_bytes);
    hw_json_put_u64(j, "wanted", u->state.wanted_bytes);
    hw_json_put_u64(j, "min", u->min_bytes);
    hw_json_put_u64(j, "priority", u->priority);
}

static void json_group(struct hw_json *j, const char *name, const struct cmd_kv_group *g)
{
    hw_json_object_begin(j);
    hw_json_put_string(j, "group", name);
    hw_json_put_u64(j, "limit", page_limit_get(g->limit));
    hw_json_array_at(j, "workers");
    for (size_t i = 0; i < g->user_count; i++) {
        hw_json_object_begin(j);
        hw_json_put_u64(j, "rank", g->users[i].rank);
        hw_json_put_u64(j, "pid", (uint64_t)g->users[i].pid);
        hw_json_put_u64(j, "mapped", g->users[i].mapped_bytes);
        hw_json_put_u64(j, "reserve", cmd_kv_reserve(&g->users[i]));
        if (cmd_kv_is_model(&g->users[i]))
            json_model(j, &g->users[i]);
        hw_json_object_end(j);
    }
    hw_json_array_end(j);
    hw_json_object_end(j);
}

static int print_json(const struct cmd_kv_names *n, size_t *unread)
{
    struct hw_json j;
    hw_json_begin(&j, stdout);
    hw_json_object_begin(&j);
    hw_json_array_at(&j, "groups");
    for (size_t i = 0; i < n->count; i++) {
        struct cmd_kv_group g;
        if (!open_group(&g, n->names[i], unread))
            continue;
        json_group(&j, n->names[i], &g);
        cmd_kv_close(&g);
    }
    hw_json_array_end(&j);
    hw_json_object_end(&j);
    return hw_json_finish(&j);
}

static enum cmd_exit look(const struct kvctl_options *o, const char *only)
{
    struct cmd_kv_names *n = calloc(1, sizeof *n);
    if (!n)
        return cmd_fail(CMD_FAILED, "out of memory");
    enum cmd_exit code = cmd_kv_find(n, "kvctl", only);
    size_t unread = 0;
    int rc = code != CMD_DONE ? 0 : o->json ? print_json(n, &unread) : print_table(n, &unread);
    free(n);
    if (rc)
        return cmd_output_lost(rc);
    return unread && only ? CMD_FAILED : code;
}

static enum cmd_exit watch(const struct kvctl_options *o, const char *only)
{
    cmd_catch_interrupts();
    for (uint64_t i = 0; !cmd_interrupted(); i++) {
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

static int trim_worker(const struct cmd_kv_group *g, uint32_t rank, uint64_t *freed)
{
    char path[PAGE_PATH_CHARS];
    struct page_link *link;
    struct page_error why;
    page_runtime_socket(&g->runtime, rank, path);
    int rc = page_link_open(path, ANSWER_NS, &link, &why);
    if (rc == 0) {
        rc = page_link_trim(link, page_host_ns() + ANSWER_NS, freed, &why);
        page_link_close(link);
    }
    if (rc)
        cmd_warn("kvctl: rank %u: %s", rank, why.text);
    return rc;
}

/* The group as it is now; the line of a user that has gone is NULL. */
static const struct page_limit_user *look_again(struct cmd_kv_group *g, uint32_t line)
{
    g->user_count = page_limit_users(g->limit, g->users);
    for (size_t i = 0; i < g->user_count; i++) {
        if (g->users[i].line == line)
            return &g->users[i];
    }
    return NULL;
}

/* Served models answer between two steps; what this one gave back, or -ETIMEDOUT.  Others may ask
 * meanwhile: an answer to a later request is one to this. */
static int wait_for_model(struct cmd_kv_group *g, const struct page_limit_user *before,
                          uint32_t asked, uint64_t *freed)
{
    uint32_t line = before->line;
    uint64_t charged = before->charged_bytes, until = page_host_ns() + ANSWER_NS;
    char name[PAGE_LIMIT_NAME_CHARS];
    snprintf(name, sizeof name, "%s", before->name);
    for (;;) {
        const struct page_limit_user *now = look_again(g, line);
        if (!now || (int32_t)(now->trims - asked) >= 0 || now->charged_bytes == 0) {
            uint64_t left = now ? now->charged_bytes : 0;
            *freed = charged > left ? charged - left : 0;
            return 0;
        }
        if (page_host_ns() > until)
            break;
        (void)poll(NULL, 0, LOOK_MS);
    }
    cmd_warn("kvctl: model %s is in a long step and will give its reserve back after it", name);
    return -ETIMEDOUT;
}

/* Asks each user to give back its reserve; the sum, and how many did not answer. */
static uint64_t trim_all(struct cmd_kv_group *g, size_t *silent)
{
    struct page_limit_user users[PAGE_LIMIT_USERS];
    size_t count = g->user_count;
    uint64_t freed = 0;
    memcpy(users, g->users, sizeof users);
    *silent = 0;
    uint32_t asked = page_limit_ask_trim(g->limit);
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        if (!cmd_kv_is_model(&users[i]) && users[i].rank >= PAGE_RANKS_MAX)
            continue;
        *silent += (cmd_kv_is_model(&users[i]) ? wait_for_model(g, &users[i], asked, &bytes)
                                               : trim_worker(g, users[i].rank, &bytes)) != 0;
        freed += bytes;
    }
    return freed;
}

static enum cmd_exit trim(const char *name)
{
    struct cmd_kv_group g;
    struct page_error why;
    char text[HW_FORMAT_CHARS];
    size_t silent;
    if (cmd_kv_open(&g, name, &why))
        return cmd_fail(CMD_FAILED, "kvctl: %s", why.text);
    size_t count = g.user_count;
    bool models = count > 0 && cmd_kv_is_model(&g.users[0]);
    uint64_t freed = trim_all(&g, &silent);
    printf("%s: %s given back by %zu %s%s\n", name, hw_format_size(text, freed), count - silent,
           models ? "model" : "worker", count - silent == 1 ? "" : "s");
    cmd_kv_close(&g);
    return silent ? CMD_FAILED : CMD_DONE;
}

/* Workers empty their reserves; models give back as much as they can, between two steps. */
static void wait_for_room(struct cmd_kv_group *g)
{
    size_t silent;
    if (page_limit_excess(g->limit) == 0)
        return;
    (void)trim_all(g, &silent);
    uint64_t until = page_host_ns() + SHRINK_NS;
    bool models = g->user_count > 0 && cmd_kv_is_model(&g->users[0]);
    while (models && page_limit_excess(g->limit) && page_host_ns() < until)
        (void)poll(NULL, 0, LOOK_MS);
}

static enum cmd_exit limit(const char *name, const char *size)
{
    struct cmd_kv_group g;
    struct page_error why;
    char text[HW_FORMAT_CHARS], over[HW_FORMAT_CHARS];
    uint64_t bytes = 0;
    if (strcmp(size, "none") != 0 && (hw_parse_size(size, &bytes) || bytes == 0))
        return cmd_fail(CMD_USAGE, "kvctl: limit: '%s' is not a size such as 16GiB, or none", size);
    if (cmd_kv_open(&g, name, &why))
        return cmd_fail(CMD_FAILED, "kvctl: %s", why.text);
    uint64_t most = page_limit_most(g.limit);
    if (most && bytes > most) {
        cmd_kv_close(&g);
        return cmd_fail(CMD_FAILED,
                        "kvctl: limit: the models of %s can have %s at most, since that is what "
                        "their servers reserved addresses for; start them with a larger "
                        "--kv-memory",
                        name, hw_format_size(text, most));
    }
    page_limit_set(g.limit, bytes);
    wait_for_room(&g);
    uint64_t excess = page_limit_excess(g.limit);
    printf("%s: limit %s", name, bytes ? hw_format_size(text, bytes) : "none");
    if (excess)
        printf("; %s more than that is mapped, so nothing can be mapped until it is unmapped",
               hw_format_size(over, excess));
    putchar('\n');
    cmd_kv_close(&g);
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
    .summary = "show and set the KV memory that served models, or workers, share",
    .operands = "list|limit|trim|watch [GROUP] [SIZE]",
    .operands_min = 1,
    .operands_max = 3,
    .description =
        "A group is the models of a server (hawser serve --model), named for the first of them or "
        "by --kv-group, or the workers of an engine.\n"
        "\n"
        "list [GROUP]             who uses and maps how much, who holds how much in reserve\n"
        "limit GROUP SIZE|none    all of the group together may take this much from now on; models "
        "give back what is more, and requests wait; what workers have mapped stays, and their "
        "reserves shrink\n"
        "trim GROUP               reserves are given back to the device\n"
        "watch [GROUP]            list, again and again",
    .options = options,
    .environment = cmd_kv_env,
    .examples = "hawser kvctl list\n"
                "hawser kvctl limit engine0 40GiB\n"
                "hawser kvctl watch --interval 500ms --json",
    .values_size = sizeof(struct kvctl_options),
    .run = run,
};
