/* serve/cgroups.h - a control group (version 2) for each session, where systemd delegates ours.
 *
 * The kernel lets a group with limits for its children have no process of its own, so the server
 * moves itself into a child first.  A session's group limits its main memory and its threads: over
 * the first the kernel ends that session, over the second its next thread is refused.
 *
 * Trust: -.  Threads: the server's one.  Lifetime: create/destroy; a session's group is removed
 * when its processes have ended. */
#ifndef HAWSER_SERVE_CGROUPS_H
#define HAWSER_SERVE_CGROUPS_H

#include <stdint.h>
#include <sys/types.h>

/* Threads of one session: of the driver, mostly, which has some for each core. */
enum { CGROUPS_THREADS_MAX = 4096 };

struct cgroups;

/* memory_bytes: main memory of one session; 0: no limit.  NULL where no group is delegated or it
 * cannot be used: sessions then stay in the server's.  A line of the log says so. */
struct cgroups *cgroups_create(uint64_t memory_bytes);
void cgroups_destroy(struct cgroups *groups);

/* Gives a process a group of its own, before it does anything; NULL groups: nothing. */
void cgroups_enter(const struct cgroups *groups, pid_t pid);
/* That process has ended. */
void cgroups_leave(const struct cgroups *groups, pid_t pid);

#endif
