#include "bench/llm/store_line.h"

#include <pthread.h>
#include <time.h>

enum way { OUT, IN, WAYS };

static struct {
    pthread_mutex_t lock;
    const struct llm_shadow_ops *store;
    struct bench_line link;
    uint64_t free_ns[WAYS]; /* when the last byte will have passed (lock) */
} line = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void sleep_ns(uint64_t ns)
{
    struct timespec pause = {(time_t)(ns / HW_SEC), (long)(ns % HW_SEC)};
    if (ns)
        (void)nanosleep(&pause, NULL);
}

/* A request and the beginning of its answer. */
static void round_trip(void)
{
    sleep_ns(2 * line.link.one_way_ns);
}

/* Returns when the link has carried so many bytes, after those before them. */
static void pass(enum way way, uint32_t bytes)
{
    if (!line.link.bits_s)
        return;
    pthread_mutex_lock(&line.lock);
    uint64_t now = hw_now_ns(), *at = &line.free_ns[way];
    *at = (*at > now ? *at : now) + bytes * UINT64_C(8) * HW_SEC / line.link.bits_s;
    uint64_t ns = *at - now;
    pthread_mutex_unlock(&line.lock);
    sleep_ns(ns);
}

struct passing {
    llm_shadow_take *take;
    llm_shadow_came *came;
    void *user;
};

static int take_after(void *user, const uint8_t *bytes, uint32_t len)
{
    const struct passing *p = user;
    pass(IN, len);
    return p->take(p->user, bytes, len);
}

static void came_after(void *user, int status)
{
    const struct passing *p = user;
    p->came(p->user, status);
}

static int line_put(struct llm_shadow_store *store, unsigned lane, const struct kv_block_key *key,
                    const void *bytes, uint32_t len)
{
    pass(OUT, len);
    round_trip();
    return line.store->put(store, lane, key, bytes, len);
}

static int line_get(struct llm_shadow_store *store, unsigned lane, const struct kv_block_key *key,
                    llm_shadow_take *take, void *user)
{
    struct passing p = {.take = take, .user = user};
    round_trip();
    return line.store->get(store, lane, key, take_after, &p);
}

static void line_get_many(struct llm_shadow_store *store, unsigned lane,
                          const struct llm_shadow_want *wants, uint32_t count,
                          llm_shadow_take *take, llm_shadow_came *came)
{
    struct passing passing[LLM_SHADOW_BATCH];
    struct llm_shadow_want ours[LLM_SHADOW_BATCH];
    for (uint32_t i = 0; i < count; i++) {
        passing[i] = (struct passing){.take = take, .came = came, .user = wants[i].user};
        ours[i] = (struct llm_shadow_want){.key = wants[i].key, .user = &passing[i]};
    }
    round_trip();
    line.store->get_many(store, lane, ours, count, take_after, came_after);
}

static int line_has(struct llm_shadow_store *store, unsigned lane, const struct kv_block_key *keys,
                    uint32_t count, bool *there)
{
    round_trip();
    return line.store->has(store, lane, keys, count, there);
}

struct llm_shadow_ops store_line_over(const struct llm_shadow_ops *store, struct bench_line link)
{
    struct llm_shadow_ops ops = *store;
    line.store = store;
    line.link = link;
    ops.put = line_put;
    ops.get = line_get;
    ops.get_many = store->get_many ? line_get_many : NULL;
    ops.has = line_has;
    return ops;
}
