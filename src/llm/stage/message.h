/* llm/stage/message.h - private to src/llm: the messages between a front and a server that computes
 * a stage of layers, or a share of every layer (llm/stage/stage.h), as bytes.
 *
 * A message is the payload of a copyrpc call.  Integers are little-endian; "varint" is
 * wire/enc.h's.
 *
 *   method   request                                                    answer
 *   open     hash u8 x 16 and size u64 of the model's file, first and   arithmetic string,
 *            end layer u32, KV: row values, pages, pages of a slab u32  bytes of a slab u64
 *   map      slabs: varints up to the end                               -
 *   unmap    the same                                                   -
 *   read     V u8 (0, 1), page, first row, rows u32                     rows
 *   write    the same, rows                                             -
 *   step     step, a row of f32 x width for each of its rows            the rows that are wanted
 *   share    as open, of all layers; rank, ranks u32                    as open
 *   gather   a post and a push: f32 of some rows                        -
 *
 *   step     rows, sequences, pages of a layer, rope pairs, rope tables: varints;
 *            for each row its position, then for each its sequence: varints;
 *            for each sequence its pages: varint;
 *            pages, layer after layer, as runs: a difference (zigzag varint), how often (varint);
 *            wanted rows: a count, then their numbers, ascending: varints;
 *            angles: f32 x tables x rows x pairs x 2
 *
 * The difference of a page is to the same place of the layer before, in the first layer to the
 * place before.  Pages of a position are mostly neighbours, so most lists are few runs.
 *
 * A server with a share has KV rows of its own heads.  Its steps have a token u32 for each row, and
 * their answer is empty; wanted rows are those with logits.  At each gather of the step it pushes
 * its share of the rows, and the front posts its own; of more than two, the front then posts the
 * shares of the others, in order.  Logits are only pushed; where they take several messages, the
 * front posts an empty one after each but the last.
 *
 * A front opens a stage first, and no other front has it until its connection ends, is cut,
 * or was silent for five seconds.
 *
 * Trust: decoders take any bytes; a step's indices are checked, and what it allocates is bounded.
 * Threads: any.  Lifetime: values; llm_stage_step_fini frees what a decoded one has. */
#ifndef HAWSER_LLM_STAGE_MESSAGE_H
#define HAWSER_LLM_STAGE_MESSAGE_H

#include "llm/engine/backend.h"
#include "llm/engine/graph.h"
#include "wire/dec.h"
#include "wire/enc.h"

/* Numbers, once released, keep their meaning; the worker's (llm/worker/message.h) are below. */
enum llm_stage_method {
    LLM_STAGE_OPEN = 640,
    LLM_STAGE_MAP,
    LLM_STAGE_UNMAP,
    LLM_STAGE_READ,
    LLM_STAGE_WRITE,
    LLM_STAGE_STEP,
    LLM_STAGE_SHARE,
    LLM_STAGE_GATHER,
    LLM_STAGE_END
};

enum {
    LLM_STAGE_HASH_BYTES = 16,
    LLM_STAGE_ROWS_BYTES = 8 << 20, /* of one step: half a window; more rows take several */
    LLM_STAGE_HEAD_BYTES = 4 << 20, /* of a step without its rows */
    LLM_STAGE_PAGES_MAX = 16 << 20, /* of a step: 64 MiB of ids */
};

struct llm_stage_open {
    uint8_t hash[LLM_STAGE_HASH_BYTES];
    uint64_t size;
    uint32_t first, end; /* layers */
    uint32_t row_values, pages, run;
    uint32_t rank, ranks; /* of a share; ranks 0: it is a stage */
};
void llm_stage_open_put(struct wire_enc *e, const struct llm_stage_open *open);
int llm_stage_open_get(const void *bytes, size_t len, bool is_share,
                       struct llm_stage_open *out) MUST_CHECK;

void llm_stage_slabs_put(struct wire_enc *e, const uint32_t *slabs, size_t count);
/* The count, or -EPROTO past `room` or for one that is not below `limit`. */
int64_t llm_stage_slabs_get(const void *bytes, size_t len, uint32_t *slabs, size_t room,
                            uint32_t limit) MUST_CHECK;

void llm_stage_rows_put(struct wire_enc *e, const struct llm_kv_rows *rows);
/* *rest is what follows.  0; -EPROTO also for rows past a page. */
int llm_stage_rows_get(const void *bytes, size_t len, struct llm_kv_rows *out,
                       struct wire_dec *rest) MUST_CHECK;

/* Rows `first` to `first + rows` of a batch, through layers first_layer to end_layer of its pages;
 * wanted are row numbers of the whole batch, and all within these rows. */
struct llm_stage_part {
    const struct llm_batch *batch;
    uint32_t first, rows;
    uint32_t first_layer, end_layer;
    const uint32_t *wanted;
    uint32_t wanted_count;
};
void llm_stage_step_put(struct wire_enc *e, const struct llm_stage_part *part);

struct llm_stage_limits {
    uint32_t width, layers; /* of the stage */
    uint32_t pages, context;
    uint32_t rope_pairs, rope_tables;
};
struct llm_stage_step { /* its memory is used again for the next; zero at first */
    struct llm_batch batch;
    uint32_t tokens[LLM_GRAPH_ROWS_MAX]; /* zeros: a stage embeds nothing */
    uint32_t positions[LLM_GRAPH_ROWS_MAX], seqs[LLM_GRAPH_ROWS_MAX];
    uint32_t page_first[LLM_GRAPH_ROWS_MAX], wanted[LLM_GRAPH_ROWS_MAX];
    uint32_t wanted_count;
    uint32_t *pages;
    float *rope, *x;
    size_t pages_room, rope_room, x_room; /* values */
};
/* 0, -EPROTO, -ENOMEM. */
int llm_stage_step_get(const void *bytes, size_t len, const struct llm_stage_limits *limits,
                       struct llm_stage_step *step) MUST_CHECK;
void llm_stage_step_fini(struct llm_stage_step *step);

#endif
