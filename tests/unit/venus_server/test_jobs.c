/* Work given to threads: that it is done beside each other, and once. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>

#include "base/attr.h"
#include "venus/server/stream/jobs.h"

enum { MANY = 500 };

/* ---- threads that cannot be had ---- */

static bool no_threads;

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg)
{
    return no_threads ? EAGAIN : __real_pthread_create(out, attr, body, arg);
}

/* ---- jobs that meet ---- */

struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t come;
    unsigned here;
};

struct guest {
    struct vns_job job;
    struct meeting *meeting;
};

/* Ends only when two are here at the same time. */
static void meet(struct vns_job *job)
{
    struct meeting *m = CONTAINER_OF(job, struct guest, job)->meeting;
    pthread_mutex_lock(&m->lock);
    m->here++;
    pthread_cond_broadcast(&m->come);
    while (m->here < 2)
        pthread_cond_wait(&m->come, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static void jobs_are_done_beside_each_other(void **state)
{
    (void)state;
    struct meeting m = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct guest guests[2] = {{.job.run = meet, .meeting = &m}, {.job.run = meet, .meeting = &m}};
    struct vns_jobs *jobs;
    assert_int_equal(vns_jobs_create(2, &jobs), 0);
    vns_jobs_start(jobs, &guests[0].job);
    vns_jobs_start(jobs, &guests[1].job);
    vns_jobs_wait(jobs, &guests[0].job);
    vns_jobs_wait(jobs, &guests[1].job);
    assert_int_equal(m.here, 2);
    vns_jobs_destroy(jobs);
}

/* ---- jobs that count ---- */

struct counting {
    struct vns_job job;
    int runs; /* written by the job, read once it is done */
};

static void count(struct vns_job *job)
{
    CONTAINER_OF(job, struct counting, job)->runs++;
}

static void each_is_done_once(unsigned threads)
{
    static struct counting all[MANY];
    struct vns_jobs *jobs;
    assert_int_equal(vns_jobs_create(threads, &jobs), 0);
    for (size_t i = 0; i < MANY; i++) {
        all[i] = (struct counting){.job.run = count};
        vns_jobs_start(jobs, &all[i].job);
    }
    for (size_t i = MANY / 2; i < MANY; i++) { /* out of order, and the rest is left to destroy */
        vns_jobs_wait(jobs, &all[i].job);
        assert_true(vns_jobs_is_done(jobs, &all[i].job));
    }
    vns_jobs_destroy(jobs);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(all[i].runs, 1);
}

static void each_is_done_once_by_threads(void **state)
{
    (void)state;
    each_is_done_once(3);
}

static void without_threads_who_waits_does_it(void **state)
{
    (void)state;
    struct counting job = {.job.run = count};
    struct vns_jobs *jobs;
    assert_int_equal(vns_jobs_create(0, &jobs), 0);
    vns_jobs_start(jobs, &job.job);
    assert_false(vns_jobs_is_done(jobs, &job.job));
    vns_jobs_wait(jobs, &job.job);
    assert_int_equal(job.runs, 1);
    vns_jobs_destroy(jobs);
    each_is_done_once(0);
}

/* Somebody may wait for what it tells, and not for the job. */
static void where_no_thread_can_be_had_it_is_done_at_once(void **state)
{
    (void)state;
    struct counting job = {.job.run = count};
    struct vns_jobs *jobs;
    assert_int_equal(vns_jobs_create(2, &jobs), 0);
    no_threads = true;
    vns_jobs_start(jobs, &job.job);
    no_threads = false;
    assert_true(vns_jobs_is_done(jobs, &job.job));
    assert_int_equal(job.runs, 1);
    vns_jobs_destroy(jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_done_beside_each_other),
        cmocka_unit_test(each_is_done_once_by_threads),
        cmocka_unit_test(without_threads_who_waits_does_it),
        cmocka_unit_test(where_no_thread_can_be_had_it_is_done_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
