/* hawser bench-llm - prefill and decode speed of a model here, beside what memory allows. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/order.h"
#include "base/report/bench.h"
#include "base/rng.h"
#include "base/units.h"
#include "bench/llm/moves.h"
#include "bench/llm/serving.h"
#include "bench/rpc/delay.h"
#include "command/measure.h"
#include "llm/cpu/pool.h"
#include "llm/engine/engine.h"
#include "llm/tp/tp.h"
#include "llm/worker/worker.h"
#include "page/page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPEATS_MAX = 99,
    PREFILL_MAX = 1 << 17, /* tokens: contexts of published models */
    STREAM_PIECES = 64,
    MOVES_TOKENS = 4, /* that one sequence of --moves decodes in a repetition */
    FIRST_STEPS = 12, /* that are shown by themselves: a GPU's clocks rise meanwhile */
};
#define STREAM_BYTES (UINT64_C(256) << 20) /* many times any cache */

struct bench_llm_options {
    const char *model;
    uint64_t threads, tp, prefill, decode, repeats, batch;
    struct cmd_list clients, moves;
    int backend, math;
    bool json, no_gather, no_warm;
};

#define AT(field) offsetof(struct bench_llm_options, field)
static const struct cmd_option options[] = {
    {"model", 'm', CMD_STRING, AT(model), "a GGUF file, or llama2.c's format", "FILE"},
    {"threads", 't', CMD_U64, AT(threads), "0: the cores there are", "N", "0", 0, 256},
    {"tp", 0, CMD_U64, AT(tp),
     "tensor-parallel workers, with --threads threads each, or their part of the cores; beside one "
     "worker with the threads of all",
     "N", "1", 1, PAGE_RANKS_MAX},
    {"prefill", 'p', CMD_U64, AT(prefill), "tokens of the prompt", "N", "64", 1, PREFILL_MAX},
    {"decode", 'n', CMD_U64, AT(decode), "tokens after it, one step each", "N", "32", 1,
     LLM_ROWS_MAX},
    {"repeats", 'r', CMD_U64, AT(repeats), "runs; the median of them is shown", "N", "5", 1,
     REPEATS_MAX},
    {"clients", 'c', CMD_LIST, AT(clients),
     "a worker in this process and N clients that decode at a time; several: 1,2,4,8,16; the first "
     "is the baseline of the others",
     "N"},
    {"batch", 0, CMD_U64, AT(batch),
     "with --clients: sequences in a step; 1: they take turns; 0: as many as come", "N", "0", 0,
     LLM_WORKER_BATCH_MAX},
    {"no-gather", 0, CMD_FLAG, AT(no_gather),
     "with --clients: steps do not wait for clients that were just answered"},
    {"moves", 0, CMD_LIST, AT(moves),
     "what it costs that KV moves, over links of these rates between the workers and their store, "
     "such as 1Gbit,10Gbit,100Gbit; 0: as fast as it is",
     "RATES"},
    {"backend", 0, CMD_CHOICE, AT(backend), "what computes", NULL, "cpu", 0, 0, llm_backend_names},
    {"math", 0, CMD_CHOICE, AT(math), "fast: prompts on matrix units (backend vulkan)", NULL,
     "exact", 0, 0, llm_math_names},
    {"no-warm", 0, CMD_FLAG, AT(no_warm),
     "nothing is compiled or taken before the first prompt asks for it"},
    {"json", 0, CMD_FLAG, AT(json), "figures as JSON"},
    {NULL},
};

/* What the first prompt and steps took. */
struct first_steps {
    double prefill_ms, prefill_kernel_ms;
    double step_ms, step_kernel_ms; /* means */
    double longest_ms;
    uint64_t made; /* programs and memory, in all of them */
};

struct bench_run {
    const struct bench_llm_options *o;
    struct llm_file *file;
    struct llm_engine *engine;
    struct llm_engine *one; /* with --tp: a single worker, for comparison */
    struct llm_row *rows;
    float *logits;
    uint32_t first_count; /* steps */
    double prefill_s[REPEATS_MAX], decode_s[REPEATS_MAX], stream_s[REPEATS_MAX];
    double one_prefill_s[REPEATS_MAX], one_decode_s[REPEATS_MAX];
    double kv_read_s[REPEATS_MAX], kv_write_s[REPEATS_MAX];
    double exchange[REPEATS_MAX], gathered[REPEATS_MAX]; /* of decoding: of the time; bytes */
    double warm_ms;
    uint64_t warm_made;
    struct first_steps first;
    char why[LLM_WHY_CHARS];
};

/* ---- what memory gives ---- */

struct stream {
    const uint64_t *words;
    uint64_t sums[STREAM_PIECES];
};

/* Several sums at once, so that additions do not hold up the reads. */
static void read_piece(void *user, uint32_t piece, unsigned thread)
{
    (void)thread;
    struct stream *s = user;
    size_t count = STREAM_BYTES / STREAM_PIECES / sizeof(uint64_t);
    const uint64_t *words = s->words + piece * count;
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < count; i += 8) {
        for (size_t j = 0; j < 8; j++)
            sums[j] += words[i + j];
    }
    for (size_t j = 0; j < 8; j++)
        s->sums[piece] += sums[j];
}

static int measure_stream(struct bench_run *r, uint64_t repeat, struct llm_pool *pool,
                          struct stream *s)
{
    uint64_t began = hw_now_ns(), total = 0;
    memset(s->sums, 0, sizeof s->sums);
    llm_pool_run(pool, STREAM_PIECES, read_piece, s);
    r->stream_s[repeat] = (double)(hw_now_ns() - began) / 1e9;
    for (uint32_t i = 0; i < STREAM_PIECES; i++)
        total += s->sums[i];
    return total == STREAM_BYTES / sizeof(uint64_t) ? 0 : -1; /* every word is 1 */
}

/* ---- the model ---- */

static void give_prompt(struct bench_run *r, struct llm_seq *seq)
{
    for (uint64_t i = 0; i < r->o->prefill; i++) {
        r->rows[i].seq = seq;
        r->rows[i].logits = i + 1 == r->o->prefill;
    }
}

/* A long prompt takes several steps. */
static int compute_prompt(struct bench_run *r, struct llm_engine *engine)
{
    uint32_t count = (uint32_t)r->o->prefill, now;
    int rc = 0;
    for (uint32_t done = 0; done < count && rc == 0; done += now) {
        now = count - done < LLM_ROWS_MAX ? count - done : LLM_ROWS_MAX;
        rc = llm_engine_step(engine, r->rows + done, now, r->logits, r->why);
    }
    return rc;
}

static int measure_engine(struct bench_run *r, struct llm_engine *engine, double *prefill_s,
                          double *decode_s, struct llm_tp_stats *spent)
{
    const struct bench_llm_options *o = r->o;
    struct llm_tp_stats before, after;
    struct llm_seq *seq;
    int rc = llm_seq_create(engine, &seq);
    if (rc)
        return rc;
    give_prompt(r, seq);
    uint64_t began = hw_now_ns();
    rc = compute_prompt(r, engine);
    uint64_t between = hw_now_ns();
    llm_engine_tp_stats(engine, &before);
    for (uint64_t i = 0; i < o->decode && rc == 0; i++) {
        struct llm_row row = {.seq = seq, .token = r->rows[i % o->prefill].token, .logits = true};
        rc = llm_engine_step(engine, &row, 1, r->logits, r->why);
    }
    *prefill_s = (double)(between - began) / 1e9;
    *decode_s = (double)(hw_now_ns() - between) / 1e9;
    llm_engine_tp_stats(engine, &after);
    spent->gather_ns = after.gather_ns - before.gather_ns;
    spent->bytes = after.bytes - before.bytes;
    llm_seq_destroy(seq);
    return rc;
}

/* With --tp the two take turns, so that both see the same machine. */
static int measure_model(struct bench_run *r, uint64_t i)
{
    struct llm_tp_stats spent, none;
    int rc = measure_engine(r, r->engine, &r->prefill_s[i], &r->decode_s[i], &spent);
    r->exchange[i] = (double)spent.gather_ns / 1e9 / r->decode_s[i];
    r->gathered[i] = (double)spent.bytes / (double)r->o->decode;
    if (rc == 0 && r->one)
        rc = measure_engine(r, r->one, &r->one_prefill_s[i], &r->one_decode_s[i], &none);
    return rc;
}

/* ---- KV ---- */

static uint64_t kv_bytes(const struct bench_run *r)
{
    return r->o->prefill * llm_kv_row_bytes(r->engine);
}

/* All layers of the prompt, out and back in.  A row that is read again waits for what is still on
 * its way. */
static int move_kv(struct bench_run *r, uint64_t i, struct llm_seq *seq, uint8_t *bytes)
{
    uint32_t layers = llm_engine_config(r->engine)->layers, rows = (uint32_t)r->o->prefill;
    uint64_t began = hw_now_ns();
    int rc = llm_seq_read_kv(seq, 0, layers, 0, rows, bytes);
    uint64_t between = hw_now_ns();
    for (uint32_t l = 0; l < layers && rc == 0; l++)
        rc = llm_seq_write_kv(seq, l, 0, rows, bytes + l * kv_bytes(r));
    if (rc == 0)
        rc = llm_seq_read_kv(seq, layers - 1, 1, rows - 1, rows, bytes);
    r->kv_read_s[i] = (double)(between - began) / 1e9;
    r->kv_write_s[i] = (double)(hw_now_ns() - between) / 1e9;
    return rc;
}

static int measure_kv(struct bench_run *r)
{
    struct llm_seq *seq;
    size_t size = llm_engine_config(r->engine)->layers * kv_bytes(r);
    uint8_t *bytes = malloc(size);
    int rc = bytes ? llm_seq_create(r->engine, &seq) : -1;
    if (rc == 0) {
        memset(bytes, 0, size); /* the kernel gives its pages now */
        give_prompt(r, seq);
        rc = compute_prompt(r, r->engine);
        for (uint64_t i = 0; i < r->o->repeats && rc == 0; i++)
            rc = move_kv(r, i, seq, bytes);
        llm_seq_destroy(seq);
    }
    free(bytes);
    return rc;
}

static double ms_since(uint64_t began)
{
    return (double)(hw_now_ns() - began) / 1e6;
}

static int first_steps_of(struct bench_run *r, struct llm_seq *seq)
{
    struct first_steps *f = &r->first;
    uint64_t made = llm_engine_made(r->engine), began = hw_now_ns();
    int rc = compute_prompt(r, r->engine);
    f->prefill_ms = ms_since(began);
    f->prefill_kernel_ms = (double)llm_engine_kernel_ns(r->engine) / 1e6;
    for (uint64_t i = 0; i < r->o->decode && rc == 0; i++) {
        struct llm_row row = {.seq = seq, .token = r->rows[0].token, .logits = true};
        began = hw_now_ns();
        rc = llm_engine_step(r->engine, &row, 1, r->logits, r->why);
        double ms = ms_since(began);
        if (i >= r->first_count)
            continue; /* the rest is computed all the same: every run costs as much */
        f->step_ms += ms / r->first_count;
        f->step_kernel_ms += (double)llm_engine_kernel_ns(r->engine) / 1e6 / r->first_count;
        f->longest_ms = ms > f->longest_ms ? ms : f->longest_ms;
    }
    f->made = llm_engine_made(r->engine) - made;
    return rc;
}

static int measure_first(struct bench_run *r)
{
    struct llm_seq *seq;
    int rc = llm_seq_create(r->engine, &seq);
    if (rc)
        return rc;
    give_prompt(r, seq);
    rc = first_steps_of(r, seq);
    llm_seq_destroy(seq);
    return rc;
}

/* Bytes of weights that one token reads: all but the table of tokens, unless it also serves as the
 * output, and but the experts that it does not use. */
static double bytes_a_token(const struct bench_run *r)
{
    const struct llm_config *c = llm_file_config(r->file);
    double bytes = 0;
    for (uint32_t i = 0; i < llm_file_tensor_count(r->file); i++) {
        const struct llm_tensor *t = llm_file_tensor(r->file, i);
        bool table = strcmp(t->name, "token_embd.weight") == 0;
        bool experts = c->experts && strstr(t->name, "_exps.");
        if (!table || c->tied_output)
            bytes += (double)t->bytes * (experts ? (double)c->experts_used / c->experts : 1);
    }
    return bytes;
}

/* A backend without a GPU has no such time. */
static void add_kernel(struct hw_bench *bench, double ms)
{
    if (ms > 0)
        hw_bench_field(bench, "kernel_ms", "%.3f", ms);
}

static void report_first(struct bench_run *r, struct hw_bench *bench)
{
    const struct bench_llm_options *o = r->o;
    const struct first_steps *f = &r->first;
    hw_bench_row(bench, "first prefill", f->prefill_ms, "ms",
                 hw_median(r->prefill_s, o->repeats) * 1e3);
    add_kernel(bench, f->prefill_kernel_ms);
    hw_bench_row(bench, "first steps", f->step_ms, "ms",
                 hw_median(r->decode_s, o->repeats) * 1e3 / (double)o->decode);
    hw_bench_field(bench, "steps", "%u", r->first_count);
    add_kernel(bench, f->step_kernel_ms);
    hw_bench_field(bench, "longest_ms", "%.3f", f->longest_ms);
    hw_bench_field(bench, "made", "%llu", (unsigned long long)f->made);
}

/* What a worker gets from the others for a token: an all-gather of each input, against the two sums
 * of a layer that splitting inputs takes, as rings of workers exchange them.  The logits, which
 * only the first worker gets, are in neither. */
static void report_bytes(struct bench_run *r, struct hw_bench *bench)
{
    const struct llm_config *c = llm_file_config(r->file);
    double others = (double)(r->o->tp - 1) / (double)r->o->tp * sizeof(float) * c->layers;
    double gathered = (double)llm_tp_layer_cost(c).values * others;
    double reduced = 2 * 2.0 * c->width * others;
    hw_bench_row(bench, "bytes a token", gathered, "B", reduced);
    hw_bench_field(bench, "baseline_is", "all-reduce, by arithmetic");
    hw_bench_field(bench, "given", "%.0f", hw_median(r->gathered, r->o->repeats));
}

static void report_tp(struct bench_run *r, struct hw_bench *bench)
{
    const struct bench_llm_options *o = r->o;
    double prefill_s = hw_median(r->one_prefill_s, o->repeats);
    double decode_s = hw_median(r->one_decode_s, o->repeats);
    hw_bench_row(bench, "tp prefill", (double)o->prefill / hw_median(r->prefill_s, o->repeats),
                 "tok/s", (double)o->prefill / prefill_s);
    hw_bench_field(bench, "baseline_is", "one worker, %llu threads",
                   (unsigned long long)(o->threads ? o->tp * o->threads : hw_cores()));
    hw_bench_row(bench, "tp decode", (double)o->decode / hw_median(r->decode_s, o->repeats),
                 "tok/s", (double)o->decode / decode_s);
    hw_bench_field(bench, "baseline_is", "the same");
    hw_bench_field(bench, "exchange_percent", "%.1f", hw_median(r->exchange, o->repeats) * 100);
    report_bytes(r, bench);
}

static enum cmd_exit report(struct bench_run *r)
{
    const struct bench_llm_options *o = r->o;
    struct hw_bench bench;
    double memory = (double)STREAM_BYTES / hw_median(r->stream_s, o->repeats);
    double bytes = bytes_a_token(r);
    hw_bench_begin(&bench, "llm");
    hw_bench_row(&bench, "memory read", memory / 1e9, "GB/s", NAN);
    hw_bench_row(&bench, "prefill", (double)o->prefill / hw_median(r->prefill_s, o->repeats),
                 "tok/s", NAN);
    hw_bench_field(&bench, "tokens", "%llu", (unsigned long long)o->prefill);
    hw_bench_row(&bench, "decode", (double)o->decode / hw_median(r->decode_s, o->repeats), "tok/s",
                 memory / bytes);
    hw_bench_field(&bench, "tokens", "%llu", (unsigned long long)o->decode);
    hw_bench_field(&bench, "baseline_is", "memory read / %.1f MB of weights a token", bytes / 1e6);
    double kv = (double)(llm_engine_config(r->engine)->layers * kv_bytes(r));
    hw_bench_row(&bench, "KV out", kv / hw_median(r->kv_read_s, o->repeats) / 1e9, "GB/s", NAN);
    hw_bench_row(&bench, "KV in", kv / hw_median(r->kv_write_s, o->repeats) / 1e9, "GB/s", NAN);
    if (r->one)
        report_tp(r, &bench);
    if (!o->no_warm) {
        hw_bench_row(&bench, "warm-up", r->warm_ms, "ms", NAN);
        hw_bench_field(&bench, "made", "%llu", (unsigned long long)r->warm_made);
    }
    report_first(r, &bench);
    enum cmd_exit code = measure_print("bench-llm", &bench, o->json, false);
    hw_bench_end(&bench);
    return code;
}

/* ---- life ---- */

/* As a worker does before its first request. */
static int warm(struct bench_run *r)
{
    uint64_t began = hw_now_ns(), made = llm_engine_made(r->engine);
    int rc = r->o->no_warm ? 0 : llm_engine_warm(r->engine, r->why);
    r->warm_ms = ms_since(began);
    r->warm_made = llm_engine_made(r->engine) - made;
    return rc;
}

static int open_bench(struct bench_run *r)
{
    const struct bench_llm_options *o = r->o;
    struct llm_engine_options engine = {.backend = llm_backend_names[o->backend],
                                        .threads = (unsigned)o->threads,
                                        .math = (enum llm_math)o->math,
                                        .tp = (uint32_t)o->tp,
                                        .path = o->model,
                                        .context = (uint32_t)(o->prefill + o->decode)};
    int rc = llm_file_open(o->model, &r->file, r->why);
    if (rc == 0)
        rc = llm_engine_create(r->file, &engine, &r->engine, r->why);
    engine.tp = 0;
    engine.threads *= (unsigned)o->tp;
    if (rc == 0 && o->tp > 1)
        rc = llm_engine_create(r->file, &engine, &r->one, r->why);
    if (rc == 0)
        rc = warm(r);
    if (rc)
        return rc;
    r->first_count = o->decode < FIRST_STEPS ? (uint32_t)o->decode : FIRST_STEPS;
    uint32_t vocab = llm_file_config(r->file)->vocab;
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    r->logits = malloc(vocab * sizeof *r->logits);
    r->rows = calloc(o->prefill, sizeof *r->rows);
    if (!r->logits || !r->rows)
        return -1;
    for (uint64_t i = 0; i < o->prefill; i++)
        r->rows[i].token = (uint32_t)hw_rng_below(&rng, vocab);
    return 0;
}

static int measure(struct bench_run *r)
{
    struct llm_pool *pool = NULL;
    uint64_t *words = malloc(STREAM_BYTES);
    int rc = words ? llm_pool_create((unsigned)r->o->threads, &pool) : -1;
    for (size_t i = 0; words && i < STREAM_BYTES / sizeof *words; i++)
        words[i] = 1;
    struct stream stream = {.words = words};
    if (rc == 0)
        rc = measure_first(r); /* which also reads the file */
    for (uint64_t i = 0; i < r->o->repeats && rc == 0; i++) {
        rc = measure_stream(r, i, pool, &stream);
        if (rc == 0)
            rc = measure_model(r, i);
    }
    if (rc == 0)
        rc = measure_kv(r);
    llm_pool_destroy(pool);
    free(words);
    return rc;
}

static enum cmd_exit run_alone(struct bench_run *r)
{
    if (open_bench(r) || measure(r))
        return cmd_fail(CMD_FAILED, "bench-llm: %s", r->why);
    return report(r);
}

/* ---- many clients ---- */

static enum cmd_exit read_counts(const struct cmd_list *list, uint32_t counts[CMD_LIST_MAX])
{
    for (size_t i = 0; i < list->count; i++) {
        uint64_t count;
        if (hw_parse_u64(list->items[i], 1, BENCH_SERVING_CLIENTS_MAX, &count))
            return cmd_fail(CMD_USAGE, "bench-llm: --clients: '%s' is not a number from 1 to %d",
                            list->items[i], BENCH_SERVING_CLIENTS_MAX);
        counts[i] = (uint32_t)count;
    }
    return CMD_DONE;
}

static enum cmd_exit run_serving(struct bench_run *r)
{
    const struct bench_llm_options *o = r->o;
    uint32_t counts[CMD_LIST_MAX];
    enum cmd_exit code = read_counts(&o->clients, counts);
    if (code != CMD_DONE)
        return code;
    if (llm_file_open(o->model, &r->file, r->why))
        return cmd_fail(CMD_FAILED, "bench-llm: %s", r->why);
    struct bench_serving serving = {.file = r->file,
                                    .engine = {.backend = llm_backend_names[o->backend],
                                               .threads = (unsigned)o->threads,
                                               .math = (enum llm_math)o->math},
                                    .clients = counts,
                                    .client_counts = o->clients.count,
                                    .prefill = (uint32_t)o->prefill,
                                    .decode = (uint32_t)o->decode,
                                    .repeats = (uint32_t)o->repeats,
                                    .batch = (uint32_t)o->batch,
                                    .no_gather = o->no_gather};
    struct hw_bench bench;
    hw_bench_begin(&bench, "llm-serving");
    if (bench_serving_run(&serving, &bench, r->why))
        code = cmd_fail(CMD_FAILED, "bench-llm: %s", r->why);
    else
        code = measure_print("bench-llm", &bench, o->json, false);
    hw_bench_end(&bench);
    return code;
}

/* ---- KV that moves ---- */

static enum cmd_exit measure_moves(struct bench_run *r, struct hw_bench *bench)
{
    const struct bench_llm_options *o = r->o;
    struct bench_moves moves = {.file = r->file,
                                .engine = {.backend = llm_backend_names[o->backend],
                                           .threads = (unsigned)o->threads,
                                           .math = (enum llm_math)o->math},
                                .prefill = (uint32_t)o->prefill,
                                .decode = (uint32_t)(o->decode + MOVES_TOKENS * (o->repeats + 1)),
                                .repeats = (uint32_t)o->repeats};
    for (size_t i = 0; i < o->moves.count; i++) {
        moves.link = o->moves.items[i];
        if (bench_delay_parse_rate(moves.link, &moves.bits_s))
            return cmd_fail(CMD_USAGE, "bench-llm: --moves: '%s' is no rate; write 10Gbit",
                            moves.link);
        if (bench_moves_run(&moves, bench, r->why))
            return cmd_fail(CMD_FAILED, "bench-llm: %s", r->why);
    }
    return CMD_DONE;
}

static enum cmd_exit run_moves(struct bench_run *r)
{
    struct hw_bench bench;
    if (llm_file_open(r->o->model, &r->file, r->why))
        return cmd_fail(CMD_FAILED, "bench-llm: %s", r->why);
    hw_bench_begin(&bench, "llm-moves");
    enum cmd_exit code = measure_moves(r, &bench);
    if (code == CMD_DONE)
        code = measure_print("bench-llm", &bench, r->o->json, false);
    hw_bench_end(&bench);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    struct bench_run *r = calloc(1, sizeof *r);
    if (!r)
        return cmd_fail(CMD_FAILED, "bench-llm: out of memory");
    r->o = values;
    snprintf(r->why, sizeof r->why, "out of memory");
    enum cmd_exit code;
    if (!r->o->model)
        code = cmd_fail(CMD_USAGE, "bench-llm: --model FILE is needed");
    else if (r->o->clients.count && r->o->moves.count)
        code = cmd_fail(CMD_USAGE, "bench-llm: --clients or --moves, not both");
    else if (r->o->clients.count)
        code = run_serving(r);
    else if (r->o->moves.count)
        code = run_moves(r);
    else
        code = run_alone(r);
    llm_engine_destroy(r->one);
    llm_engine_destroy(r->engine);
    llm_file_close(r->file);
    free(r->logits);
    free(r->rows);
    free(r);
    return code;
}

const struct cmd_command cmd_bench_llm = {
    .name = "bench-llm",
    .summary = "how fast a model runs here, and how fast it could",
    .operands = "",
    .description =
        "Prefill and decode of random tokens, in tokens a second.  Decode reads all weights once a "
        "token, of experts those that it uses, so memory sets its limit: the baseline, measured in "
        "the same run. The first prompt "
        "and steps stand by themselves, beside later ones.  KV out and in: all layers of the "
        "prompt, between the backend's memory and a buffer. With --clients, a worker is asked by "
        "so many clients at a time, each for its next token when it has the last; weights are then "
        "read once for all of them. With --moves, layers of a sequence are moved out to a KV "
        "daemon and come back, a prompt is asked for again, and a sequence goes on at a second "
        "worker; each beside a token or a prompt that finds everything where it is computed.",
    .options = options,
    .examples = "hawser bench-llm --model model.gguf -t 2\n"
                "hawser bench-llm --model model.gguf -p 512 -n 64 --json\n"
                "hawser bench-llm --model model.gguf --backend vulkan\n"
                "hawser bench-llm --model model.gguf --clients 1,2,4,8,16\n"
                "hawser bench-llm --model model.gguf -p 500 --moves 1Gbit,10Gbit,100Gbit",
    .values_size = sizeof(struct bench_llm_options),
    .run = run,
};
