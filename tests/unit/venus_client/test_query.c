/* With which flags the server is asked for query results: it never waits, and what the program
 * waits for is never partial.  And which results that came with a batch are good. */
#include "rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
