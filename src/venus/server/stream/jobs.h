/* venus/server/stream/jobs.h - work that a session's executor gives to other threads.
 *
 * Threads are started one by one, when a job finds none idle, up to a limit.  Who waits for a job
 * that nobody has begun does it itself.  Without a thread a job is done where it is given.
 *
 * Trust: none needed.
 * Threads: one gives jobs and waits for them; any number do them.
 * Lifetime: create/destroy, which does what is left; a job is the caller's, and stays where it is
 * until it is done. */
#ifndef HAWSER_VENUS_SERVER_STREAM_JOBS_H
#define HAWSER_VENUS_SERVER_STREAM_JOBS_H

#include <stdbool.h>

#include "base/attr.h"

enum { VNS_JOB_THREADS_MAX = 256 }; /* cores of the largest machines */

struct vns_jobs;

struct vns_job {
    void (*run)(struct vns_job *job);
    struct vns_job *next, **at; /* while it is queued; private, as is done */
    bool done;
};

/* Up to so many threads, at most VNS_JOB_THREADS_MAX; 0: who waits for a job does it.  0 or
 * -ENOMEM.
 */
int vns_jobs_create(unsigned threads, struct vns_jobs **out) MUST_CHECK;
void vns_jobs_destroy(struct vns_jobs *jobs);

void vns_jobs_start(struct vns_jobs *jobs, struct vns_job *job);
bool vns_jobs_is_done(struct vns_jobs *jobs, const struct vns_job *job);
void vns_jobs_wait(struct vns_jobs *jobs, struct vns_job *job);

#endif
