/* What the engine computes for a model file: bench/llm/agree compares it with llama.cpp.
 *
 *     llm-logits FILE BACKEND CONTEXT STEP < tokens > logits    binary32, vocab values a token
 *
 * Tokens come as 32-bit numbers and are computed STEP at a time. */
#include "llm/engine/engine.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS_MAX = 1 << 16 };

static uint32_t tokens[TOKENS_MAX];

static int fail(const char *what)
{
    fprintf(stderr, "llm-logits: %s\n", what);
    return 1;
}

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
    if (argc != 5)
        return fail("see the head of tests/unit/llm/logits.c");
    uint32_t step = (uint32_t)strtoul(argv[4], NULL, 10);
    struct llm_engine_options options = {.backend = argv[2],
                                         .context = (uint32_t)strtoul(argv[3], NULL, 10)};
    uint32_t count = (uint32_t)fread(tokens, sizeof tokens[0], TOKENS_MAX, stdin);
    if (step == 0 || step > LLM_ROWS_MAX)
        return fail("a step of 1 to 4096 tokens");
    if (llm_file_open(argv[1], &file, why) || llm_engine_create(file, &options, &engine, why))
        return fail(why);
    int status = put(engine, count, step, why);
    llm_engine_destroy(engine);
    llm_file_close(file);
    return status;
}
