/* llm/worker/inspect.h - what a worker shows to people who look: where its KV is.
 *
 * A map has a row for some layers and a column for some pages of a sequence, which is
 * LLM_KV_POSITIONS tokens.  A cell counts the pages of all sequences there: on the device, or
 * evicted.
 *
 * Trust: a decoded inspection is a worker's word; its sizes are checked.  Threads: a value. */
#ifndef HAWSER_LLM_WORKER_INSPECT_H
#define HAWSER_LLM_WORKER_INSPECT_H

#include "llm/worker/generate.h"

enum { LLM_MAP_SIDE_MAX = 64 }; /* rows and columns: as many as a screen shows */

struct llm_kv_map {
    uint32_t layers, pages; /* of a sequence of full context */
    uint32_t rows, columns; /* at most as many, and LLM_MAP_SIDE_MAX */
    uint32_t sequences;
    uint32_t resident[LLM_MAP_SIDE_MAX * LLM_MAP_SIDE_MAX]; /* row by row */
    uint32_t missing[LLM_MAP_SIDE_MAX * LLM_MAP_SIDE_MAX];
};

struct llm_inspection {
    uint64_t uploads;       /* models that clients sent */
    uint64_t uploads_found; /* that were here and were not sent */
    uint32_t map_count;     /* one for each served model, in the order of llm_served */
    struct llm_kv_map maps[LLM_SERVED_MODELS_MAX];
};

/* Adds a sequence: `rows` of each layer's positions are there, of `length`. */
void llm_kv_map_init(struct llm_kv_map *map, uint32_t layers, uint32_t positions);
void llm_kv_map_add(struct llm_kv_map *map, uint32_t layer, uint32_t rows, uint32_t length);

void llm_inspection_put(struct wire_enc *e, const struct llm_inspection *i);
/* Reading sets the decoder's error. */
void llm_inspection_get(struct wire_dec *d, struct llm_inspection *i);

#endif
