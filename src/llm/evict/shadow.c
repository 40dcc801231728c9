#include "llm/evict/shadow.h"

#include "base/log.h"
#include "llm/model/why.h"
#include "wire/codec.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

STAILQ_HEAD(tasks, llm_shadow_task);
STAILQ_HEAD(questions, llm_shadow_question);

struct queue {
    struct tasks tasks;
    uint32_t count;
};

struct channel {
    struct llm_shadow *shadow;
    struct wire_codec_ctx *codec;
    pthread_t thread;
    bool runs;
};

struct llm_shadow {
    const struct llm_shadow_ops *ops;
    struct llm_shadow_store *store;
    uint64_t tenant;
    void (*wake)(void *user); /* NULL: nobody */
    void *wake_user;
    struct wire_enc enc; /* of the storing channel */
    struct channel channels[LLM_SHADOW_CHANNELS];
    /* relaxed: a thread that misses a write asks a silent store once more */
    _Atomic uint64_t rests_until_ns;
    _Atomic uint64_t rest_ns; /* the next one; relaxed, the same */
    pthread_mutex_t lock;
    pthread_cond_t work;             /* the threads: a task, a question, or stopping */
    pthread_cond_t done;             /* a fetch that waits for a store: a task is done */
    struct queue fetches, stores;    /* (lock) */
    struct questions questions;      /* (lock) */
    struct llm_shadow_task *storing; /* taken from stores (lock) */
    bool takes;                      /* the last store went well (lock) */
    bool stopping;                   /* (lock) */
};

/* ---- the store ---- */

static bool rests(struct llm_shadow *s)
{
    return hw_now_ns() < atomic_load_explicit(&s->rests_until_ns, memory_order_relaxed);
}

/* Begins the rest of a store that is lost or silent; other errors concern one chunk only. */
static int note_status(struct llm_shadow *s, int rc)
{
    if (rc != -ECONNRESET && rc != -ETIMEDOUT) {
        atomic_store_explicit(&s->rest_ns, LLM_SHADOW_REST_NS, memory_order_relaxed);
        return rc;
    }
    if (rests(s))
        return rc; /* another thread's request has told */
    uint64_t rest_ns = atomic_load_explicit(&s->rest_ns, memory_order_relaxed);
    hw_warn(HW_CAT_LLM, "the KV store (%s) %s: no requests to it for %llu s", s->ops->name,
            rc == -ETIMEDOUT ? "does not answer" : "is gone",
            (unsigned long long)(rest_ns / HW_SEC));
    atomic_store_explicit(&s->rests_until_ns, hw_now_ns() + rest_ns, memory_order_relaxed);
    uint64_t next_ns = 2 * rest_ns < LLM_SHADOW_REST_MAX_NS ? 2 * rest_ns : LLM_SHADOW_REST_MAX_NS;
    atomic_store_explicit(&s->rest_ns, next_ns, memory_order_relaxed);
    return rc;
}

int llm_shadow_put_bytes(struct llm_shadow *s, const struct kv_block_key *key, const void *bytes,
                         uint32_t len)
{
    return rests(s) ? -EHOSTDOWN : note_status(s, s->ops->put(s->store, 0, key, bytes, len));
}

int llm_shadow_get_bytes(struct llm_shadow *s, const struct kv_block_key *key,
                         llm_shadow_take *take, void *user)
{
    return rests(s) ? -EHOSTDOWN : note_status(s, s->ops->get(s->store, 0, key, take, user));
}

/* ---- tasks ---- */

static void queue_add(struct queue *q, struct llm_shadow_task *task)
{
    STAILQ_INSERT_TAIL(&q->tasks, task, next);
    q->count++;
}

static struct llm_shadow_task *queue_take(struct queue *q)
{
    struct llm_shadow_task *task = STAILQ_FIRST(&q->tasks);
    STAILQ_REMOVE_HEAD(&q->tasks, next);
    q->count--;
    return task;
}

/* Under the lock. */
static void finish(struct llm_shadow *s, struct llm_shadow_task *task, int status)
{
    task->status = status;
    task->done = true;
    if (task->disowned)
        free(task);
    pthread_cond_broadcast(&s->done);
}

/* Without the lock. */
static void wake(struct llm_shadow *s)
{
    if (s->wake)
        s->wake(s->wake_user);
}

static void give(struct llm_shadow *s, struct queue *q, struct llm_shadow_task *const *tasks,
                 uint32_t count)
{
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < count; i++) {
        tasks[i]->done = tasks[i]->disowned = false;
        tasks[i]->moved = tasks[i]->packed = 0;
        tasks[i]->ns = 0;
        queue_add(q, tasks[i]);
    }
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
}

void llm_shadow_fetch(struct llm_shadow *s, struct llm_shadow_task *const *tasks, uint32_t count)
{
    give(s, &s->fetches, tasks, count);
}

void llm_shadow_store(struct llm_shadow *s, struct llm_shadow_task *task)
{
    give(s, &s->stores, &task, 1);
}

bool llm_shadow_is_done(struct llm_shadow *s, const struct llm_shadow_task *task)
{
    pthread_mutex_lock(&s->lock);
    bool done = task->done;
    pthread_mutex_unlock(&s->lock);
    return done;
}

/* Whether it was there. */
static bool queue_remove(struct queue *q, struct llm_shadow_task *task)
{
    struct llm_shadow_task *at = STAILQ_FIRST(&q->tasks);
    while (at && at != task)
        at = STAILQ_NEXT(at, next);
    if (!at)
        return false;
    STAILQ_REMOVE(&q->tasks, task, llm_shadow_task, next);
    q->count--;
    return true;
}

void llm_shadow_disown(struct llm_shadow *s, struct llm_shadow_task *task)
{
    pthread_mutex_lock(&s->lock);
    /* What a stalled store keeps of fetches that were given up is bounded. */
    bool done = task->done || queue_remove(&s->fetches, task);
    task->disowned = true;
    pthread_cond_broadcast(&s->done); /* a fetch that waits for a store ends */
    pthread_mutex_unlock(&s->lock);
    if (done)
        free(task);
}

bool llm_shadow_takes(struct llm_shadow *s)
{
    pthread_mutex_lock(&s->lock);
    bool takes = s->takes;
    pthread_mutex_unlock(&s->lock);
    return takes && !rests(s);
}

bool llm_shadow_is_storing(struct llm_shadow *s)
{
    pthread_mutex_lock(&s->lock);
    bool storing = s->stores.count || s->storing;
    pthread_mutex_unlock(&s->lock);
    return storing;
}

/* ---- questions ---- */

void llm_shadow_ask(struct llm_shadow *s, struct llm_shadow_question *q)
{
    pthread_mutex_lock(&s->lock);
    q->done = q->disowned = false;
    STAILQ_INSERT_TAIL(&s->questions, q, next);
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
}

bool llm_shadow_is_answered(struct llm_shadow *s, const struct llm_shadow_question *q)
{
    pthread_mutex_lock(&s->lock);
    bool done = q->done;
    pthread_mutex_unlock(&s->lock);
    return done;
}

void llm_shadow_ask_no_more(struct llm_shadow *s, struct llm_shadow_question *q)
{
    pthread_mutex_lock(&s->lock);
    bool done = q->done;
    q->disowned = true;
    pthread_mutex_unlock(&s->lock);
    if (done)
        q->drop(q);
}

/* Also drops those that were disowned before stopping. */
static void *answer_all(void *user)
{
    struct llm_shadow *s = ((struct channel *)user)->shadow;
    pthread_mutex_lock(&s->lock);
    while (!STAILQ_EMPTY(&s->questions) || !s->stopping) {
        struct llm_shadow_question *q = STAILQ_FIRST(&s->questions);
        if (!q) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        STAILQ_REMOVE_HEAD(&s->questions, next);
        bool wanted = !q->disowned;
        pthread_mutex_unlock(&s->lock);
        int rc = wanted ? q->run(s, q) : -ECANCELED;
        pthread_mutex_lock(&s->lock);
        q->status = rc;
        q->done = true;
        bool dropped = q->disowned;
        pthread_mutex_unlock(&s->lock);
        if (dropped)
            q->drop(q);
        wake(s);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- storing ---- */

/* Whether a chunk of that key is on its way to the store; under the lock. */
static bool is_outgoing(const struct llm_shadow *s, const struct kv_block_key *key)
{
    if (s->storing && kv_block_key_equal(&s->storing->key, key))
        return true;
    const struct llm_shadow_task *task = STAILQ_FIRST(&s->stores.tasks);
    while (task && !kv_block_key_equal(&task->key, key))
        task = STAILQ_NEXT(task, next);
    return task != NULL;
}

/* Before the store is asked: a chunk that arrives meanwhile is found there. */
static void note_outgoing(struct llm_shadow *s, const struct kv_block_key *keys, uint32_t count,
                          bool *outgoing)
{
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < count; i++)
        outgoing[i] = is_outgoing(s, &keys[i]);
    pthread_mutex_unlock(&s->lock);
}

int llm_shadow_has(struct llm_shadow *s, const struct kv_block_key *keys, uint32_t count,
                   bool *there)
{
    if (rests(s))
        return -EHOSTDOWN;
    bool *outgoing = calloc(count ? count : 1, sizeof *outgoing);
    if (!outgoing)
        return -ENOMEM;
    note_outgoing(s, keys, count, outgoing);
    int rc = note_status(s, s->ops->has(s->store, 0, keys, count, there));
    for (uint32_t i = 0; i < count && rc == 0; i++)
        there[i] |= outgoing[i];
    free(outgoing);
    return rc;
}

static int store_one(struct channel *channel, struct llm_shadow_task *task)
{
    struct llm_shadow *s = channel->shadow;
    enum wire_codec codec = task->pack ? WIRE_CODEC_SHUFFLE_ZSTD : WIRE_CODEC_RAW;
    uint64_t began = hw_now_ns();
    if (rests(s))
        return -EHOSTDOWN;
    wire_enc_reset(&s->enc);
    int rc = wire_codec_encode(channel->codec, codec, WIRE_DTYPE_F16, task->values,
                               task->bytes / sizeof(uint16_t), NULL, &s->enc);
    if (rc)
        return rc;
    uint32_t len = (uint32_t)wire_enc_len(&s->enc);
    task->packed = len;
    task->ns = hw_now_ns() - began;
    rc = note_status(s, s->ops->put(s->store, LLM_SHADOW_STORE_CHANNEL, &task->key,
                                    wire_enc_data(&s->enc), len));
    task->moved = rc ? 0 : len;
    return rc == -EEXIST ? 0 : rc;
}

/* Also stores what was queued before stopping. */
static void *store_all(void *user)
{
    struct channel *channel = user;
    struct llm_shadow *s = channel->shadow;
    pthread_mutex_lock(&s->lock);
    while (s->stores.count || !s->stopping) {
        if (!s->stores.count) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        struct llm_shadow_task *task = s->storing = queue_take(&s->stores);
        pthread_mutex_unlock(&s->lock);
        int rc = store_one(channel, task);
        pthread_mutex_lock(&s->lock);
        s->storing = NULL;
        s->takes = rc == 0;
        finish(s, task, rc);
        pthread_mutex_unlock(&s->lock);
        wake(s);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- fetching ---- */

/* A chunk that a channel fetches. */
struct taking {
    struct channel *channel;
    struct llm_shadow_task *task;
    uint64_t *since_ns; /* when the channel had the previous chunk */
};

static int take_rows(void *user, const uint8_t *bytes, uint32_t len)
{
    const struct taking *t = user;
    struct wire_dec d;
    struct wire_block block;
    wire_dec_init(&d, bytes, len);
    int rc = wire_codec_parse(&d, t->task->bytes, &block);
    if (rc == 0)
        rc = wire_dec_end(&d);
    if (rc == 0 && (block.dtype != WIRE_DTYPE_F16 || block.lossy))
        rc = -EPROTO;
    if (rc == 0)
        rc = wire_codec_decode(t->channel->codec, &block, t->task->values, t->task->bytes);
    if (rc == 0)
        t->task->moved = len;
    return rc;
}

static void on_came(void *user, int status)
{
    const struct taking *t = user;
    struct llm_shadow *s = t->channel->shadow;
    uint64_t now_ns = hw_now_ns();
    int rc = status == -EHOSTDOWN ? status : note_status(s, status);
    pthread_mutex_lock(&s->lock);
    t->task->ns = now_ns - *t->since_ns;
    *t->since_ns = now_ns;
    finish(s, t->task, rc);
    pthread_mutex_unlock(&s->lock);
}

static void fetch_some(struct channel *channel, struct llm_shadow_task *const *tasks,
                       uint32_t count)
{
    struct llm_shadow *s = channel->shadow;
    unsigned number = (unsigned)(channel - s->channels);
    struct taking takings[LLM_SHADOW_BATCH];
    struct llm_shadow_want wants[LLM_SHADOW_BATCH];
    uint64_t since_ns = hw_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        takings[i] = (struct taking){.channel = channel, .task = tasks[i], .since_ns = &since_ns};
        wants[i] = (struct llm_shadow_want){.key = tasks[i]->key, .user = &takings[i]};
    }
    if (s->ops->get_many && !rests(s)) {
        s->ops->get_many(s->store, number, wants, count, take_rows, on_came);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        on_came(&takings[i],
                rests(s) ? -EHOSTDOWN
                         : s->ops->get(s->store, number, &wants[i].key, take_rows, &takings[i]));
}

/* Takes this thread's share of the queue. */
static uint32_t take_some(struct llm_shadow *s, struct llm_shadow_task **tasks)
{
    uint32_t share = (s->fetches.count + LLM_SHADOW_THREADS - 1) / LLM_SHADOW_THREADS;
    uint32_t count = share < LLM_SHADOW_BATCH ? share : LLM_SHADOW_BATCH;
    for (uint32_t i = 0; i < count; i++)
        tasks[i] = queue_take(&s->fetches);
    return count;
}

/* Ends tasks that nobody waits for; how many are left. */
static uint32_t drop_disowned(struct llm_shadow *s, struct llm_shadow_task **tasks, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (tasks[i]->disowned)
            finish(s, tasks[i], -ECANCELED);
        else
            tasks[kept++] = tasks[i];
    }
    return kept;
}

/* Waits until none of them is on its way to the store; how many are still wanted. */
static uint32_t await_stores(struct llm_shadow *s, struct llm_shadow_task **tasks, uint32_t count)
{
    for (;;) {
        uint32_t i = 0;
        count = drop_disowned(s, tasks, count);
        while (i < count && !is_outgoing(s, &tasks[i]->key))
            i++;
        if (i == count)
            return count;
        pthread_cond_wait(&s->done, &s->lock);
    }
}

static void *fetch_all(void *user)
{
    struct channel *channel = user;
    struct llm_shadow *s = channel->shadow;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        struct llm_shadow_task *tasks[LLM_SHADOW_BATCH];
        uint32_t count = take_some(s, tasks);
        if (count == 0) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        count = await_stores(s, tasks, count);
        pthread_mutex_unlock(&s->lock);
        fetch_some(channel, tasks, count);
        wake(s);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- life ---- */

const char *llm_shadow_name(const struct llm_shadow *s)
{
    return s->ops->name;
}

bool llm_shadow_shared(const struct llm_shadow *s)
{
    return s->ops->shared;
}

uint64_t llm_shadow_tenant(const struct llm_shadow *s)
{
    return s->tenant;
}

static int start_channels(struct llm_shadow *s, char *why)
{
    for (unsigned i = 0; i < LLM_SHADOW_CHANNELS; i++) {
        struct channel *channel = &s->channels[i];
        void *(*run)(void *) = i == 0                          ? answer_all
                               : i == LLM_SHADOW_STORE_CHANNEL ? store_all
                                                               : fetch_all;
        channel->shadow = s;
        if (wire_codec_ctx_create(&channel->codec))
            return llm_why(why, -ENOMEM, "no memory for a codec");
        int rc = -pthread_create(&channel->thread, NULL, run, channel);
        if (rc)
            return llm_why(why, rc, "no thread: %s", strerror(-rc));
        channel->runs = true;
    }
    return 0;
}

int llm_shadow_create(const struct llm_shadow_ops *ops, const struct llm_shadow_config *config,
                      struct llm_shadow **out, char *why)
{
    struct llm_shadow_config full = *config;
    struct llm_shadow *s = calloc(1, sizeof *s);
    if (!s)
        return llm_why(why, -ENOMEM, "no memory for a KV store");
    if (!full.timeout_ns)
        full.timeout_ns = LLM_SHADOW_TIMEOUT_NS;
    s->ops = ops;
    s->tenant = config->tenant;
    s->wake = config->wake;
    s->wake_user = config->wake_user;
    s->takes = true;
    s->rest_ns = LLM_SHADOW_REST_NS;
    STAILQ_INIT(&s->fetches.tasks);
    STAILQ_INIT(&s->stores.tasks);
    STAILQ_INIT(&s->questions);
    wire_enc_init(&s->enc, WIRE_MESSAGE_MAX);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->done, NULL);
    int rc = ops->open(&full, &s->store, why);
    if (rc == 0)
        rc = start_channels(s, why);
    if (rc) {
        llm_shadow_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void llm_shadow_destroy(struct llm_shadow *s)
{
    if (!s)
        return;
    assert(!s->fetches.count);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < LLM_SHADOW_CHANNELS; i++) {
        if (s->channels[i].runs)
            pthread_join(s->channels[i].thread, NULL);
        wire_codec_ctx_destroy(s->channels[i].codec);
    }
    if (s->store)
        s->ops->close(s->store);
    pthread_cond_destroy(&s->done);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    wire_enc_fini(&s->enc);
    free(s);
}
