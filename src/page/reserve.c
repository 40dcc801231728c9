#include "page/reserve.h"

#include "base/clock.h"

#include <signal.h>
#include <time.h>

static void rest(struct page_reserve *k)
{
    if (!k->period_ns) {
        pthread_cond_wait(&k->changed, &k->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t at = (uint64_t)until.tv_nsec + k->period_ns % HW_SEC;
    until.tv_sec += (time_t)(k->period_ns / HW_SEC + at / HW_SEC);
    until.tv_nsec = (long)(at % HW_SEC);
    pthread_cond_timedwait(&k->changed, &k->lock, &until);
}

static void *reserve_main(void *arg)
{
    struct page_reserve *k = arg;
    bool more = true;
    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        if (!more && !k->woken) {
            rest(k);
            more = true; /* after a period the step looks again */
            continue;
        }
        k->woken = false;
        pthread_mutex_unlock(&k->lock);
        more = k->step(k->user);
        pthread_mutex_lock(&k->lock);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

static void init(struct page_reserve *k)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&k->lock, NULL);
}

static void fini(struct page_reserve *k)
{
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
}

int page_reserve_start(struct page_reserve *k, page_reserve_step *step, void *user,
                       uint64_t period_ns)
{
    *k = (struct page_reserve){.step = step, .user = user, .period_ns = period_ns};
    init(k);
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&k->thread, NULL, reserve_main, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    k->running = rc == 0;
    if (rc)
        fini(k);
    return -rc;
}

void page_reserve_wake(struct page_reserve *k)
{
    if (!k->running)
        return;
    pthread_mutex_lock(&k->lock);
    k->woken = true;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

void page_reserve_stop(struct page_reserve *k)
{
    if (!k->running)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    k->running = false;
    fini(k);
}
