/* hawser kvscale - a recorded trace through a cluster of daemons in virtual time: each figure
 * beside what a formula says. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/report/bench.h"
#include "base/units.h"
#include "bench/kvsim/scale.h"
#include "bench/kvsim/trace.h"
#include "command/measure.h"
#include "kv/cluster/members.h"
#include "kv/store/blocks.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kvscale_options {
    uint64_t members, copies, member_bytes, block_bytes, ttl_ns, latency_ns, bandwidth;
    uint64_t seed, speed;
    int spread;
    struct cmd_list changes[KV_SCALE_CHANGES];
    bool steady, json;
};

#define CHANGE_HELP(what, when)                                                                    \
    what "; several one after the other [default, if no change is given: " when " of the trace]"

#define AT(field) offsetof(struct kvscale_options, field)
static const struct cmd_option options[] = {
    {"members", 'n', CMD_U64, AT(members),
     "members at the start; 1024 at most, as of a real cluster: the daemons are the real ones", "N",
     "1000", 1, KV_MEMBERS_MAX},
    {"capacity", 'c', CMD_SIZE, AT(member_bytes),
     "of one member's store; all of them lie in this process", "SIZE", "512KiB"},
    {"block", 'b', CMD_SIZE, AT(block_bytes), "what a block of the trace takes", "SIZE", "4KiB", 64,
     KV_BLOCK_MAX},
    {"copies", 0, CMD_U64, AT(copies), "members that each block is put to", "N", "1", 1,
     KV_COPIES_MAX},
    {"spread", 0, CMD_CHOICE, AT(spread),
     "session: requests with the same second block come to one member; turns: each request comes "
     "to the next member",
     NULL, "session", 0, 0, kv_scale_spread_names},
    {"speed", 0, CMD_U64, AT(speed), "the trace comes so many times as fast as it was recorded",
     "N", "1", 1, 1000000},
    {"join", 0, CMD_LIST, AT(changes[KV_SCALE_JOIN]),
     CHANGE_HELP("a member joins so long after the first request", "1/4"), "TIME"},
    {"leave", 0, CMD_LIST, AT(changes[KV_SCALE_LEAVE]),
     CHANGE_HELP("a member leaves in order", "1/2"), "TIME"},
    {"kill", 0, CMD_LIST, AT(changes[KV_SCALE_KILL]), CHANGE_HELP("a member dies", "3/4"), "TIME"},
    {"steady", 0, CMD_FLAG, AT(steady),
     "no changes at all; with one or two members there are none unless given"},
    {"member-ttl", 0, CMD_DURATION, AT(ttl_ns), "a member's lease at etcd, as kvd's", "TIME", "10s",
     KV_MEMBER_TTL_MIN, KV_MEMBER_TTL_MAX},
    {"latency", 0, CMD_DURATION, AT(latency_ns), "of a link, one way", "TIME", "50us", 0, HW_SEC},
    {"bandwidth", 0, CMD_SIZE, AT(bandwidth), "of a member's link, bytes a second each way", "SIZE",
     "3GB", 1 << 20, UINT64_C(1) << 40},
    {"seed", 0, CMD_U64, AT(seed), "who leaves, who asks, and when leases were renewed", "N", "1",
     0, UINT64_MAX},
    {"json", 'j', CMD_FLAG, AT(json), "print one JSON object instead of a table"},
    {NULL},
};

/* ---- changes ---- */

static int by_time(const void *a, const void *b)
{
    const struct kv_scale_event *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static enum cmd_exit add_event(struct kv_scale_event *events, uint32_t *count,
                               enum kv_scale_change change, uint64_t at_ns)
{
    if (*count == KV_SCALE_EVENTS_MAX)
        return cmd_fail(CMD_USAGE, "kvscale: at most %d changes of the members in one run",
                        KV_SCALE_EVENTS_MAX);
    events[(*count)++] = (struct kv_scale_event){change, at_ns};
    return CMD_DONE;
}

static enum cmd_exit add_events(const struct cmd_list *times, enum kv_scale_change change,
                                uint64_t end_ns, struct kv_scale_event *events, uint32_t *count)
{
    enum cmd_exit code = CMD_DONE;
    char end[HW_FORMAT_CHARS];
    for (size_t i = 0; i < times->count && code == CMD_DONE; i++) {
        uint64_t at_ns;
        if (hw_parse_duration(times->items[i], &at_ns) || at_ns > end_ns)
            return cmd_fail(CMD_USAGE,
                            "kvscale: --%s %s: not a time, with its unit, from 0 to %s, when the "
                            "trace ends at this --speed",
                            kv_scale_change_names[change], times->items[i],
                            hw_format_duration(end, end_ns));
        code = add_event(events, count, change, at_ns);
    }
    return code;
}

static enum cmd_exit choose_events(const struct kvscale_options *o, uint64_t end_ns,
                                   struct kv_scale_event *events, uint32_t *count)
{
    enum cmd_exit code = CMD_DONE;
    uint32_t leavers = 0;
    *count = 0;
    for (int c = 0; c < KV_SCALE_CHANGES && code == CMD_DONE; c++)
        code = add_events(&o->changes[c], (enum kv_scale_change)c, end_ns, events, count);
    if (code == CMD_DONE && *count > 0 && o->steady)
        return cmd_fail(CMD_USAGE, "kvscale: --steady leaves no place for --join, --leave or "
                                   "--kill: give one or the other");
    if (code == CMD_DONE && *count == 0 && !o->steady && o->members > 2)
        for (int c = 0; c < KV_SCALE_CHANGES && code == CMD_DONE; c++)
            code =
                add_event(events, count, (enum kv_scale_change)c, end_ns / 4 * (uint64_t)(c + 1));
    for (uint32_t i = 0; i < *count; i++)
        leavers += events[i].change != KV_SCALE_JOIN;
    if (code == CMD_DONE && o->members + *count - leavers > KV_MEMBERS_MAX)
        return cmd_fail(CMD_USAGE, "kvscale: with %u that join there are more than %d members",
                        *count - leavers, KV_MEMBERS_MAX);
    if (code == CMD_DONE && leavers >= o->members)
        return cmd_fail(CMD_USAGE, "kvscale: %u members of %llu go: one of the first must be left",
                        leavers, (unsigned long long)o->members);
    qsort(events, *count, sizeof(events[0]), by_time);
    return code;
}

/* ---- figures ---- */

static void row(struct hw_bench *b, const char *name, struct kv_scale_figure f, double scale,
                const char *unit)
{
    hw_bench_row(b, name, f.measured * scale, unit, f.model * scale);
}

static void add_effect(struct hw_bench *b, const struct kv_scale_effect *e, uint32_t number)
{
    static const struct {
        const char *name, *unit;
        size_t offset;
        double scale;
    } rows[] = {
        {"propagated", "s", offsetof(struct kv_scale_effect, propagated_ns), 1e-9},
        {"keys_moved", "%", offsetof(struct kv_scale_effect, keys_moved), 100},
        {"misses", "", offsetof(struct kv_scale_effect, misses), 1},
        {"put_again", "MiB", offsetof(struct kv_scale_effect, put_bytes), 1.0 / (1 << 20)},
        {"lost", "", offsetof(struct kv_scale_effect, lost), 1},
    };
    const char *change = kv_scale_change_names[e->change];
    char name[64], at[HW_FORMAT_CHARS];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct kv_scale_figure f;
        memcpy(&f, (const char *)e + rows[i].offset, sizeof(f));
        snprintf(name, sizeof(name), "%s%u.%s", change, number, rows[i].name);
        row(b, name, f, rows[i].scale, rows[i].unit);
        hw_bench_field(b, "at", "%s", hw_format_duration(at, e->at_ns));
    }
}

static void add_rows(struct hw_bench *b, const struct kv_scale_result *r)
{
    uint32_t seen[KV_SCALE_CHANGES] = {0};
    row(b, "keys_balance", r->keys_balance, 1, "x");
    row(b, "bytes_balance", r->bytes_balance, 1, "x");
    row(b, "hits", r->hits, 100, "%");
    row(b, "prefix_hits", r->prefix_hits, 100, "%");
    row(b, "unmoved_hits", r->unmoved, 100, "%");
    row(b, "messages", r->messages, 1, "/s");
    row(b, "busiest_member", r->busiest, 1, "/s");
    row(b, "bytes", r->bytes, 1e-6, "MB/s");
    row(b, "get_mean", r->get_mean_ns, 1e-3, "us");
    row(b, "get_p99", r->get_p99_ns, 1e-3, "us");
    row(b, "death_noticed_mean", r->notice_mean_ns, 1e-9, "s");
    row(b, "death_noticed_max", r->notice_max_ns, 1e-9, "s");
    row(b, "view", r->view_bytes, 1.0 / 1024, "KiB");
    hw_bench_row(b, "stale_views", (double)r->stale, "", NAN);
    hw_bench_row(b, "evicted", (double)r->evicted, "", NAN);
    hw_bench_row(b, "connections", r->connections, "", NAN);
    for (uint32_t i = 0; i < r->effect_count; i++)
        add_effect(b, &r->effects[i], ++seen[r->effects[i].change]);
}

static enum cmd_exit print(const struct kvscale_options *o, const struct kv_scale_result *r)
{
    struct hw_bench bench;
    hw_bench_begin(&bench, "kvscale");
    add_rows(&bench, r);
    enum cmd_exit code = measure_print("kvscale", &bench, o->json, false);
    hw_bench_end(&bench);
    return code;
}

/* ---- running ---- */

/* Milliseconds of the file to virtual nanoseconds from the first request on. */
static enum cmd_exit set_times(const struct kvscale_options *o, struct kv_trace_file *t)
{
    uint64_t first = t->at_ms[0], before = first;
    for (uint32_t i = 0; i < t->trace.request_count; i++) {
        if (t->at_ms[i] < before)
            return cmd_fail(CMD_FAILED,
                            "kvscale: request %u came before the one above it: sort the file by "
                            "\"timestamp\"",
                            i + 1);
        before = t->at_ms[i];
        t->at_ms[i] = (uint64_t)((double)(before - first) * HW_MS / (double)o->speed);
    }
    return CMD_DONE;
}

/* Connections that end, and views, are what a run is about. */
static void drop_line(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

static enum cmd_exit check_room(const struct kv_scale_options *o)
{
    char wanted[HW_FORMAT_CHARS], there[HW_FORMAT_CHARS];
    uint64_t all = kv_scale_arena_bytes(o) * o->members;
    uint64_t room = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (all <= room / 2) /* the rest is for daemons and connections */
        return CMD_DONE;
    return cmd_fail(
        CMD_USAGE,
        "kvscale: the stores take %s, and this machine has %s of memory: give a smaller "
        "--block and --capacity, or fewer --members",
        hw_format_size(wanted, all), hw_format_size(there, room));
}

static enum cmd_exit explain(int rc)
{
    if (rc == -EINVAL)
        return cmd_fail(CMD_FAILED, "kvscale: blocks of the trace must have numbers below %d",
                        KV_SCALE_IDS_MAX);
    if (rc == -ENOMEM)
        return cmd_fail(CMD_FAILED, "kvscale: no memory for all daemons and their connections: "
                                    "give fewer --members");
    return cmd_fail(CMD_FAILED, "kvscale: %s", strerror(-rc));
}

static enum cmd_exit run_members(const struct kvscale_options *o, const struct kv_trace_file *t,
                                 const struct kv_scale_event *events, uint32_t event_count)
{
    struct kv_scale_result result;
    uint64_t blocks = o->member_bytes / o->block_bytes;
    if (blocks < 1 || blocks > KV_BLOCK_ENTRIES_MAX / 2)
        return cmd_fail(CMD_USAGE, "kvscale: --capacity is %llu blocks: from 1 to %d are possible",
                        (unsigned long long)blocks, KV_BLOCK_ENTRIES_MAX / 2);
    struct kv_scale_options run = {.trace = &t->trace,
                                   .at_ns = t->at_ms,
                                   .events = events,
                                   .event_count = event_count,
                                   .members = (uint32_t)o->members,
                                   .copies = (uint32_t)o->copies,
                                   .member_blocks = (uint32_t)blocks,
                                   .block_bytes = (uint32_t)o->block_bytes,
                                   .spread = (enum kv_scale_spread)o->spread,
                                   .ttl_ns = o->ttl_ns,
                                   .latency_ns = o->latency_ns,
                                   .bandwidth = o->bandwidth,
                                   .seed = o->seed};
    enum cmd_exit code = check_room(&run);
    if (code != CMD_DONE)
        return code;
    hw_log_set_sink(drop_line, NULL);
    int rc = kv_scale_run(&run, &result);
    hw_log_set_sink(NULL, NULL);
    return rc ? explain(rc) : print(o, &result);
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct kvscale_options *o = values;
    struct kv_scale_event events[KV_SCALE_EVENTS_MAX];
    uint32_t event_count;
    struct kv_trace_file trace;
    enum cmd_exit code = bench_trace_read("kvscale", operands->items[0], &trace);
    if (code != CMD_DONE)
        return code;
    code = set_times(o, &trace);
    if (code == CMD_DONE)
        code = choose_events(o, trace.at_ms[trace.trace.request_count - 1], events, &event_count);
    if (code == CMD_DONE)
        code = run_members(o, &trace, events, event_count);
    kv_trace_free(&trace);
    return code;
}

const struct cmd_command cmd_kvscale = {
    .name = "kvscale",
    .summary = "a cluster of up to 1,024 daemons in virtual time on a recorded trace",
    .operands = "FILE",
    .operands_min = 1,
    .operands_max = 1,
    .description =
        "Each line of FILE is a request: a JSON object whose \"hash_ids\" are the blocks of its "
        "prompt and whose \"timestamp\" is when it came, in milliseconds.  The daemons' own code "
        "runs in this process, in virtual time; only links and etcd are modelled.  value is what "
        "came out, baseline what a formula says (docs/design/scaling.md); hits have one store of "
        "the same total size as their baseline.  Deterministic.",
    .options = options,
    .examples = "hawser kvscale conversation_trace.jsonl\n"
                "hawser kvscale trace.jsonl --members 64 --copies 2 --kill 10m,20m --json",
    .values_size = sizeof(struct kvscale_options),
    .run = run,
};
