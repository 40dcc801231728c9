/* llm/engine/stages.h - private to src/llm: which of a model's layers are computed where.
 *
 * The layers of a model are divided into stages, runs of layers one after the other.  The front has
 * the engine, embeds tokens and computes logits; each stage is computed by the front itself or by
 * another server, which gets the rows between two layers and gives them back.  A row between
 * layers is the same bits anywhere, so the results are those of one server.
 *
 * Threads: as llm/engine/backend.h.  Lifetime: values. */
#ifndef HAWSER_LLM_ENGINE_STAGES_H
#define HAWSER_LLM_ENGINE_STAGES_H

#include "llm/engine/backend.h"

/* An op: the rows go through a stage of another server. */
struct llm_pass {
    uint32_t stage;
    struct llm_place x;     /* a row of the model's width for each of the batch */
    const uint32_t *wanted; /* rows that come back, ascending; the others are undefined then */
    uint32_t wanted_count;
};

struct llm_stage_layers {
    uint32_t first, end;
    bool is_local;
};

struct llm_stages {
    uint32_t count; /* 1 to LLM_STAGES_MAX */
    struct llm_stage_layers items[LLM_STAGES_MAX];
    bool is_front; /* it has the ends of the model; else it is a server with one stage */
    /* Within a step of the front.  0, or a negative errno and why: the step has failed. */
    int (*pass)(void *user, const struct llm_pass *op, char *why);
    void *user;
};

/* The layers that are computed here; one stage at most is.  A batch that a device gets has the
 * pages of these alone. */
static inline struct llm_stage_layers llm_stages_own(const struct llm_stages *stages)
{
    for (uint32_t i = 0; i < stages->count; i++) {
        if (stages->items[i].is_local)
            return stages->items[i];
    }
    return (struct llm_stage_layers){0};
}

#endif
