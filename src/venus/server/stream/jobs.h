/* venus/server/stream/jobs.h - work that a session's executor gives to other threads.
 *
 * Threads are started one by one, when a job finds none idle, up to a limit.  Who waits for a job
 * that nobody has begun does it itself.
 *
 * Trust: none needed.
 * Threads: one gives jobs and waits for them; any number do them.
 * Lifetime: create/destroy, which does what is left; a job is the caller's, and stays where it is
 * until it is done. */
#ifndef HAWSER_VENUS_SERVER_STREAM_JOBS_H
#define HAWSER_VENUS_SERVER_STREAM_JOBS_H

#include <stdbool.h>

#include "base/attr.h"

enum { VN_JOB_THREADS_MAX = 256 }; /* cores of the largest machines */

struct vn_jobs;

struct vn_job {
    void (*run)(struct vn_job *job);
    struct vn_job *next, **at; /* while it is queued; private, as is done */
    bool done;
};

/* Up to so many threads, at most VN_JOB_THREADS_MAX; 0: who waits for a job does it.  0 or -ENOMEM.
 */
int vn_jobs_create(unsigned threads, struct vn_jobs **out) MUST_CHECK;
void vn_jobs_destroy(struct vn_jobs *jobs);

void vn_jobs_start(struct vn_jobs *jobs, struct vn_job *job);
bool vn_jobs_is_done(struct vn_jobs *jobs, const struct vn_job *job);
void vn_jobs_wait(struct vn_jobs *jobs, struct vn_job *job);

#endif
