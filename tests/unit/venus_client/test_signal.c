/* When a signal of the host, or a flush, leaves, and with what: work that is under way may wait for
 * it. */
#include "rig.h"

#include "venus/client/object/objects.h"
#include "vn_client.gen.h"

enum { BYTES = 4096 };

static void set(struct rig *rig, struct vn_object *event)
{
    PFN_vkSetEvent set_event = (PFN_vkSetEvent)rig_entry(vnc_entries_sync, "vkSetEvent");
    assert_int_equal(set_event(VNC_HANDLE(VkDevice, rig->device), VNC_HANDLE(VkEvent, event)),
                     VK_SUCCESS);
}

static void raise_timeline(struct rig *rig, uint64_t value)
{
    PFN_vkSignalSemaphore signal =
        (PFN_vkSignalSemaphore)rig_entry(vnc_entries_sync, "vkSignalSemaphore");
    VkSemaphoreSignalInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
                                  .semaphore = VNC_HANDLE(VkSemaphore, rig->timeline),
                                  .value = value};
    assert_int_equal(signal(VNC_HANDLE(VkDevice, rig->device), &info), VK_SUCCESS);
}

static struct vn_object *event_of(struct rig *rig)
{
    return vnc_object_create(rig->link, VK_OBJECT_TYPE_EVENT, &rig->device->object);
}

static void with_nothing_under_way_it_leaves_with_what_follows(void **state)
{
    struct rig *rig = *state;
    struct rig_copy written;
    rig_copy_make(rig, &written, BYTES);
    struct vn_object *event = event_of(rig);
    rig_submit(rig, 0, NULL, NULL, rig->timeline, NULL);
    rig_report(rig, 0, 1);
    struct hw_driver_counts before = rig_sent(rig);
    set(rig, event);
    raise_timeline(rig, 2);
    assert_int_equal(vn_vkResetEvent(VNC_HANDLE(VkDevice, rig->device), VNC_HANDLE(VkEvent, event)),
                     VK_SUCCESS);
    assert_int_equal(rig_sent(rig).messages_sent, before.messages_sent);
    rig_submit(rig, 0, NULL, NULL, NULL, NULL);
    struct hw_driver_counts after = rig_sent(rig);
    assert_int_equal(after.messages_sent, before.messages_sent + 1);
    assert_true(after.bytes_sent - before.bytes_sent < BYTES); /* nothing reads the memory */
    vnc_object_destroy(event);
    rig_copy_free(rig, &written);
}

/* What it waits for may be this, and what it reads then is what the program wrote before. */
static void work_under_way_gets_it_with_what_was_written(void **state)
{
    struct rig *rig = *state;
    struct rig_copy first, second;
    struct vn_object *event = event_of(rig);
    rig_submit(rig, 0, NULL, rig->timeline, NULL, NULL);
    struct hw_driver_counts before = rig_sent(rig);
    rig_copy_make(rig, &first, BYTES);
    set(rig, event);
    struct hw_driver_counts set_sent = rig_sent(rig);
    assert_true(set_sent.messages_sent > before.messages_sent);
    assert_true(set_sent.bytes_sent - before.bytes_sent > BYTES);
    rig_copy_make(rig, &second, BYTES);
    raise_timeline(rig, 1);
    struct hw_driver_counts raised = rig_sent(rig);
    assert_true(raised.messages_sent > set_sent.messages_sent);
    assert_true(raised.bytes_sent - set_sent.bytes_sent > BYTES);
    rig_report(rig, 0, 1);
    vnc_object_destroy(event);
    rig_copy_free(rig, &second);
    rig_copy_free(rig, &first);
}

static uint64_t bytes_of_flush(struct rig *rig, const struct rig_copy *written, VkDeviceSize offset)
{
    PFN_vkFlushMappedMemoryRanges flush =
        (PFN_vkFlushMappedMemoryRanges)rig_entry(vnc_entries_memory, "vkFlushMappedMemoryRanges");
    VkMappedMemoryRange range = {.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
                                 .memory = VNC_HANDLE(VkDeviceMemory, written->memory),
                                 .offset = offset,
                                 .size = VK_WHOLE_SIZE};
    uint64_t before = rig_sent(rig).bytes_sent;
    assert_int_equal(flush(VNC_HANDLE(VkDevice, rig->device), 1, &range), VK_SUCCESS);
    return rig_sent(rig).bytes_sent - before;
}

static void a_flush_sends_what_it_names_while_work_is_under_way(void **state)
{
    enum { PAGES = 16 };
    struct rig *rig = *state;
    struct rig_copy first, second;
    rig_copy_make(rig, &first, PAGES * BYTES);
    rig_copy_make(rig, &second, PAGES * BYTES);
    assert_int_equal(bytes_of_flush(rig, &first, 0), 0); /* the next submission is early enough */
    rig_submit(rig, 0, NULL, rig->timeline, NULL, NULL);
    uint64_t half = bytes_of_flush(rig, &first, PAGES / 2 * BYTES);
    assert_in_range(half, PAGES / 2 * BYTES, PAGES * BYTES - 1);
    uint64_t rest = bytes_of_flush(rig, &first, 0);
    assert_in_range(rest, PAGES / 2 * BYTES, PAGES * BYTES - 1);
    rig_report(rig, 0, 1);
    rig_copy_free(rig, &second);
    rig_copy_free(rig, &first);
}

/* The server has nothing newer. */
static void invalidate(struct rig *rig, const struct rig_copy *copy, VkDeviceSize offset,
                       VkDeviceSize size, bool asked)
{
    PFN_vkInvalidateMappedMemoryRanges function = (PFN_vkInvalidateMappedMemoryRanges)rig_entry(
        vnc_entries_memory, "vkInvalidateMappedMemoryRanges");
    VkMappedMemoryRange range = {.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
                                 .memory = VNC_HANDLE(VkDeviceMemory, copy->memory),
                                 .offset = offset,
                                 .size = size};
    pthread_mutex_lock(&rig->server.lock);
    rig->server.answers_nothing = true;
    rig->server.asked_len = 0;
    pthread_mutex_unlock(&rig->server.lock);
    assert_int_equal(function(VNC_HANDLE(VkDevice, rig->device), 1, &range), VK_SUCCESS);
    pthread_mutex_lock(&rig->server.lock);
    bool was_asked = rig->server.asked_len > 0;
    pthread_mutex_unlock(&rig->server.lock);
    assert_int_equal(was_asked, asked);
}

static void only_what_work_can_write_is_read_again(void **state)
{
    struct rig *rig = *state;
    struct rig_copy written, other;
    rig_copy_make(rig, &written, 4 * BYTES);
    rig_copy_make(rig, &other, 4 * BYTES);
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, written.commands);
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkBufferCopy region = {.dstOffset = BYTES, .size = BYTES};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &begin), VK_SUCCESS);
    RIG_COMMAND(vkCmdCopyBuffer)
    (commands, VNC_HANDLE(VkBuffer, written.to), VNC_HANDLE(VkBuffer, written.from), 1, &region);
    assert_int_equal(RIG_COMMAND(vkEndCommandBuffer)(commands), VK_SUCCESS);
    rig_submit(rig, 1, written.commands, NULL, NULL, NULL);
    invalidate(rig, &other, 0, VK_WHOLE_SIZE, false);
    invalidate(rig, &written, 0, BYTES, false);
    invalidate(rig, &written, 2 * BYTES, VK_WHOLE_SIZE, false);
    invalidate(rig, &written, BYTES, BYTES, true);
    invalidate(rig, &written, 0, VK_WHOLE_SIZE, true);
    rig_report(rig, 1, 1);
    invalidate(rig, &written, 0, VK_WHOLE_SIZE, false);
    rig_copy_free(rig, &other);
    rig_copy_free(rig, &written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(with_nothing_under_way_it_leaves_with_what_follows,
                                        rig_start, rig_end),
        cmocka_unit_test_setup_teardown(work_under_way_gets_it_with_what_was_written, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(only_what_work_can_write_is_read_again, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_flush_sends_what_it_names_while_work_is_under_way,
                                        rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
