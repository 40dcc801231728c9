/* llm/evict/shadow.h - the shadow store: where evicted KV goes: main memory, a KV daemon or Redis.
 *
 * A chunk is a run of rows of one layer.  It never changes, its key (llm/evict/eviction.h)
 * determines its bytes, and it is stored as one block of wire/codec.h.  A store may lose any chunk
 * at any time: whoever put the chunk can compute it again.
 *
 * Threads of the shadow store do all that can wait, while the caller does something else.  One
 * thread stores, in order; LLM_SHADOW_THREADS fetch, several chunks in one request; one answers
 * questions, in order.
 *
 * After a store is lost or does not answer in time, its calls fail at once for LLM_SHADOW_REST_NS:
 * a stalled store costs one wait, not one for each chunk.  While it stays silent each rest is twice
 * as long as the last: few sequences wait for it in vain.
 *
 * Trust: what a store gives is checked for form; a daemon's blocks have checksums, too.
 * Threads: one at a time for all calls, none of which waits for the store; the store's own threads
 * touch only the tasks and questions given to them.
 * Lifetime: create/destroy.  Destroy finishes what was disowned; nothing else may be under way. */
#ifndef HAWSER_LLM_EVICT_SHADOW_H
#define HAWSER_LLM_EVICT_SHADOW_H

#include "base/clock.h"
#include "kv/common/blockkey.h"

#include <sys/queue.h>

enum {
    LLM_SHADOW_THREADS = 2, /* that fetch: one copies while the other waits for a daemon */
    LLM_SHADOW_STORE_CHANNEL = LLM_SHADOW_THREADS + 1,
    LLM_SHADOW_CHANNELS,  /* to the store: 0 is that of questions, then those that fetch, then that
                             which stores */
    LLM_SHADOW_BATCH = 8, /* chunks in one request: more would delay the first */
};

#define LLM_SHADOW_REST_NS HW_SEC
#define LLM_SHADOW_REST_MAX_NS (16 * HW_SEC)
#define LLM_SHADOW_TIMEOUT_NS (2 * HW_SEC) /* of one request to a daemon: longer is a stall */

struct llm_shadow_config {
    const char *socket; /* of a KV daemon */
    /* Of Redis: redis:// or rediss:// and HOST[:PORT],...; files of its CA and of [NAME]:PASSWORD,
     * NULL: none. */
    const char *url, *ca, *login;
    uint64_t bytes; /* main memory: limit of all chunks */
    uint64_t tenant;
    uint64_t timeout_ns; /* 0: LLM_SHADOW_TIMEOUT_NS */
    /* Called by the store's threads after tasks or a question are done; NULL: nothing. */
    void (*wake)(void *user);
    void *wake_user;
};

struct llm_shadow_store; /* private to a backend */

/* Reads a chunk in place; its outcome counts only when get returns 0. */
typedef int llm_shadow_take(void *user, const uint8_t *bytes, uint32_t len);

/* One chunk of many, and the user of its take. */
struct llm_shadow_want {
    struct kv_block_key key;
    void *user;
};
/* The outcome of a chunk, as get answers; once for each.  In order, but for those that a store had
 * to ask for twice. */
typedef void llm_shadow_came(void *user, int status);

/* One thread at a time uses a channel; channels are used concurrently.  0, or
 *   put  -EEXIST (the store has it, by another put), -ENOSPC, -EMSGSIZE, -EAGAIN (its members
 *        change, or too few took it)
 *   get  -ENOENT (never put, or lost), what take answered
 *   any  -ECONNRESET, -ETIMEDOUT (the store is lost, or silent), -EPROTO, -ENOMEM */
struct llm_shadow_ops {
    const char *name;
    bool shared; /* with other processes */
    int (*open)(const struct llm_shadow_config *config, struct llm_shadow_store **out, char *why);
    void (*close)(struct llm_shadow_store *store);
    int (*put)(struct llm_shadow_store *store, unsigned channel, const struct kv_block_key *key,
               const void *bytes, uint32_t len);
    int (*get)(struct llm_shadow_store *store, unsigned channel, const struct kv_block_key *key,
               llm_shadow_take *take, void *user);
    /* At most LLM_SHADOW_BATCH gets in one request; NULL: one by one. */
    void (*get_many)(struct llm_shadow_store *store, unsigned channel,
                     const struct llm_shadow_want *wants, uint32_t count, llm_shadow_take *take,
                     llm_shadow_came *came);
    int (*has)(struct llm_shadow_store *store, unsigned channel, const struct kv_block_key *keys,
               uint32_t count, bool *there);
};

extern const struct llm_shadow_ops llm_shadow_memory, llm_shadow_kvd, llm_shadow_redis;

struct llm_shadow;

/* 0; -ENOMEM, the errno of a thread, or what the store says, with cause and remedy in why
 * (LLM_WHY_CHARS). */
int llm_shadow_create(const struct llm_shadow_ops *ops, const struct llm_shadow_config *config,
                      struct llm_shadow **out, char *why) MUST_CHECK;
void llm_shadow_destroy(struct llm_shadow *shadow);
const char *llm_shadow_name(const struct llm_shadow *shadow);
bool llm_shadow_shared(const struct llm_shadow *shadow);
uint64_t llm_shadow_tenant(const struct llm_shadow *shadow);

/* A question: something that waits for the store, on a thread of its own.  The caller embeds it and
 * keeps it until it is done or disowned. */
struct llm_shadow_question {
    /* May use the calls below.  What it answers is the status. */
    int (*run)(struct llm_shadow *shadow, struct llm_shadow_question *question);
    /* Frees it. */
    void (*drop)(struct llm_shadow_question *question);
    int status; /* once it is done */

    bool done, disowned; /* private, like next */
    STAILQ_ENTRY(llm_shadow_question) next;
};

void llm_shadow_ask(struct llm_shadow *shadow, struct llm_shadow_question *question);
bool llm_shadow_is_answered(struct llm_shadow *shadow, const struct llm_shadow_question *question);
/* Drops it now, or when it is done; one that has not begun fails. */
void llm_shadow_ask_no_more(struct llm_shadow *shadow, struct llm_shadow_question *question);

/* For questions.  As put and get of the ops, for bytes that are not rows; -EHOSTDOWN while the
 * store rests. */
int llm_shadow_put_bytes(struct llm_shadow *shadow, const struct kv_block_key *key,
                         const void *bytes, uint32_t len) MUST_CHECK;
int llm_shadow_get_bytes(struct llm_shadow *shadow, const struct kv_block_key *key,
                         llm_shadow_take *take, void *user) MUST_CHECK;
/* Counts chunks that are on their way to the store, too.  there[i] is written only on 0. */
int llm_shadow_has(struct llm_shadow *shadow, const struct kv_block_key *keys, uint32_t count,
                   bool *there) MUST_CHECK;

/* A chunk on its way, of binary16 values.  The caller fills in the first group and keeps the task
 * until it is done or disowned.  One that may be disowned is allocated with its values behind it.
 */
struct llm_shadow_task {
    struct kv_block_key key;
    void *values;   /* to store, or room for what is fetched */
    uint32_t bytes; /* of them */
    bool pack;      /* store them packed, not plain */

    /* Once it is done. */
    int status;      /* 0, as put and get of the ops, -EHOSTDOWN while the store rests */
    uint32_t moved;  /* bytes received or sent; 0 when the store had the chunk */
    uint32_t packed; /* stored: bytes as packed */
    uint64_t ns;     /* fetched: what it took; stored: what packing took */

    bool done, disowned; /* private, like next */
    STAILQ_ENTRY(llm_shadow_task) next;
};

/* A fetch of a chunk that is on its way to the store waits for that first. */
void llm_shadow_fetch(struct llm_shadow *shadow, struct llm_shadow_task *const *tasks,
                      uint32_t count);
/* Status 0 also when the store has the chunk. */
void llm_shadow_store(struct llm_shadow *shadow, struct llm_shadow_task *task);
bool llm_shadow_is_done(struct llm_shadow *shadow, const struct llm_shadow_task *task);
/* Nobody waits for it any more: a store is completed, a fetch may not be; then the task is freed
 * with free(). */
void llm_shadow_disown(struct llm_shadow *shadow, struct llm_shadow_task *task);
/* Whether the last store succeeded, if there was one, and the store does not rest. */
bool llm_shadow_takes(struct llm_shadow *shadow);
/* Whether some chunk is on its way to the store. */
bool llm_shadow_is_storing(struct llm_shadow *shadow);

#endif
