/* The model in this process: the mode that the others are compared with.  On the backend "vulkan"
 * its driver may send the work to a remote GPU. */
#include "llm/model/why.h"
#include "llm/modes/mode.h"

#include <errno.h>
#include <stdlib.h>

struct local {
    struct llm_mode mode;
    struct llm_engine *engine;
    struct llm_seq *seq;
    struct llm_sampler *sampler;
    float *logits;
    uint32_t last;
    uint64_t kernel_ns;
};

static void local_close(struct llm_mode *mode)
{
    struct local *m = (struct local *)mode;
    llm_seq_destroy(m->seq);
    llm_engine_destroy(m->engine);
    llm_sampler_destroy(m->sampler);
    free(m->logits);
    free(m);
}

static int build(struct local *m, const struct llm_mode_kind *kind,
                 const struct llm_mode_config *config, char *why)
{
    uint32_t vocab = llm_file_config(config->file)->vocab;
    struct llm_engine_options options = config->engine;
    if (kind->backend)
        options.backend = kind->backend;
    int rc = llm_engine_create(config->file, &options, &m->engine, why);
    if (rc == 0)
        rc = llm_engine_warm(m->engine, why);
    if (rc)
        return rc;
    m->logits = malloc(vocab * sizeof *m->logits);
    rc = m->logits ? llm_seq_create(m->engine, &m->seq) : -ENOMEM;
    if (rc == 0)
        rc = llm_sampler_create(&config->sampling, vocab, &m->sampler);
    return rc ? llm_why(why, rc, "no memory for a sequence") : 0;
}

static int local_open(const struct llm_mode_kind *kind, const struct llm_mode_config *config,
                      struct llm_mode **out, char *why)
{
    struct local *m = calloc(1, sizeof *m);
    if (!m)
        return llm_why(why, -ENOMEM, "no memory for a run");
    int rc = build(m, kind, config, why);
    if (rc) {
        local_close(&m->mode);
        return rc;
    }
    *out = &m->mode;
    return 0;
}

static int step(struct local *m, const struct llm_row *rows, uint32_t count, char *why)
{
    int rc = llm_engine_step(m->engine, rows, count, m->logits, why);
    m->kernel_ns += llm_engine_kernel_ns(m->engine);
    return rc;
}

static int local_prefill(struct llm_mode *mode, const uint32_t *tokens, uint32_t count,
                         uint32_t *next, char *why)
{
    struct local *m = (struct local *)mode;
    if (count > llm_engine_context(m->engine))
        return llm_why(why, -ERANGE, "the prompt has %u tokens; the context of this run has %u",
                       count, llm_engine_context(m->engine));
    struct llm_row *rows = calloc(count, sizeof *rows);
    if (!rows)
        return llm_why(why, -ENOMEM, "no memory for a prompt");
    for (uint32_t i = 0; i < count; i++)
        rows[i] = (struct llm_row){.seq = m->seq, .token = tokens[i], .logits = i + 1 == count};
    int rc = 0;
    for (uint32_t done = 0, now; done < count && rc == 0; done += now) {
        now = count - done < LLM_ROWS_MAX ? count - done : LLM_ROWS_MAX;
        rc = step(m, rows + done, now, why);
    }
    free(rows);
    if (rc == 0)
        *next = m->last = llm_sampler_next(m->sampler, m->logits);
    return rc;
}

static int local_decode(struct llm_mode *mode, uint32_t want, uint32_t *tokens, uint32_t *got,
                        char *why)
{
    (void)want; /* one at a time: nothing is saved by more */
    struct local *m = (struct local *)mode;
    struct llm_row row = {.seq = m->seq, .token = m->last, .logits = true};
    int rc = step(m, &row, 1, why);
    if (rc)
        return rc;
    tokens[0] = m->last = llm_sampler_next(m->sampler, m->logits);
    *got = 1;
    return 0;
}

static int local_figures(struct llm_mode *mode, struct llm_mode_figures *out, char *why)
{
    (void)why;
    const struct local *m = (const struct local *)mode;
    *out = (struct llm_mode_figures){.kernel_ns = m->kernel_ns};
    return 0;
}

static void local_traffic(const struct llm_mode *mode, struct llm_mode_traffic *out)
{
    llm_engine_traffic(((const struct local *)mode)->engine, &out->sent, &out->received);
}

const struct llm_mode_ops llm_mode_local = {.open = local_open,
                                            .close = local_close,
                                            .prefill = local_prefill,
                                            .decode = local_decode,
                                            .figures = local_figures,
                                            .traffic = local_traffic};
