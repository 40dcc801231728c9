/* hawser kvreplay - a recorded trace through the block store: hit rates of each policy, beside
 * plain LRU and the optimum. */
#include "bench/bench.h"

#include "base/report/bench.h"
#include "base/units.h"
#include "bench/kvsim/replay.h"
#include "bench/kvsim/trace.h"
#include "command/measure.h"
#include "kv/store/blocks.h"

#include <math.h>
#include <string.h>

struct kvreplay_options {
    struct cmd_list capacities;
    uint64_t block_bytes;
    bool json;
};

static const char *const default_capacities[] = {"16GiB",  "32GiB",  "64GiB",
                                                 "128GiB", "256GiB", "512GiB"};

#define AT(field) offsetof(struct kvreplay_options, field)
static const struct cmd_option options[] = {
    {"capacity", 'c', CMD_LIST, AT(capacities),
     "of the store; several are tried in turn [default: 16GiB to 512GiB, doubling]", "SIZE"},
    {"block", 'b', CMD_SIZE, AT(block_bytes), "what a block of the trace takes", "SIZE", "4MiB", 1,
     KV_BLOCK_MAX},
    {"json", 'j', CMD_FLAG, AT(json), "print one JSON object instead of a table"},
    {NULL},
};

/* ---- replaying ---- */

static double share(uint64_t part, uint64_t all)
{
    return 100 * (double)part / (double)all;
}

static void add_row(struct hw_bench *bench, const char *policy, const char *capacity,
                    const struct kv_trace *trace, const struct kv_replay_result *r, double optimum)
{
    hw_bench_row(bench, policy, share(r->hits, trace->id_count), "%", optimum);
    hw_bench_field(bench, "capacity", "%s", capacity);
    hw_bench_field(bench, "prefix", "%.2f", share(r->prefix_hits, trace->id_count));
}

static enum cmd_exit replay_at(struct hw_bench *bench, const struct kvreplay_options *o,
                               const struct kv_trace *trace, const char *capacity)
{
    uint64_t bytes;
    if (hw_parse_size(capacity, &bytes) || bytes / o->block_bytes < 1 ||
        bytes / o->block_bytes > KV_BLOCK_ENTRIES_MAX)
        return cmd_fail(CMD_USAGE, "kvreplay: --capacity %s: not a size of 1 to %d blocks of %llu",
                        capacity, KV_BLOCK_ENTRIES_MAX, (unsigned long long)o->block_bytes);
    uint32_t blocks = (uint32_t)(bytes / o->block_bytes);
    struct kv_replay_result best, r;
    int rc = kv_replay_optimum(trace, blocks, &best);
    double optimum = rc ? NAN : share(best.hits, trace->id_count);
    for (int kind = 0; kind < KV_POLICY_KINDS && rc == 0; kind++) {
        rc = kv_replay_store(trace, (enum kv_policy_kind)kind, blocks, &r);
        if (rc == 0)
            add_row(bench, kv_policy_names[kind], capacity, trace, &r, optimum);
    }
    if (rc)
        return cmd_fail(CMD_FAILED, "kvreplay: %s", strerror(-rc));
    add_row(bench, "optimum", capacity, trace, &best, NAN);
    return CMD_DONE;
}

static enum cmd_exit replay_all(const struct kvreplay_options *o, const struct kv_trace *trace)
{
    struct hw_bench bench;
    enum cmd_exit code = CMD_DONE;
    size_t given = o->capacities.count;
    hw_bench_begin(&bench, "kvreplay");
    for (size_t i = 0; i < (given ? given : ARRAY_LEN(default_capacities)) && code == CMD_DONE; i++)
        code = replay_at(&bench, o, trace, given ? o->capacities.items[i] : default_capacities[i]);
    if (code == CMD_DONE)
        code = measure_print("kvreplay", &bench, o->json, false);
    hw_bench_end(&bench);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    struct kv_trace_file trace;
    enum cmd_exit code = bench_trace_read("kvreplay", operands->items[0], &trace);
    if (code != CMD_DONE)
        return code;
    code = replay_all(values, &trace.trace);
    kv_trace_free(&trace);
    return code;
}

const struct cmd_command cmd_kvreplay = {
    .name = "kvreplay",
    .summary = "hit rates of the block store on a recorded trace, beside LRU and the optimum",
    .operands = "FILE",
    .operands_min = 1,
    .operands_max = 1,
    .description =
        "Each line of FILE is a request: a JSON object whose \"hash_ids\" are the blocks of its "
        "prompt.  Every block is looked for in the store and put when it is missing.  value is the "
        "share of blocks that were there; prefix counts only those before the first that was not; "
        "baseline is what a store that knows the future would have had.  Deterministic.",
    .options = options,
    .examples = "hawser kvreplay conversation_trace.jsonl\n"
                "hawser kvreplay trace.jsonl --capacity 64GiB,1TiB --block 16MiB --json",
    .values_size = sizeof(struct kvreplay_options),
    .run = run,
};
