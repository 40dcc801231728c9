/* hawser experiment - every mode beside the others: trials, a CSV, tests, a report. */
#include "bench/llm/experiment.h"
#include "bench/bench.h"

#include "base/report/html.h"
#include "base/report/progress.h"
#include "base/units.h"
#include "bench/rpc/delay.h"
#include "command/llm_run.h"
#include "rpc/transport/addr.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define RTT_MAX (10 * HW_SEC) /* a longer line is a broken one */

enum { PHASE_DECODE, PHASE_PREFILL, PHASE_BOTH };

static const char *const phase_names[] = {"decode", "prefill", "both", NULL};
static const char *const sweep_names[] = {"none",    "steps",    "rtt", "rate",
                                          "clients", "pressure", NULL};
static const char *const default_points[][CMD_LIST_MAX] = {
    [EXPERIMENT_SWEEP_NONE] = {NULL},
    [EXPERIMENT_SWEEP_STEPS] = {"8", "16", "32", "64", NULL},
    [EXPERIMENT_SWEEP_RTT] = {"0", "100us", "1ms", "10ms", NULL},
    [EXPERIMENT_SWEEP_RATE] = {"100Mbit", "1Gbit", "10Gbit", NULL},
    [EXPERIMENT_SWEEP_CLIENTS] = {"1", "2", "4", NULL},
    [EXPERIMENT_SWEEP_PRESSURE] = {NULL}, /* of the model's layers */
};
static const char *const point_examples[] = {[EXPERIMENT_SWEEP_STEPS] = "16",
                                             [EXPERIMENT_SWEEP_RTT] = "0 or 100us",
                                             [EXPERIMENT_SWEEP_RATE] = "100Mbit or 1Gbit",
                                             [EXPERIMENT_SWEEP_CLIENTS] = "4",
                                             [EXPERIMENT_SWEEP_PRESSURE] =
                                                 "2, or as many layers as there are"};
static const char *const default_modes[] = {"local", "naive", "remote_cache", "sys_simulated",
                                            NULL};
static const char *const pressure_modes[] = {"remote_cache",
                                             "remote_cache_compressed",
                                             "remote_cache_delta_raw",
                                             "remote_cache_delta_compressed",
                                             "remote_cache_recompute",
                                             "sys_simulated",
                                             NULL};

struct experiment_options {
    const char *model, *tokenizer, *prompt, *output, *report, *returns, *gpu_host, *rate, *shadow;
    struct cmd_list modes, points;
    int phase, sweep, backend;
    bool external_server, lossy, json;
    uint64_t rtt_ns, trials, decode_steps, master_port, prompt_tokens, seed, threads,
        tokens_per_request;
};

#define AT(field) offsetof(struct experiment_options, field)
static const struct cmd_option options[] = {
    {"model", 'm', CMD_STRING, AT(model), "a GGUF file, or llama2.c's format", "FILE"},
    {"tokenizer", 0, CMD_STRING, AT(tokenizer), "the vocabulary of a model in llama2.c's format",
     "FILE"},
    {"trials", 0, CMD_U64, AT(trials), "of every mode and phase, interleaved", "N", "3", 1, 1000},
    {"modes", 0, CMD_LIST, AT(modes),
     "those of hawser llm [default: local,naive,remote_cache,sys_simulated; of a sweep of "
     "pressure: sys_simulated and those of remote_cache]",
     "MODES"},
    {"phase", 0, CMD_CHOICE, AT(phase), "prefill: the prompt only; decode: the tokens after it",
     NULL, "both", 0, 0, phase_names},
    {"prompt", 'p', CMD_STRING, AT(prompt), "what to continue", "TEXT", "Once upon a time"},
    {"prompt_tokens", 0, CMD_U64, AT(prompt_tokens), "N random tokens instead", "N", NULL, 0,
     WIRE_TOKENS_MAX},
    {"decode_steps", 'n', CMD_U64, AT(decode_steps), "tokens to generate in the decode phase", "N",
     "50", 2, EXPERIMENT_STEPS_MAX},
    {"output", 'o', CMD_STRING, AT(output),
     "the rows, as they come; what is there already is not run again", "FILE", "results.csv"},
    {"report", 0, CMD_STRING, AT(report), "one page with everything in it", "FILE", "report.html"},
    {"external_server", 0, CMD_FLAG, AT(external_server),
     "use the worker at --gpu_host, --master_port; else one is started here"},
    {"gpu_host", 0, CMD_STRING, AT(gpu_host), "where the external worker is", "HOST", "127.0.0.1"},
    {"master_port", 0, CMD_U64, AT(master_port), "its port", "PORT", "28100", 1, 65535},
    {"sweep", 0, CMD_CHOICE, AT(sweep),
     "what to vary: decode steps, the link's round-trip time or rate, clients at once, layers of "
     "KV that the worker moves out in the middle of a decode",
     NULL, "none", 0, 0, sweep_names},
    {"points", 0, CMD_LIST, AT(points),
     "its values [default: 8,16,32,64; 0,100us,1ms,10ms; 100Mbit,1Gbit,10Gbit; 1,2,4; from none to "
     "all]",
     "LIST"},
    {"rtt", 0, CMD_DURATION, AT(rtt_ns),
     "added to the link's round trip while something else is varied; of a sweep of pressure also "
     "to that between the worker and its KV store",
     "TIME", "0", 0, RTT_MAX},
    {"rate", 0, CMD_STRING, AT(rate),
     "of the link, each way, while something else is varied: 100Mbit, 1Gbit; of a sweep of "
     "pressure also that between the worker and its KV store [default: as it is]",
     "RATE"},
    {"shadow", 0, CMD_STRING, AT(shadow),
     "of a sweep of pressure: the worker's KV store, as of hawser serve.  A cluster is kvd:SOCKET "
     "of its member here, or redis://HOST:PORT,... [default: host]",
     "WHERE"},
    {"return", 0, CMD_STRING, AT(returns), "semantic: as hawser llm", "WHAT", "tokens"},
    {"lossy", 0, CMD_FLAG, AT(lossy),
     "semantic with --return logits: as hawser llm; the report then says how many of its tokens "
     "are those of the other modes"},
    {"tokens-per-request", 0, CMD_U64, AT(tokens_per_request), "semantic: as hawser llm", "N", "1",
     1, LLM_GENERATE_MAX},
    {"backend", 0, CMD_CHOICE, AT(backend), "of the mode local and of our own worker", NULL, "cpu",
     0, 0, llm_run_backends},
    {"threads", 't', CMD_U64, AT(threads), "of the cpu backend; 0: the cores there are", "N", "0",
     0, 256},
    {"seed", 0, CMD_U64, AT(seed), "of random prompts", "N", "0"},
    {"json", 'j', CMD_FLAG, AT(json), "print one JSON object instead of a table"},
    {NULL},
};

enum { GPU_CHARS = 160 };

struct experiment {
    const struct experiment_options *o;
    struct experiment_setup setup;
    struct bench_child server;
    struct experiment_rows rows;
    struct experiment_point points[CMD_LIST_MAX];
    size_t point_count;
    const char *modes[CMD_LIST_MAX + 1]; /* NULL-terminated */
    size_t mode_count;
    const char *phases[2];
    size_t phase_count;
    uint64_t kv_bytes; /* of one sequence */
    uint32_t layers;
    uint64_t settings;
    uint64_t kept; /* cells whose rows were in the file before */
    FILE *file;
};

/* ---- what to run ---- */

static enum cmd_exit read_modes(struct experiment *x)
{
    bool pressure = x->o->sweep == EXPERIMENT_SWEEP_PRESSURE;
    const char *const *modes = pressure ? pressure_modes : default_modes;
    if (x->o->modes.count)
        modes = (const char *const *)x->o->modes.items;
    for (size_t i = 0; i < CMD_LIST_MAX && modes[i]; i++) {
        const char *mode = modes[i];
        if (!llm_mode_find(mode))
            return cmd_fail(CMD_USAGE,
                            "experiment: --modes: there is no mode '%s'; local, naive, "
                            "remote_cache and its variants (hawser llm --help), sys_simulated, "
                            "semantic, vulkan",
                            mode);
        for (size_t j = 0; j < i; j++) {
            if (strcmp(x->modes[j], mode) == 0)
                return cmd_fail(CMD_USAGE, "experiment: --modes: '%s' twice", mode);
        }
        x->modes[x->mode_count++] = mode;
    }
    bool semantic = false;
    for (size_t i = 0; i < x->mode_count; i++)
        semantic |= strcmp(x->modes[i], "semantic") == 0;
    if (x->o->lossy && (!semantic || strcmp(x->o->returns, "logits") != 0))
        return cmd_fail(CMD_USAGE, "experiment: --lossy goes with --return logits and the mode "
                                   "semantic in --modes");
    if (pressure && x->o->phase == PHASE_PREFILL)
        return cmd_fail(
            CMD_USAGE, "experiment: --sweep pressure measures decoding; leave --phase prefill out");
    if (x->o->phase != PHASE_DECODE && !pressure)
        x->phases[x->phase_count++] = "prefill";
    if (x->o->phase != PHASE_PREFILL)
        x->phases[x->phase_count++] = "decode";
    return CMD_DONE;
}

static int read_point(const struct experiment *x, const char *text, struct experiment_point *out)
{
    switch (x->o->sweep) {
    case EXPERIMENT_SWEEP_STEPS:
        return hw_parse_u64(text, 2, EXPERIMENT_STEPS_MAX, &out->steps);
    case EXPERIMENT_SWEEP_RTT:
        return hw_parse_duration(text, &out->rtt_ns) || out->rtt_ns > RTT_MAX ? -EINVAL : 0;
    case EXPERIMENT_SWEEP_RATE:
        return bench_delay_parse_rate(text, &out->bits_s) || !out->bits_s ? -EINVAL : 0;
    case EXPERIMENT_SWEEP_PRESSURE:
        return hw_parse_u64(text, 0, x->layers, &out->evicted);
    default:
        return hw_parse_u64(text, 1, EXPERIMENT_CLIENTS_MAX, &out->clients);
    }
}

/* From none to all layers, each of them where there are few. */
static void spread_points(struct experiment *x, struct experiment_point base)
{
    uint32_t steps = x->layers < 8 ? x->layers : 8;
    for (uint32_t i = 0; i <= steps; i++) {
        base.evicted = i * x->layers / steps;
        x->points[x->point_count++] = base;
    }
}

/* The link while something else is varied. */
static enum cmd_exit read_link(const struct experiment_options *o, uint64_t *bits_s)
{
    if (o->rtt_ns && o->sweep == EXPERIMENT_SWEEP_RTT)
        return cmd_fail(
            CMD_USAGE,
            "experiment: --sweep rtt takes its round trips from --points; leave --rtt out");
    bool pressure = o->sweep == EXPERIMENT_SWEEP_PRESSURE;
    const char *store = o->shadow ? "--shadow" : o->rate ? "--rate" : o->rtt_ns ? "--rtt" : NULL;
    if (pressure && o->external_server && store)
        return cmd_fail(CMD_USAGE,
                        "experiment: %s: an external worker has its own KV store and its "
                        "own link to it; drop --external_server",
                        store);
    if (!pressure && o->shadow)
        return cmd_fail(CMD_USAGE, "experiment: --shadow goes with --sweep pressure");
    if (!o->rate)
        return CMD_DONE;
    if (o->sweep == EXPERIMENT_SWEEP_RATE)
        return cmd_fail(CMD_USAGE,
                        "experiment: --sweep rate takes its rates from --points; leave --rate out");
    if (bench_delay_parse_rate(o->rate, bits_s))
        return cmd_fail(CMD_USAGE, "experiment: --rate: '%s' is no rate, such as %s", o->rate,
                        point_examples[EXPERIMENT_SWEEP_RATE]);
    return CMD_DONE;
}

static enum cmd_exit read_points(struct experiment *x)
{
    const struct experiment_options *o = x->o;
    struct experiment_point base = {.steps = o->decode_steps, .clients = 1, .rtt_ns = o->rtt_ns};
    enum cmd_exit code = read_link(o, &base.bits_s);
    if (code != CMD_DONE)
        return code;
    const char *const *texts = default_points[o->sweep];
    if (o->points.count)
        texts = (const char *const *)o->points.items;
    if (o->sweep == EXPERIMENT_SWEEP_NONE) {
        x->points[x->point_count++] = base;
        return o->points.count ? cmd_fail(CMD_USAGE, "experiment: --points goes with --sweep")
                               : CMD_DONE;
    }
    if (o->sweep == EXPERIMENT_SWEEP_PRESSURE && !o->points.count)
        spread_points(x, base);
    for (size_t i = 0; i < CMD_LIST_MAX && texts[i]; i++) {
        struct experiment_point point = base;
        if (read_point(x, texts[i], &point))
            return cmd_fail(CMD_USAGE,
                            "experiment: --points: '%s' is no value for a sweep of %s, such as %s",
                            texts[i], sweep_names[o->sweep], point_examples[o->sweep]);
        x->points[x->point_count++] = point;
    }
    return CMD_DONE;
}

/* The relay that makes a line longer or narrower ends at this machine. */
static enum cmd_exit check_relay(const struct experiment *x)
{
    bool relays = false;
    struct rpc_addr addr = {.scheme = RPC_SCHEME_TCP};
    for (size_t i = 0; i < x->point_count; i++)
        relays |= x->points[i].rtt_ns || x->points[i].bits_s;
    snprintf(addr.host, sizeof addr.host, "%s", x->o->gpu_host);
    if (relays && x->o->external_server && !rpc_addr_is_local(&addr))
        return cmd_fail(CMD_USAGE, "experiment: %s needs a worker on this machine",
                        x->o->rate     ? "--rate"
                        : x->o->rtt_ns ? "--rtt"
                                       : "a sweep of the link");
    return CMD_DONE;
}

static enum cmd_exit look_at_model(struct experiment *x)
{
    char why[LLM_WHY_CHARS], text[1024];
    struct llm_file *file;
    struct stat st;
    const struct experiment_options *o = x->o;
    if (llm_file_open(o->model, &file, why))
        return cmd_fail(CMD_FAILED, "experiment: %s", why);
    const struct llm_config *c = llm_file_config(file);
    x->layers = c->layers;
    x->kv_bytes = UINT64_C(4) * c->layers * c->kv_heads * c->head_dim * (c->context + UINT64_C(63));
    llm_file_close(file);
    if (stat(o->model, &st))
        return cmd_fail(CMD_FAILED, "experiment: %s: %s", o->model, strerror(errno));
    bool steps_vary = o->sweep == EXPERIMENT_SWEEP_STEPS;
    int len =
        snprintf(text, sizeof text, "%llu %lld %llu %llu %llu %llu %llu %llu %d %d %d %s %d %s",
                 (unsigned long long)st.st_size, (long long)st.st_mtime,
                 (unsigned long long)o->prompt_tokens, (unsigned long long)o->seed,
                 (unsigned long long)o->threads, (unsigned long long)o->tokens_per_request,
                 (unsigned long long)(steps_vary ? 0 : o->decode_steps),
                 (unsigned long long)o->rtt_ns, o->sweep, o->lossy, o->backend, o->returns,
                 o->external_server, o->external_server ? o->gpu_host : "");
    x->settings = XXH3_64bits(text, (size_t)len < sizeof text ? (size_t)len : sizeof text - 1);
    x->settings ^= XXH3_64bits(o->prompt, strlen(o->prompt));
    if (o->rate)
        x->settings ^= XXH3_64bits_withSeed(o->rate, strlen(o->rate), 1);
    if (o->shadow)
        x->settings ^= XXH3_64bits_withSeed(o->shadow, strlen(o->shadow), 2);
    return CMD_DONE;
}

static enum cmd_exit open_output(struct experiment *x)
{
    size_t others;
    int rc = experiment_file_open(x->o->output, x->settings, &x->rows, &others, &x->file);
    if (rc == -EEXIST)
        return cmd_fail(CMD_FAILED,
                        "experiment: %s is not a table of hawser experiment; name another --output",
                        x->o->output);
    if (rc)
        return cmd_fail(CMD_FAILED, "experiment: %s: %s", x->o->output, strerror(-rc));
    if (others)
        cmd_warn(
            "experiment: %s has %zu rows of other settings (model, prompt, decode steps, link, "
            "sweep or others): they stay there and are no part of this report",
            x->o->output, others);
    return CMD_DONE;
}

/* Before the measurement, which may take hours. */
static enum cmd_exit check_report(const struct experiment *x)
{
    char why[HW_OUTPUT_WHY_CHARS];
    int rc = hw_page_check(x->o->report, why);
    return rc ? cmd_fail(CMD_FAILED, "experiment: --report: %s", why) : CMD_DONE;
}

static enum cmd_exit prepare(struct experiment *x)
{
    const struct experiment_options *o = x->o;
    if (!o->model)
        return cmd_fail(CMD_USAGE, "experiment: --model FILE is needed");
    enum cmd_exit code = read_modes(x);
    if (code == CMD_DONE)
        code = look_at_model(x);
    if (code == CMD_DONE)
        code = read_points(x);
    if (code == CMD_DONE)
        code = check_relay(x);
    if (code == CMD_DONE)
        code = check_report(x);
    if (code != CMD_DONE)
        return code;
    x->setup = (struct experiment_setup){.model = o->model,
                                         .tokenizer = o->tokenizer,
                                         .prompt = o->prompt,
                                         .returns = o->returns,
                                         .gpu_host = o->gpu_host,
                                         .port = o->master_port,
                                         .prompt_tokens = o->prompt_tokens,
                                         .seed = o->seed,
                                         .threads = o->threads,
                                         .tokens_per_request = o->tokens_per_request,
                                         .backend = llm_run_backends[o->backend],
                                         .layers = x->layers,
                                         .own_server = !o->external_server,
                                         .lossy = o->lossy};
    if (o->sweep == EXPERIMENT_SWEEP_PRESSURE) {
        x->setup.shadow = o->shadow ? o->shadow : "host";
        x->setup.store_link = (struct bench_line){.one_way_ns = x->points[0].rtt_ns / 2,
                                                  .bits_s = x->points[0].bits_s};
    }
    return open_output(x);
}

static bool needs_server(const struct experiment *x)
{
    bool remote = false;
    for (size_t i = 0; i < x->mode_count; i++)
        remote |= llm_mode_find(x->modes[i])->remote;
    return remote && !x->o->external_server;
}

static enum cmd_exit start_server(struct experiment *x)
{
    uint64_t clients = 1;
    for (size_t i = 0; i < x->point_count; i++)
        clients = x->points[i].clients > clients ? x->points[i].clients : clients;
    if (!needs_server(x))
        return CMD_DONE;
    if (experiment_server_start(&x->setup, clients * x->kv_bytes, &x->server))
        return cmd_fail(CMD_FAILED, "experiment: the worker did not start");
    x->setup.port = x->server.port;
    x->setup.gpu_host = "127.0.0.1";
    return CMD_DONE;
}

/* ---- running ---- */

static bool is_done(const struct experiment *x, const struct experiment_row *cell)
{
    uint64_t found = 0;
    for (size_t i = 0; i < x->rows.count; i++) {
        const struct experiment_row *r = &x->rows.items[i];
        found += r->trial == cell->trial && strcmp(r->mode, cell->mode) == 0 &&
                 strcmp(r->phase, cell->phase) == 0 &&
                 experiment_same_point(&r->point, &cell->point);
    }
    return found >= cell->point.clients;
}

static enum cmd_exit run_cell(struct experiment *x, const struct experiment_row *cell)
{
    struct experiment_row rows[EXPERIMENT_CLIENTS_MAX];
    if (is_done(x, cell)) {
        x->kept++;
        return CMD_DONE;
    }
    enum cmd_exit code = experiment_trial(&x->setup, cell, rows);
    if (code != CMD_DONE)
        return code;
    int rc = 0;
    for (uint64_t i = 0; i < cell->point.clients; i++) {
        if (rc == 0)
            rc = experiment_file_append(x->file, &rows[i]);
        if (rc == 0)
            rc = experiment_rows_add(&x->rows, &rows[i]);
        else
            experiment_row_fini(&rows[i]);
    }
    return rc ? cmd_fail(CMD_FAILED, "experiment: %s: %s", x->o->output, strerror(-rc)) : CMD_DONE;
}

/* Modes take turns at being first, so that none always follows the same. */
static void cell_at(const struct experiment *x, uint64_t i, struct experiment_row *cell)
{
    uint64_t mode = i % x->mode_count;
    i /= x->mode_count;
    const char *phase = x->phases[i % x->phase_count];
    i /= x->phase_count;
    *cell = (struct experiment_row){.point = x->points[i % x->point_count],
                                    .trial = i / x->point_count + 1,
                                    .settings = x->settings};
    mode = (mode + cell->trial - 1) % x->mode_count;
    snprintf(cell->mode, sizeof cell->mode, "%s", x->modes[mode]);
    snprintf(cell->phase, sizeof cell->phase, "%s", phase);
}

static enum cmd_exit run_all(struct experiment *x)
{
    uint64_t total = x->o->trials * x->point_count * x->phase_count * x->mode_count;
    enum cmd_exit code = CMD_DONE;
    struct hw_progress progress;
    hw_progress_begin(&progress, "experiment", total);
    for (uint64_t i = 0; i < total && code == CMD_DONE; i++) {
        struct experiment_row cell;
        cell_at(x, i, &cell);
        hw_progress_draw(&progress, i, hw_now_ns());
        code = run_cell(x, &cell);
    }
    hw_progress_end(&progress);
    return code;
}

/* What the figures of GPU use stand for. */
static void describe_gpu(const struct experiment *x, char text[GPU_CHARS])
{
    unsigned count = x->setup.gpu.device_count;
    if (!count)
        snprintf(text, GPU_CHARS, "GPU use: not sampled; NVIDIA's library finds no GPU here");
    else if (x->o->external_server)
        snprintf(text, GPU_CHARS,
                 "GPU use: of the %u GPUs of this machine, for modes that compute here; "
                 "the worker's was not sampled",
                 count);
    else
        snprintf(text, GPU_CHARS, "GPU use: of the %u GPUs of this machine, where the worker runs",
                 count);
}

static enum cmd_exit report(struct experiment *x)
{
    char why[256], gpu[GPU_CHARS];
    describe_gpu(x, gpu);
    struct experiment_report r = {.title_model = x->o->model,
                                  .modes = x->modes,
                                  .points = x->points,
                                  .point_count = x->point_count,
                                  .gpu = gpu,
                                  .sweep = (enum experiment_sweep)x->o->sweep,
                                  .lossy = x->o->lossy};
    if (!experiment_agrees(&x->rows, &r, why))
        return cmd_fail(CMD_FAILED, "experiment: no report: %s", why);
    int rc = experiment_write_html(&x->rows, &r, x->o->report);
    if (rc)
        return cmd_fail(CMD_FAILED, "experiment: %s: %s", x->o->report, strerror(-rc));
    rc = x->o->json ? experiment_print_json(&x->rows, &r, stdout)
                    : experiment_print(&x->rows, &r, stdout);
    if (rc)
        return cmd_output_lost(rc);
    if (!x->o->json)
        printf("rows: %s\nreport: %s\n%s\n", x->o->output, x->o->report, gpu);
    if (x->kept)
        cmd_warn("%llu of the figures are those of an earlier run; remove %s to measure again",
                 (unsigned long long)x->kept, x->o->output);
    return CMD_DONE;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    struct experiment x = {.o = values};
    enum cmd_exit code = prepare(&x);
    if (code == CMD_DONE)
        code = start_server(&x);
    if (code == CMD_DONE) {
        gpu_use_open(&x.setup.gpu);
        code = run_all(&x);
    }
    bench_child_stop(&x.server);
    if (code == CMD_DONE)
        code = report(&x);
    gpu_use_close(&x.setup.gpu);
    if (x.file && fclose(x.file) && code == CMD_DONE)
        code = cmd_fail(CMD_FAILED, "experiment: %s: %s", x.o->output, strerror(errno));
    experiment_rows_fini(&x.rows);
    return code;
}

const struct cmd_command cmd_experiment = {
    .name = "experiment",
    .summary = "all modes of hawser llm compared: a CSV and an HTML report",
    .operands = "",
    .description =
        "Runs every mode and phase so many times, interleaved, each in a process of its own, and "
        "writes a row for each.  An experiment that was interrupted goes on where it stopped.  All "
        "modes must generate the same tokens, but for a lossy one; otherwise there is no report.",
    .options = options,
    .examples = "hawser experiment --model model.gguf --trials 5\n"
                "hawser experiment --model model.gguf --modes local,remote_cache \\\n"
                "    --sweep rtt --points 0,1ms,10ms --output rtt.csv --report rtt.html\n"
                "hawser experiment --model model.gguf --prompt_tokens 512 --sweep pressure \\\n"
                "    --rate 1Gbit --output pressure.csv --report pressure.html",
    .values_size = sizeof(struct experiment_options),
    .run = run,
};
