/* Clusters with every fault they can have, from a seed: what holds, holds in all of them.
 *
 *   test-kv-sim              every seed
 *   test-kv-sim SEED         one, with what happened
 *   test-kv-sim SEED COUNT   so many from there on */
#include "unit.h"

#include "kv/common/kv.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

/* A sanitizer makes each ten times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CALM_SEEDS = 100, FAULTY_SEEDS = 500 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { CALM_SEEDS = 100, FAULTY_SEEDS = 500 };
#else
enum { CALM_SEEDS = 300, FAULTY_SEEDS = 2200 };
#endif
#else
enum { CALM_SEEDS = 300, FAULTY_SEEDS = 2200 };
#endif

static void add(struct sim_report *sum, const struct sim_report *one)
{
    sum->requests += one->requests;
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        sum->results[i] += one->results[i];
    sum->restarts += one->restarts;
    sum->deaths += one->deaths;
    sum->cuts += one->cuts;
    sum->stalls += one->stalls;
    sum->naps += one->naps;
}

static void print(const struct sim_report *r)
{
    typedef unsigned long long ull;
    printf("%llu requests:", (ull)r->requests);
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        printf(" %s %llu", kv_result_name((enum kv_result)i), (ull)r->results[i]);
    printf("; %llu restarts, %llu deaths, %llu cuts, %llu stalls, %llu naps\n", (ull)r->restarts,
           (ull)r->deaths, (ull)r->cuts, (ull)r->stalls, (ull)r->naps);
}

static struct sim_report run(uint64_t seed, bool faults)
{
    struct sim_report r = sim_run(seed, faults);
    if (r.failure[0])
        fail_msg("seed %llu: %s; again with: test-kv-sim %llu", (unsigned long long)seed, r.failure,
                 (unsigned long long)seed);
    return r;
}

/* Odd seeds have faults, so that a seed alone says all. */
static bool has_faults(uint64_t seed)
{
    return seed % 2 == 1;
}

static void without_faults_every_request_succeeds(void **state)
{
    (void)state;
    struct sim_report sum = {0};
    for (uint64_t i = 1; i <= CALM_SEEDS; i++) {
        struct sim_report r = run(2 * i, false);
        add(&sum, &r);
    }
    print(&sum);
    assert_true(sum.results[KV_OK] > 0 && sum.results[KV_MISS] > 0 && sum.results[KV_FULL] > 0);
    assert_int_equal(sum.results[KV_PEER_LOST] + sum.results[KV_TIMEOUT], 0);
    assert_true(sum.naps > CALM_SEEDS);
}

static void with_faults_histories_stay_linearizable_and_requests_end(void **state)
{
    (void)state;
    struct sim_report sum = {0};
    for (uint64_t i = 0; i < FAULTY_SEEDS; i++) {
        struct sim_report r = run(2 * i + 1, true);
        add(&sum, &r);
    }
    print(&sum);
    /* Every kind of trouble must be among them, or the simulation shows less than it says. */
    assert_true(sum.results[KV_PEER_LOST] > 0 && sum.results[KV_TIMEOUT] > 0);
    assert_true(sum.restarts > FAULTY_SEEDS / 2 && sum.deaths > FAULTY_SEEDS / 2);
    assert_true(sum.cuts > FAULTY_SEEDS / 2 && sum.stalls > FAULTY_SEEDS / 2);
}

static void same_seed_gives_the_same_events(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 41; seed++) {
        uint64_t first = run(seed, has_faults(seed)).log;
        assert_true(first == run(seed, has_faults(seed)).log);
        assert_true(first != run(seed + 1000, has_faults(seed)).log);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        uint64_t seed = strtoull(argv[1], NULL, 10);
        uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
        struct sim_report sum = {0};
        for (uint64_t i = 0; i < count; i++) {
            struct sim_report r = sim_run(seed + i, has_faults(seed + i));
            add(&sum, &r);
            if (r.failure[0]) {
                printf("seed %llu: %s\n", (unsigned long long)(seed + i), r.failure);
                return 1;
            }
        }
        print(&sum);
        printf("%llu histories, all hold\n", (unsigned long long)count);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_faults_every_request_succeeds),
        cmocka_unit_test(with_faults_histories_stay_linearizable_and_requests_end),
        cmocka_unit_test(same_seed_gives_the_same_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
