/* What the engine computes for a model file: bench/llm/agree compares it with llama.cpp.
 *
 *     llm-logits FILE BACKEND CONTEXT STEP [CHOICES] < tokens > logits    binary32, vocab values a
 * token
 *
 * Tokens come as 32-bit numbers and are computed STEP at a time.  CHOICES is a file of the experts
 * that rows shall meet: for each layer and token as many 32-bit numbers as a row has experts.  On
 * standard error then is how many rows would have met others, in all layers, and by how much their
 * worst logit is above that of the given expert, as a part of the root of the mean square of the
 * row's. */
#include "llm/engine/backend.h"
#include "llm/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 1 << 16 };

static uint32_t tokens[TOKENS_MAX];

static int fail(const char *what)
{
    fprintf(stderr, "llm-logits: %s\n", what);
    return 1;
}

/* ---- experts that are given: the backend's ops, but for route ---- */

const struct llm_backend_ops *__real_llm_backend_find(const char *name);
const struct llm_backend_ops *__wrap_llm_backend_find(const char *name);

static struct {
    const struct llm_backend_ops *real;
    struct llm_backend_ops ops;
    const struct llm_batch *batch;
    uint32_t *choices; /* NULL: none are given */
    uint32_t tokens, layers, layer;
    uint32_t others; /* rows that would have met other experts */
    float gap;
} given;

static int open_as_given(const struct llm_backend_config *config, struct llm_backend **out,
                         char *why)
{
    int rc = given.real->open(config, out, why);
    if (rc == 0)
        (*out)->ops = &given.ops;
    return rc;
}

static int note_batch(struct llm_backend *b, const struct llm_batch *batch, char *why)
{
    given.batch = batch;
    return given.real->begin(b, batch, why);
}

static bool holds(const uint32_t *list, uint32_t count, uint32_t wanted)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i] == wanted)
            return true;
    }
    return false;
}

static void note_others(const struct llm_op_route *op, const float *logits, const uint32_t *own,
                        const uint32_t *wanted)
{
    float most = -INFINITY, least = INFINITY, squares = 0;
    for (uint32_t i = 0; i < op->used; i++) {
        if (!holds(wanted, op->used, own[i]))
            most = fmaxf(most, logits[own[i]]);
        if (!holds(own, op->used, wanted[i]))
            least = fminf(least, logits[wanted[i]]);
    }
    for (uint32_t e = 0; e < op->experts; e++)
        squares += logits[e] * logits[e];
    if (!(most >= least))
        return;
    given.others++;
    given.gap = fmaxf(given.gap, (most - least) / sqrtf(squares / (float)op->experts));
}

static void weigh(const struct llm_op_route *op, const float *logits, const uint32_t *wanted,
                  float *weights)
{
    float most = -INFINITY, sum = 0;
    for (uint32_t e = 0; e < op->experts; e++)
        most = fmaxf(most, logits[e]);
    for (uint32_t i = 0; i < op->used; i++)
        sum += expf(logits[wanted[i]] - most);
    if (!op->normed) {
        sum = 0;
        for (uint32_t e = 0; e < op->experts; e++)
            sum += expf(logits[e] - most);
    }
    for (uint32_t i = 0; i < op->used; i++)
        weights[i] = op->scale * expf(logits[wanted[i]] - most) / sum;
}

/* Between two parts of the step, as where an evicted layer is restored. */
static void route_as_given(struct llm_backend *b, const struct llm_op_route *op)
{
    char why[LLM_WHY_CHARS] = "no memory";
    const struct llm_batch *batch = given.batch;
    uint32_t rows = batch->rows, used = op->used;
    float *logits = calloc((size_t)rows * op->experts, sizeof *logits);
    float *weights = calloc((size_t)rows * used, sizeof *weights);
    uint32_t *chosen = calloc((size_t)rows * used, sizeof *chosen);
    size_t bytes = (size_t)rows * used * 4;
    uint64_t ns;
    given.real->route(b, op);
    int rc = !logits || !weights || !chosen || given.real->finish(b, &ns, why) ||
             given.real->download(b, op->logits, logits, (uint64_t)rows * op->experts * 4, why) ||
             given.real->download(b, op->chosen, chosen, bytes, why);
    for (uint32_t r = 0; r < rows && rc == 0; r++) {
        const uint32_t *wanted =
            given.choices + ((size_t)given.layer * given.tokens + batch->positions[r]) * used;
        note_others(op, logits + (size_t)r * op->experts, chosen + (size_t)r * used, wanted);
        weigh(op, logits + (size_t)r * op->experts, wanted, weights + (size_t)r * used);
        memcpy(chosen + (size_t)r * used, wanted, used * sizeof *wanted);
    }
    if (rc || given.real->upload(b, op->chosen, chosen, bytes, why) ||
        given.real->upload(b, op->weights, weights, bytes, why) || given.real->begin(b, batch, why))
        exit(fail(why));
    given.layer = (given.layer + 1) % given.layers;
    free(logits);
    free(weights);
    free(chosen);
}

const struct llm_backend_ops *__wrap_llm_backend_find(const char *name)
{
    given.real = __real_llm_backend_find(name);
    if (!given.real || !given.choices)
        return given.real;
    given.ops = *given.real;
    given.ops.open = open_as_given;
    given.ops.begin = note_batch;
    given.ops.route = route_as_given;
    return &given.ops;
}

static bool read_choices(const char *path, const struct llm_config *config, uint32_t count)
{
    size_t numbers = (size_t)config->layers * count * config->experts_used;
    FILE *file = fopen(path, "rb");
    given.choices = calloc(numbers, sizeof *given.choices);
    bool whole = file && given.choices &&
                 fread(given.choices, sizeof *given.choices, numbers, file) == numbers;
    for (size_t i = 0; i < numbers && whole; i++)
        whole = given.choices[i] < config->experts;
    given.tokens = count;
    given.layers = config->layers;
    if (file)
        fclose(file);
    return whole;
}

/* ---- logits ---- */

static int put(struct llm_engine *engine, uint32_t count, uint32_t step, char *why)
{
    uint32_t vocab = llm_engine_config(engine)->vocab;
    struct llm_row *rows = calloc(step, sizeof *rows);
    float *logits = calloc((size_t)step * vocab, sizeof *logits);
    struct llm_seq *seq;
    if (!rows || !logits || llm_seq_create(engine, &seq))
        return fail("out of memory");
    int rc = 0;
    for (uint32_t first = 0; first < count && rc == 0; first += step) {
        uint32_t some = count - first < step ? count - first : step;
        for (uint32_t i = 0; i < some; i++)
            rows[i] = (struct llm_row){.seq = seq, .token = tokens[first + i], .logits = true};
        rc = llm_engine_step(engine, rows, some, logits, why);
        if (rc == 0 && fwrite(logits, sizeof *logits * vocab, some, stdout) != some)
            rc = -1;
    }
    llm_seq_destroy(seq);
    free(rows);
    free(logits);
    return rc ? fail(why) : 0;
}

int main(int argc, char **argv)
{
    char why[LLM_WHY_CHARS] = "";
    struct llm_file *file;
    struct llm_engine *engine;
    if (argc != 5 && argc != 6)
        return fail("see the head of tests/unit/llm/logits.c");
    uint32_t step = (uint32_t)strtoul(argv[4], NULL, 10);
    struct llm_engine_options options = {.backend = argv[2],
                                         .context = (uint32_t)strtoul(argv[3], NULL, 10)};
    uint32_t count = (uint32_t)fread(tokens, sizeof tokens[0], TOKENS_MAX, stdin);
    if (step == 0 || step > LLM_ROWS_MAX)
        return fail("a step of 1 to 4096 tokens");
    if (llm_file_open(argv[1], &file, why))
        return fail(why);
    if (argc == 6 && !read_choices(argv[5], llm_file_config(file), count))
        return fail("the choices are not of this model and prompt");
    if (llm_engine_create(file, &options, &engine, why))
        return fail(why);
    int status = put(engine, count, step, why);
    if (given.choices)
        fprintf(stderr, "%u %g\n", given.others, (double)given.gap);
    free(given.choices);
    llm_engine_destroy(engine);
    llm_file_close(file);
    return status;
}
