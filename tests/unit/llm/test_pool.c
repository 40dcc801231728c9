/* Every piece of a job is done once, whatever the number of threads and jobs. */
#include "unit.h"

#include "llm/cpu/pool.h"
#include "llm/engine/backend.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { PIECES = 1000, JOBS = 300, THREADS = 5 };

struct job {
    _Atomic uint32_t done[PIECES];
    _Atomic uint32_t busy[THREADS]; /* whether a number is in use */
    uint32_t plain[PIECES];         /* written by whoever did the piece, read after the run */
    uint32_t round;
};

static void count(void *user, uint32_t piece, unsigned thread)
{
    struct job *job = user;
    assert_true(thread < THREADS);
    assert_int_equal(atomic_exchange(&job->busy[thread], 1), 0);
    atomic_fetch_add(&job->done[piece], 1);
    job->plain[piece] = job->round;
    atomic_store(&job->busy[thread], 0);
}

static void run_jobs(unsigned threads)
{
    struct llm_pool *pool;
    struct job *job = calloc(1, sizeof *job);
    assert_int_equal(llm_pool_create(threads, &pool), 0);
    assert_int_equal(llm_pool_threads(pool), threads);
    for (uint32_t i = 1; i <= JOBS; i++) {
        uint32_t pieces = i * 7 % PIECES; /* none, one, fewer than threads, many */
        job->round = i;
        llm_pool_run(pool, pieces, count, job);
        for (uint32_t p = 0; p < pieces; p++) {
            assert_int_equal(atomic_exchange(&job->done[p], 0), 1);
            assert_int_equal(job->plain[p], i);
        }
        for (uint32_t p = pieces; p < PIECES; p++)
            assert_int_equal(atomic_load(&job->done[p]), 0);
    }
    llm_pool_destroy(pool);
    free(job);
}

static void every_piece_is_done_once(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= THREADS; threads++)
        run_jobs(threads);
}

static unsigned cores; /* 0: those there are */

unsigned __real_hw_cores(void);
unsigned __wrap_hw_cores(void);
unsigned __wrap_hw_cores(void)
{
    return cores ? cores : __real_hw_cores();
}

static void a_machine_may_have_more_cores_than_a_pool(void **state)
{
    (void)state;
    struct llm_pool *pool;
    cores = LLM_THREADS_MAX + 1;
    assert_int_equal(llm_pool_create(0, &pool), 0);
    assert_int_equal(llm_pool_threads(pool), LLM_THREADS_MAX);
    llm_pool_destroy(pool);
    cores = 0;
}

static void pools_come_and_go(void **state)
{
    (void)state;
    struct llm_pool *pool;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(llm_pool_create(3, &pool), 0);
        llm_pool_destroy(pool);
    }
    assert_int_equal(llm_pool_create(0, &pool), 0);
    assert_true(llm_pool_threads(pool) >= 1);
    llm_pool_destroy(pool);
    llm_pool_destroy(NULL);
    assert_int_equal(llm_pool_create(LLM_THREADS_MAX + 1, &pool), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_done_once),
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(a_machine_may_have_more_cores_than_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
