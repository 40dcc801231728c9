/* llm/tp/side.h - private to src/llm: what each tensor-parallel worker has, rank 0 among them: its
 * backend, its part of each gather, and its share of KV rows.
 *
 * Ranks meet in shared memory (llm/tp/exchange.h), or over connections (llm/stage/shares.h).  A
 * room has LLM_TP_ROOM_BYTES, where the shares of the ranks follow each other.
 *
 * Threads: one.  Lifetime: init/fini; backend and exchange are the caller's. */
#ifndef HAWSER_LLM_TP_SIDE_H
#define HAWSER_LLM_TP_SIDE_H

#include "llm/engine/engine.h"
#include "llm/engine/split.h"
#include "llm/tp/exchange.h"

struct llm_tp_side;

struct llm_tp_meetings {
    /* Of the next meeting. */
    void *(*room)(struct llm_tp_side *side);
    /* The own share of some rows is in the room; then those of the others are, at least at ranks
     * that need them.  goes_on: more rows of the same gather follow.  0, or -EOWNERDEAD. */
    int (*meet)(struct llm_tp_side *side, const struct llm_gather *op, uint32_t rows, bool goes_on);
    /* This rank cannot go on.  NULL: the others hear of it otherwise. */
    void (*fail)(struct llm_tp_side *side);
};

extern const struct llm_tp_meetings llm_tp_in_memory;

struct llm_tp_side {
    const struct llm_tp_meetings *meetings;
    struct llm_tp_exchange *exchange; /* of ranks on one host */
    void *user;                       /* of meetings elsewhere */
    struct llm_backend *backend;
    const struct llm_backend_ops *ops; /* the device's own */
    const struct llm_batch *batch;     /* of the step under way */
    struct llm_split split;
    float *rows; /* on their way to and from a device without memory of ours */
    uint64_t row_bytes;
    uint64_t kernel_ns;        /* of the parts of a step that are finished */
    struct llm_tp_stats stats; /* but for meetings in the exchange that is there now */
};

/* Makes the backend a rank's. */
void llm_tp_side_init(struct llm_tp_side *side, const struct llm_tp_meetings *meetings,
                      struct llm_backend *backend, uint32_t rank, uint32_t ranks);
void llm_tp_side_fini(struct llm_tp_side *side);

/* Rows of KV between a rank's memory and the room of a meeting, where the shares of the ranks
 * follow each other.  values, unit: of a row of all ranks together. */
struct llm_tp_rows {
    struct llm_kv_rows rows;
    uint32_t values, unit;
};
void *llm_tp_rows_part(const struct llm_tp_rows *r, void *room, uint32_t rank, uint32_t ranks);
/* All shares to or from whole rows. */
void llm_tp_rows_join(const struct llm_tp_rows *r, const void *room, void *dst, uint32_t ranks);
void llm_tp_rows_part_all(const struct llm_tp_rows *r, const void *src, void *room, uint32_t ranks);

#endif
