/* With which flags the server is asked for query results: it never waits, and what the program
 * waits for is never partial.  And which results that came with a batch are good. */
#include "rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "venus/client/object/objects.h"
#include "venus/client/object/query.h"
#include "vn_client.gen.h"

enum { BYTES = 8 };

/* The command that asks with these flags, as it travels. */
static void expect_asked(struct rig *rig, struct vn_object *pool, VkQueryResultFlags flags)
{
    uint8_t data[BYTES] = {0};
    struct wire_enc e;
    wire_enc_init(&e, 4096);
    vn_enc_cmd_vkGetQueryPoolResults(&e, VNC_HANDLE(VkDevice, rig->device),
                                     VNC_HANDLE(VkQueryPool, pool), 0, 1, BYTES, data, BYTES,
                                     flags);
    uint8_t asked[sizeof(rig->server.asked)];
    pthread_mutex_lock(&rig->server.lock);
    size_t len = rig->server.asked_len;
    memcpy(asked, rig->server.asked, len);
    pthread_mutex_unlock(&rig->server.lock);
    assert_int_equal(len, wire_enc_len(&e));
    assert_memory_equal(asked, wire_enc_data(&e), len);
    wire_enc_fini(&e);
}

static void check(struct rig *rig, VkQueryResultFlags flags, VkQueryResultFlags asked)
{
    uint8_t data[BYTES] = {0};
    PFN_vkGetQueryPoolResults get =
        (PFN_vkGetQueryPoolResults)rig_entry(vnc_entries_query, "vkGetQueryPoolResults");
    struct vn_object *pool =
        vnc_object_create(rig->link, VK_OBJECT_TYPE_QUERY_POOL, &rig->device->object);
    assert_int_equal(get(VNC_HANDLE(VkDevice, rig->device), VNC_HANDLE(VkQueryPool, pool), 0, 1,
                         BYTES, data, BYTES, flags),
                     VK_ERROR_DEVICE_LOST); /* as the rig answers */
    expect_asked(rig, pool, asked);
    vnc_object_destroy(pool);
}

static void who_waits_gets_no_partial_results(void **state)
{
    check(*state, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT | VK_QUERY_RESULT_PARTIAL_BIT,
          VK_QUERY_RESULT_64_BIT);
}

static void who_does_not_wait_may(void **state)
{
    check(*state, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_PARTIAL_BIT,
          VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_PARTIAL_BIT);
}

static void the_server_does_not_wait(void **state)
{
    check(*state, VK_QUERY_RESULT_WAIT_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT,
          VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
}

/* ---- results that come with a batch ---- */

enum { COUNT = 4, WORDS = 2 }; /* timestamps: a value, and whether it is there */

static struct vnc_query_pool *pool_new(struct rig *rig)
{
    PFN_vkCreateQueryPool create =
        (PFN_vkCreateQueryPool)rig_entry(vnc_entries_query, "vkCreateQueryPool");
    VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                  .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                  .queryCount = COUNT};
    VkQueryPool pool;
    assert_int_equal(create(VNC_HANDLE(VkDevice, rig->device), &info, NULL, &pool), VK_SUCCESS);
    pthread_mutex_lock(&rig->server.lock);
    wire_store32(rig->server.answer, VK_NOT_READY); /* and no bytes */
    rig->server.answer_len = 5;
    pthread_mutex_unlock(&rig->server.lock);
    return VNC_OBJECT(vnc_query_pool, pool);
}

static VkResult read_two(struct rig *rig, struct vnc_query_pool *pool, uint64_t values[2])
{
    PFN_vkGetQueryPoolResults get =
        (PFN_vkGetQueryPoolResults)rig_entry(vnc_entries_query, "vkGetQueryPoolResults");
    return get(VNC_HANDLE(VkDevice, rig->device), VNC_HANDLE(VkQueryPool, pool), 0, 2, 16, values,
               8, VK_QUERY_RESULT_64_BIT);
}

/* A batch with the queries; whether it asks for results. */
static bool use(struct rig *rig, int queue, struct vnc_query_pool *pool, uint32_t count,
                bool written)
{
    struct vnc_query_uses uses = {0};
    struct wire_enc e;
    wire_enc_init(&e, 4096);
    assert_true(vnc_query_uses_add(&uses, pool, 0, count, written));
    vnc_query_uses_forget(&uses, rig->queues[queue]);
    vnc_query_uses_put(&uses, rig->queues[queue], 1, &e);
    bool asks = wire_enc_len(&e) > 0;
    wire_enc_fini(&e);
    vnc_query_uses_empty(&uses);
    free(uses.items);
    return asks;
}

static int results(struct vnc_query_pool *pool, uint64_t number, uint64_t value, uint64_t second)
{
    const uint64_t bytes[2][WORDS] = {{value, 1}, {value, second}};
    return vnc_query_pool_results(pool, number, 0, (const uint8_t *)bytes, sizeof(bytes));
}

static void what_came_is_read_without_an_exchange(void **state)
{
    struct rig *rig = *state;
    struct vnc_query_pool *pool = pool_new(rig);
    uint64_t values[2];
    assert_false(use(rig, 0, pool, COUNT, true)); /* 1: not read yet */
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_false(use(rig, 0, pool, COUNT, false)); /* 2: resets have no results */
    assert_true(use(rig, 0, pool, COUNT, true));   /* 3 */
    assert_int_equal(results(pool, 3, 5, 1), 0);
    assert_int_equal(read_two(rig, pool, values), VK_SUCCESS);
    assert_int_equal(values[1], 5);
    assert_true(use(rig, 0, pool, COUNT, true)); /* 4 */
    assert_int_equal(results(pool, 4, 6, 0), 0); /* the second is not there */
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_int_equal(results(pool, 4, 6, 1), 0);
    assert_int_equal(read_two(rig, pool, values), VK_SUCCESS);
    assert_int_equal(values[0], 6);
    vnc_object_destroy((struct vn_object *)pool);
}

static void what_was_used_since_is_asked_for(void **state)
{
    struct rig *rig = *state;
    struct vnc_query_pool *pool = pool_new(rig);
    PFN_vkResetQueryPool reset =
        (PFN_vkResetQueryPool)rig_entry(vnc_entries_query, "vkResetQueryPool");
    uint64_t values[2];
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_true(use(rig, 0, pool, 1, true)); /* 1 */
    assert_true(use(rig, 0, pool, 2, true)); /* 2, under way */
    assert_int_equal(results(pool, 1, 5, 1), 0);
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_int_equal(results(pool, 2, 6, 1), 0);
    assert_int_equal(read_two(rig, pool, values), VK_SUCCESS);
    assert_int_equal(values[0], 6);
    reset(VNC_HANDLE(VkDevice, rig->device), VNC_HANDLE(VkQueryPool, pool), 1, 1); /* 3 */
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_int_equal(results(pool, 2, 6, 1), 0);
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    vnc_object_destroy((struct vn_object *)pool);
}

static void what_nobody_reads_is_not_asked_for_again(void **state)
{
    struct rig *rig = *state;
    struct vnc_query_pool *pool = pool_new(rig);
    uint64_t values[2];
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_true(use(rig, 0, pool, 2, true));
    assert_int_equal(results(pool, 1, 5, 1), 0);
    assert_false(use(rig, 0, pool, 2, true));
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_true(use(rig, 0, pool, 2, true));
    vnc_object_destroy((struct vn_object *)pool);
}

/* The batch of the first may wait for that of the second, and write again. */
static void pools_of_two_queues_are_not_followed(void **state)
{
    struct rig *rig = *state;
    struct vnc_query_pool *pool = pool_new(rig);
    uint64_t values[2];
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_true(use(rig, 0, pool, 2, true));
    assert_false(use(rig, 1, pool, 2, true));
    assert_int_equal(results(pool, 2, 5, 1), 0);
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_false(use(rig, 0, pool, 2, true));
    vnc_object_destroy((struct vn_object *)pool);
}

static void results_outside_of_the_pool_are_refused(void **state)
{
    struct vnc_query_pool *pool = pool_new(*state);
    const uint8_t bytes[(COUNT + 1) * WORDS * 8] = {0};
    assert_int_equal(vnc_query_pool_results(pool, 1, 0, bytes, sizeof(bytes)), -EPROTO);
    assert_int_equal(vnc_query_pool_results(pool, 1, COUNT, bytes, WORDS * 8), -EPROTO);
    assert_int_equal(vnc_query_pool_results(pool, 1, UINT32_MAX, bytes, WORDS * 8), -EPROTO);
    assert_int_equal(vnc_query_pool_results(pool, 1, 0, bytes, 9), -EPROTO);
    assert_int_equal(vnc_query_pool_results(pool, 1, 0, bytes, WORDS * 8), 0);
    vnc_object_destroy((struct vn_object *)pool);
}

/* ---- polls ---- */

static const uint64_t pace_ns = 5 * HW_MS; /* as query.c has it: none is asked for more often */

static uint64_t exchanges(const struct rig *rig)
{
    return rig_sent(rig).exchanges;
}

static VkResult read_one(struct rig *rig, struct vnc_query_pool *pool, uint32_t which)
{
    uint64_t value;
    PFN_vkGetQueryPoolResults get =
        (PFN_vkGetQueryPoolResults)rig_entry(vnc_entries_query, "vkGetQueryPoolResults");
    return get(VNC_HANDLE(VkDevice, rig->device), VNC_HANDLE(VkQueryPool, pool), which, 1, 8,
               &value, 8, VK_QUERY_RESULT_64_BIT);
}

/* Its queries come with batch 1 of queue 0, which is under way. */
static struct vnc_query_pool *awaited_pool(struct rig *rig)
{
    struct vnc_query_pool *pool = pool_new(rig);
    uint64_t values[2];
    assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
    assert_int_equal(exchanges(rig), 1);
    rig_submit(rig, 0, NULL, NULL, rig->timeline, rig->fence);
    assert_true(use(rig, 0, pool, 2, true));
    return pool;
}

/* Polls until the server was asked. */
static VkResult poll_until_asked(struct rig *rig, struct vnc_query_pool *pool, uint32_t which)
{
    uint64_t before = exchanges(rig), deadline = hw_now_ns() + RIG_PATIENCE_MS * HW_MS;
    VkResult result = VK_NOT_READY;
    while (exchanges(rig) == before) {
        assert_true(hw_now_ns() < deadline);
        result = read_one(rig, pool, which);
    }
    return result;
}

static void what_will_come_is_not_asked_for(void **state)
{
    struct rig *rig = *state;
    uint64_t start = hw_now_ns(), values[2];
    struct vnc_query_pool *pool = awaited_pool(rig);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(read_two(rig, pool, values), VK_NOT_READY);
        assert_int_equal(read_one(rig, pool, 1), VK_NOT_READY);
        assert_true(exchanges(rig) == 1 || hw_now_ns() - start >= pace_ns);
    }
    assert_int_equal(results(pool, 1, 5, 1), 0);
    assert_int_equal(read_two(rig, pool, values), VK_SUCCESS);
    assert_int_equal(values[1], 5);
    vnc_object_destroy((struct vn_object *)pool);
}

/* Each of them: their results may be there before the batch is done. */
static void what_is_polled_for_long_is_asked_for(void **state)
{
    struct rig *rig = *state;
    struct vnc_query_pool *pool = awaited_pool(rig);
    bool asked[2] = {false, false};
    uint64_t deadline = hw_now_ns() + RIG_PATIENCE_MS * HW_MS;
    while (!asked[0] || !asked[1]) {
        assert_true(hw_now_ns() < deadline);
        for (uint32_t i = 0; i < 2; i++) {
            uint64_t before = exchanges(rig);
            assert_int_equal(read_one(rig, pool, i), VK_NOT_READY);
            asked[i] |= exchanges(rig) > before;
        }
    }
    vnc_object_destroy((struct vn_object *)pool);
}

static void what_was_there_once_is_not_said_to_be_missing(void **state)
{
    struct rig *rig = *state;
    struct vnc_query_pool *pool = awaited_pool(rig);
    pthread_mutex_lock(&rig->server.lock);
    wire_store32(rig->server.answer, VK_SUCCESS);
    pthread_mutex_unlock(&rig->server.lock);
    assert_int_equal(poll_until_asked(rig, pool, 0), VK_SUCCESS);
    for (int i = 0; i < 4; i++)
        assert_int_equal(read_one(rig, pool, 0), VK_SUCCESS);
    vnc_object_destroy((struct vn_object *)pool);
}

static void a_batch_that_is_done_has_brought_what_it_had(void **state)
{
    struct rig *rig = *state;
    struct vnc_query_pool *pool = awaited_pool(rig);
    rig_report(rig, 0, 1); /* and no results */
    uint64_t before = exchanges(rig);
    assert_int_equal(read_one(rig, pool, 0), VK_NOT_READY);
    assert_int_equal(exchanges(rig), before + 1);
    vnc_object_destroy((struct vn_object *)pool);
}

/* It may have waited for the batch, and then the results are there. */
static void the_report_of_another_queue_is_a_reason_to_ask(void **state)
{
    struct rig *rig = *state;
    struct vnc_query_pool *pool = awaited_pool(rig);
    rig_submit(rig, 1, NULL, NULL, rig->binary, NULL);
    rig_report(rig, 1, 1);
    uint64_t before = exchanges(rig);
    assert_int_equal(read_one(rig, pool, 0), VK_NOT_READY);
    assert_int_equal(exchanges(rig), before + 1);
    vnc_object_destroy((struct vn_object *)pool);
}

static void availability_and_partial_results_are_asked_for(void **state)
{
    struct rig *rig = *state;
    struct vnc_query_pool *pool = awaited_pool(rig);
    PFN_vkGetQueryPoolResults get =
        (PFN_vkGetQueryPoolResults)rig_entry(vnc_entries_query, "vkGetQueryPoolResults");
    const VkQueryResultFlags flags[] = {VK_QUERY_RESULT_WITH_AVAILABILITY_BIT,
                                        VK_QUERY_RESULT_PARTIAL_BIT};
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t values[2], before = exchanges(rig);
        assert_int_equal(get(VNC_HANDLE(VkDevice, rig->device), VNC_HANDLE(VkQueryPool, pool), 0, 1,
                             16, values, 16, flags[i] | VK_QUERY_RESULT_64_BIT),
                         VK_NOT_READY);
        assert_int_equal(exchanges(rig), before + 1);
    }
    vnc_object_destroy((struct vn_object *)pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_waits_gets_no_partial_results, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(who_does_not_wait_may, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(the_server_does_not_wait, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_came_is_read_without_an_exchange, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_was_used_since_is_asked_for, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_nobody_reads_is_not_asked_for_again, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(pools_of_two_queues_are_not_followed, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(results_outside_of_the_pool_are_refused, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(what_will_come_is_not_asked_for, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_is_polled_for_long_is_asked_for, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_was_there_once_is_not_said_to_be_missing, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_batch_that_is_done_has_brought_what_it_had, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(the_report_of_another_queue_is_a_reason_to_ask, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(availability_and_partial_results_are_asked_for, rig_start,
                                        rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
