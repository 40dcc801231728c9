/* Semaphores and fences that other processes may share: work with them is never reported early, the
 * server is asked for them, and what is done with them has reached the server when the program
 * hears of it. */
#include "rig.h"

#include "vn_client.gen.h"

static VkResult fence_status(struct rig *b)
{
    return b->status(VNC_HANDLE(VkDevice, b->device), VNC_HANDLE(VkFence, b->fence));
}

/* The last call was this command. */
static void expect_asked(struct rig *rig, struct wire_enc *e)
{
    pthread_mutex_lock(&rig->server.lock);
    assert_int_equal(rig->server.asked_len, wire_enc_len(e));
    assert_memory_equal(rig->server.asked, wire_enc_data(e), wire_enc_len(e));
    pthread_mutex_unlock(&rig->server.lock);
    wire_enc_fini(e);
}

static void who_signals_what_can_be_exported_is_seen(void **state)
{
    struct rig *b = *state;
    b->binary->external = true;
    rig_submit(b, 0, NULL, NULL, b->binary, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

/* Another process may have to be told before it signals. */
static void who_waits_for_another_process_is_seen(void **state)
{
    struct rig *b = *state;
    b->binary->external = true;
    rig_submit(b, 0, NULL, b->binary, NULL, NULL);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence); /* behind it */
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 0, 2);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

/* The rig refuses every call, so a submission that is one says so. */
static void expect_call(struct rig *b, struct vnc_semaphore *signal, struct vnc_fence *fence)
{
    VkSemaphore signals = VNC_HANDLE(VkSemaphore, signal);
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .signalSemaphoreCount = signal != NULL,
                         .pSignalSemaphores = &signals};
    rig_forget_asked(b);
    assert_int_equal(
        b->submit(VNC_HANDLE(VkQueue, b->queues[0]), 1, &info, VNC_HANDLE(VkFence, fence)),
        VK_ERROR_DEVICE_LOST);
    assert_true(rig_was_asked(b));
}

static void a_signal_of_what_is_shared_has_arrived(void **state)
{
    struct rig *b = *state;
    b->binary->external = true;
    rig_submit(b, 0, NULL, NULL, b->binary, NULL); /* nobody has it yet */
    b->binary->shared = true;
    expect_call(b, b->binary, NULL);
}

static void a_fence_that_can_be_exported_has_arrived(void **state)
{
    struct rig *b = *state;
    b->fence->external = true;
    expect_call(b, NULL, b->fence);
}

static void the_server_is_asked_for_a_fence(void **state)
{
    struct rig *b = *state;
    struct wire_enc e;
    vnc_fence_signal(b->fence); /* what the client knows does not count */
    b->fence->external = true;
    assert_int_equal(fence_status(b), VK_ERROR_DEVICE_LOST);
    wire_enc_init(&e, 4096);
    vn_enc_cmd_vkGetFenceStatus(&e, VNC_HANDLE(VkDevice, b->device), VNC_HANDLE(VkFence, b->fence));
    expect_asked(b, &e);
}

static void the_server_is_asked_for_a_value(void **state)
{
    struct rig *b = *state;
    VkDevice device = VNC_HANDLE(VkDevice, b->device);
    VkSemaphore timeline = VNC_HANDLE(VkSemaphore, b->timeline);
    PFN_vkGetSemaphoreCounterValue get =
        (PFN_vkGetSemaphoreCounterValue)rig_entry(vnc_entries_sync, "vkGetSemaphoreCounterValue");
    uint64_t value = 7;
    struct wire_enc e;
    assert_int_equal(get(device, timeline, &value), VK_SUCCESS);
    assert_int_equal(value, 0);
    b->timeline->shared = true;
    assert_int_equal(get(device, timeline, &value), VK_ERROR_DEVICE_LOST);
    wire_enc_init(&e, 4096);
    vn_enc_cmd_vkGetSemaphoreCounterValue(&e, device, timeline, &value);
    expect_asked(b, &e);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_start, rig_end)
    const struct CMUnitTest tests[] = {
        TEST(who_signals_what_can_be_exported_is_seen),
        TEST(who_waits_for_another_process_is_seen),
        TEST(a_signal_of_what_is_shared_has_arrived),
        TEST(a_fence_that_can_be_exported_has_arrived),
        TEST(the_server_is_asked_for_a_fence),
        TEST(the_server_is_asked_for_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
