/* Which fences are signalled before their work is done (docs/design/fences.md), with two queues and
 * a server that does nothing until it is told to. */
#include "rig.h"

#include <sched.h>

#include "base/clock.h"
#include "venus/client/object/objects.h"
#include "venus/client/record/ranges.h"
#include "venus/common/protocol.h"

static VkResult fence_status(struct rig *b)
{
    return b->status(VNC_HANDLE(VkDevice, b->device), VNC_HANDLE(VkFence, b->fence));
}

static void what_nobody_sees_is_early(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    rig_submit(b, 0, NULL, NULL, b->binary, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_false(vnc_queue_has_done(b->queues[0], 1));
}

/* The server needs to know before the next submission, and no earlier. */
static void an_early_report_leaves_with_what_follows(void **state)
{
    struct rig *b = *state;
    VkFence fence = VNC_HANDLE(VkFence, b->fence);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    struct hw_driver_counts before = rig_sent(b);
    assert_int_equal(b->wait(VNC_HANDLE(VkDevice, b->device), 1, &fence, VK_TRUE, UINT64_MAX),
                     VK_SUCCESS);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent);
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    struct hw_driver_counts after = rig_sent(b);
    assert_int_equal(after.messages_sent, before.messages_sent + 2);
    assert_int_equal(after.exchanges, before.exchanges);
}

/* As do small copies: nobody waits for it. */
static void a_fence_alone_leaves_with_what_follows(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    struct hw_driver_counts before = rig_sent(b);
    assert_int_equal(
        b->submit(VNC_HANDLE(VkQueue, b->queues[0]), 0, NULL, VNC_HANDLE(VkFence, b->fence)),
        VK_SUCCESS);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent);
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent + 1);
}

enum { SMALL = 4096, LARGE = 16 * VN_UPDATE_BYTES };

static void copy_submit(struct rig *b, const struct rig_copy *c)
{
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, c->commands);
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &commands};
    assert_int_equal(
        b->submit(VNC_HANDLE(VkQueue, b->queues[0]), 1, &info, VNC_HANDLE(VkFence, b->fence)),
        VK_SUCCESS);
}

/* Its bytes are not looked for in mapped memory: they are those of the submission. */
static void a_small_copy_travels_with_its_bytes(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    rig_copy_make(b, &c, SMALL);
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    struct hw_driver_counts before = rig_sent(b);
    copy_submit(b, &c);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent);
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    struct hw_driver_counts after = rig_sent(b);
    assert_int_equal(after.messages_sent, before.messages_sent + 1);
    assert_true(after.bytes_sent - before.bytes_sent > SMALL);
    rig_copy_free(b, &c);
}

/* Where the host sees what is before it, it is a submission like any other. */
static void a_small_copy_behind_visible_work_does_not(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    rig_copy_make(b, &c, SMALL);
    rig_submit(b, 0, NULL, b->timeline, NULL, NULL);
    struct hw_driver_counts before = rig_sent(b);
    copy_submit(b, &c);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent + 1);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 0, 2);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    rig_copy_free(b, &c);
}

static void a_large_copy_is_recorded(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    const struct vnc_copy *copies;
    rig_copy_make(b, &c, LARGE);
    assert_int_equal(vnc_command_buffer_copies(c.commands, &copies), 0);
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    struct hw_driver_counts before = rig_sent(b);
    copy_submit(b, &c);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_true(rig_sent(b).messages_sent > before.messages_sent);
    rig_copy_free(b, &c);
}

/* Two dispatches, the second of which knows of work in the recording. */
static void record_work(const struct rig_copy *c)
{
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, c->commands);
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &begin), VK_SUCCESS);
    RIG_COMMAND(vkCmdDispatch)(commands, 1, 1, 1);
    RIG_COMMAND(vkCmdDispatch)(commands, 1, 1, 1);
    assert_int_equal(RIG_COMMAND(vkEndCommandBuffer)(commands), VK_SUCCESS);
}

static void small_recordings_gather(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    enum { RECORDINGS = 10 };
    rig_copy_make(b, &c, SMALL);
    struct hw_driver_counts before = rig_sent(b);
    for (int i = 0; i < RECORDINGS; i++)
        record_work(&c);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent);
    rig_submit(b, 0, c.commands, NULL, NULL, NULL);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent + 1);
    rig_copy_free(b, &c);
}

/* The server can make it while the program records. */
static void a_small_copy_leaves_before_work_that_is_recorded(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    rig_copy_make(b, &c, SMALL);
    struct hw_driver_counts before = rig_sent(b);
    copy_submit(b, &c);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent);
    record_work(&c);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent + 1);
    record_work(&c);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent + 1);
    rig_copy_free(b, &c);
}

/* The later forms of the same commands mean the same. */
static void a_small_copy_of_version_2_travels_with_its_bytes(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    rig_copy_make(b, &c, SMALL);
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, c.commands);
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkBufferCopy2 all = {.sType = VK_STRUCTURE_TYPE_BUFFER_COPY_2, .size = SMALL};
    VkCopyBufferInfo2 copy = {.sType = VK_STRUCTURE_TYPE_COPY_BUFFER_INFO_2,
                              .srcBuffer = VNC_HANDLE(VkBuffer, c.from),
                              .dstBuffer = VNC_HANDLE(VkBuffer, c.to),
                              .regionCount = 1,
                              .pRegions = &all};
    VkMemoryBarrier2 memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
    VkDependencyInfo barrier = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                .memoryBarrierCount = 1,
                                .pMemoryBarriers = &memory};
    RIG_COMMAND(vkBeginCommandBuffer)(commands, &begin);
    RIG_COMMAND(vkCmdPipelineBarrier2)(commands, &barrier);
    RIG_COMMAND(vkCmdCopyBuffer2)(commands, &copy);
    RIG_COMMAND(vkEndCommandBuffer)(commands);
    VkCommandBufferSubmitInfo one = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO,
                                     .commandBuffer = commands};
    VkSubmitInfo2 info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                          .commandBufferInfoCount = 1,
                          .pCommandBufferInfos = &one};
    PFN_vkQueueSubmit2 submit2 = (PFN_vkQueueSubmit2)rig_entry(vnc_entries_queue, "vkQueueSubmit2");
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    struct hw_driver_counts before = rig_sent(b);
    assert_int_equal(
        submit2(VNC_HANDLE(VkQueue, b->queues[0]), 1, &info, VNC_HANDLE(VkFence, b->fence)),
        VK_SUCCESS);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(rig_sent(b).messages_sent, before.messages_sent); /* nobody waits for it */
    rig_copy_free(b, &c);
}

/* ---- bytes for memory that early work reads ---- */

/* How many waits stand before the program's bytes for these of the memory; *number is that of the
 * last, which is for this queue. */
static int count_waits_in(struct rig *b, const struct rig_copy *c, uint64_t off, uint64_t bytes,
                          int queue, uint64_t *number)
{
    struct vnc_ranges ranges = {0};
    struct wire_enc e;
    struct wire_dec d;
    uint8_t message[256];
    int count = 0;
    wire_enc_init_fixed(&e, message, sizeof(message));
    vnc_ranges_add_range(&ranges,
                         &(struct vnc_range){c->memory->object.id, off, bytes, false, false});
    assert_int_equal(ranges.failed, false);
    vnc_queue_put_waits(b->device, &ranges, &e);
    vnc_ranges_fini(&ranges);
    wire_dec_init(&d, wire_enc_data(&e), wire_enc_len(&e));
    for (; wire_dec_left(&d) > 0; count++) {
        assert_int_equal(wire_get_u32(&d), VN_OP_WAIT);
        assert_int_equal(wire_get_u32(&d), 2 * sizeof(uint64_t));
        assert_int_equal(wire_get_u64(&d), b->queues[queue]->object.id);
        *number = wire_get_u64(&d);
    }
    assert_int_equal(wire_dec_error(&d), 0);
    return count;
}

static int count_waits(struct rig *b, const struct rig_copy *c, int queue, uint64_t *number)
{
    return count_waits_in(b, c, 0, VN_PAGE_BYTES, queue, number);
}

static void bytes_wait_for_early_work_that_reads_them(void **state)
{
    struct rig *b = *state;
    struct rig_copy read, other;
    uint64_t number;
    rig_copy_make(b, &read, LARGE);
    rig_copy_make(b, &other, LARGE);
    rig_submit(b, 0, read.commands, NULL, NULL, b->fence);
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    assert_int_equal(count_waits(b, &read, 0, &number), 0); /* the program has not asked */
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(count_waits(b, &read, 0, &number), 1);
    assert_int_equal(number, 1);
    assert_int_equal(count_waits(b, &other, 0, &number), 0);
    assert_int_equal(count_waits_in(b, &read, LARGE, VN_PAGE_BYTES, 0, &number), 0);
    rig_report(b, 0, 1);
    assert_int_equal(count_waits(b, &read, 0, &number), 0);
    rig_copy_free(b, &other);
    rig_copy_free(b, &read);
}

/* A later one, which the program knows to be under way, is its own affair. */
static void bytes_wait_for_no_more_than_the_program_believes(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    uint64_t number;
    rig_copy_make(b, &c, LARGE);
    rig_submit(b, 0, c.commands, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    rig_submit(b, 0, c.commands, NULL, NULL, NULL);
    assert_int_equal(count_waits(b, &c, 0, &number), 1);
    assert_int_equal(number, 1);
    rig_copy_free(b, &c);
}

/* The server sees the end of the second, which is the next value of the queue's timeline. */
static void bytes_wait_for_an_end_that_the_server_sees(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    uint64_t number;
    rig_copy_make(b, &c, LARGE);
    rig_submit(b, 0, c.commands, NULL, NULL, NULL);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(count_waits(b, &c, 0, &number), 1);
    assert_int_equal(number, 2);
    rig_copy_free(b, &c);
}

/* No further than the program believes, though the next end that the server sees is behind it. */
static void bytes_wait_until_a_queue_was_idle(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    uint64_t number;
    rig_copy_make(b, &c, LARGE);
    rig_submit(b, 0, c.commands, NULL, NULL, NULL);
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    assert_int_equal(b->wait_idle(VNC_HANDLE(VkQueue, b->queues[0])), VK_SUCCESS);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    assert_int_equal(count_waits(b, &c, 0, &number), 1);
    assert_int_equal(number, 2);
    rig_copy_free(b, &c);
}

/* Who waited for the second waited for the first, of which the server has not heard. */
static void bytes_wait_for_what_early_work_waited_for(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    uint64_t number;
    rig_copy_make(b, &c, LARGE);
    rig_submit(b, 1, c.commands, NULL, b->binary, NULL);
    rig_submit(b, 0, NULL, b->binary, NULL, b->fence);
    assert_int_equal(count_waits(b, &c, 1, &number), 0);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(count_waits(b, &c, 1, &number), 1);
    assert_int_equal(number, 1);
    rig_copy_free(b, &c);
}

/* The first brings more than the second waits for. */
static void bytes_wait_for_what_brought_the_value(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    const struct rig_values values = {.wait = 3, .signal = 5};
    uint64_t number;
    rig_copy_make(b, &c, LARGE);
    rig_submit_values(b, 1, c.commands, NULL, b->timeline, values, NULL);
    rig_submit_values(b, 0, NULL, b->timeline, NULL, values, b->fence);
    assert_int_equal(count_waits(b, &c, 1, &number), 0);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(count_waits(b, &c, 1, &number), 1);
    assert_int_equal(number, 1);
    rig_copy_free(b, &c);
}

/* What the batch of the last message is: VN_BATCH_QUIET, VN_BATCH_UNTOLD, or how many ranges. */
static int32_t kind_of_last(struct rig *b)
{
    uint64_t deadline = hw_now_ns() + RIG_PATIENCE_MS * HW_MS;
    uint8_t message[sizeof(b->server.streamed)];
    struct wire_dec d;
    size_t len = 0;
    while (len == 0) {
        assert_true(hw_now_ns() < deadline);
        sched_yield();
        pthread_mutex_lock(&b->server.lock);
        len = b->server.streamed_len;
        memcpy(message, b->server.streamed, len);
        b->server.streamed_len = 0;
        pthread_mutex_unlock(&b->server.lock);
    }
    wire_dec_init(&d, message, len);
    assert_int_equal(wire_get_u32(&d), VN_OP_SUBMIT);
    (void)wire_get_u32(&d);
    (void)wire_get_u64(&d);
    (void)wire_get_u64(&d);
    assert_int_equal(wire_get_u32(&d), 1);
    int32_t kind = wire_get_i32(&d);
    assert_int_equal(wire_dec_error(&d), 0);
    return kind;
}

/* By what it signals a batch may be believed done, and be waited for then. */
static void what_signals_has_an_end_that_the_server_knows(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 0, NULL, NULL, NULL, NULL);
    assert_int_equal(kind_of_last(b), VN_BATCH_QUIET);
    rig_submit(b, 0, NULL, NULL, b->binary, NULL);
    assert_int_equal(kind_of_last(b), VN_BATCH_UNTOLD);
    rig_submit(b, 1, NULL, b->binary, NULL, NULL);
    assert_int_equal(kind_of_last(b), VN_BATCH_QUIET);
}

static VkResult wait_for_value(struct rig *b, uint64_t value, uint64_t timeout)
{
    PFN_vkWaitSemaphores call =
        (PFN_vkWaitSemaphores)rig_entry(vnc_entries_sync, "vkWaitSemaphores");
    VkSemaphore semaphore = VNC_HANDLE(VkSemaphore, b->timeline);
    VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &semaphore,
                                .pValues = &value};
    return call(VNC_HANDLE(VkDevice, b->device), &info, timeout);
}

static uint64_t value_of(struct rig *b)
{
    PFN_vkGetSemaphoreCounterValue call =
        (PFN_vkGetSemaphoreCounterValue)rig_entry(vnc_entries_sync, "vkGetSemaphoreCounterValue");
    uint64_t value;
    assert_int_equal(
        call(VNC_HANDLE(VkDevice, b->device), VNC_HANDLE(VkSemaphore, b->timeline), &value),
        VK_SUCCESS);
    return value;
}

/* Its value is what the host sees of a timeline, and that comes with the report. */
static void a_timeline_is_early(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 0, NULL, NULL, b->timeline, NULL);
    struct hw_driver_counts before = rig_sent(b);
    assert_int_equal(value_of(b), 0); /* who only looks is not told */
    assert_int_equal(wait_for_value(b, 1, 0), VK_TIMEOUT);
    assert_int_equal(wait_for_value(b, 1, UINT64_MAX), VK_SUCCESS);
    assert_int_equal(value_of(b), 1);
    assert_int_equal(wait_for_value(b, 2, 0), VK_TIMEOUT);
    struct hw_driver_counts after = rig_sent(b);
    assert_int_equal(after.messages_sent, before.messages_sent);
    assert_int_equal(after.exchanges, before.exchanges);
    assert_false(vnc_queue_has_done(b->queues[0], 1));
    rig_report(b, 0, 1);
    assert_int_equal(value_of(b), 1);
}

static void a_fence_tells_of_timelines_before_it(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 0, NULL, NULL, b->timeline, NULL);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(value_of(b), 1);
}

static void a_timeline_behind_visible_work_is_not_early(void **state)
{
    struct rig *b = *state;
    struct vnc_semaphore *host =
        vnc_object_create(b->link, VK_OBJECT_TYPE_SEMAPHORE, &b->device->object);
    host->timeline = true;
    rig_submit(b, 0, NULL, host, NULL, NULL);
    rig_submit(b, 0, NULL, NULL, b->timeline, NULL);
    assert_int_equal(wait_for_value(b, 1, 1), VK_TIMEOUT);
    rig_report(b, 0, 2);
    assert_int_equal(wait_for_value(b, 1, UINT64_MAX), VK_SUCCESS);
    vnc_object_destroy(&host->object);
}

/* A wait for what was submitted before it does not wait for the host; it joins the queues. */
static void who_waits_for_a_promised_value_is_early(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 1, NULL, NULL, b->timeline, NULL);
    rig_submit(b, 0, NULL, b->timeline, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

/* What it waited for is done, too, whichever way the program asks. */
static void who_waits_for_a_promised_value_tells_of_it(void **state)
{
    struct rig *b = *state;
    struct vnc_fence *before = vnc_object_create(b->link, VK_OBJECT_TYPE_FENCE, &b->device->object);
    struct vnc_semaphore *host =
        vnc_object_create(b->link, VK_OBJECT_TYPE_SEMAPHORE, &b->device->object);
    host->timeline = true;
    rig_submit(b, 1, NULL, host, NULL, NULL);
    rig_submit(b, 1, NULL, NULL, b->timeline, before); /* visible work is before it */
    rig_report(b, 1, 1);
    rig_submit(b, 0, NULL, b->timeline, NULL, b->fence);
    assert_int_equal(value_of(b), 0);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(value_of(b), 1);
    assert_int_equal(b->status(VNC_HANDLE(VkDevice, b->device), VNC_HANDLE(VkFence, before)),
                     VK_SUCCESS);
    rig_report(b, 1, 2);
    vnc_object_destroy(&before->object);
    vnc_object_destroy(&host->object);
}

/* Likewise what the server reports in another order. */
static void done_work_tells_of_the_values_that_it_waited_for(void **state)
{
    struct rig *b = *state;
    struct vnc_semaphore *host =
        vnc_object_create(b->link, VK_OBJECT_TYPE_SEMAPHORE, &b->device->object);
    host->timeline = true;
    rig_submit(b, 1, NULL, host, b->timeline, NULL);
    rig_submit(b, 0, NULL, b->timeline, NULL, b->fence);
    rig_report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(value_of(b), 1);
    rig_report(b, 1, 1);
    vnc_object_destroy(&host->object);
}

/* The host may have brought less than the work that was to. */
static void done_work_tells_of_no_more(void **state)
{
    struct rig *b = *state;
    const struct rig_values values = {.wait = 3, .signal = 5};
    rig_submit_values(b, 1, NULL, NULL, b->timeline, values, NULL);
    rig_submit_values(b, 0, NULL, b->timeline, NULL, values, b->fence);
    rig_report(b, 0, 1);
    assert_int_equal(value_of(b), 3);
    rig_report(b, 1, 1);
    assert_int_equal(value_of(b), 5);
}

/* Also when the program waits until a queue is idle. */
static void an_idle_queue_tells_of_what_it_waited_for(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 1, NULL, NULL, b->timeline, NULL);
    rig_submit(b, 1, NULL, NULL, b->binary, NULL);
    rig_submit(b, 0, NULL, b->binary, NULL, NULL);
    assert_int_equal(b->wait_idle(VNC_HANDLE(VkQueue, b->queues[0])), VK_SUCCESS);
    assert_int_equal(value_of(b), 1);
}

/* Of other queues only what it waited for is told, and not to the server, which would wait for all
 * that it is told of. */
static void what_it_did_not_wait_for_is_not_told(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 1, NULL, NULL, b->binary, NULL);
    rig_submit(b, 1, NULL, NULL, b->timeline, NULL);
    rig_submit(b, 0, NULL, b->binary, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(value_of(b), 0);
    assert_false(vnc_queue_has_reported(b->queues[1], 1));
}

/* By a binary semaphore that the other queue waited for a timeline with. */
static void what_waited_for_a_wait_is_told(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 0, NULL, NULL, b->timeline, NULL);
    rig_submit(b, 1, NULL, b->timeline, b->binary, NULL);
    rig_submit(b, 0, NULL, b->binary, NULL, NULL);
    rig_submit(b, 1, NULL, NULL, NULL, NULL);
    assert_int_equal(value_of(b), 0);
    assert_int_equal(b->wait_idle(VNC_HANDLE(VkQueue, b->queues[1])), VK_SUCCESS);
    assert_int_equal(value_of(b), 1);
    assert_false(vnc_queue_has_reported(b->queues[0], 1));
}

static void a_known_value_joins_no_queues(void **state)
{
    struct rig *b = *state;
    struct vnc_semaphore *host =
        vnc_object_create(b->link, VK_OBJECT_TYPE_SEMAPHORE, &b->device->object);
    host->timeline = true;
    rig_submit(b, 1, NULL, NULL, b->timeline, NULL);
    assert_int_equal(wait_for_value(b, 1, UINT64_MAX), VK_SUCCESS);
    rig_submit(b, 1, NULL, host, NULL, NULL);
    rig_submit(b, 0, NULL, b->timeline, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    rig_report(b, 1, 2);
    vnc_object_destroy(&host->object);
}

static void who_waits_for_visible_work_by_a_timeline_is_not(void **state)
{
    struct rig *b = *state;
    struct vnc_semaphore *host =
        vnc_object_create(b->link, VK_OBJECT_TYPE_SEMAPHORE, &b->device->object);
    host->timeline = true;
    rig_submit(b, 1, NULL, host, b->timeline, NULL);
    rig_submit(b, 0, NULL, b->timeline, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 1, 1);
    rig_report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    vnc_object_destroy(&host->object);
}

/* What is ours, and the program cannot see, does not hold its fences up. */
static void our_own_work_is_not_seen(void **state)
{
    struct rig *b = *state;
    struct rig_copy c;
    rig_copy_make(b, &c, SMALL);
    struct vnc_command_buffer *commands = c.commands;
    VkCommandBuffer handle = VNC_HANDLE(VkCommandBuffer, commands);
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkBufferCopy all = {.size = SMALL};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(handle, &begin), VK_SUCCESS);
    RIG_COMMAND(vkCmdCopyBuffer)
    (handle, VNC_HANDLE(VkBuffer, c.to), VNC_HANDLE(VkBuffer, c.from), 1, &all);
    assert_int_equal(RIG_COMMAND(vkEndCommandBuffer)(handle), VK_SUCCESS);
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &handle};
    assert_int_equal(vnc_queue_submit_own(b->queues[0], &info), VK_SUCCESS);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_false(vnc_queue_has_done(b->queues[0], 1));
    rig_report(b, 0, 2);
    VkQueue queue = VNC_HANDLE(VkQueue, b->queues[0]);
    assert_int_equal(b->submit(queue, 1, &info, VK_NULL_HANDLE), VK_SUCCESS);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY); /* the program's is seen */
    rig_report(b, 0, 4);
    rig_copy_free(b, &c);
}

static void who_waits_for_a_timeline_is_seen(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 0, NULL, b->timeline, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

static void what_comes_behind_visible_work_is_not_early(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 0, NULL, b->timeline, NULL, NULL);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 0, 2);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

static void another_queue_is_another_matter(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 1, NULL, b->timeline, NULL, NULL);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

/* Unless a semaphore joins them: what the first does is done when the fence is signalled. */
static void a_semaphore_joins_queues(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 1, NULL, b->timeline, NULL, NULL);
    rig_submit(b, 0, NULL, b->binary, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 1, 1);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

/* Also for work behind the one that waited; and no longer once the other queue is done. */
static void a_chain_ends_with_what_it_waits_for(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 1, NULL, b->timeline, NULL, NULL);
    rig_submit(b, 0, NULL, b->binary, NULL, NULL);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    rig_report(b, 1, 1);
    assert_int_equal(b->wait_idle(VNC_HANDLE(VkQueue, b->queues[0])), VK_SUCCESS);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_false(vnc_queue_has_done(b->queues[0], 1));
}

/* ---- a fence that is waited for before it is submitted ---- */

struct fence_waiter {
    struct rig *rig;
    VkFence fences[2];
    uint32_t count;
    uint64_t timeout;
    VkResult result;
    pthread_t thread;
};

static void *wait_for_any(void *arg)
{
    struct fence_waiter *w = arg;
    w->result = w->rig->wait(VNC_HANDLE(VkDevice, w->rig->device), w->count, w->fences, VK_FALSE,
                             w->timeout);
    return NULL;
}

/* When it returns the thread is counted; whether it sleeps yet must not matter. */
static void start_waiting(struct fence_waiter *w)
{
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_any, w), 0);
    while (atomic_load(&w->rig->fence->waiters) == 0)
        sched_yield();
}

static uint64_t told(struct rig *b)
{
    pthread_mutex_lock(&b->queues[0]->lock);
    uint64_t number = b->queues[0]->told;
    pthread_mutex_unlock(&b->queues[0]->lock);
    return number;
}

static void it_ends_with_the_batch(struct fence_waiter *w)
{
    struct rig *b = w->rig;
    start_waiting(w);
    uint64_t before = rig_sent(b).messages_sent;
    /* As nobody could see it, it would be left to leave with what follows, and not reported. */
    assert_int_equal(
        b->submit(VNC_HANDLE(VkQueue, b->queues[0]), 0, NULL, VNC_HANDLE(VkFence, b->fence)),
        VK_SUCCESS);
    assert_int_equal(told(b), 1);
    assert_true(rig_sent(b).messages_sent > before);
    rig_report(b, 0, 1);
    pthread_join(w->thread, NULL);
    assert_int_equal(w->result, VK_SUCCESS);
    assert_int_equal(atomic_load(&b->fence->waiters), 0);
}

static void who_waits_before_the_submission_hears_of_it(void **state)
{
    struct rig *b = *state;
    it_ends_with_the_batch(
        &(struct fence_waiter){b, {VNC_HANDLE(VkFence, b->fence)}, 1, .timeout = UINT64_MAX});
}

static void who_waits_for_any_before_the_submission_hears_of_it(void **state)
{
    struct rig *b = *state;
    struct vnc_fence *never = vnc_object_create(b->link, VK_OBJECT_TYPE_FENCE, &b->device->object);
    VkFence fence = VNC_HANDLE(VkFence, never);
    it_ends_with_the_batch(&(struct fence_waiter){
        b, {fence, VNC_HANDLE(VkFence, b->fence)}, 2, .timeout = RIG_PATIENCE_MS * HW_MS});
    assert_int_equal(b->wait(VNC_HANDLE(VkDevice, b->device), 1, &fence, VK_TRUE, HW_MS),
                     VK_TIMEOUT);
    assert_int_equal(atomic_load(&never->waiters), 0);
    vnc_object_destroy(&never->object);
}

/* Another thread that looks at the fence is told at once; who waits hears of it all the same. */
static void a_look_of_another_thread_leaves_nobody_waiting(void **state)
{
    struct rig *b = *state;
    struct fence_waiter w = {b, {VNC_HANDLE(VkFence, b->fence)}, 1, .timeout = UINT64_MAX};
    start_waiting(&w);
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.result, VK_SUCCESS);
    assert_int_equal(told(b), 1);
    rig_report(b, 0, 1);
}

/* Nobody waits: the report is saved. */
static void a_fence_that_nobody_waits_for_is_not_reported(void **state)
{
    struct rig *b = *state;
    rig_submit(b, 0, NULL, NULL, NULL, b->fence);
    assert_int_equal(told(b), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_nobody_sees_is_early, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(an_early_report_leaves_with_what_follows, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_fence_alone_leaves_with_what_follows, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_small_copy_travels_with_its_bytes, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(bytes_wait_for_early_work_that_reads_them, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(bytes_wait_for_no_more_than_the_program_believes, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(bytes_wait_for_an_end_that_the_server_sees, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(bytes_wait_until_a_queue_was_idle, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(bytes_wait_for_what_early_work_waited_for, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(bytes_wait_for_what_brought_the_value, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_signals_has_an_end_that_the_server_knows, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_small_copy_behind_visible_work_does_not, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_large_copy_is_recorded, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(small_recordings_gather, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_small_copy_leaves_before_work_that_is_recorded, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_small_copy_of_version_2_travels_with_its_bytes, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_timeline_is_early, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_fence_tells_of_timelines_before_it, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_timeline_behind_visible_work_is_not_early, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(who_waits_for_a_promised_value_is_early, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(who_waits_for_a_promised_value_tells_of_it, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(done_work_tells_of_the_values_that_it_waited_for, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(done_work_tells_of_no_more, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(an_idle_queue_tells_of_what_it_waited_for, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(what_it_did_not_wait_for_is_not_told, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_waited_for_a_wait_is_told, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_known_value_joins_no_queues, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(who_waits_for_visible_work_by_a_timeline_is_not, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(our_own_work_is_not_seen, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(who_waits_for_a_timeline_is_seen, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_comes_behind_visible_work_is_not_early, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(another_queue_is_another_matter, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_semaphore_joins_queues, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_chain_ends_with_what_it_waits_for, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(who_waits_before_the_submission_hears_of_it, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(who_waits_for_any_before_the_submission_hears_of_it,
                                        rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_look_of_another_thread_leaves_nobody_waiting, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_fence_that_nobody_waits_for_is_not_reported, rig_start,
                                        rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
