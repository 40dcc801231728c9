/* llm/evict/shadow.h - where KV goes that leaves the device: a store of chunks, in this process's
 * main memory or at a KV daemon.
 *
 * A chunk is a run of rows of one layer, never changed, named by what its bytes depend on (who
 * names it: llm/evict/eviction.h), and kept as one block of wire/codec.h.  A store may lose any
 * chunk at any time: whoever put it can compute it again.
 *
 * Chunks are stored and fetched by threads of the shadow while the caller does something else: one
 * thread stores, in order; others fetch, several chunks in one question.
 *
 * A store that is gone, or that does not answer in time, is left alone for LLM_SHADOW_REST_NS: its
 * calls fail at once, so that a stalled store costs one wait and not one for each chunk.
 *
 * Trust: what a store gives is checked for form; a daemon's blocks have checksums, too.
 * Threads: one at a time for all calls; the shadow's own threads run only the tasks that they were
 * given.
 * Lifetime: create/destroy; at destroy nothing may be under way but tasks that were disowned: those
 * are done first. */
#ifndef HAWSER_LLM_EVICT_SHADOW_H
#define HAWSER_LLM_EVICT_SHADOW_H

#include "base/clock.h"
#include "kv/common/blockkey.h"

enum {
    LLM_SHADOW_THREADS = 2, /* fetch at a time: one copies while the other waits for a daemon */
    LLM_SHADOW_STORE_CHANNEL = LLM_SHADOW_THREADS + 1,
    LLM_SHADOW_CHANNELS, /* ways to the store: the caller's is 0, then who fetches, then who stores
                          */
    LLM_SHADOW_BATCH =
        8, /* chunks in one question: more would come later than the first is needed */
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

/* One of many chunks, and whose `take` is told of it. */
struct llm_shadow_want {
    struct kv_block_key key;
    void *user;
};
/* What came of it, as get answers; once for each, in order. */
typedef void llm_shadow_came(void *user, int status);

/* Of a channel one thread at a time uses; channels are used together.  0, and else
 *   put  -EEXIST (is there: nothing was sent), -ENOSPC, -EMSGSIZE
 *   get  -ENOENT (never put, or lost), what take answered
 *   any  -ECONNRESET, -ETIMEDOUT (the store is gone, or silent), -EPROTO, -ENOMEM */
struct llm_shadow_ops {
    const char *name;
    bool shared; /* other processes see what is put */
    int (*open)(const struct llm_shadow_config *config, struct llm_shadow_store **out, char *why);
    void (*close)(struct llm_shadow_store *store);
    int (*put)(struct llm_shadow_store *store, unsigned channel, const struct kv_block_key *key,
               const void *bytes, uint32_t len);
    int (*get)(struct llm_shadow_store *store, unsigned channel, const struct kv_block_key *key,
               llm_shadow_take *take, void *user);
    /* At most LLM_SHADOW_BATCH gets in one question; NULL: they are asked one by one. */
    void (*get_many)(struct llm_shadow_store *store, unsigned channel,
                     const struct llm_shadow_want *wants, uint32_t count, llm_shadow_take *take,
                     llm_shadow_came *came);
    int (*has)(struct llm_shadow_store *store, unsigned channel, const struct kv_block_key *keys,
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

/* As the ops' put and get, for bytes that are no rows; -EHOSTDOWN while the store rests. */
int llm_shadow_put_bytes(struct llm_shadow *shadow, const struct kv_block_key *key,
                         const void *bytes, uint32_t len) MUST_CHECK;
int llm_shadow_get_bytes(struct llm_shadow *shadow, const struct kv_block_key *key,
                         llm_shadow_take *take, void *user) MUST_CHECK;
/* Chunks on their way to the store count.  there[i] is written only on 0. */
int llm_shadow_has(struct llm_shadow *shadow, const struct kv_block_key *keys, uint32_t count,
                   bool *there) MUST_CHECK;

/* A chunk on its way, of binary16 values.  Who makes it fills in the first group, and keeps it and
 * its values until it is done, cancelled or disowned. */
struct llm_shadow_task {
    struct kv_block_key key;
    void *values;   /* to be stored, or room for what is fetched */
    uint32_t bytes; /* of them */
    bool pack;      /* stored packed, or as they are */

    /* Once it is done. */
    int status;      /* 0, or as the ops' put and get; -EHOSTDOWN while the store rests */
    uint32_t moved;  /* bytes that came, or were sent: none when the store had the chunk */
    uint32_t packed; /* stored: bytes as packed */
    uint64_t ns;     /* fetched: what it took; stored: what packing took */

    bool done, running, cancelled, disowned; /* the shadow's, like next */
    struct llm_shadow_task *next;
};

/* One that is on its way to the store is waited for first. */
void llm_shadow_fetch(struct llm_shadow *shadow, struct llm_shadow_task *tasks, uint32_t count);
/* A chunk that the store has is stored: status 0. */
void llm_shadow_store(struct llm_shadow *shadow, struct llm_shadow_task *task);
/* Waits for one that was given.  Its status. */
int llm_shadow_wait(struct llm_shadow *shadow, struct llm_shadow_task *task) MUST_CHECK;
/* Whether wait would return at once. */
bool llm_shadow_is_done(struct llm_shadow *shadow, const struct llm_shadow_task *task);
/* Of fetches: none of them is touched any more after this. */
void llm_shadow_cancel(struct llm_shadow *shadow, struct llm_shadow_task *tasks, uint32_t count);
/* Of a store that nobody will wait for: it is made all the same, then freed, in one piece with its
 * values (free of the task). */
void llm_shadow_disown(struct llm_shadow *shadow, struct llm_shadow_task *task);
/* Whether the last store went well: then the next one may be trusted to, before it is done. */
bool llm_shadow_takes(struct llm_shadow *shadow);

#endif
