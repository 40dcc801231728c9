/* llm/shadow.h - where KV goes that leaves the device: a store of chunks, in this process's main
 * memory or at a KV daemon.
 *
 * A chunk is a run of rows of one layer, never changed, named by what its bytes depend on (who
 * names it: llm/spill.h), and kept as one block of wire/codec.h.  A store may lose any chunk at any
 * time: whoever put it can compute it again.
 *
 * Chunks are put by the caller and fetched by threads of the shadow, several at a time, while the
 * caller does something else.
 *
 * A store that is gone, or that does not answer in time, is left alone for LLM_SHADOW_REST_NS: its
 * calls fail at once, so that a stalled store costs one wait and not one for each chunk.
 *
 * Trust: what a store gives is checked for form; a daemon's blocks have checksums, too.
 * Threads: one at a time for all calls; the shadow's own threads run only what llm_shadow_start
 * gave them.
 * Lifetime: create/destroy; nothing may be under way at destroy. */
#ifndef HAWSER_LLM_SHADOW_H
#define HAWSER_LLM_SHADOW_H

#include "base/clock.h"
#include "kv/blockkey.h"

enum {
    LLM_SHADOW_THREADS = 2, /* fetch at a time: one copies while the other waits for a daemon */
    LLM_SHADOW_LANES = LLM_SHADOW_THREADS + 1, /* ways to the store: the caller's is 0 */
};

#define LLM_SHADOW_REST_NS HW_SEC
#define LLM_SHADOW_TIMEOUT_NS (2 * HW_SEC) /* of one request to a daemon: a stall, not a delay */

struct llm_shadow_config {
    const char *socket; /* of a KV daemon; NULL: main memory */
    uint64_t bytes;     /* main memory: what the chunks may take */
    uint64_t tenant;
    uint64_t timeout_ns; /* 0: LLM_SHADOW_TIMEOUT_NS */
};

struct llm_shadow_store; /* a backend's own */

/* Reads a chunk where it lies; what it made of it counts only when get returns 0. */
typedef int llm_shadow_take(void *user, const uint8_t *bytes, uint32_t len);

/* Of a lane one thread at a time uses; lanes are used together.  0, and else
 *   put  -EEXIST (is there: nothing was sent), -ENOSPC, -EMSGSIZE
 *   get  -ENOENT (never put, or lost), what take answered
 *   any  -ECONNRESET, -ETIMEDOUT (the store is gone, or silent), -EPROTO, -ENOMEM */
struct llm_shadow_ops {
    const char *name;
    bool shared; /* other processes see what is put */
    int (*open)(const struct llm_shadow_config *config, struct llm_shadow_store **out, char *why);
    void (*close)(struct llm_shadow_store *store);
    int (*put)(struct llm_shadow_store *store, unsigned lane, const struct kv_block_key *key,
               const void *bytes, uint32_t len);
    int (*get)(struct llm_shadow_store *store, unsigned lane, const struct kv_block_key *key,
               llm_shadow_take *take, void *user);
    int (*has)(struct llm_shadow_store *store, unsigned lane, const struct kv_block_key *keys,
               uint32_t count, bool *there);
};

extern const struct llm_shadow_ops llm_shadow_memory, llm_shadow_kvd;

struct llm_shadow;

/* 0; -ENOMEM, the errno of a thread, or what the store says, with cause and remedy in why
 * (LLM_WHY_CHARS). */
int llm_shadow_create(const struct llm_shadow_ops *ops, const struct llm_shadow_config *config,
                      struct llm_shadow **out, char *why) MUST_CHECK;
void llm_shadow_destroy(struct llm_shadow *shadow);
const char *llm_shadow_name(const struct llm_shadow *shadow);
bool llm_shadow_shared(const struct llm_shadow *shadow);
uint64_t llm_shadow_tenant(const struct llm_shadow *shadow);

/* What a put took. */
struct llm_shadow_cost {
    uint32_t packed_bytes, sent_bytes; /* none are sent when the store has the chunk */
    uint64_t pack_ns;
};

/* Keeps `bytes` of binary16 values, packed or as they are.  0, also when the store has the chunk;
 * else as the ops' put; -EHOSTDOWN while the store rests. */
int llm_shadow_put(struct llm_shadow *shadow, const struct kv_block_key *key, const void *values,
                   uint32_t bytes, bool pack, struct llm_shadow_cost *cost) MUST_CHECK;
/* As put and get, for bytes that are no rows. */
int llm_shadow_put_bytes(struct llm_shadow *shadow, const struct kv_block_key *key,
                         const void *bytes, uint32_t len) MUST_CHECK;
int llm_shadow_get_bytes(struct llm_shadow *shadow, const struct kv_block_key *key,
                         llm_shadow_take *take, void *user) MUST_CHECK;
/* there[i] is written only on 0. */
int llm_shadow_has(struct llm_shadow *shadow, const struct kv_block_key *keys, uint32_t count,
                   bool *there) MUST_CHECK;

/* A chunk to fetch; the first three by the caller, who keeps it and what it points at until it is
 * waited for or cancelled. */
struct llm_shadow_get {
    struct kv_block_key key;
    void *values;     /* binary16 */
    uint32_t bytes;   /* that the chunk must have */
    uint32_t fetched; /* bytes that came: fewer when it was packed */
    uint64_t ns;      /* that it took */
    int status;
    bool done, running; /* the shadow's, like next */
    struct llm_shadow_get *next;
};

void llm_shadow_start(struct llm_shadow *shadow, struct llm_shadow_get *gets, uint32_t count);
/* Waits for one that was started.  0, or as the ops' get; -EHOSTDOWN. */
int llm_shadow_wait(struct llm_shadow *shadow, struct llm_shadow_get *get) MUST_CHECK;
/* Whether wait would return at once. */
bool llm_shadow_is_done(struct llm_shadow *shadow, const struct llm_shadow_get *get);
/* None of them is touched any more after this. */
void llm_shadow_cancel(struct llm_shadow *shadow, struct llm_shadow_get *gets, uint32_t count);

#endif
