/* With which flags the server is asked for query results: it never waits, and what the program
 * waits for is never partial. */
#include "rig.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_waits_gets_no_partial_results, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(who_does_not_wait_may, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(the_server_does_not_wait, rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
