/* base/thread.h - threads of ours in a process that has signals of its own.
 *
 * A program may block a signal in all of its threads to take it at one place.  Such a signal must
 * not find a thread of ours that does not block it.
 *
 * Threads: any.  Lifetime: the caller joins or detaches the thread. */
#ifndef HAWSER_BASE_THREAD_H
#define HAWSER_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "base/attr.h"

/* A thread that takes no signal but the faults of its own instructions.  0 or a negative errno. */
MUST_CHECK static inline int hw_thread_start(pthread_t *thread, void *(*main)(void *), void *user)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < ARRAY_LEN(faults); i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before); /* the new thread inherits it */
    int rc = pthread_create(thread, NULL, main, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

#endif
