/* base/process/child.h - processes of ours: this program once more, and a try in a child.
 *
 * Trust: a child is ours, but what it runs may crash or hang.  Threads: any; the child of
 * hw_child_try has only the thread that called.  Lifetime: the caller waits for what it started. */
#ifndef HAWSER_BASE_PROCESS_CHILD_H
#define HAWSER_BASE_PROCESS_CHILD_H

#include "base/attr.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Descriptors of a started process beside the standard ones. */
enum { HW_CHILD_SOCKET = 3, HW_CHILD_FD = 4 };

struct hw_child {
    const char *const *argv;
    char *const *environment;
    const sigset_t *mask; /* signals that are blocked there */
    int fd;               /* it gets this one as HW_CHILD_FD; -1: none */
};

/* Executes this program.  The process has one end of a SEQPACKET pair, and of the standard files
 * the one for messages.  The other end, and *pid; or a negative errno. */
int hw_child_start(const struct hw_child *child, pid_t *pid) MUST_CHECK;

/* Runs `work` in a child and reads what it writes, up to size bytes: then, or when it has ended or
 * the time is over, the child is ended.  How many bytes came, or -ETIMEDOUT, -EFAULT (it crashed)
 * or another negative errno. */
ssize_t hw_child_try(void (*work)(int fd, void *user), void *user, uint64_t timeout_ns, void *out,
                     size_t size) MUST_CHECK;

#endif
