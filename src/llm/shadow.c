#include "llm/shadow.h"

#include "base/log.h"
#include "llm/why.h"
#include "wire/codec.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct lane {
    struct llm_shadow *shadow;
    struct wire_codec_ctx *codec;
    pthread_t thread; /* of all but the first */
    bool runs;
};

struct llm_shadow {
    const struct llm_shadow_ops *ops;
    struct llm_shadow_store *store;
    uint64_t tenant;
    struct wire_enc enc; /* the caller's */
    struct lane lanes[LLM_SHADOW_LANES];
    /* relaxed: a thread that misses it asks a silent store once more */
    _Atomic uint64_t rests_until_ns;
    pthread_mutex_t lock;
    pthread_cond_t work;                       /* the threads: a get, or stopping */
    pthread_cond_t done;                       /* the caller: a get is done */
    struct llm_shadow_get *queue, **queue_end; /* (lock) */
    bool stopping;                             /* (lock) */
};

/* ---- the store ---- */

static bool rests(struct llm_shadow *s)
{
    return hw_now_ns() < atomic_load_explicit(&s->rests_until_ns, memory_order_relaxed);
}

/* Notes a store that is gone or silent; whatever else went wrong is the chunk's own affair. */
static int told(struct llm_shadow *s, int rc)
{
    if (rc != -ECONNRESET && rc != -ETIMEDOUT)
        return rc;
    if (!rests(s))
        hw_warn(HW_CAT_LLM, "the KV store (%s) %s: it is left alone for a second", s->ops->name,
                rc == -ETIMEDOUT ? "does not answer" : "is gone");
    atomic_store_explicit(&s->rests_until_ns, hw_now_ns() + LLM_SHADOW_REST_NS,
                          memory_order_relaxed);
    return rc;
}

int llm_shadow_put_bytes(struct llm_shadow *s, const struct kv_block_key *key, const void *bytes,
                         uint32_t len)
{
    return rests(s) ? -EHOSTDOWN : told(s, s->ops->put(s->store, 0, key, bytes, len));
}

int llm_shadow_get_bytes(struct llm_shadow *s, const struct kv_block_key *key,
                         llm_shadow_take *take, void *user)
{
    return rests(s) ? -EHOSTDOWN : told(s, s->ops->get(s->store, 0, key, take, user));
}

int llm_shadow_has(struct llm_shadow *s, const struct kv_block_key *keys, uint32_t count,
                   bool *there)
{
    return rests(s) ? -EHOSTDOWN : told(s, s->ops->has(s->store, 0, keys, count, there));
}

int llm_shadow_put(struct llm_shadow *s, const struct kv_block_key *key, const void *values,
                   uint32_t bytes, bool pack, struct llm_shadow_cost *cost)
{
    if (rests(s))
        return -EHOSTDOWN;
    uint64_t began = hw_now_ns();
    wire_enc_reset(&s->enc);
    int rc = wire_codec_encode(s->lanes[0].codec, pack ? WIRE_CODEC_SHUFFLE_ZSTD : WIRE_CODEC_RAW,
                               WIRE_DTYPE_F16, values, bytes / sizeof(uint16_t), NULL, &s->enc);
    if (rc)
        return rc;
    uint32_t len = (uint32_t)wire_enc_len(&s->enc);
    struct llm_shadow_cost spent = {.packed_bytes = len, .pack_ns = hw_now_ns() - began};
    rc = llm_shadow_put_bytes(s, key, wire_enc_data(&s->enc), len);
    if (rc && rc != -EEXIST)
        return rc;
    spent.sent_bytes = rc ? 0 : len;
    *cost = spent;
    return 0;
}

/* ---- fetching ---- */

struct taking {
    struct wire_codec_ctx *codec;
    struct llm_shadow_get *get;
};

static int take_rows(void *user, const uint8_t *bytes, uint32_t len)
{
    const struct taking *t = user;
    struct wire_dec d;
    struct wire_block block;
    wire_dec_init(&d, bytes, len);
    int rc = wire_codec_parse(&d, t->get->bytes, &block);
    if (rc == 0)
        rc = wire_dec_end(&d);
    if (rc == 0 && (block.dtype != WIRE_DTYPE_F16 || block.lossy))
        rc = -EPROTO;
    if (rc == 0)
        rc = wire_codec_decode(t->codec, &block, t->get->values, t->get->bytes);
    if (rc == 0)
        t->get->fetched = len;
    return rc;
}

static void *fetch(void *user)
{
    struct lane *lane = user;
    struct llm_shadow *s = lane->shadow;
    unsigned number = (unsigned)(lane - s->lanes);
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        struct llm_shadow_get *get = s->queue;
        if (!get) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        s->queue = get->next;
        if (!s->queue)
            s->queue_end = &s->queue;
        get->running = true;
        pthread_mutex_unlock(&s->lock);
        struct taking taking = {.codec = lane->codec, .get = get};
        uint64_t began = hw_now_ns();
        int rc = rests(s) ? -EHOSTDOWN
                          : told(s, s->ops->get(s->store, number, &get->key, take_rows, &taking));
        pthread_mutex_lock(&s->lock);
        get->ns = hw_now_ns() - began;
        get->status = rc;
        get->running = false;
        get->done = true;
        pthread_cond_broadcast(&s->done);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void llm_shadow_start(struct llm_shadow *s, struct llm_shadow_get *gets, uint32_t count)
{
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < count; i++) {
        gets[i].done = gets[i].running = false;
        gets[i].fetched = 0;
        gets[i].next = NULL;
        *s->queue_end = &gets[i];
        s->queue_end = &gets[i].next;
    }
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
}

int llm_shadow_wait(struct llm_shadow *s, struct llm_shadow_get *get)
{
    pthread_mutex_lock(&s->lock);
    while (!get->done) /* the store's own time limit ends it */
        pthread_cond_wait(&s->done, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return get->status;
}

bool llm_shadow_is_done(struct llm_shadow *s, const struct llm_shadow_get *get)
{
    pthread_mutex_lock(&s->lock);
    bool done = get->done;
    pthread_mutex_unlock(&s->lock);
    return done;
}

void llm_shadow_cancel(struct llm_shadow *s, struct llm_shadow_get *gets, uint32_t count)
{
    pthread_mutex_lock(&s->lock);
    struct llm_shadow_get **to = &s->queue;
    while (*to) {
        if (*to >= gets && *to < gets + count)
            *to = (*to)->next;
        else
            to = &(*to)->next;
    }
    s->queue_end = to;
    for (uint32_t i = 0; i < count; i++) {
        while (gets[i].running)
            pthread_cond_wait(&s->done, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
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

static int start_lanes(struct llm_shadow *s, char *why)
{
    for (unsigned i = 0; i < LLM_SHADOW_LANES; i++) {
        struct lane *lane = &s->lanes[i];
        lane->shadow = s;
        if (wire_codec_ctx_create(&lane->codec))
            return llm_why(why, -ENOMEM, "no memory for a codec");
        int rc = i ? -pthread_create(&lane->thread, NULL, fetch, lane) : 0;
        if (rc)
            return llm_why(why, rc, "no thread: %s", strerror(-rc));
        lane->runs = i > 0;
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
    s->queue_end = &s->queue;
    wire_enc_init(&s->enc, WIRE_MESSAGE_MAX);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->done, NULL);
    int rc = ops->open(&full, &s->store, why);
    if (rc == 0)
        rc = start_lanes(s, why);
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
    assert(!s->queue);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < LLM_SHADOW_LANES; i++) {
        if (s->lanes[i].runs)
            pthread_join(s->lanes[i].thread, NULL);
        wire_codec_ctx_destroy(s->lanes[i].codec);
    }
    if (s->store)
        s->ops->close(s->store);
    pthread_cond_destroy(&s->done);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    wire_enc_fini(&s->enc);
    free(s);
}
