/* llm/tp/command.h - private to src/llm: what rank 0 of tensor-parallel workers tells the others,
 * in their shared memory (llm/tp/exchange.h).
 *
 * At first the memory holds an order; each rank loads its share of the model and meets the others.
 * Then commands follow.  Each ends with a meeting, so that rank 0 may write the next.
 *
 *   step        rows to compute.  The ranks meet in each gather.
 *   kv create   KV memory, and a page worker (page/worker.h) through which pages are mapped
 *   kv read     each rank puts its share of some rows into the room
 *   kv write    rank 0 put the rows into the room; each rank takes its share after a meeting
 *
 * Trust: lengths and indices of a step are checked.  Threads: any (values). */
#ifndef HAWSER_LLM_TP_COMMAND_H
#define HAWSER_LLM_TP_COMMAND_H

#include "llm/engine/backend.h"
#include "page/runtime.h"

#include <limits.h>

enum { LLM_TP_BACKEND_CHARS = 16, LLM_TP_HASH_BYTES = 16 };

struct llm_tp_order {
    char backend[LLM_TP_BACKEND_CHARS];
    uint32_t threads; /* of each rank */
    uint32_t device;  /* of rank 0; the others use those after it */
    uint32_t math;
    uint64_t size; /* of the model, and its hash: another file's weights would change tokens */
    uint8_t hash[LLM_TP_HASH_BYTES];
    char path[PATH_MAX];
};

enum llm_tp_op { LLM_TP_STEP = 1, LLM_TP_KV_CREATE, LLM_TP_KV_READ, LLM_TP_KV_WRITE };

struct llm_tp_kv_create {
    uint32_t row_values, pages, run; /* llm_kv_shape, of all ranks together */
    uint32_t unit;                   /* of row_values that stay together: a head's */
    uint64_t slab_bytes;             /* as the page group counts it */
    char group[PAGE_GROUP_CHARS];
};

struct llm_tp_step {
    uint32_t rows, seq_count, page_count, layers, pick_count;
    uint32_t rope_pairs, rope_tables, row_copies;
    uint32_t words; /* that follow */
};

struct llm_tp_command {
    uint32_t op;
    union {
        struct llm_tp_step step;
        struct llm_tp_kv_create kv;
        struct llm_kv_rows rows;
    };
};

/* What a step's indices are checked against. */
struct llm_tp_limits {
    uint32_t vocab, layers, pages, context;
};

/* Of all bytes of a model. */
void llm_tp_hash(const struct llm_file *file, uint64_t *size, uint8_t out[LLM_TP_HASH_BYTES]);

/* Writes a step, with its arrays.  0, or -E2BIG past `bytes`. */
int llm_tp_step_encode(const struct llm_batch *batch, struct llm_tp_command *to,
                       uint64_t bytes) MUST_CHECK;
/* The batch's arrays are the command's.  0 or -EPROTO. */
int llm_tp_step_decode(const struct llm_tp_command *from, uint64_t bytes,
                       const struct llm_tp_limits *limits, struct llm_batch *batch) MUST_CHECK;

#endif
