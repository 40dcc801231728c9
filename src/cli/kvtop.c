/* hawser kvtop - a live screen of the KV memory that models share. */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/units.h"
#include "cli/screen.h"
#include "command/interrupt.h"
#include "command/kvgroups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COLUMNS = 120, /* where standard output is no terminal */
    BAR_MIN = 20,  /* below that a bar says nothing */
    BAR_MAX = 60,
    NAME_WIDTH = 26,
    NARROW_NAME_WIDTH = 15,
    PID_WIDTH = 9,
    SIZE_CHARS = 10, /* "1023.9MiB" and a blank */
    STATE = 23,      /* "  wants 1023.9MiB more" */
    WIDE = NAME_WIDTH + PID_WIDTH + BAR_MIN + 2 + 4 * SIZE_CHARS + STATE,
    NARROW = NARROW_NAME_WIDTH + BAR_MIN + 2 + 2 * SIZE_CHARS + STATE
};
_Static_assert(WIDE <= 120 && NARROW <= 80, "as wide as terminals are");

struct kvtop_options {
    uint64_t interval_ns, count;
    bool once;
};

#define AT(field) offsetof(struct kvtop_options, field)
static const struct cmd_option options[] = {
    {"once", 0, CMD_FLAG, AT(once), "print the state once"},
    {"interval", 'i', CMD_DURATION, AT(interval_ns), "between two looks", "TIME", "1s", 100 * HW_MS,
     3600 * HW_SEC},
    {"count", 'n', CMD_U64, AT(count), "stop after N looks; without it, at ^C", "N"},
    {NULL},
};

/* ---- one group ---- */

static void put_size(uint64_t bytes)
{
    char text[HW_FORMAT_CHARS];
    printf("%*s", SIZE_CHARS, hw_format_size(text, bytes));
}

/* What a user holds, and of that what its sequences use.  A worker uses what it has mapped. */
struct parts {
    uint64_t used, kept, reserve;
};

/* A narrow screen has room for names, bars, what is used and mapped, and what goes on. */
struct layout {
    bool wide;
    int name, bar;
};

static struct layout find_layout(void)
{
    int columns = screen_columns(COLUMNS);
    struct layout l = {.wide = columns >= WIDE};
    l.name = l.wide ? NAME_WIDTH : NARROW_NAME_WIDTH;
    l.bar = columns - (l.wide ? WIDE : NARROW) + BAR_MIN;
    l.bar = l.bar < BAR_MIN ? BAR_MIN : l.bar > BAR_MAX ? BAR_MAX : l.bar;
    return l;
}

static struct parts parts_of(const struct page_limit_user *u)
{
    uint64_t used = cmd_kv_is_model(u) ? u->state.used_bytes : u->mapped_bytes;
    used = used < u->mapped_bytes ? used : u->mapped_bytes;
    return (struct parts){
        .used = used, .kept = u->mapped_bytes - used, .reserve = cmd_kv_reserve(u)};
}

static void put_bar(const struct parts *p, uint64_t all, int width)
{
    const struct screen_part parts[] = {{p->used, '#'}, {p->kept, '='}, {p->reserve, '-'}};
    screen_bar(parts, sizeof parts / sizeof parts[0], all, width);
}

static void put_state(const struct page_limit_user *u, uint64_t now)
{
    uint64_t idle = u->state.busy_ns < now ? now - u->state.busy_ns : 0;
    if (u->state.is_aside) {
        fputs("  weights aside", stdout);
    } else if (u->state.wanted_bytes) {
        char text[HW_FORMAT_CHARS];
        printf("  wants %s more", hw_format_size(text, u->state.wanted_bytes));
    } else if (u->state.busy_ns == 0) {
        fputs("  no request yet", stdout);
    } else if (idle >= HW_SEC) {
        printf("  idle for %llu s", (unsigned long long)(idle / HW_SEC));
    } else {
        fputs("  busy", stdout);
    }
}

/* At most as wide as its column. */
static void put_name(const char *name, int width)
{
    char text[NAME_WIDTH + 1];
    snprintf(text, sizeof text, "%.*s", width - 1, name);
    screen_text(text, width);
}

static void put_sizes(const struct parts *p, const struct layout *l)
{
    put_size(p->used);
    put_size(p->used + p->kept);
    if (l->wide)
        put_size(p->reserve);
}

static void put_user(const struct page_limit_user *u, uint64_t all, const struct layout *l,
                     uint64_t now)
{
    struct parts p = parts_of(u);
    char rank[24];
    snprintf(rank, sizeof rank, "rank %u", u->rank);
    fputs("  ", stdout);
    put_name(cmd_kv_is_model(u) ? u->name : rank, l->name - 2);
    if (l->wide)
        printf("%8d ", (int)u->pid);
    put_bar(&p, all, l->bar);
    put_sizes(&p, l);
    if (l->wide)
        put_size(u->min_bytes);
    if (cmd_kv_is_model(u))
        put_state(u, now);
    putchar('\n');
}

static void put_limit(uint64_t limit, uint64_t held, bool wide)
{
    char text[HW_FORMAT_CHARS];
    if (!limit) {
        fputs("  no limit", stdout);
        return;
    }
    printf("  limit %s", hw_format_size(text, limit));
    if (wide) /* the column of the minimum is empty */
        printf(", free %s", hw_format_size(text, limit > held ? limit - held : 0));
}

static void put_group(const char *name, const struct cmd_kv_group *g)
{
    struct parts sum = {0};
    struct layout l = find_layout();
    uint64_t limit = page_limit_get(g->limit), now = page_host_ns();
    for (size_t i = 0; i < g->user_count; i++) {
        struct parts p = parts_of(&g->users[i]);
        sum.used += p.used;
        sum.kept += p.kept;
        sum.reserve += p.reserve;
    }
    uint64_t held = sum.used + sum.kept + sum.reserve, all = limit ? limit : held;
    put_name(name, l.name);
    printf("%*s", l.wide ? PID_WIDTH : 0, "");
    put_bar(&sum, all, l.bar);
    put_sizes(&sum, &l);
    put_limit(limit, held, l.wide);
    putchar('\n');
    for (size_t i = 0; i < g->user_count; i++)
        put_user(&g->users[i], all, &l, now);
}

static void put_head(void)
{
    struct layout l = find_layout();
    printf("%-*s", l.name, "group, model");
    if (l.wide)
        printf("%*s", PID_WIDTH - 1, "pid");
    printf("%*s%-*s%*s%*s", l.wide, "", l.bar + 2, "#used =kept -reserve", SIZE_CHARS, "used",
           SIZE_CHARS, "mapped");
    if (l.wide)
        printf("%*s%*s", SIZE_CHARS, "reserve", SIZE_CHARS, "minimum");
    putchar('\n');
}

/* ---- the screen ---- */

static enum cmd_exit show(struct cmd_kv_names *n, const char *only, bool live)
{
    enum cmd_exit code = cmd_kv_find(n, "kvtop", only);
    if (code != CMD_DONE)
        return code;
    screen_begin(live);
    if (n->count == 0)
        cmd_kv_print_none(n);
    else
        put_head();
    for (size_t i = 0; i < n->count; i++) {
        struct cmd_kv_group g;
        struct page_error why;
        int rc = cmd_kv_open(&g, n->names[i], &why);
        if (rc == 0) {
            put_group(n->names[i], &g);
            cmd_kv_close(&g);
        } else if (rc != -ENOENT) { /* else it has ended since */
            screen_text(n->names[i], 0);
            fputs(": ", stdout);
            screen_text(why.text, 0);
            putchar('\n');
        }
    }
    return fflush(stdout) ? cmd_output_lost(-errno) : CMD_DONE;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct kvtop_options *o = values;
    const char *only = operands->count ? operands->items[0] : NULL;
    struct cmd_kv_names *n = calloc(1, sizeof *n);
    enum cmd_exit code = CMD_DONE;
    if (!n)
        return cmd_fail(CMD_FAILED, "out of memory");
    if (!o->once)
        screen_open();
    cmd_catch_interrupts();
    for (uint64_t i = 0; !cmd_interrupted() && code == CMD_DONE; i++) {
        code = show(n, only, !o->once);
        if (o->once || i + 1 == o->count || screen_wait(o->interval_ns))
            break;
    }
    screen_close();
    free(n);
    return code;
}

const struct cmd_command cmd_kvtop = {
    .name = "kvtop",
    .summary = "show live which model has how much of the KV memory",
    .operands = "[GROUP]",
    .operands_max = 1,
    .description =
        "A bar for each group of hawser kvctl list and for each model or worker in it, "
        "as parts of the group's limit: # used by sequences, = kept for texts to come, "
        "- mapped and empty. A model whose weights are aside has none in GPU memory until its next "
        "request. A terminal of less than 120 columns gets no process, reserve and minimum. On a "
        "terminal q or Ctrl-C quits.",
    .options = options,
    .environment = cmd_kv_env,
    .examples = "hawser kvtop\nhawser kvtop --once chat",
    .values_size = sizeof(struct kvtop_options),
    .run = run,
};
