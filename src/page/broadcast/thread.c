/* thread.c - a thread pool with one thread for each worker, a new connection for each command. */
#include "page/broadcast/broadcast.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct thread_pool;

struct rank_thread {
    struct thread_pool *pool;
    uint32_t rank;
    pthread_t thread;
};

struct thread_pool {
    const struct page_peers *peers;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t work, done;
    uint64_t todo;    /* ranks whose thread has not begun */
    uint32_t running; /* threads that have not finished */
    bool stop;
    const struct page_command *command;
    uint64_t until_ns;
    struct page_answer *answers;
    uint32_t thread_count;
    struct rank_thread threads[PAGE_RANKS_MAX];
};

static void *rank_main(void *arg)
{
    struct rank_thread *t = arg;
    struct thread_pool *p = t->pool;
    uint64_t mine = UINT64_C(1) << t->rank;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && !(p->todo & mine))
            pthread_cond_wait(&p->work, &p->lock);
        if (p->stop)
            break;
        p->todo &= ~mine;
        pthread_mutex_unlock(&p->lock);
        page_ask_once(p->peers->paths[t->rank], p->command, p->until_ns, &p->answers[t->rank]);
        pthread_mutex_lock(&p->lock);
        if (--p->running == 0)
            pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void thread_close(void *state)
{
    struct thread_pool *p = state;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t r = 0; r < p->thread_count; r++)
        pthread_join(p->threads[r].thread, NULL);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static int thread_open(const struct page_peers *peers, uint64_t until_ns, void **state_out,
                       struct page_error *why)
{
    (void)until_ns;
    struct thread_pool *p = calloc(1, sizeof *p);
    if (!p)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    p->peers = peers;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    for (uint32_t r = 0; r < peers->count; r++) {
        p->threads[r] = (struct rank_thread){.pool = p, .rank = r};
        int rc = pthread_create(&p->threads[r].thread, NULL, rank_main, &p->threads[r]);
        if (rc) {
            thread_close(p);
            return page_fail(why, -rc, 0, "rank %u: cannot start its thread: %s", r, strerror(rc));
        }
        p->thread_count = r + 1;
    }
    *state_out = p;
    return 0;
}

static void thread_send(const struct page_peers *peers, void *state,
                        const struct page_command *command, uint64_t ranks, uint64_t until_ns,
                        struct page_answer *answers)
{
    (void)peers;
    struct thread_pool *p = state;
    pthread_mutex_lock(&p->lock);
    p->command = command;
    p->until_ns = until_ns;
    p->answers = answers;
    p->todo = ranks;
    p->running = (uint32_t)__builtin_popcountll(ranks);
    pthread_cond_broadcast(&p->work);
    while (p->running > 0)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

const struct page_strategy page_strategy_thread = {
    .name = "thread",
    .file = "thread.c",
    .summary = "a thread a worker, a new connection for each command",
    .open = thread_open,
    .close = thread_close,
    .send = thread_send,
};
