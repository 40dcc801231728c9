/* Which cores daemons and clients get, on machines that are made up and on this one. */
#include "unit.h"

#include "kv/common/cpus.h"

#include <errno.h>

static int one_node(uint32_t cpu)
{
    (void)cpu;
    return 0;
}

/* As firmware likes to number them: neighbours are on different nodes. */
static int interleaved(uint32_t cpu)
{
    return (int)(cpu % 2);
}

/* Nodes whose numbers have gaps, and are not in the order of the cores. */
static int backwards(uint32_t cpu)
{
    return 30 - (int)(cpu / 4) * 10;
}

static struct kv_cpus machine(uint32_t cores, kv_node_fn *node)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < cores; i++)
        CPU_SET(i, &set);
    struct kv_cpus cpus;
    assert_int_equal(kv_cpus_order(&set, node, &cpus), 0);
    assert_int_equal(cpus.count, cores);
    return cpus;
}

static void on_one_node_the_order_is_the_kernel_s(void **state)
{
    (void)state;
    struct kv_cpus cpus = machine(8, one_node);
    assert_int_equal(cpus.nodes, 1);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(cpus.order[i], i);
}

static void a_rank_stays_within_a_node_where_it_can(void **state)
{
    (void)state;
    struct kv_cpus cpus = machine(16, interleaved);
    assert_int_equal(cpus.nodes, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct kv_cpus_share share = {.rank = rank, .ranks = 2, .daemons = 2};
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(interleaved(kv_cpus_of_daemon(&cpus, &share, i)), rank);
        for (uint32_t i = 0; i < 20; i++)
            assert_int_equal(interleaved(kv_cpus_of_client(&cpus, &share, i)), rank);
    }
}

static void nodes_may_have_any_numbers(void **state)
{
    (void)state;
    static const uint16_t order[] = {12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3};
    struct kv_cpus cpus = machine(16, backwards);
    assert_int_equal(cpus.nodes, 4);
    assert_memory_equal(cpus.order, order, sizeof(order));
}

static void daemons_have_cores_apart_from_clients_and_ranks_from_each_other(void **state)
{
    (void)state;
    struct kv_cpus cpus = machine(16, one_node);
    uint32_t daemons = 0, clients[2] = {0};
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct kv_cpus_share share = {.rank = rank, .ranks = 2, .daemons = 2};
        for (uint32_t i = 0; i < 2; i++)
            daemons |= 1u << kv_cpus_of_daemon(&cpus, &share, i);
        for (uint32_t i = 0; i < 6; i++)
            clients[rank] |= 1u << kv_cpus_of_client(&cpus, &share, i);
    }
    assert_int_equal(__builtin_popcount(daemons), 4);
    assert_int_equal(daemons & (clients[0] | clients[1]), 0);
    assert_int_equal(clients[0] & clients[1], 0);
    assert_int_equal(daemons | clients[0] | clients[1], 0xffff);
}

static void with_too_few_cores_they_are_shared(void **state)
{
    (void)state;
    for (uint32_t cores = 1; cores <= 3; cores++) {
        struct kv_cpus cpus = machine(cores, one_node);
        for (uint32_t rank = 0; rank < 4; rank++) {
            const struct kv_cpus_share share = {.rank = rank, .ranks = 4, .daemons = 2};
            for (uint32_t i = 0; i < 8; i++) {
                assert_true(kv_cpus_of_daemon(&cpus, &share, i) < cores);
                assert_true(kv_cpus_of_client(&cpus, &share, i) < cores);
            }
        }
    }
}

static void only_cores_that_may_be_used_are_given(void **state)
{
    (void)state;
    cpu_set_t set;
    CPU_ZERO(&set);
    struct kv_cpus cpus;
    assert_int_equal(kv_cpus_order(&set, one_node, &cpus), -ENODEV);
    CPU_SET(5, &set);
    CPU_SET(900, &set);
    assert_int_equal(kv_cpus_order(&set, interleaved, &cpus), 0);
    assert_int_equal(cpus.count, 2);
    const struct kv_cpus_share share = {.ranks = 1, .daemons = 1};
    assert_int_equal(kv_cpus_of_daemon(&cpus, &share, 0), 900);
    assert_int_equal(kv_cpus_of_client(&cpus, &share, 7), 5);
}

static void a_thread_can_be_pinned_to_each_core_of_this_machine(void **state)
{
    (void)state;
    cpu_set_t before, set;
    struct kv_cpus cpus;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(kv_cpus_init(&cpus), 0);
    assert_int_equal(cpus.count, CPU_COUNT(&before));
    assert_in_range(cpus.nodes, 1, cpus.count);
    for (uint32_t i = 0; i < cpus.count; i++) {
        assert_int_equal(kv_cpus_pin(cpus.order[i]), 0);
        assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
        assert_int_equal(CPU_COUNT(&set), 1);
        assert_true(CPU_ISSET(cpus.order[i], &set));
    }
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_node_the_order_is_the_kernel_s),
        cmocka_unit_test(a_rank_stays_within_a_node_where_it_can),
        cmocka_unit_test(nodes_may_have_any_numbers),
        cmocka_unit_test(daemons_have_cores_apart_from_clients_and_ranks_from_each_other),
        cmocka_unit_test(with_too_few_cores_they_are_shared),
        cmocka_unit_test(only_cores_that_may_be_used_are_given),
        cmocka_unit_test(a_thread_can_be_pinned_to_each_core_of_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
