/* venus/client/locks.h - locks that are free in a child after fork.
 *
 * A thread that held a lock at the moment of the fork does not exist in the child, which would wait
 * for it for ever.  So every lock of the driver is known here and made anew in the child.  What the
 * thread was changing may be half done there: lists that other threads change are not looked at in
 * a child (vnc_link_is_foreign).
 *
 * Trust: none needed.  Threads: any.
 * Lifetime: init/fini.  A lock that cannot be noted for lack of memory works as any other. */
#ifndef HAWSER_VENUS_CLIENT_LOCKS_H
#define HAWSER_VENUS_CLIENT_LOCKS_H

#include <pthread.h>

void vnc_lock_init(pthread_mutex_t *lock);
void vnc_lock_fini(pthread_mutex_t *lock);

#endif
