/* llm/evict/eviction.h - evicts a sequence's KV to a store, layer by layer, and restores it.
 *
 * A layer's rows are cut into chunks of LLM_CHUNK_ROWS positions.  A chunk's key is made of the
 * model, the layout, the tenant, every token up to the chunk's end, the layer, and whether the
 * chunk must be packed (kv/common/blockkey.h).  The key determines the bytes, so a stored chunk is
 * never sent again.  Sequences with a common prefix share chunks; whoever knows the tokens of a
 * sequence finds its chunks.  Rows past the last whole chunk stay in this process.
 *
 * No call waits for the store.
 *
 * Rows that the store has lost are computed again: the sequence is truncated to the rows that every
 * layer has, and the rest is computed from the tokens.
 *
 * Threads: one at a time for an evictor, its evictions and their engine.
 * Lifetime: create/destroy.  Destroy evictions before their sequence and their evictor, the evictor
 * before its engine and its shadow store. */
#ifndef HAWSER_LLM_EVICT_EVICTION_H
#define HAWSER_LLM_EVICT_EVICTION_H

#include "llm/engine/engine.h"
#include "llm/evict/shadow.h"

enum {
    LLM_CHUNK_ROWS = 64,        /* as many as a KV page has; 1 MiB of a layer of a 6B model */
    LLM_EVICT_LAYERS_AHEAD = 4, /* bounds the memory between store and device */
    LLM_EVICT_OUTGOING_BYTES = 256 << 20, /* on their way to the store: eight layers of 2,048
 positions of a 6B model */
};

/* How the evicted KV of a sequence comes back. */
enum llm_recovery {
    LLM_RECOVER_DELTA = 1, /* what is missing; computed again where that is faster */
    LLM_RECOVER_ALL,       /* the whole cache: all layers are evicted and restored together */
    LLM_RECOVER_COMPUTE,   /* never from the store: computed again */
};

enum llm_pack {
    LLM_PACK_AUTO = 1, /* where the store is so slow that it pays */
    LLM_PACK_NEVER,
    LLM_PACK_ALWAYS,
};

struct llm_eviction_policy {
    enum llm_recovery recovery;
    enum llm_pack pack;
};

/* What was done; each call adds to its caller's figures. */
struct llm_eviction_figures {
    uint64_t evicted_layers, restored_layers;
    uint64_t stored_bytes;  /* sent to the store */
    uint64_t fetched_bytes; /* received from the store */
    uint64_t kept_bytes;    /* restored from this process: rows past the last whole chunk, and
 chunks that had not reached the store */
    uint64_t plain_bytes;   /* of restored rows, before packing */
    uint64_t wait_ns;       /* from the begin of a fetch to its end */
    uint64_t lost_chunks;
};

void llm_eviction_figures_add(struct llm_eviction_figures *to,
                              const struct llm_eviction_figures *more);

struct llm_evictor;  /* of one engine: its store, and what storing and computing cost */
struct llm_eviction; /* of one sequence: what of it is evicted */

/* model: names the weights, such as by their hash.  0 or -ENOMEM. */
int llm_evictor_create(struct llm_engine *engine, struct llm_shadow *shadow, const char *model,
                       struct llm_evictor **out) MUST_CHECK;
void llm_evictor_destroy(struct llm_evictor *evictor);
/* As llm_eviction_reap, of sequences that ended before their stores. */
void llm_evictor_reap(struct llm_evictor *evictor, struct llm_eviction_figures *figures);
/* A step of so many rows took so long: the cost of computing. */
void llm_evictor_timed(struct llm_evictor *evictor, uint32_t rows, uint64_t ns);

/* 0 or -ENOMEM. */
int llm_eviction_create(struct llm_evictor *evictor, struct llm_seq *seq,
                        struct llm_eviction_policy policy, struct llm_eviction **out) MUST_CHECK;
void llm_eviction_destroy(struct llm_eviction *eviction);
struct llm_eviction_policy llm_eviction_policy(const struct llm_eviction *eviction);

/* Appends tokens; the first is that of position 0.  There may be more tokens than rows: then the
 * missing rows are to be computed.  0 or -ENOMEM. */
int llm_eviction_add_tokens(struct llm_eviction *eviction, const uint32_t *tokens,
                            uint32_t count) MUST_CHECK;
const uint32_t *llm_eviction_tokens(const struct llm_eviction *eviction, uint32_t *count);

/* SYNC: a layer is evicted once the store has its rows.  ASYNC: at once; rows that the store
 * refuses stay in this process until the layer is restored. */
enum llm_evict_sync { LLM_EVICT_SYNC, LLM_EVICT_ASYNC };

/* Storing copies the rows and does not wait for the store: llm_eviction_is_storing tells when the
 * store has them.  Both calls answer
 *   0
 *   -EAGAIN  LLM_EVICT_OUTGOING_BYTES are on their way; or the store refused the last chunk and was
 *            given only one; or the call is SYNC: call again when a store has finished
 *   others   as a task of llm/evict/shadow.h: a store has failed within LLM_SHADOW_REST_NS; told
 *            once, and nothing was done */

/* Stores the whole chunks of those layers that have all rows; keeps the layers. */
int llm_eviction_store(struct llm_eviction *eviction, const struct llm_layers *layers,
                       struct llm_eviction_figures *figures, char *why) MUST_CHECK;
/* Stores and evicts; with LLM_RECOVER_ALL every layer.  Ends a fetch that is under way.  On an
 * error the layers before the one that why names are evicted. */
int llm_eviction_evict(struct llm_eviction *eviction, const struct llm_layers *layers,
                       enum llm_evict_sync sync, struct llm_eviction_figures *figures,
                       char *why) MUST_CHECK;
/* Adds the stores that have finished since and frees their memory. */
void llm_eviction_reap(struct llm_eviction *eviction, struct llm_eviction_figures *figures);
/* Some chunks are on their way. */
bool llm_eviction_is_storing(const struct llm_eviction *eviction);

/* Asks the store how many of the first `count` tokens it has rows of.  0 or -ENOMEM. */
int llm_eviction_match_begin(struct llm_eviction *eviction, uint32_t count) MUST_CHECK;
/* Whole chunks in *rows; 0 when the store did not answer in time.  0; -EAGAIN: not known yet. */
int llm_eviction_match_poll(struct llm_eviction *eviction, uint32_t *rows) MUST_CHECK;
/* Makes an empty sequence one of `rows` positions, found by llm_eviction_match_poll, whose layers
 * are all missing.  0 or -ENOMEM. */
int llm_eviction_adopt(struct llm_eviction *eviction, uint32_t rows) MUST_CHECK;

/* Whether computing what is missing is faster than fetching it, by the costs so far, which why
 * tells. */
bool llm_eviction_should_compute(const struct llm_eviction *eviction, char *why);
/* Truncates the sequence to the rows that every layer has.  How many rows were dropped. */
uint32_t llm_eviction_truncate(struct llm_eviction *eviction);

/* Begins to fetch what is missing of these layers (NULL: of all), a few layers at a time.  0 or
 * -ENOMEM. */
int llm_eviction_fetch_begin(struct llm_eviction *eviction,
                             const struct llm_layers *only) MUST_CHECK;
/* Of a fetch that is done, or that nobody waits for any more. */
void llm_eviction_fetch_end(struct llm_eviction *eviction, struct llm_eviction_figures *figures);
/* Restores the layers that have arrived.  0 when none is missing any more; -EAGAIN; -ENODATA when
 * the store does not have one, or not in time; else as llm_seq_write_kv. */
int llm_eviction_fetch_poll(struct llm_eviction *eviction, struct llm_eviction_figures *figures,
                            char *why) MUST_CHECK;
bool llm_eviction_is_fetching(
    const struct llm_eviction *eviction); /* between fetch_begin and fetch_end */

#endif
