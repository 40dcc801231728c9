/* A step as rank 0 of tensor-parallel workers writes it.  One that is accepted leads nowhere
 * outside of what is there, and is written as the same bytes again. */
#include "llm/tp/command.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct llm_tp_limits limits = {.vocab = 300, .layers = 2, .pages = 64, .context = 512};

static void must(bool so)
{
    if (!so)
        abort();
}

/* As the ops of a graph do. */
static void follow(const struct llm_batch *b)
{
    for (uint32_t r = 0; r < b->rows; r++) {
        must(b->tokens[r] < limits.vocab);
        for (uint32_t l = 0; l < b->layers; l++) {
            const uint32_t *pages =
                b->pages + (size_t)l * b->page_count + b->page_first[b->seqs[r]];
            for (uint32_t p = 0; p <= b->positions[r] / LLM_KV_POSITIONS; p++)
                must(pages[p] < limits.pages);
        }
    }
    for (uint32_t i = 0; i < b->pick_count; i++)
        must(b->picks[i] < b->rows);
    float sum = 0;
    for (size_t i = 0; i < (size_t)b->rows * b->rope_pairs * b->rope_tables * 2; i++)
        sum += b->rope[i];
    (void)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct llm_batch batch;
    if (size < sizeof(struct llm_tp_command))
        return 0;
    /* Just as long, so that a sanitizer sees a read past the end. */
    struct llm_tp_command *c = malloc(size), *again = calloc(1, size);
    must(c && again);
    memcpy(c, data, size);
    if (llm_tp_step_decode(c, size, &limits, &batch) == 0) {
        follow(&batch);
        must(llm_tp_step_encode(&batch, again, size) == 0);
        must(again->step.words == c->step.words);
        must(memcmp(again + 1, c + 1, c->step.words * sizeof(uint32_t)) == 0);
    }
    free(again);
    free(c);
    return 0;
}
