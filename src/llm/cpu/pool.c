#include "llm/cpu/pool.h"

#include "base/wait.h"
#include "llm/engine/backend.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct member {
    struct llm_pool *pool;
    pthread_t thread;
    unsigned number;
    struct hw_wait wait;
};

struct llm_pool {
    /* The job at hand.  Written before left is set (release); read by who has taken a piece
     * (acquire), which keeps the job from ending and the next from being written. */
    llm_pool_work *work;
    void *user;
    uint32_t count;

    /* Pieces nobody has taken.  Taking is a compare-exchange, so a late thread can take a piece of
     * the next job, never one too many of this. */
    _Alignas(HW_CACHE_LINE) _Atomic uint32_t left;
    /* Pieces not done yet; each done is a release, the caller's look an acquire.  Also what the
     * caller sleeps on. */
    _Alignas(HW_CACHE_LINE) _Atomic uint32_t undone;
    _Atomic uint32_t caller_sleeps;
    /* Counts jobs; what idle members sleep on.  posted and sleepers are sequentially consistent:
     * either the poster sees the sleeper, or the sleeper sees the post. */
    _Alignas(HW_CACHE_LINE) _Atomic uint32_t posted;
    _Atomic uint32_t sleepers;
    _Atomic uint32_t stopping;

    unsigned threads;
    struct hw_wait caller_wait;
    struct member members[]; /* threads - 1 of them */
};

/* ---- work ---- */

static bool take(struct llm_pool *pool, uint32_t *piece)
{
    uint32_t left = atomic_load_explicit(&pool->left, memory_order_relaxed);
    do {
        if (left == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&pool->left, &left, left - 1,
                                                    memory_order_acquire, memory_order_relaxed));
    *piece = pool->count - left;
    return true;
}

static void done(struct llm_pool *pool)
{
    if (atomic_fetch_sub(&pool->undone, 1) == 1 && atomic_load(&pool->caller_sleeps))
        hw_futex_wake(&pool->undone, 1, HW_FUTEX_PRIVATE);
}

static void help(struct llm_pool *pool, unsigned thread)
{
    uint32_t piece;
    while (take(pool, &piece)) {
        pool->work(pool->user, piece, thread);
        done(pool);
    }
}

/* ---- waiting ---- */

static void sleep_until_posted(struct llm_pool *pool, uint32_t seen)
{
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->posted) == seen)
        (void)hw_futex_wait(&pool->posted, seen, HW_NEVER, HW_FUTEX_PRIVATE);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void wait_for_post(struct member *m, uint32_t seen)
{
    struct llm_pool *pool = m->pool;
    while (atomic_load_explicit(&pool->posted, memory_order_acquire) == seen) {
        if (!hw_wait_spin(&m->wait, hw_now_ns())) {
            sleep_until_posted(pool, seen);
            return;
        }
        hw_cpu_relax();
    }
    hw_wait_came(&m->wait);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    uint32_t seen = 0;
    for (;;) {
        wait_for_post(m, seen);
        seen = atomic_load(&m->pool->posted);
        if (atomic_load(&m->pool->stopping))
            return NULL;
        help(m->pool, m->number);
    }
}

static void sleep_until_done(struct llm_pool *pool)
{
    uint32_t undone;
    atomic_store(&pool->caller_sleeps, 1);
    while ((undone = atomic_load(&pool->undone)) > 0)
        (void)hw_futex_wait(&pool->undone, undone, HW_NEVER, HW_FUTEX_PRIVATE);
    atomic_store(&pool->caller_sleeps, 0);
}

static void wait_until_done(struct llm_pool *pool)
{
    while (atomic_load_explicit(&pool->undone, memory_order_acquire) > 0) {
        if (!hw_wait_spin(&pool->caller_wait, hw_now_ns())) {
            sleep_until_done(pool);
            return;
        }
        hw_cpu_relax();
    }
    hw_wait_came(&pool->caller_wait);
}

static void post(struct llm_pool *pool)
{
    atomic_fetch_add(&pool->posted, 1);
    if (atomic_load(&pool->sleepers) > 0)
        hw_futex_wake(&pool->posted, INT_MAX, HW_FUTEX_PRIVATE);
}

void llm_pool_run(struct llm_pool *pool, uint32_t count, llm_pool_work *work, void *user)
{
    if (pool->threads == 1 || count < 2) {
        for (uint32_t piece = 0; piece < count; piece++)
            work(user, piece, 0);
        return;
    }
    assert(atomic_load(&pool->undone) == 0);
    pool->work = work;
    pool->user = user;
    pool->count = count;
    atomic_store(&pool->undone, count);
    atomic_store_explicit(&pool->left, count, memory_order_release);
    post(pool);
    help(pool, 0);
    wait_until_done(pool);
}

/* ---- life ---- */

/* Also stops the members of a pool of which only some could be started. */
static void stop(struct llm_pool *pool, unsigned started)
{
    atomic_store(&pool->stopping, 1);
    post(pool);
    for (unsigned i = 0; i < started; i++)
        pthread_join(pool->members[i].thread, NULL);
    free(pool);
}

int llm_pool_create(unsigned threads, struct llm_pool **out)
{
    unsigned cores = hw_cores(), most = cores < LLM_THREADS_MAX ? cores : LLM_THREADS_MAX;
    unsigned n = threads ? threads : most;
    if (n > LLM_THREADS_MAX)
        return -EINVAL;
    size_t bytes = sizeof(struct llm_pool) + (n - 1) * sizeof(struct member);
    bytes = (bytes + HW_CACHE_LINE - 1) / HW_CACHE_LINE * HW_CACHE_LINE;
    struct llm_pool *pool = aligned_alloc(HW_CACHE_LINE, bytes);
    if (!pool)
        return -ENOMEM;
    *pool = (struct llm_pool){.threads = n};
    hw_wait_init(&pool->caller_wait, HW_SPIN_NS);
    pool->caller_wait.threads = n;
    for (unsigned i = 0; i + 1 < n; i++) {
        struct member *m = &pool->members[i];
        *m = (struct member){.pool = pool, .number = i + 1, .wait = pool->caller_wait};
        int rc = pthread_create(&m->thread, NULL, member_main, m);
        if (rc) {
            stop(pool, i);
            return -rc;
        }
    }
    *out = pool;
    return 0;
}

void llm_pool_destroy(struct llm_pool *pool)
{
    if (pool)
        stop(pool, pool->threads - 1);
}

unsigned llm_pool_threads(const struct llm_pool *pool)
{
    return pool->threads;
}
