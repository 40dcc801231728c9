/* bits.h - what a small model computes, to be compared bit for bit with what it computes otherwise.
 *
 * Included by one file of a program.  Lifetime: model_open/model_close. */
#ifndef HAWSER_TESTS_UNIT_LLM_BITS_H
#define HAWSER_TESTS_UNIT_LLM_BITS_H

#include "unit.h"

#include "llm/engine/engine.h"
#include "llm/model/synth.h"
#include "llm/model/why.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VOCAB = 300, CONTEXT = 256, PROMPT = 150, DECODED = 6, LAYERS = 3 };

static const char *backend = "cpu";
static char why[LLM_WHY_CHARS];

/* ---- a model ---- */

struct model {
    char path[32];
    struct llm_file *file;
};

static void synth_open(struct model *m, struct llm_synth *synth)
{
    strcpy(m->path, "/tmp/hawser-bits-XXXXXX");
    int fd = mkstemp(m->path);
    assert_true(fd >= 0);
    close(fd);
    llm_synth_complete(&synth->config);
    if (llm_synth_write(synth, m->path, why) || llm_file_open(m->path, &m->file, why))
        fail_msg("%s", why);
}

static void model_open(struct model *m, enum llm_arch arch, enum llm_dtype dtype)
{
    bool slides = arch == LLM_GEMMA2 || arch == LLM_GEMMA3 || arch == LLM_PHI3;
    struct llm_synth synth = {.config = {.arch = arch,
                                         .layers = LAYERS,
                                         .width = 256,
                                         .heads = 8,
                                         .kv_heads = arch == LLM_GPT2 || arch == LLM_GPTJ ? 8 : 4,
                                         .ffn = 512,
                                         .vocab = VOCAB,
                                         .context = CONTEXT,
                                         .window = slides ? 40 : 0,
                                         .tied_output = arch == LLM_GPT2},
                              .dtype = dtype,
                              .seed = 5};
    synth_open(m, &synth);
}

static void model_close(struct model *m)
{
    llm_file_close(m->file);
    unlink(m->path);
}

static uint32_t token_at(uint32_t i)
{
    return (i * 7919 + 13) % VOCAB;
}

static int feed(struct llm_engine *engine, struct llm_seq *seq, uint32_t from, uint32_t to,
                float *logits)
{
    struct llm_row rows[PROMPT + DECODED];
    for (uint32_t i = from; i < to; i++)
        rows[i - from] = (struct llm_row){.seq = seq, .token = token_at(i), .logits = true};
    int rc;
    while ((rc = llm_engine_step(engine, rows, to - from, logits, why)) == -EAGAIN)
        (void)poll(NULL, 0, 1); /* a server that was lost is asked again */
    return rc;
}

static struct llm_seq *seq_open(struct llm_engine *engine)
{
    struct llm_seq *seq;
    assert_int_equal(llm_seq_create(engine, &seq), 0);
    return seq;
}

struct results {
    float logits[(PROMPT + DECODED) * VOCAB];
    uint16_t kv[LAYERS][2 * (PROMPT + DECODED) * 256];
};

static struct results wanted, got;

/* A prompt, then a token at a time beside another sequence. */
static void compute(struct llm_engine *engine, struct results *r)
{
    struct llm_seq *seq = seq_open(engine), *other = seq_open(engine);
    uint64_t row_bytes = llm_kv_row_bytes(engine);
    assert_int_equal(feed(engine, seq, 0, PROMPT, r->logits), 0);
    for (uint32_t i = PROMPT; i < PROMPT + DECODED; i++) {
        float two[2 * VOCAB];
        struct llm_row rows[2] = {{.seq = other, .token = token_at(3 * i), .logits = true},
                                  {.seq = seq, .token = token_at(i), .logits = true}};
        assert_int_equal(llm_engine_step(engine, rows, 2, two, why), 0);
        memcpy(r->logits + (size_t)i * VOCAB, two + VOCAB, VOCAB * sizeof *two);
    }
    assert_true(row_bytes * (PROMPT + DECODED) <= sizeof r->kv[0]);
    for (uint32_t l = 0; l < LAYERS; l++)
        assert_int_equal(llm_seq_read_kv(seq, l, 1, 0, PROMPT + DECODED, r->kv[l]), 0);
    llm_seq_destroy(other);
    llm_seq_destroy(seq);
}

static void forget(struct results *r)
{
    memset(r, 0xff, sizeof *r);
}

#endif
