/* What a submission sends of mapped memory when it releases work that was submitted before it
 * (docs/design/mapped-memory.md): that work reads what the host wrote in between. */
#include "rig.h"

enum { BYTES = 1 << 20 };

static void host_writes(const struct rig_copy *copy, int byte)
{
    rig_fill(vn_region_memory(copy->memory->region), BYTES, byte);
}

/* Bytes that a signal of the timeline on the second queue takes. */
static uint64_t bytes_of_signal(struct rig *rig, struct vnc_semaphore *signal)
{
    uint64_t before = rig_sent(rig).bytes_sent;
    rig_submit(rig, 1, NULL, NULL, signal, NULL);
    return rig_sent(rig).bytes_sent - before;
}

static void a_signal_sends_what_its_waiter_reads(void **state)
{
    struct rig *rig = *state;
    struct rig_copy copy;
    rig_copy_make(rig, &copy, BYTES);
    rig_submit(rig, 0, copy.commands, rig->timeline, NULL, NULL);
    host_writes(&copy, 0x11);
    assert_true(bytes_of_signal(rig, rig->timeline) > BYTES);
    rig_copy_free(rig, &copy);
}

/* The waiter needs no commands: what comes behind it on its queue waits with it. */
static void a_signal_sends_what_is_read_behind_its_waiter(void **state)
{
    struct rig *rig = *state;
    struct rig_copy copy;
    rig_copy_make(rig, &copy, BYTES);
    rig_submit(rig, 0, NULL, rig->timeline, NULL, NULL);
    rig_submit(rig, 0, copy.commands, NULL, NULL, NULL);
    host_writes(&copy, 0x22);
    assert_true(bytes_of_signal(rig, rig->timeline) > BYTES);
    rig_copy_free(rig, &copy);
}

static void a_signal_that_nobody_waits_for_sends_nothing(void **state)
{
    struct rig *rig = *state;
    struct rig_copy copy;
    rig_copy_make(rig, &copy, BYTES);
    rig_submit(rig, 0, copy.commands, NULL, NULL, NULL);
    host_writes(&copy, 0x33);
    assert_true(bytes_of_signal(rig, rig->timeline) < BYTES / 16);
    rig_copy_free(rig, &copy);
}

/* A wait behind its signal, as most programs have it, costs later signals nothing. */
static void a_wait_for_an_earlier_signal_sends_nothing_more(void **state)
{
    struct rig *rig = *state;
    struct rig_copy copy;
    rig_copy_make(rig, &copy, BYTES);
    rig_submit(rig, 1, NULL, NULL, rig->timeline, NULL);
    rig_submit(rig, 0, copy.commands, rig->timeline, NULL, NULL);
    host_writes(&copy, 0x44);
    assert_true(bytes_of_signal(rig, rig->timeline) < BYTES / 16);
    rig_copy_free(rig, &copy);
}

/* Once released the work may have read; what the host writes now is for somebody else. */
static void a_second_signal_sends_nothing(void **state)
{
    struct rig *rig = *state;
    struct rig_copy copy;
    rig_copy_make(rig, &copy, BYTES);
    rig_submit(rig, 0, copy.commands, rig->timeline, NULL, NULL);
    assert_true(bytes_of_signal(rig, rig->timeline) < BYTES / 16);
    host_writes(&copy, 0x55);
    assert_true(bytes_of_signal(rig, rig->timeline) < BYTES / 16);
    rig_copy_free(rig, &copy);
}

static void the_host_signals_likewise(void **state)
{
    struct rig *rig = *state;
    struct rig_copy copy;
    VkSemaphoreSignalInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
                                  .semaphore = VNC_HANDLE(VkSemaphore, rig->timeline),
                                  .value = 1};
    PFN_vkSignalSemaphore signal =
        (PFN_vkSignalSemaphore)rig_entry(vnc_entries_sync, "vkSignalSemaphore");
    rig_copy_make(rig, &copy, BYTES);
    rig_submit(rig, 0, copy.commands, rig->timeline, NULL, NULL);
    host_writes(&copy, 0x66);
    uint64_t before = rig_sent(rig).bytes_sent;
    assert_int_equal(signal(VNC_HANDLE(VkDevice, rig->device), &info), VK_SUCCESS);
    assert_true(rig_sent(rig).bytes_sent - before > BYTES);
    host_writes(&copy, 0x77);
    assert_true(bytes_of_signal(rig, rig->timeline) < BYTES / 16);
    rig_copy_free(rig, &copy);
}

/* A report of what was reported before, or of nothing, ends no batch that is under way. */
static void an_old_report_ends_nothing(void **state)
{
    struct rig *rig = *state;
    PFN_vkWaitSemaphores wait =
        (PFN_vkWaitSemaphores)rig_entry(vnc_entries_sync, "vkWaitSemaphores");
    VkSemaphore semaphore = VNC_HANDLE(VkSemaphore, rig->timeline);
    uint64_t value = 1;
    VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &semaphore,
                                .pValues = &value};
    rig_submit(rig, 0, NULL, NULL, rig->timeline, NULL);
    vnc_queue_done(rig->queues[0], 0, VK_SUCCESS, NULL, NULL);
    rig_report(rig, 0, 1);
    assert_int_equal(wait(VNC_HANDLE(VkDevice, rig->device), &info, 0), VK_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_signal_sends_what_its_waiter_reads, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_signal_sends_what_is_read_behind_its_waiter, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_signal_that_nobody_waits_for_sends_nothing, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_wait_for_an_earlier_signal_sends_nothing_more, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_second_signal_sends_nothing, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(the_host_signals_likewise, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(an_old_report_ends_nothing, rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
