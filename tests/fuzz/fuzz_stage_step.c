/* A step as a front sends it to a stage.  One that is accepted leads nowhere outside of what is
 * there, and what is written of it is accepted as the same step. */
#include "llm/stage/message.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WIDTH = 2, LAYERS = 2, PAIRS = 1, TABLES = 1 };

static const struct llm_stage_limits limits = {.width = WIDTH,
                                               .layers = LAYERS,
                                               .pages = 64,
                                               .context = 512,
                                               .rope_pairs = PAIRS,
                                               .rope_tables = TABLES};

static void must(bool so)
{
    if (!so)
        abort();
}

/* As the ops of a graph do. */
static void follow(const struct llm_stage_step *s)
{
    const struct llm_batch *b = &s->batch;
    for (uint32_t r = 0; r < b->rows; r++) {
        for (uint32_t l = 0; l < b->layers; l++) {
            const uint32_t *pages =
                b->pages + (size_t)l * b->page_count + b->page_first[b->seqs[r]];
            for (uint32_t p = 0; p <= b->positions[r] / LLM_KV_POSITIONS; p++)
                must(pages[p] < limits.pages);
        }
    }
    for (uint32_t i = 0; i < s->wanted_count; i++)
        must(s->wanted[i] < b->rows && (i == 0 || s->wanted[i] > s->wanted[i - 1]));
}

static void write_again(const struct llm_stage_step *s)
{
    static struct llm_stage_step again;
    const struct llm_batch *b = &s->batch;
    struct llm_stage_part part = {.batch = b,
                                  .rows = b->rows,
                                  .end_layer = LAYERS,
                                  .wanted = s->wanted,
                                  .wanted_count = s->wanted_count};
    struct wire_enc e;
    size_t pages = (size_t)LAYERS * b->page_count, x = (size_t)b->rows * WIDTH;
    wire_enc_init(&e, LLM_STAGE_HEAD_BYTES + LLM_STAGE_ROWS_BYTES);
    llm_stage_step_put(&e, &part);
    wire_put_bytes(&e, s->x, x * sizeof *s->x);
    must(wire_enc_error(&e) == 0);
    must(llm_stage_step_get(wire_enc_data(&e), wire_enc_len(&e), &limits, &again) == 0);
    must(again.batch.rows == b->rows && again.batch.page_count == b->page_count);
    must(memcmp(again.pages, s->pages, pages * sizeof *s->pages) == 0);
    must(memcmp(again.positions, s->positions, b->rows * sizeof *s->positions) == 0);
    must(memcmp(again.x, s->x, x * sizeof *s->x) == 0);
    wire_enc_fini(&e);
    llm_stage_step_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct llm_stage_step step;
    struct llm_stage_open open;
    struct llm_kv_rows rows;
    struct wire_dec rest;
    uint32_t slabs[16];
    if (llm_stage_step_get(data, size, &limits, &step) == 0) {
        follow(&step);
        write_again(&step);
    }
    llm_stage_step_fini(&step);
    must(llm_stage_open_get(data, size, false, &open) == 0 || size != 44);
    must(llm_stage_open_get(data, size, true, &open) == 0 || size != 52);
    if (llm_stage_rows_get(data, size, &rows, &rest) == 0)
        must(rows.v <= 1 && rows.first + rows.count <= LLM_KV_POSITIONS);
    int64_t count = llm_stage_slabs_get(data, size, slabs, 16, 8);
    for (int64_t i = 0; i < count; i++)
        must(slabs[i] < 8);
    return 0;
}
