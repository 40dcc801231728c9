/* See locks.h. */
#include "venus/client/locks.h"

#include "base/grow.h"

#include <stdlib.h>

static pthread_mutex_t admin = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static pthread_mutex_t **known;
static size_t count, room;

static void before_fork(void)
{
    pthread_mutex_lock(&admin);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&admin);
}

static void in_child(void)
{
    for (size_t i = 0; i < count; i++)
        pthread_mutex_init(known[i], NULL);
    pthread_mutex_unlock(&admin);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

static void note(pthread_mutex_t *lock)
{
    if (hw_grow(&known, &room, count + 1, sizeof(*known)))
        known[count++] = lock;
}

static void forget(const pthread_mutex_t *lock)
{
    for (size_t i = count; i > 0; i--) {
        if (known[i - 1] == lock) {
            known[i - 1] = known[--count];
            break;
        }
    }
    if (count == 0) {
        free(known);
        known = NULL;
        room = 0;
    }
}

void vnc_lock_init(pthread_mutex_t *lock)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_init(lock, NULL);
    pthread_mutex_lock(&admin);
    note(lock);
    pthread_mutex_unlock(&admin);
}

void vnc_lock_fini(pthread_mutex_t *lock)
{
    pthread_mutex_lock(&admin);
    forget(lock);
    pthread_mutex_unlock(&admin);
    pthread_mutex_destroy(lock);
}
