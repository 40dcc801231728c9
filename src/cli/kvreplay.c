/* hawser kvreplay - a recorded trace through the block store: hit rates of each policy, beside
 * plain LRU and the optimum. */
#include "cli/cli.h"

#include "base/bench.h"
#include "base/units.h"
#include "kv/blocks.h"
#include "kv/replay.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 16 << 20 }; /* a million blocks of one request */

struct kvreplay_options {
    struct cli_list capacities;
    uint64_t block_bytes;
    bool json;
};

static const char *const default_capacities[] = {"16GiB",  "32GiB",  "64GiB",
                                                 "128GiB", "256GiB", "512GiB"};

static const struct cli_option options[] = {
    {.name = "capacity",
     .letter = 'c',
     .kind = CLI_LIST,
     .argument = "SIZE",
     .offset = offsetof(struct kvreplay_options, capacities),
     .help = "of the store; several are tried in turn\n[default: 16GiB to 512GiB, doubling]"},
    {.name = "block",
     .letter = 'b',
     .kind = CLI_SIZE,
     .argument = "SIZE",
     .offset = offsetof(struct kvreplay_options, block_bytes),
     .def = "4MiB",
     .min = 1,
     .max = KV_BLOCK_MAX,
     .help = "what a block of the trace takes"},
    {.name = "json",
     .letter = 'j',
     .kind = CLI_FLAG,
     .offset = offsetof(struct kvreplay_options, json),
     .help = "print one JSON object instead of a table"},
    {NULL},
};

/* ---- reading ---- */

struct numbers {
    uint32_t *items;
    uint32_t count, capacity;
};

static int numbers_add(struct numbers *n, uint32_t value)
{
    if (n->count == KV_TRACE_BLOCKS_MAX)
        return -E2BIG;
    if (n->count == n->capacity) {
        uint32_t capacity = n->capacity ? 2 * n->capacity : 1024;
        uint32_t *items = realloc(n->items, capacity * sizeof(*items));
        if (!items)
            return -ENOMEM;
        n->items = items;
        n->capacity = capacity;
    }
    n->items[n->count++] = value;
    return 0;
}

/* The block numbers of one line: {"hash_ids": [46, 47, ...], ...}.  -EPROTO when it is none. */
static int read_request(const char *line, size_t len, struct numbers *ids)
{
    json_t *root = json_loadb(line, len, 0, NULL);
    json_t *list = json_object_get(root, "hash_ids"), *item;
    int rc = json_is_array(list) ? 0 : -EPROTO;
    size_t i;
    json_array_foreach(list, i, item)
    {
        json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (rc == 0)
            rc = id < 0 || id >= KV_TRACE_IDS_MAX ? -EPROTO : numbers_add(ids, (uint32_t)id);
    }
    json_decref(root);
    return rc;
}

static int read_requests(FILE *file, struct numbers *ids, struct numbers *ends, size_t *line_number)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t len;
    int rc = 0;
    for (*line_number = 1; rc == 0 && (len = getline(&line, &size, file)) >= 0; ++*line_number) {
        if (len <= 1)
            continue;
        rc = len > LINE_MAX_BYTES ? -E2BIG : read_request(line, (size_t)len, ids);
        if (rc == 0)
            rc = numbers_add(ends, ids->count);
    }
    if (rc == 0 && ferror(file))
        rc = -EIO;
    free(line);
    return rc;
}

static enum cli_exit read_trace(const char *path, struct numbers *ids, struct numbers *ends)
{
    size_t line;
    FILE *file = fopen(path, "re");
    if (!file)
        return cli_fail(CLI_FAILED, "kvreplay: %s: %s", path, strerror(errno));
    int rc = read_requests(file, ids, ends, &line);
    fclose(file);
    if (rc == -EPROTO)
        return cli_fail(CLI_FAILED,
                        "kvreplay: %s: line %zu is not a JSON object with \"hash_ids\", a list of "
                        "numbers from 0 to %d",
                        path, line - 1, KV_TRACE_IDS_MAX - 1);
    if (rc)
        return cli_fail(CLI_FAILED, "kvreplay: %s: %s", path, strerror(-rc));
    if (ids->count == 0)
        return cli_fail(CLI_FAILED, "kvreplay: %s: no request has a block", path);
    return CLI_DONE;
}

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

static enum cli_exit replay_at(struct hw_bench *bench, const struct kvreplay_options *o,
                               const struct kv_trace *trace, const char *capacity)
{
    uint64_t bytes;
    if (hw_parse_size(capacity, &bytes) || bytes / o->block_bytes < 1 ||
        bytes / o->block_bytes > KV_BLOCK_ENTRIES_MAX)
        return cli_fail(CLI_USAGE, "kvreplay: --capacity %s: not a size of 1 to %d blocks of %llu",
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
        return cli_fail(CLI_FAILED, "kvreplay: %s", strerror(-rc));
    add_row(bench, "optimum", capacity, trace, &best, NAN);
    return CLI_DONE;
}

static enum cli_exit replay_all(const struct kvreplay_options *o, const struct kv_trace *trace)
{
    struct hw_bench bench;
    enum cli_exit code = CLI_DONE;
    size_t given = o->capacities.count;
    hw_bench_begin(&bench, "kvreplay");
    for (size_t i = 0; i < (given ? given : ARRAY_LEN(default_capacities)) && code == CLI_DONE; i++)
        code = replay_at(&bench, o, trace, given ? o->capacities.items[i] : default_capacities[i]);
    if (code == CLI_DONE &&
        (o->json ? hw_bench_print_json(&bench, stdout) : hw_bench_print_table(&bench, stdout)))
        code = cli_fail(CLI_FAILED, "cannot write the output");
    hw_bench_end(&bench);
    return code;
}

static enum cli_exit run(const void *values, const struct cli_operands *operands)
{
    struct numbers ids = {0}, ends = {0};
    enum cli_exit code = read_trace(operands->items[0], &ids, &ends);
    struct kv_trace trace = {
        .ids = ids.items, .ends = ends.items, .id_count = ids.count, .request_count = ends.count};
    if (code == CLI_DONE)
        code = replay_all(values, &trace);
    free(ids.items);
    free(ends.items);
    return code;
}

const struct cli_command cli_kvreplay = {
    .name = "kvreplay",
    .summary = "hit rates of the block store on a recorded trace, beside LRU and the optimum",
    .operands = "FILE",
    .operands_min = 1,
    .operands_max = 1,
    .description =
        "Each line of FILE is a request: a JSON object whose \"hash_ids\" are the blocks of its\n"
        "prompt.  Every block is looked for in the store and put when it is missing.  value is "
        "the\n"
        "share of blocks that were there; prefix counts only those before the first that was not;\n"
        "baseline is what a store that knows the future would have had.  Deterministic.",
    .options = options,
    .environment = (const struct cli_env[]){{NULL}},
    .examples = "hawser kvreplay conversation_trace.jsonl\n"
                "hawser kvreplay trace.jsonl --capacity 64GiB,1TiB --block 16MiB --json",
    .values_size = sizeof(struct kvreplay_options),
    .run = run,
};
