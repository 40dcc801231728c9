/* A few threads and a queue; see jobs.h. */
#include "venus/server/stream/jobs.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct vns_jobs {
    pthread_mutex_t lock; /* guards all that follows, and what is private in jobs */
    pthread_cond_t queued, done;
    struct vns_job *first, **last;
    unsigned max, count, idle;
    bool stop;
    pthread_t threads[];
};

int vns_jobs_create(unsigned threads, struct vns_jobs **out)
{
    unsigned max = threads < VNS_JOB_THREADS_MAX ? threads : VNS_JOB_THREADS_MAX;
    struct vns_jobs *jobs = calloc(1, sizeof(*jobs) + max * sizeof(*jobs->threads));
    if (!jobs)
        return -ENOMEM;
    jobs->max = max;
    jobs->last = &jobs->first;
    pthread_mutex_init(&jobs->lock, NULL);
    pthread_cond_init(&jobs->queued, NULL);
    pthread_cond_init(&jobs->done, NULL);
    *out = jobs;
    return 0;
}

/* Under the lock. */
static void take(struct vns_jobs *jobs, struct vns_job *job)
{
    *job->at = job->next;
    if (job->next)
        job->next->at = job->at;
    else
        jobs->last = job->at;
    job->at = NULL;
}

/* Under the lock, which is given back meanwhile. */
static void run(struct vns_jobs *jobs, struct vns_job *job)
{
    take(jobs, job);
    pthread_mutex_unlock(&jobs->lock);
    job->run(job);
    pthread_mutex_lock(&jobs->lock);
    job->done = true;
    pthread_cond_broadcast(&jobs->done);
}

static void *work_main(void *arg)
{
    struct vns_jobs *jobs = arg;
    pthread_mutex_lock(&jobs->lock);
    while (jobs->first || !jobs->stop) {
        if (jobs->first) {
            run(jobs, jobs->first);
            continue;
        }
        jobs->idle++;
        pthread_cond_wait(&jobs->queued, &jobs->lock);
        jobs->idle--;
    }
    pthread_mutex_unlock(&jobs->lock);
    return NULL;
}

void vns_jobs_start(struct vns_jobs *jobs, struct vns_job *job)
{
    pthread_mutex_lock(&jobs->lock);
    assert(!jobs->stop);
    job->done = false;
    job->next = NULL;
    job->at = jobs->last;
    *jobs->last = job;
    jobs->last = &job->next;
    if (!jobs->idle && jobs->count < jobs->max &&
        pthread_create(&jobs->threads[jobs->count], NULL, work_main, jobs) == 0)
        jobs->count++;
    if (jobs->max && !jobs->count)
        run(jobs, job); /* no thread can be had */
    pthread_cond_signal(&jobs->queued);
    pthread_mutex_unlock(&jobs->lock);
}

bool vns_jobs_is_done(struct vns_jobs *jobs, const struct vns_job *job)
{
    pthread_mutex_lock(&jobs->lock);
    bool done = job->done;
    pthread_mutex_unlock(&jobs->lock);
    return done;
}

void vns_jobs_wait(struct vns_jobs *jobs, struct vns_job *job)
{
    pthread_mutex_lock(&jobs->lock);
    if (job->at)
        run(jobs, job);
    while (!job->done)
        pthread_cond_wait(&jobs->done, &jobs->lock);
    pthread_mutex_unlock(&jobs->lock);
}

void vns_jobs_destroy(struct vns_jobs *jobs)
{
    if (!jobs)
        return;
    pthread_mutex_lock(&jobs->lock);
    jobs->stop = true;
    while (jobs->first)
        run(jobs, jobs->first);
    pthread_cond_broadcast(&jobs->queued);
    pthread_mutex_unlock(&jobs->lock);
    for (unsigned i = 0; i < jobs->count; i++)
        pthread_join(jobs->threads[i], NULL);
    pthread_cond_destroy(&jobs->done);
    pthread_cond_destroy(&jobs->queued);
    pthread_mutex_destroy(&jobs->lock);
    free(jobs);
}
