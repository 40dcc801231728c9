/* llm/modes/mode.h - one inference: a prompt goes in, tokens come out, wherever the model runs.
 *
 * The modes differ in what travels:
 *   local          nothing: the model runs in this process
 *   naive          weights, tokens and the whole KV cache with every step, and the cache back
 *   remote_cache   weights once; then tokens, and full logits back
 *   semantic       tokens, and what the consumer needs back; also called sys_simulated
 *   vulkan         as local on the backend "vulkan"; its driver may send work to a remote GPU
 * and, where a worker evicted KV, in how the KV comes back:
 *   remote_cache                    the whole cache, plain
 *   remote_cache_compressed         the whole cache, packed; logits are packed, too
 *   remote_cache_delta_raw          what is missing, plain
 *   remote_cache_delta_compressed   what is missing, packed; logits are packed, too
 *   remote_cache_recompute          not at all: the worker computes it again
 *   semantic                        what is missing, packed where the store is slow
 * The same file, prompt and sampling give the same tokens in all of them.
 *
 * Trust: the remote modes check a worker's answers.
 * Threads: one at a time.  Lifetime: open/close; file and remote outlive the mode. */
#ifndef HAWSER_LLM_MODES_MODE_H
#define HAWSER_LLM_MODES_MODE_H

#include "llm/client/remote.h"
#include "llm/engine/engine.h"

struct llm_mode_config {
    const struct llm_file *file;
    struct llm_engine_options engine; /* local, vulkan */
    struct llm_sampling sampling;
    struct llm_remote *remote;   /* the others */
    struct llm_wish wish;        /* semantic: kind, top_k, lossy */
    uint32_t tokens_per_request; /* semantic with a wish for tokens; 0: 1 */
};

/* Where the time of a run went, as far as the mode can tell. */
struct llm_mode_figures {
    uint64_t kernel_ns;        /* on a GPU, the worker's or this machine's; 0: there is none */
    uint64_t server_serdes_ns; /* bytes to tensors and back, at the worker */
    uint64_t client_serdes_ns; /* and here */
    uint64_t rpc_ns;           /* in calls and uploads */
    /* KV that the worker evicted and restored. */
    uint64_t kv_regular, kv_delta; /* bytes from and to the worker's store */
    uint64_t kv_fetched;           /* of those, from the store */
    uint64_t kv_plain;             /* of restored rows, before packing */
    uint64_t kv_layers;            /* restored */
    uint64_t kv_computed;          /* rows computed again */
    uint64_t kv_wait_ns;           /* for the store */
};

/* Bytes over the network so far: of the worker's connection, or of a Vulkan driver that is
 * Hawser's. */
struct llm_mode_traffic {
    uint64_t sent, received;
};

struct llm_mode;
struct llm_mode_kind;

/* How a mode works; several kinds share one. */
struct llm_mode_ops {
    int (*open)(const struct llm_mode_kind *kind, const struct llm_mode_config *config,
                struct llm_mode **out, char *why);
    void (*close)(struct llm_mode *mode);
    int (*prefill)(struct llm_mode *mode, const uint32_t *tokens, uint32_t count, uint32_t *next,
                   char *why);
    int (*decode)(struct llm_mode *mode, uint32_t want, uint32_t *tokens, uint32_t *got, char *why);
    int (*figures)(struct llm_mode *mode, struct llm_mode_figures *out, char *why);
    void (*traffic)(const struct llm_mode *mode, struct llm_mode_traffic *out);
    int (*evict)(struct llm_mode *mode, const struct llm_layers *layers, char *why); /* or NULL */
};

/* A mode as users name it. */
struct llm_mode_kind {
    const char *name;
    const struct llm_mode_ops *ops;
    bool remote;                       /* needs a connection to a worker */
    bool blind;                        /* semantic: asks neither what the worker has nor what the
                                        * consumer needs; logits are always packed */
    struct llm_eviction_policy policy; /* remote_cache, semantic: how evicted KV comes back */
    const char *backend;               /* local: instead of the configured one; NULL: that one */
};

struct llm_mode { /* the head of every mode's own struct */
    const struct llm_mode_kind *kind;
};

/* Private to src/llm/modes. */
extern const struct llm_mode_ops llm_mode_local, llm_mode_naive, llm_mode_remote_cache,
    llm_mode_semantic;

/* By name; NULL when there is none. */
const struct llm_mode_kind *llm_mode_find(const char *name);

/* 0, or a negative errno with a sentence in why (LLM_WHY_CHARS). */
int llm_mode_open(const struct llm_mode_kind *kind, const struct llm_mode_config *config,
                  struct llm_mode **out, char *why) MUST_CHECK;
void llm_mode_close(struct llm_mode *mode);

/* Computes the prompt and samples the token after it.  Once for a mode.  -ERANGE: longer than the
 * context. */
int llm_mode_prefill(struct llm_mode *mode, const uint32_t *tokens, uint32_t count, uint32_t *next,
                     char *why) MUST_CHECK;
/* Generates up to `want` more tokens, *got of them, at least one.  -ERANGE: the context is full. */
int llm_mode_decode(struct llm_mode *mode, uint32_t want, uint32_t *tokens, uint32_t *got,
                    char *why) MUST_CHECK;
int llm_mode_figures(struct llm_mode *mode, struct llm_mode_figures *out, char *why) MUST_CHECK;
void llm_mode_traffic(const struct llm_mode *mode, struct llm_mode_traffic *out);
/* Makes the worker evict these layers of the sequence to its store.  After the prompt.  Nothing
 * happens in a mode that keeps no cache at a worker. */
int llm_mode_evict(struct llm_mode *mode, const struct llm_layers *layers, char *why) MUST_CHECK;

#endif
