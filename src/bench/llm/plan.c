/* hawser plan - whether tensors or layers of a model should be split between workers on a line.
 *
 * The arithmetic is that of llm/engine/split.h: tensors are gathered, never summed.  The time of a
 * step is measured or given; that workers share it evenly is an assumption, and is printed as one.
 */
#include "bench/bench.h"

#include "base/order.h"
#include "base/units.h"
#include "bench/rpc/delay.h"
#include "llm/engine/engine.h"
#include "llm/tp/tp.h"
#include "page/page.h"

#include <stdio.h>
#include <string.h>

enum { SAMPLES = 11 }; /* steps that are timed; the median counts */

struct plan_options {
    uint64_t workers, step_ns, rows, threads;
    const char *link;
    int backend;
};

#define AT(field) offsetof(struct plan_options, field)
static const struct cmd_option options[] = {
    {"workers", 0, CMD_U64, AT(workers), "workers that share the model", "N", "2", 2,
     PAGE_RANKS_MAX},
    {"link", 0, CMD_STRING, AT(link),
     "between them: one way, and bits a second, such as 1ms,10Gbit; required", "LATENCY,RATE"},
    {"step", 0, CMD_DURATION, AT(step_ns), "of --rows rows on one worker [default: measured here]",
     "TIME"},
    {"rows", 0, CMD_U64, AT(rows), "of a step: 1 for a token, more for a prompt", "N", "1", 1,
     LLM_ROWS_MAX},
    {"backend", 0, CMD_CHOICE, AT(backend), "what computes the step that is measured", NULL, "cpu",
     .choices = llm_backend_names},
    {"threads", 0, CMD_U64, AT(threads), "of the cpu backend; 0: one for each core", "N", "0", 0,
     LLM_THREADS_MAX},
    {NULL},
};

struct plan {
    const struct plan_options *o;
    const struct llm_config *model;
    struct bench_line line;
    double step_ns;
    struct llm_tp_cost cost;
    double hops;                                     /* of a share, from a worker to another */
    double tensor_messages, tensor_bytes, tensor_ns; /* one after the other; over a line */
    double layers_messages, layers_bytes, layers_ns; /* to each other worker, and back */
    char refused[LLM_WHY_CHARS];                     /* why tensors cannot be split; "": they can */
    bool can_layers;
};

/* ---- what is known ---- */

static enum cmd_exit read_link(struct plan *p)
{
    const char *text = p->o->link ? p->o->link : "", *comma = strchr(text, ',');
    char latency[HW_FORMAT_CHARS];
    size_t len = comma ? (size_t)(comma - text) : 0;
    if (!p->o->link)
        return cmd_fail(CMD_USAGE, "plan: --link LATENCY,RATE is required: such as 1ms,10Gbit");
    snprintf(latency, sizeof latency, "%.*s", (int)(len < sizeof latency ? len : 0), text);
    if (!comma || hw_parse_duration(latency, &p->line.one_way_ns) ||
        bench_delay_parse_rate(comma + 1, &p->line.bits_s) || p->line.bits_s == 0)
        return cmd_fail(CMD_USAGE,
                        "plan: --link '%s' is no latency and rate of a link; write 1ms,10Gbit",
                        text);
    return CMD_DONE;
}

static enum cmd_exit time_step(struct plan *p, const char *path, const struct llm_file *file)
{
    struct llm_engine_options engine = {.backend = llm_backend_names[p->o->backend],
                                        .threads = (unsigned)p->o->threads,
                                        .context = (uint32_t)p->o->rows};
    struct llm_engine *e;
    double samples[SAMPLES];
    char why[LLM_WHY_CHARS];
    uint64_t ns = 1;
    int rc = llm_engine_create(file, &engine, &e, why);
    if (rc)
        return cmd_fail(CMD_FAILED, "plan: %s: %s", path, why);
    for (int i = 0; i < SAMPLES && rc == 0; i++) {
        rc = llm_engine_time(e, (uint32_t)p->o->rows, &ns, why);
        samples[i] = (double)ns;
    }
    llm_engine_destroy(e);
    if (rc || ns == 0)
        return cmd_fail(CMD_FAILED, "plan: %s: %s", path, rc ? why : "no memory for so many rows");
    p->step_ns = hw_median(samples, SAMPLES);
    return CMD_DONE;
}

/* ---- what follows ---- */

static double transfer_ns(const struct plan *p, double bytes)
{
    return bytes * 8e9 / (double)p->line.bits_s;
}

static uint32_t experts_of(const struct llm_config *c)
{
    return c->experts ? c->experts_used : 1;
}

/* Of a row of a layer, counted as the gathers are: two sums of all workers a layer, each of which
 * goes to a worker and comes back. */
static uint64_t reduced_values(const struct llm_config *c)
{
    return UINT64_C(2) * 2 * c->width;
}

static void compute(struct plan *p)
{
    const struct llm_config *c = p->model;
    double n = (double)p->o->workers, rows = (double)p->o->rows,
           latency = (double)p->line.one_way_ns;
    p->cost = llm_tp_layer_cost(c);
    p->can_layers = c->layers >= p->o->workers;
    p->hops = n > 2 ? 2 : 1;
    p->tensor_messages = p->hops * p->cost.gathers * (double)c->layers + 2;
    p->tensor_bytes = (rows * c->layers * (double)p->cost.values * (n - 1) + c->vocab) *
                      sizeof(float) * (n - 1) / n;
    p->tensor_ns = p->step_ns / n + p->tensor_messages * latency + transfer_ns(p, p->tensor_bytes);
    p->layers_bytes = rows * c->width * sizeof(float);
    p->layers_messages = 2 * (n - 1);
    p->layers_ns = p->step_ns + p->layers_messages * (latency + transfer_ns(p, p->layers_bytes));
}

/* ---- telling ---- */

static const char *time_text(char buf[HW_FORMAT_CHARS], double ns)
{
    return hw_format_duration(buf, ns > 0 ? (uint64_t)(ns + 0.5) : 0);
}

static void print_known(const struct plan *p, const char *path, const struct llm_file *file)
{
    const struct llm_config *c = p->model;
    char step[HW_FORMAT_CHARS], latency[HW_FORMAT_CHARS], rate[HW_FORMAT_CHARS],
        size[HW_FORMAT_CHARS];
    uint64_t bytes;
    (void)llm_file_bytes(file, &bytes);
    printf("model    %s: %s of %s, %u layers, width %u, %u heads of %u (%u KV), feed-forward %u,\n"
           "         vocabulary %u\n",
           path, llm_arch_name(c->arch), hw_format_size(size, bytes), c->layers, c->width, c->heads,
           c->head_dim, c->kv_heads, c->ffn, c->vocab);
    printf("link     %s one way, %s Gbit/s, as given\n",
           time_text(latency, (double)p->line.one_way_ns),
           hw_format_figure(rate, (double)p->line.bits_s / 1e9));
    printf("step     %s for %llu row%s on one worker, ", time_text(step, p->step_ns),
           (unsigned long long)p->o->rows, p->o->rows == 1 ? "" : "s");
    if (p->o->step_ns)
        printf("as given\n");
    else
        printf("measured here (%s), median of %d\n", llm_backend_names[p->o->backend], SAMPLES);
    printf("assumed  %llu workers as fast as this one share the step evenly\n\n",
           (unsigned long long)p->o->workers);
}

static void print_tensor(const struct plan *p)
{
    const struct llm_config *c = p->model;
    unsigned long long n = p->o->workers, rows = p->o->rows;
    char step[HW_FORMAT_CHARS], latency[HW_FORMAT_CHARS], sent[HW_FORMAT_CHARS],
        all[HW_FORMAT_CHARS];
    char size[HW_FORMAT_CHARS], shared[48] = "";
    printf(
        "tensor   every worker has a share of each layer; the first gathers the shares and sends\n"
        "         them to each other one (hawser serve --tp --tp-peers)\n");
    if (*p->refused) {
        printf("         not possible: %s\n\n", p->refused);
        return;
    }
    if (c->shared_ffn)
        snprintf(shared, sizeof shared, " + %u + %u", c->shared_ffn, c->width);
    printf("         messages one after the other: %s%u x %u layers, the step, the logits = %.0f\n",
           p->hops > 1 ? "2 x " : "", p->cost.gathers, c->layers, p->tensor_messages);
    printf("         a row of a layer: %u + %u + %u x (%u + %u)%s = %llu values\n",
           c->heads * c->head_dim, c->width, experts_of(c), c->ffn, c->width, shared,
           (unsigned long long)p->cost.values);
    printf("         over the first's line: (%llu rows x %u layers x those x %llu other%s + %u "
           "logits)\n"
           "         x 4 B x %llu/%llu = %s\n",
           rows, c->layers, n - 1, n > 2 ? "s" : "", c->vocab, n - 1, n,
           hw_format_size(size, (uint64_t)p->tensor_bytes));
    printf("         sums instead of shares (all-reduce): %llu values, and other bits\n",
           (unsigned long long)reduced_values(c));
    printf("         %s / %llu + %.0f x %s + %s = %s\n\n", time_text(step, p->step_ns), n,
           p->tensor_messages, time_text(latency, (double)p->line.one_way_ns),
           time_text(sent, transfer_ns(p, p->tensor_bytes)), time_text(all, p->tensor_ns));
}

static void print_layers(const struct plan *p)
{
    unsigned long long rows = p->o->rows;
    char step[HW_FORMAT_CHARS], latency[HW_FORMAT_CHARS], sent[HW_FORMAT_CHARS],
        all[HW_FORMAT_CHARS];
    char size[HW_FORMAT_CHARS];
    printf(
        "layers   every worker has some layers; the first sends rows to each other one in turn,\n"
        "         gets them back, and has the output (hawser serve --layers)\n");
    if (!p->can_layers) {
        printf("         not possible: %u layers, and each worker needs one\n\n", p->model->layers);
        return;
    }
    printf("         one way: %llu rows x %u x 4 B = %s\n", rows, p->model->width,
           hw_format_size(size, (uint64_t)p->layers_bytes));
    printf("         %s + %.0f x (%s + %s) = %s\n\n", time_text(step, p->step_ns),
           p->layers_messages, time_text(latency, (double)p->line.one_way_ns),
           time_text(sent, transfer_ns(p, p->layers_bytes)), time_text(all, p->layers_ns));
}

/* Where both take the same time. */
static void print_limit(const struct plan *p)
{
    double n = (double)p->o->workers;
    double gain = p->step_ns * (1 - 1 / n) + p->layers_messages * transfer_ns(p, p->layers_bytes) -
                  transfer_ns(p, p->tensor_bytes);
    double limit = gain / (p->tensor_messages - p->layers_messages);
    char text[HW_FORMAT_CHARS];
    if (limit > 0)
        printf("         at this rate tensor pays below a latency of %s, layers above\n",
               time_text(text, limit));
    else
        printf("         at this rate layers pay at any latency\n");
}

static void print_verdict(const struct plan *p)
{
    bool tensor = !*p->refused && (!p->can_layers || p->tensor_ns < p->layers_ns);
    double best = tensor ? p->tensor_ns : p->layers_ns;
    char time[HW_FORMAT_CHARS], step[HW_FORMAT_CHARS];
    if (*p->refused && !p->can_layers) {
        printf("pays     neither is possible with %llu workers\n",
               (unsigned long long)p->o->workers);
        return;
    }
    printf("pays     %s: %s a step", tensor ? "tensor" : "layers", time_text(time, best));
    if (best < p->step_ns)
        printf(", %.2f times as fast as one worker\n", p->step_ns / best);
    else
        printf("; one worker takes %s, so split only a model that it cannot hold\n",
               time_text(step, p->step_ns));
    if (!*p->refused && p->can_layers)
        print_limit(p);
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    struct plan p = {.o = values};
    const char *path = operands->items[0];
    char why[LLM_WHY_CHARS];
    struct llm_file *file;
    enum cmd_exit code = read_link(&p);
    if (code != CMD_DONE)
        return code;
    if (llm_file_open(path, &file, why))
        return cmd_fail(CMD_FAILED, "plan: %s", why);
    p.model = llm_file_config(file);
    p.step_ns = (double)p.o->step_ns;
    if (p.o->rows > p.model->context)
        code = cmd_fail(CMD_USAGE, "plan: --rows %llu: the model has a context of %u; give no more",
                        (unsigned long long)p.o->rows, p.model->context);
    if (code == CMD_DONE && !p.o->step_ns)
        code = time_step(&p, path, file);
    if (code == CMD_DONE && llm_tp_check(file, (uint32_t)p.o->workers, p.refused) == 0)
        p.refused[0] = '\0';
    if (code == CMD_DONE) {
        compute(&p);
        print_known(&p, path, file);
        print_tensor(&p);
        print_layers(&p);
        print_verdict(&p);
    }
    llm_file_close(file);
    return code;
}

const struct cmd_command cmd_plan = {
    .name = "plan",
    .summary = "whether to split a model's tensors or its layers between workers, and why",
    .operands = "FILE",
    .operands_min = 1,
    .operands_max = 1,
    .description = "Prints what a step takes when the workers split every tensor (hawser serve "
                   "--tp-peers), and when each has some of the layers (hawser serve --layers), "
                   "over --link, with the arithmetic.  The shapes are those of the model "
                   "FILE; the time of a step on one worker is measured here, or given.",
    .options = options,
    .examples = "hawser plan model.gguf --link 1ms,10Gbit\n"
                "hawser plan model.gguf --workers 4 --link 5us,100Gbit --step 20ms",
    .values_size = sizeof(struct plan_options),
    .run = run,
};
