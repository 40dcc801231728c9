/* Chunks in main memory: a hash table and an LRU list.  Past the limit the least recently used
 * chunk is dropped; a reader keeps a dropped chunk until it is done. */
#include "llm/evict/shadow.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <xxhash.h>

enum {
    BUCKETS_MIN = 1 << 10,
    BUCKETS_MAX = 1 << 20,
    BUCKET_BYTES = 16 << 10, /* of chunks for a bucket: the chunk size of small models */
};

struct chunk {
    struct chunk *next; /* in its bucket */
    TAILQ_ENTRY(chunk) by_use;
    struct kv_block_key key;
    uint32_t readers;
    bool gone; /* not in the table any more: the last reader frees it */
    uint32_t len;
    uint8_t bytes[];
};

struct llm_shadow_store {
    pthread_mutex_t lock; /* guards all below; the bytes of chunks never change */
    uint64_t limit, used;
    TAILQ_HEAD(, chunk) by_use; /* the oldest use first */
    uint32_t bucket_count;
    struct chunk *buckets[];
};

static int memory_open(const struct llm_shadow_config *config, struct llm_shadow_store **out,
                       char *why)
{
    uint64_t wanted = config->bytes / BUCKET_BYTES;
    uint32_t count = BUCKETS_MIN;
    while (count < wanted && count < BUCKETS_MAX)
        count *= 2;
    struct llm_shadow_store *s = calloc(1, sizeof *s + count * sizeof s->buckets[0]);
    if (!s)
        return llm_why(why, -ENOMEM, "no memory for a KV store");
    pthread_mutex_init(&s->lock, NULL);
    s->limit = config->bytes;
    s->bucket_count = count;
    TAILQ_INIT(&s->by_use);
    *out = s;
    return 0;
}

static struct chunk **bucket_of(struct llm_shadow_store *s, const struct kv_block_key *key)
{
    return &s->buckets[XXH3_64bits(key->bytes, key->len) & (s->bucket_count - 1)];
}

static struct chunk *find(struct llm_shadow_store *s, const struct kv_block_key *key)
{
    struct chunk *c = *bucket_of(s, key);
    while (c && !kv_block_key_equal(&c->key, key))
        c = c->next;
    return c;
}

static void drop(struct llm_shadow_store *s, struct chunk *c)
{
    struct chunk **to = bucket_of(s, &c->key);
    while (*to != c)
        to = &(*to)->next;
    *to = c->next;
    TAILQ_REMOVE(&s->by_use, c, by_use);
    s->used -= c->len;
    c->gone = true;
    if (c->readers == 0)
        free(c);
}

static void memory_close(struct llm_shadow_store *s)
{
    while (!TAILQ_EMPTY(&s->by_use))
        drop(s, TAILQ_FIRST(&s->by_use));
    assert(s->used == 0);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int memory_put(struct llm_shadow_store *s, unsigned channel, const struct kv_block_key *key,
                      const void *bytes, uint32_t len)
{
    (void)channel;
    if (len > s->limit)
        return -ENOSPC;
    struct chunk *c = malloc(sizeof *c + len);
    if (!c)
        return -ENOMEM;
    *c = (struct chunk){.key = *key, .len = len};
    memcpy(c->bytes, bytes, len);
    pthread_mutex_lock(&s->lock);
    bool there = find(s, key) != NULL;
    if (!there) {
        while (s->used + len > s->limit)
            drop(s, TAILQ_FIRST(&s->by_use));
        c->next = *bucket_of(s, key);
        *bucket_of(s, key) = c;
        TAILQ_INSERT_TAIL(&s->by_use, c, by_use);
        s->used += len;
    }
    pthread_mutex_unlock(&s->lock);
    if (there)
        free(c);
    return there ? -EEXIST : 0;
}

static int memory_get(struct llm_shadow_store *s, unsigned channel, const struct kv_block_key *key,
                      llm_shadow_take *take, void *user)
{
    (void)channel;
    pthread_mutex_lock(&s->lock);
    struct chunk *c = find(s, key);
    if (c) {
        c->readers++;
        TAILQ_REMOVE(&s->by_use, c, by_use);
        TAILQ_INSERT_TAIL(&s->by_use, c, by_use);
    }
    pthread_mutex_unlock(&s->lock);
    if (!c)
        return -ENOENT;
    int rc = take(user, c->bytes, c->len);
    pthread_mutex_lock(&s->lock);
    bool last = --c->readers == 0 && c->gone;
    pthread_mutex_unlock(&s->lock);
    if (last)
        free(c);
    return rc;
}

static int memory_has(struct llm_shadow_store *s, unsigned channel, const struct kv_block_key *keys,
                      uint32_t count, bool *there)
{
    (void)channel;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < count; i++)
        there[i] = find(s, &keys[i]) != NULL;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

const struct llm_shadow_ops llm_shadow_memory = {.name = "memory",
                                                 .open = memory_open,
                                                 .close = memory_close,
                                                 .put = memory_put,
                                                 .get = memory_get,
                                                 .has = memory_has};
