/* llm/evict/eviction.h - KV of sequences that moves out to a store, layer by layer, and comes back.
 *
 * A layer's rows are cut into chunks of LLM_CHUNK_ROWS positions.  A chunk's name is made of the
 * model, the layout, the tenant, every token up to its end, the layer, and whether it must be
 * packed (kv/common/blockkey.h).  A chunk that is stored is never sent again, by nobody: its name
 * says what it holds, and a layer's length in the store says where to go on.  Sequences with a
 * common beginning share their chunks, and who knows a sequence's tokens finds its chunks.  Rows
 * past the last whole chunk stay in this process.
 *
 * Missing layers come back while layers before them are computed: they are fetched a few layers
 * ahead, and each is waited for when it is needed (llm_gate of llm/engine/engine.h).
 *
 * What the store has lost is computed again: the sequence goes back to the rows that every layer
 * has, and its tokens are there to compute the rest from.
 *
 * Threads: one at a time for a evictor, its evictions and their engine.
 * Lifetime: create/destroy; evictions go before their sequence and their evictor, the evictor
 * before its engine and shadow. */
#ifndef HAWSER_LLM_EVICT_EVICTION_H
#define HAWSER_LLM_EVICT_EVICTION_H

#include "llm/engine/engine.h"
#include "llm/evict/shadow.h"

enum {
    LLM_CHUNK_ROWS = 64, /* of a chunk: as a KV page has; 1 MiB of a layer of a 6B model */
    LLM_EVICT_LAYERS_AHEAD =
        4, /* layers fetched ahead: bounds the memory between store and device */
    LLM_EVICT_OUTGOING_BYTES = 256 << 20, /* on the way out: four layers of 2,048 positions of a 6B
                                            model, and their like once more */
};

/* How a sequence comes back. */
enum llm_recovery {
    LLM_RECOVER_DELTA = 1, /* what is missing, or by computing when that is quicker */
    LLM_RECOVER_ALL,       /* knows of caches, not of layers: moves out and comes back whole */
    LLM_RECOVER_COMPUTE,   /* never from the store */
};

enum llm_pack {
    LLM_PACK_AUTO = 1, /* when the store's own pace makes it worth it */
    LLM_PACK_NEVER,
    LLM_PACK_ALWAYS,
};

struct llm_eviction_policy {
    enum llm_recovery recovery;
    enum llm_pack pack;
};

/* What was done; each call adds to the caller's. */
struct llm_eviction_figures {
    uint64_t evicted_layers, restored_layers;
    uint64_t stored_bytes;  /* sent to the store */
    uint64_t fetched_bytes; /* that came back from it */
    uint64_t kept_bytes;    /* that came back from this process: rows past the last whole chunk, and
                               chunks that were on their way out still */
    uint64_t plain_bytes;   /* of rows that came back, before packing */
    uint64_t wait_ns;       /* for the store, while nothing else was done */
    uint64_t lost_chunks;
};

void llm_eviction_figures_add(struct llm_eviction_figures *to,
                              const struct llm_eviction_figures *more);

struct llm_evictor;  /* what the sequences of one engine share */
struct llm_eviction; /* of one sequence */

/* model: what names the weights, such as their hash.  0 or -ENOMEM. */
int llm_evictor_create(struct llm_engine *engine, struct llm_shadow *shadow, const char *model,
                       struct llm_evictor **out) MUST_CHECK;
void llm_evictor_destroy(struct llm_evictor *evictor);
/* Tells how long a step of so many rows took: what computing costs here. */
void llm_evictor_timed(struct llm_evictor *evictor, uint32_t rows, uint64_t ns);

/* 0 or -ENOMEM. */
int llm_eviction_create(struct llm_evictor *evictor, struct llm_seq *seq,
                        struct llm_eviction_policy policy, struct llm_eviction **out) MUST_CHECK;
void llm_eviction_destroy(struct llm_eviction *eviction);
struct llm_eviction_policy llm_eviction_policy(const struct llm_eviction *eviction);

/* The sequence's tokens, of positions 0 and on.  They may be ahead of the sequence's length: then
 * their rows are to be computed.  0 or -ENOMEM. */
int llm_eviction_add_tokens(struct llm_eviction *eviction, const uint32_t *tokens,
                            uint32_t count) MUST_CHECK;
const uint32_t *llm_eviction_tokens(const struct llm_eviction *eviction, uint32_t *count);

/* Whether a call waits until the store has what it was given.  Behind: rows are copied and the call
 * is over; it waits all the same when the store did not take the last chunk, or when
 * LLM_EVICT_OUTGOING_BYTES are on their way.  Rows that the store does not take then stay in this
 * process until their layer comes back. */
enum llm_evict_sync { LLM_EVICT_SYNC, LLM_EVICT_ASYNC };

/* Stores the whole chunks of the layers that have all rows, and keeps the layers.  0, or why not
 * all of them: as a task of llm/evict/shadow.h; what was stored is known to be. */
int llm_eviction_store(struct llm_eviction *eviction, const struct llm_layers *layers,
                       enum llm_evict_sync sync, struct llm_eviction_figures *figures,
                       char *why) MUST_CHECK;
/* Stores and evicts; with LLM_RECOVER_ALL every layer.  Ends a fetch that is under way.  0, or why
 * not all of them: a layer that could not be stored stays, and those before it are out. */
int llm_eviction_evict(struct llm_eviction *eviction, const struct llm_layers *layers,
                       enum llm_evict_sync sync, struct llm_eviction_figures *figures,
                       char *why) MUST_CHECK;
/* Adds what was stored behind since, and frees its memory; does not wait. */
void llm_eviction_reap(struct llm_eviction *eviction, struct llm_eviction_figures *figures);
bool llm_eviction_is_storing(const struct llm_eviction *eviction); /* whether there is any of it */

/* How many of the first `count` tokens the store has, as far as it can be asked: whole chunks. */
uint32_t llm_eviction_match(struct llm_eviction *eviction, uint32_t count);
/* Makes the sequence, which must be empty, one of `rows` positions whose layers are all missing, as
 * llm_eviction_match found them.  0 or -ENOMEM. */
int llm_eviction_adopt(struct llm_eviction *eviction, uint32_t rows) MUST_CHECK;

/* Whether to compute rather than to fetch what is missing, by what both cost so far.  why: the
 * figures. */
bool llm_eviction_should_compute(const struct llm_eviction *eviction, char *why);
/* Back to the rows that every layer has; how many were given up. */
uint32_t llm_eviction_truncate(struct llm_eviction *eviction);

/* Begins to fetch what is missing, of these layers (NULL: of all); open is for a step's gate, end
 * is after it, also when it failed.  Begin: 0, -ENOMEM.  Open: 0, also for a layer that is there;
 * -ENODATA when the store has not got it, or not in time; else as llm_seq_write_kv. */
int llm_eviction_fetch_begin(struct llm_eviction *eviction,
                             const struct llm_layers *only) MUST_CHECK;
int llm_eviction_fetch_layer(struct llm_eviction *eviction, uint32_t layer,
                             struct llm_eviction_figures *figures, char *why) MUST_CHECK;
void llm_eviction_fetch_end(struct llm_eviction *eviction);
/* Without a step: writes those layers that have come, and does not wait.  0 when none is missing
 * any more; -EAGAIN; as open. */
int llm_eviction_fetch_poll(struct llm_eviction *eviction, struct llm_eviction_figures *figures,
                            char *why) MUST_CHECK;
bool llm_eviction_is_fetching(const struct llm_eviction *eviction); /* between begin and end */

#endif
