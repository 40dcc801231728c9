/* Batches over a device whose progress the test decides: reports, their order, and failures. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "duet.h"
#include "venus/common/protocol.h"
#include "venus/server/submit/queue.h"

enum { MEMORY = 7, QUEUE = 9, BYTES = 3 << 20, MAX_PENDING = 16 };

/* ---- the device ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t reached;
    VkResult result; /* of waits */
    VkResult submit_result;
    uint64_t asked_for;      /* by the last signal of its own */
    uint64_t awaited;        /* by the last wait */
    unsigned submissions;    /* of ours */
    unsigned updates, begun; /* commands, command buffers */
    bool is_late;            /* who sleeps for it does not wake up yet */
    bool coherent;
    unsigned flushes, invalidates, frees;
    uint8_t bytes[BYTES] __attribute__((aligned(64)));
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static void gpu_reaches(uint64_t value, VkResult result)
{
    pthread_mutex_lock(&gpu.lock);
    gpu.reached = value;
    gpu.result = result;
    pthread_cond_broadcast(&gpu.moved);
    pthread_mutex_unlock(&gpu.lock);
}

static void gpu_wakes_late(bool late)
{
    pthread_mutex_lock(&gpu.lock);
    gpu.is_late = late;
    pthread_cond_broadcast(&gpu.moved);
    pthread_mutex_unlock(&gpu.lock);
}

static VkResult wait_semaphores(VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout)
{
    (void)device;
    pthread_mutex_lock(&gpu.lock);
    bool patient = timeout >= HW_MS; /* the executor is not: its time is over at once */
    while (patient && (gpu.is_late || gpu.reached < info->pValues[0]) && gpu.result == VK_SUCCESS)
        pthread_cond_wait(&gpu.moved, &gpu.lock);
    VkResult result = gpu.result;
    if (result == VK_SUCCESS && gpu.reached < info->pValues[0])
        result = VK_TIMEOUT;
    pthread_mutex_unlock(&gpu.lock);
    return result;
}

static VkResult semaphore_value(VkDevice device, VkSemaphore semaphore, uint64_t *value)
{
    (void)device, (void)semaphore;
    pthread_mutex_lock(&gpu.lock);
    *value = gpu.reached;
    VkResult result = gpu.result;
    pthread_mutex_unlock(&gpu.lock);
    return result;
}

static VkResult create_semaphore(VkDevice device, const VkSemaphoreCreateInfo *info,
                                 const VkAllocationCallbacks *allocator, VkSemaphore *out)
{
    (void)device, (void)info, (void)allocator;
    *out = (VkSemaphore)(uintptr_t)1;
    return VK_SUCCESS;
}

static void destroy_semaphore(VkDevice device, VkSemaphore semaphore,
                              const VkAllocationCallbacks *allocator)
{
    (void)device, (void)semaphore, (void)allocator;
}

/* A batch of ours. */
static VkResult queue_submit(VkQueue handle, uint32_t count, const VkSubmitInfo *infos,
                             VkFence fence)
{
    const VkTimelineSemaphoreSubmitInfo *values = infos->pNext;
    (void)handle, (void)fence;
    assert_int_equal(count, 1);
    pthread_mutex_lock(&gpu.lock);
    gpu.submissions++;
    if (infos->signalSemaphoreCount)
        gpu.asked_for = values->pSignalSemaphoreValues[0];
    if (infos->waitSemaphoreCount)
        gpu.awaited = values->pWaitSemaphoreValues[0];
    pthread_mutex_unlock(&gpu.lock);
    return gpu.submit_result;
}

static VkResult create_pool(VkDevice device, const VkCommandPoolCreateInfo *info,
                            const VkAllocationCallbacks *allocator, VkCommandPool *out)
{
    (void)device, (void)info, (void)allocator;
    *out = (VkCommandPool)(uintptr_t)1;
    return VK_SUCCESS;
}

static void destroy_pool(VkDevice device, VkCommandPool pool,
                         const VkAllocationCallbacks *allocator)
{
    (void)device, (void)pool, (void)allocator;
}

static VkResult allocate_commands(VkDevice device, const VkCommandBufferAllocateInfo *info,
                                  VkCommandBuffer *out)
{
    (void)device;
    for (uint32_t i = 0; i < info->commandBufferCount; i++)
        out[i] = (VkCommandBuffer)(uintptr_t)(i + 1);
    return VK_SUCCESS;
}

static VkResult begin_commands(VkCommandBuffer commands, const VkCommandBufferBeginInfo *info)
{
    (void)commands, (void)info;
    gpu.begun++;
    return VK_SUCCESS;
}

static VkResult end_commands(VkCommandBuffer commands)
{
    (void)commands;
    return VK_SUCCESS;
}

static void put_barrier(VkCommandBuffer commands, VkPipelineStageFlags from,
                        VkPipelineStageFlags to, VkDependencyFlags flags, uint32_t memory_count,
                        const VkMemoryBarrier *memory, uint32_t buffer_count,
                        const VkBufferMemoryBarrier *buffers, uint32_t image_count,
                        const VkImageMemoryBarrier *images)
{
    (void)commands, (void)from, (void)to, (void)flags, (void)memory_count, (void)memory;
    (void)buffer_count, (void)buffers, (void)image_count, (void)images;
}

static void update_buffer(VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset,
                          VkDeviceSize size, const void *bytes)
{
    (void)commands, (void)buffer, (void)offset, (void)size, (void)bytes;
    gpu.updates++;
}

static void copy_buffer(VkCommandBuffer commands, VkBuffer from, VkBuffer to, uint32_t count,
                        const VkBufferCopy *regions)
{
    (void)commands, (void)from, (void)to, (void)count, (void)regions;
    gpu.updates++;
}

static VkResult allocate_memory(VkDevice device, const VkMemoryAllocateInfo *info,
                                const VkAllocationCallbacks *allocator, VkDeviceMemory *out)
{
    (void)device, (void)info, (void)allocator;
    *out = (VkDeviceMemory)(uintptr_t)1;
    return VK_SUCCESS;
}

static void free_memory(VkDevice device, VkDeviceMemory memory,
                        const VkAllocationCallbacks *allocator)
{
    (void)device, (void)memory, (void)allocator;
    gpu.frees++;
}

static VkResult map_memory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
                           VkDeviceSize size, VkMemoryMapFlags flags, void **out)
{
    (void)device, (void)memory, (void)offset, (void)size, (void)flags;
    *out = gpu.bytes;
    return VK_SUCCESS;
}

static VkResult flush_memory(VkDevice device, uint32_t count, const VkMappedMemoryRange *ranges)
{
    (void)device, (void)count, (void)ranges;
    gpu.flushes++;
    return VK_SUCCESS;
}

static VkResult invalidate_memory(VkDevice device, uint32_t count,
                                  const VkMappedMemoryRange *ranges)
{
    (void)device, (void)count, (void)ranges;
    gpu.invalidates++;
    return VK_SUCCESS;
}

/* Query n has the value n + 1. */
static VkResult query_results(VkDevice device, VkQueryPool pool, uint32_t first, uint32_t count,
                              size_t size, void *data, VkDeviceSize stride,
                              VkQueryResultFlags flags)
{
    (void)device, (void)pool, (void)size;
    assert_int_equal(flags, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
    for (uint32_t i = 0; i < count; i++)
        memcpy((uint8_t *)data + i * stride, (const uint64_t[]){first + i + 1, 1}, 16);
    return VK_SUCCESS;
}

/* ---- the fixture ---- */

static struct duet duet;
static struct vns_device device;
static struct vns_memories *memories;
static struct vns_reports reports;
static struct vns_queue *queue;
static bool spins; /* as where there are cores for it */

static void make_memory(void)
{
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = BYTES};
    VkDeviceMemory memory;
    assert_int_equal(vns_memories_allocate(memories, &device, MEMORY, &info, &memory), VK_SUCCESS);
    assert_int_equal(vns_memories_map(memories, MEMORY), VK_SUCCESS);
}

static void start_with(bool coherent)
{
    gpu.reached = 0;
    gpu.result = gpu.submit_result = VK_SUCCESS;
    gpu.asked_for = gpu.awaited = 0;
    gpu.submissions = gpu.updates = gpu.begun = 0;
    gpu.flushes = gpu.invalidates = gpu.frees = 0;
    memset(gpu.bytes, 0xcc, sizeof(gpu.bytes)); /* left by somebody else */
    device = (struct vns_device){.driver = {.vkCreateSemaphore = create_semaphore,
                                            .vkDestroySemaphore = destroy_semaphore,
                                            .vkQueueSubmit = queue_submit,
                                            .vkCreateCommandPool = create_pool,
                                            .vkDestroyCommandPool = destroy_pool,
                                            .vkAllocateCommandBuffers = allocate_commands,
                                            .vkBeginCommandBuffer = begin_commands,
                                            .vkEndCommandBuffer = end_commands,
                                            .vkCmdPipelineBarrier = put_barrier,
                                            .vkCmdUpdateBuffer = update_buffer,
                                            .vkCmdCopyBuffer = copy_buffer,
                                            .vkGetQueryPoolResults = query_results,
                                            .vkAllocateMemory = allocate_memory,
                                            .vkFreeMemory = free_memory},
                                 .map_memory = map_memory,
                                 .flush_memory = flush_memory,
                                 .invalidate_memory = invalidate_memory,
                                 .wait_semaphores = wait_semaphores,
                                 .semaphore_value = semaphore_value,
                                 .reporting = PTHREAD_MUTEX_INITIALIZER,
                                 .memory = {.memoryTypeCount = 1}};
    device.memory.memoryTypes[0].propertyFlags =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
        (coherent ? VK_MEMORY_PROPERTY_HOST_COHERENT_BIT : 0u);
    duet_start(&duet, 0, 0);
    duet_share(&duet, BYTES);
    assert_int_equal(vns_memories_create(&duet.channel, BYTES, &memories), 0);
    reports = (struct vns_reports){
        .channel = &duet.channel, .memories = memories, .max_pending = MAX_PENDING};
    assert_int_equal(vns_queue_create(&device, (VkQueue)(uintptr_t)1, QUEUE, &reports, &queue), 0);
    hw_wait_init_cores(&reports.wait, spins ? VN_SPIN_NS : 0, 4);
    hw_wait_init_cores(&queue->wait, spins ? VN_SPIN_NS : 0, 4);
    make_memory();
}

static int start(void **state)
{
    (void)state;
    start_with(true);
    return 0;
}

static int start_incoherent(void **state)
{
    (void)state;
    start_with(false);
    return 0;
}

static int end(void **state)
{
    (void)state;
    gpu_reaches(UINT64_MAX, VK_SUCCESS);
    vns_queue_destroy(queue);
    vns_memories_destroy(memories);
    duet_end(&duet);
    return 0;
}

static int announce_quiet(uint64_t number, int32_t kind)
{
    uint8_t body[8 + 4 + 4];
    struct wire_enc e;
    struct wire_dec d;
    wire_enc_init_fixed(&e, body, sizeof(body));
    wire_put_u64(&e, number);
    wire_put_u32(&e, 1);
    wire_put_i32(&e, kind);
    wire_dec_init(&d, body, wire_enc_len(&e));
    return vns_queue_begin_submit(queue, &d);
}

/* What the batch signals, 0 for nothing. */
static uint64_t submit_quiet(uint64_t number, int32_t kind, VkResult result)
{
    struct hw_arena arena;
    hw_arena_init(&arena, 4096);
    assert_int_equal(announce_quiet(number, kind), 0);
    struct vns_signal signal = vns_queue_signals(queue, &arena);
    uint64_t value = signal.values[0];
    hw_arena_fini(&arena);
    vns_queue_submitted(queue, result);
    return value;
}

static int announce(uint64_t first, uint32_t count, uint64_t offset, uint64_t bytes)
{
    uint8_t body[4096];
    struct wire_enc e;
    struct wire_dec d;
    wire_enc_init_fixed(&e, body, sizeof(body));
    wire_put_u64(&e, first);
    wire_put_u32(&e, count);
    for (uint32_t i = 0; i < count; i++) {
        wire_put_u32(&e, bytes ? 1 : 0);
        if (bytes) {
            wire_put_u64(&e, MEMORY);
            wire_put_u64(&e, offset);
            wire_put_u64(&e, bytes);
        }
    }
    wire_dec_init(&d, body, wire_enc_len(&e));
    return vns_queue_begin_submit(queue, &d);
}

static void submit(uint64_t first, uint32_t count, uint64_t bytes, VkResult result)
{
    assert_int_equal(announce(first, count, 0, bytes), 0);
    assert_true(vns_queue_expects(queue, count));
    vns_queue_submitted(queue, result);
}

static void expect_done(size_t index, uint64_t number, VkResult result)
{
    struct duet_done done = duet_done(&duet, index);
    assert_int_equal(done.queue, QUEUE);
    assert_int_equal(done.number, number);
    assert_int_equal(done.result, result);
}

/* ---- reports ---- */

static void a_batch_is_reported_when_the_device_is_there(void **state)
{
    (void)state;
    submit(1, 1, 0, VK_SUCCESS);
    submit(2, 2, 0, VK_SUCCESS);
    gpu_reaches(1, VK_SUCCESS);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_SUCCESS);
    gpu_reaches(3, VK_SUCCESS);
    duet_wait(&duet, 2);
    expect_done(1, 3, VK_SUCCESS);
}

static void quiet_batches_are_told_with_the_next_that_is_not(void **state)
{
    (void)state;
    assert_int_equal(submit_quiet(1, VN_BATCH_QUIET, VK_SUCCESS), 0);
    assert_int_equal(submit_quiet(2, VN_BATCH_UNTOLD, VK_SUCCESS), 2);
    gpu_reaches(2, VK_SUCCESS);
    assert_false(queue->started);
    submit(3, 1, 0, VK_SUCCESS);
    gpu_reaches(3, VK_SUCCESS);
    duet_wait(&duet, 1);
    expect_done(0, 3, VK_SUCCESS);
    assert_int_equal(gpu.asked_for, 0);
}

static void who_asks_for_a_quiet_batch_is_told(void **state)
{
    (void)state;
    (void)submit_quiet(1, VN_BATCH_QUIET, VK_SUCCESS);
    (void)submit_quiet(2, VN_BATCH_QUIET, VK_SUCCESS);
    assert_int_equal(vns_queue_ask(queue, 0), -EPROTO);
    assert_int_equal(vns_queue_ask(queue, 3), -EPROTO);
    assert_int_equal(vns_queue_ask(queue, 1), 0);
    assert_int_equal(gpu.asked_for, 2); /* one signal for all there is */
    gpu_reaches(2, VK_SUCCESS);
    duet_wait(&duet, 1);
    expect_done(0, 2, VK_SUCCESS);
    assert_int_equal(vns_queue_ask(queue, 2), 0); /* known already: nothing more to say */
    submit(3, 1, 0, VK_SUCCESS);
    gpu_reaches(3, VK_SUCCESS);
    duet_wait(&duet, 2);
    expect_done(1, 3, VK_SUCCESS);
}

/* The batch will signal its own number, which must be above ours. */
static void settling_before_a_submission_signals_less_than_it_will(void **state)
{
    (void)state;
    (void)submit_quiet(1, VN_BATCH_QUIET, VK_SUCCESS);
    assert_int_equal(vns_queue_report_early(queue, 1), 0);
    assert_int_equal(announce(2, 1, 0, 0), 0);
    gpu_reaches(1, VK_SUCCESS);
    (void)vns_queue_drain(queue, VNS_DRAIN_ALL);
    assert_int_equal(gpu.asked_for, 1);
    vns_queue_submitted(queue, VK_SUCCESS);
    gpu_reaches(2, VK_SUCCESS);
    duet_wait(&duet, 1);
    expect_done(0, 2, VK_SUCCESS);
}

/* Nobody waits for the batch, and the executor is the first to find out. */
static void a_device_lost_while_settling_is_told(void **state)
{
    (void)state;
    (void)submit_quiet(1, VN_BATCH_UNTOLD, VK_SUCCESS);
    assert_int_equal(vns_queue_report_early(queue, 1), 0);
    gpu_reaches(0, VK_ERROR_DEVICE_LOST);
    (void)vns_queue_drain(queue, VNS_DRAIN_ALL);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_ERROR_DEVICE_LOST);
    assert_int_equal(queue->ended, VK_ERROR_DEVICE_LOST);
}

static void failures_of_quiet_batches_are_told(void **state)
{
    (void)state;
    (void)submit_quiet(1, VN_BATCH_QUIET, VK_ERROR_DEVICE_LOST);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_ERROR_DEVICE_LOST);
}

static void a_signal_that_fails_is_told_to_who_asked(void **state)
{
    (void)state;
    (void)submit_quiet(1, VN_BATCH_QUIET, VK_SUCCESS);
    gpu.submit_result = VK_ERROR_DEVICE_LOST;
    assert_int_equal(vns_queue_ask(queue, 1), 0);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_ERROR_DEVICE_LOST);
}

/* ---- reports of the executor ---- */

static void short_work_is_reported_without_the_thread(void **state)
{
    (void)state;
    reports.holds = true;
    submit(1, 1, BYTES, VK_SUCCESS);
    submit(2, 1, 0, VK_SUCCESS);
    assert_ptr_equal(reports.held, queue);
    gpu.bytes[7] = 1;
    gpu_reaches(1, VK_SUCCESS);
    vns_queue_report_held(&reports);
    duet_wait(&duet, 2);
    assert_int_equal(duet.bytes[7], 1);
    expect_done(1, 1, VK_SUCCESS);
    assert_ptr_equal(reports.held, queue); /* for the second */
    gpu_reaches(2, VK_SUCCESS);
    vns_queue_report_held(&reports);
    duet_wait(&duet, 3);
    expect_done(2, 2, VK_SUCCESS);
    assert_null(reports.held);
    assert_false(queue->started);
}

static void long_work_is_left_to_the_thread(void **state)
{
    (void)state;
    reports.holds = true;
    submit(1, 1, 0, VK_SUCCESS);
    hw_wait_init_cores(&reports.wait, HW_NEVER, 4);
    vns_queue_report_held(&reports);
    assert_ptr_equal(reports.held, queue);
    hw_wait_init_cores(&reports.wait, 0, 4);
    for (uint64_t start = hw_now_ns(); reports.held && hw_now_ns() - start < 240 * HW_SEC;)
        vns_queue_report_held(&reports);
    assert_null(reports.held);
    assert_true(queue->started);
    gpu_reaches(1, VK_SUCCESS);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_SUCCESS);
}

static void what_arrives_meanwhile_leaves_it_to_the_thread(void **state)
{
    (void)state;
    reports.holds = true;
    submit(1, 1, 0, VK_SUCCESS);
    hw_wait_init_cores(&reports.wait, HW_NEVER, 4);
    vns_queue_report_held(&reports);
    vns_queue_hand_over(&reports);
    assert_null(reports.held);
    gpu_reaches(1, VK_SUCCESS);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_SUCCESS);
}

static void a_second_queue_takes_the_executor(void **state)
{
    struct vns_queue *first = queue, *second;
    (void)state;
    reports.holds = true;
    assert_int_equal(vns_queue_create(&device, (VkQueue)(uintptr_t)2, QUEUE, &reports, &second), 0);
    submit(1, 1, 0, VK_SUCCESS);
    queue = second;
    submit(1, 1, 0, VK_SUCCESS);
    assert_ptr_equal(reports.held, second);
    assert_true(first->started);
    gpu_reaches(1, VK_SUCCESS);
    duet_wait(&duet, 1);
    vns_queue_report_held(&reports);
    duet_wait(&duet, 2);
    assert_false(second->started);
    vns_queue_destroy(second);
    queue = first;
}

/* The second queue's batch waited for the first's, by a semaphore: who hears of it looks for what
 * the first wrote, though the thread that is to report that has not woken up. */
static void what_other_queues_wrote_comes_before_the_report(void **state)
{
    enum { FEW = 4 * VN_PAGE_BYTES }; /* what this thread writes, it reads afterwards */
    struct vns_queue *first = queue, *second;
    (void)state;
    submit(1, 1, FEW, VK_SUCCESS);
    assert_int_equal(vns_queue_create(&device, (VkQueue)(uintptr_t)2, QUEUE, &reports, &second), 0);
    queue = second;
    reports.holds = true;
    submit(1, 1, 0, VK_SUCCESS);
    assert_ptr_equal(reports.held, second);
    memset(gpu.bytes, 0x5a, FEW);
    gpu_wakes_late(true);
    gpu_reaches(1, VK_SUCCESS);
    vns_queue_report_held(&reports);
    assert_null(reports.held);
    size_t done = duet_wait_done(&duet);
    assert_true(done > 0);
    assert_memory_equal(duet.bytes, gpu.bytes, FEW);
    assert_int_equal(vns_memories_expose(memories, NULL, 0), 0);
    gpu_wakes_late(false); /* and the first is told of by its own thread */
    duet_wait(&duet, done + 2);
    queue = first;
    vns_queue_destroy(second);
}

/* ---- updates ---- */

static void update(uint64_t number, uint32_t count)
{
    static const struct vns_update some[2] = {{.size = 4, .bytes = "abc"},
                                              {.size = 4, .bytes = "def"}};
    assert_int_equal(announce_quiet(number, VN_BATCH_UNTOLD), 0);
    assert_true(vns_queue_expects_update(queue));
    assert_int_equal(vns_queue_update(queue, some, count), VK_SUCCESS);
}

static void updates_are_submitted_together(void **state)
{
    (void)state;
    update(1, 1);
    update(2, 2);
    update(3, 0);
    assert_int_equal(gpu.submissions, 0);
    vns_queue_submit_updates(queue);
    vns_queue_submit_updates(queue); /* there is nothing left */
    assert_int_equal(gpu.submissions, 1);
    assert_int_equal(gpu.begun, 1);
    assert_int_equal(gpu.updates, 3);
    assert_int_equal(gpu.asked_for, 3);
}

/* Were it to wait, it would for ever: the device does not get there. */
static void what_spares_updates_does_not_wait_for_them(void **state)
{
    (void)state;
    (void)submit_quiet(1, VN_BATCH_QUIET, VK_SUCCESS);
    update(2, 1);
    vns_queue_submit_updates(queue);
    assert_int_equal(vns_queue_report_early(queue, 2), 0);
    gpu_reaches(1, VK_SUCCESS);
    assert_true(vns_queue_drain(queue, VNS_DRAIN_PLAIN));
    assert_int_equal(queue->drained, 1);
    gpu_reaches(2, VK_SUCCESS);
    assert_false(vns_queue_drain(queue, VNS_DRAIN_ALL));
    assert_int_equal(queue->drained, 2);
}

static void who_waits_for_an_update_has_it_submitted_first(void **state)
{
    (void)state;
    update(1, 1);
    assert_int_equal(vns_queue_ask(queue, 1), 0);
    assert_int_equal(gpu.asked_for, 1);
    gpu_reaches(1, VK_SUCCESS);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_SUCCESS);
}

static void an_update_that_is_reported_is_submitted_at_once(void **state)
{
    (void)state;
    update(1, 1);
    assert_int_equal(announce(2, 1, 0, 0), 0);
    assert_int_equal(vns_queue_update(queue, NULL, 0), VK_SUCCESS);
    assert_int_equal(gpu.asked_for, 2);
    gpu_reaches(2, VK_SUCCESS);
    duet_wait(&duet, 1);
    expect_done(0, 2, VK_SUCCESS);
}

static void updates_that_fail_are_told(void **state)
{
    (void)state;
    update(1, 1);
    gpu.submit_result = VK_ERROR_DEVICE_LOST;
    vns_queue_submit_updates(queue);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_ERROR_DEVICE_LOST);
    assert_int_equal(announce_quiet(2, VN_BATCH_UNTOLD), 0);
    assert_int_equal(vns_queue_update(queue, NULL, 0), VK_ERROR_DEVICE_LOST);
}

static struct vns_queue *second_queue(void)
{
    struct vns_queue *second;
    assert_int_equal(vns_queue_create(&device, (VkQueue)(uintptr_t)2, QUEUE, &reports, &second), 0);
    return second;
}

/* At the device, once, and only for what the program was told. */
static void other_queues_wait_for_updates(void **state)
{
    struct vns_queue *first = queue, *second = second_queue();
    (void)state;
    update(1, 1);
    vns_queue_submit_updates(queue);
    vns_queue_follow(second, VNS_FOLLOW_ALL);
    assert_int_equal(gpu.submissions, 1);
    assert_int_equal(vns_queue_report_early(first, 1), 0);
    vns_queue_follow(first, VNS_FOLLOW_ALL); /* in order there anyway */
    assert_int_equal(gpu.submissions, 1);
    vns_queue_follow(second, VNS_FOLLOW_ALL);
    vns_queue_follow(second, VNS_FOLLOW_ALL);
    assert_int_equal(gpu.submissions, 2);
    assert_int_equal(gpu.awaited, 1);
    gpu_reaches(1, VK_SUCCESS);
    vns_queue_destroy(second);
}

/* The device does not get there, so whoever waited here would for ever. */
static void what_follows_early_work_waits_at_the_device(void **state)
{
    struct vns_queue *second = second_queue();
    (void)state;
    (void)submit_quiet(1, VN_BATCH_UNTOLD, VK_SUCCESS);
    assert_int_equal(vns_queue_report_early(queue, 1), 0);
    vns_queue_follow(queue, VNS_FOLLOW_OTHERS); /* it has a barrier */
    assert_int_equal(gpu.submissions, 0);
    vns_queue_follow(queue, VNS_FOLLOW_ALL);
    assert_int_equal(gpu.submissions, 1);
    assert_int_equal(gpu.awaited, 1);
    gpu.awaited = 0;
    vns_queue_follow(second, VNS_FOLLOW_OTHERS);
    assert_int_equal(gpu.submissions, 2);
    assert_int_equal(gpu.awaited, 1);
    assert_int_equal(queue->drained, 0);
    gpu_reaches(1, VK_SUCCESS);
    vns_queue_destroy(second);
}

/* A batch that signals nothing is made to first, and one that is done needs no wait. */
static void what_is_followed_is_signalled(void **state)
{
    (void)state;
    (void)submit_quiet(1, VN_BATCH_QUIET, VK_SUCCESS);
    assert_int_equal(vns_queue_report_early(queue, 1), 0);
    vns_queue_follow(queue, VNS_FOLLOW_ALL);
    assert_int_equal(gpu.submissions, 2);
    assert_int_equal(gpu.asked_for, 1);
    assert_int_equal(gpu.awaited, 1);
    (void)submit_quiet(2, VN_BATCH_UNTOLD, VK_SUCCESS);
    assert_int_equal(vns_queue_report_early(queue, 2), 0);
    gpu_reaches(2, VK_SUCCESS);
    vns_queue_follow(queue, VNS_FOLLOW_ALL);
    assert_int_equal(gpu.submissions, 2);
}

/* The device does not get further. */
static void one_batch_is_waited_for(void **state)
{
    (void)state;
    (void)submit_quiet(1, VN_BATCH_UNTOLD, VK_SUCCESS);
    (void)submit_quiet(2, VN_BATCH_UNTOLD, VK_SUCCESS);
    assert_int_equal(vns_queue_report_early(queue, 2), 0);
    gpu_reaches(1, VK_SUCCESS);
    assert_int_equal(vns_queue_drain_to(queue, 1), 0);
    assert_int_equal(queue->drained, 1);
    assert_int_equal(vns_queue_drain_to(queue, 0), -EPROTO);
    assert_int_equal(vns_queue_drain_to(queue, 3), -EPROTO);
    gpu_reaches(2, VK_SUCCESS);
}

/* A batch that the next one awaits at the device. */
static void submit_early(uint64_t number)
{
    (void)submit_quiet(number, VN_BATCH_UNTOLD, VK_SUCCESS);
    assert_int_equal(vns_queue_report_early(queue, number), 0);
    vns_queue_follow(queue, VNS_FOLLOW_ALL);
}

/* Until one more comes the device does not get anywhere. */
static void few_early_batches_are_under_way(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= VNS_EARLY_MAX; i++)
        submit_early(i);
    assert_int_equal(queue->drained, 0);
    assert_int_equal(gpu.submissions, VNS_EARLY_MAX);
    gpu_reaches(1, VK_SUCCESS);
    submit_early(VNS_EARLY_MAX + 1);
    assert_int_equal(queue->drained, 1);
    assert_int_equal(gpu.awaited, VNS_EARLY_MAX + 1);
    gpu_reaches(0, VK_ERROR_DEVICE_LOST);
    submit_early(VNS_EARLY_MAX + 2);
    duet_wait(&duet, 1);
    expect_done(0, VNS_EARLY_MAX + 2, VK_ERROR_DEVICE_LOST);
    assert_int_equal(gpu.submissions, VNS_EARLY_MAX + 1);
}

static void a_wait_that_cannot_be_submitted_ends_the_queue(void **state)
{
    (void)state;
    (void)submit_quiet(1, VN_BATCH_UNTOLD, VK_SUCCESS);
    assert_int_equal(vns_queue_report_early(queue, 1), 0);
    gpu.submit_result = VK_ERROR_DEVICE_LOST;
    vns_queue_follow(queue, VNS_FOLLOW_ALL);
    assert_int_equal(queue->ended, VK_ERROR_DEVICE_LOST);
    gpu_reaches(1, VK_SUCCESS);
}

static void who_asks_for_a_quiet_batch_is_told_by_the_executor(void **state)
{
    (void)state;
    reports.holds = true;
    (void)submit_quiet(1, VN_BATCH_QUIET, VK_SUCCESS);
    assert_null(reports.held);
    assert_int_equal(vns_queue_ask(queue, 1), 0);
    assert_ptr_equal(reports.held, queue);
    gpu_reaches(1, VK_SUCCESS);
    vns_queue_report_held(&reports);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_SUCCESS);
    assert_int_equal(vns_queue_ask(queue, 1), 0); /* known already */
    assert_null(reports.held);
    assert_false(queue->started);
}

static void a_device_lost_under_the_executor_is_told(void **state)
{
    (void)state;
    reports.holds = true;
    submit(1, 1, 0, VK_SUCCESS);
    gpu_reaches(0, VK_ERROR_DEVICE_LOST);
    vns_queue_report_held(&reports);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_ERROR_DEVICE_LOST);
    assert_null(reports.held);
    submit(2, 1, 0, VK_SUCCESS);
    assert_ptr_equal(reports.held, queue);
    submit(3, 1, 0, VK_SUCCESS); /* known now: both are the thread's */
    assert_null(reports.held);
    duet_wait(&duet, 2);
    expect_done(1, 3, VK_ERROR_DEVICE_LOST);
}

static void a_queue_that_ends_reports_what_is_held(void **state)
{
    (void)state;
    reports.holds = true;
    submit(1, 1, 0, VK_SUCCESS);
    gpu_reaches(1, VK_SUCCESS);
    vns_queue_destroy(queue);
    assert_null(reports.held);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_SUCCESS);
    assert_int_equal(vns_queue_create(&device, (VkQueue)(uintptr_t)1, QUEUE, &reports, &queue), 0);
}

/* ---- memory ---- */

static void whole_pages_are_stored_and_do_not_come_back(void **state)
{
    uint8_t *page = malloc(VN_PAGE_BYTES);
    struct vns_range all = {.memory = MEMORY, .bytes = BYTES};
    (void)state;
    memset(page, 5, VN_PAGE_BYTES);
    unsigned flushes = gpu.flushes;
    assert_int_equal(vns_memories_store(memories, MEMORY, VN_PAGE_BYTES, page, VN_PAGE_BYTES), 0);
    assert_int_equal(gpu.flushes, flushes + 1);
    assert_memory_equal(gpu.bytes + VN_PAGE_BYTES, page, VN_PAGE_BYTES);
    assert_int_equal(gpu.bytes[VN_PAGE_BYTES - 1] | gpu.bytes[2 * VN_PAGE_BYTES], 0);
    assert_int_equal(vns_memories_read(memories, &all, 1, 0), 0);
    assert_int_equal(vns_report_done(&duet.channel, QUEUE, 1, VK_SUCCESS), 0);
    assert_int_equal(duet_wait_done(&duet), 0); /* no delta before it */
    assert_int_equal(vns_memories_store(memories, 99, 0, page, 1), -ENOENT);
    assert_int_equal(vns_memories_store(memories, MEMORY, 8, page, 1), -EPROTO);
    assert_int_equal(vns_memories_store(memories, MEMORY, BYTES, page, 1), -EPROTO);
    assert_int_equal(vns_memories_store(memories, MEMORY, UINT64_MAX, page, 1), -EPROTO);
    free(page);
}

static void what_a_batch_wrote_comes_before_its_report(void **state)
{
    (void)state;
    assert_int_equal(gpu.bytes[0], 0); /* cleared by the map */
    submit(1, 1, BYTES, VK_SUCCESS);
    for (size_t i = 0; i < BYTES; i++)
        gpu.bytes[i] = (uint8_t)(i * 7 >> 3);
    gpu_reaches(1, VK_SUCCESS);
    size_t last = duet_wait_done(&duet);
    assert_true(last > 1); /* more than one delta holds */
    for (size_t i = 0; i < last; i++)
        assert_int_equal(duet.pushes[i].method, VN_PUSH_DELTA);
    expect_done(last, 1, VK_SUCCESS);
    assert_memory_equal(duet.bytes, gpu.bytes, BYTES);
}

/* Pages that came and did not change are those of whoever wrote there since: they come again only
 * while the batch is under way. */
static void awaited_pages_come_whole_until_their_batch_is_done(void **state)
{
    enum { LEN = 8 * VN_PAGE_BYTES };
    const struct vns_range ranges = {.memory = MEMORY, .bytes = BYTES};
    (void)state;
    submit(1, 1, LEN | VN_RANGE_FILLED | VN_RANGE_AWAITED, VK_SUCCESS);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(vns_memories_read(memories, &ranges, 1, 0), 0);
        duet_wait(&duet, i + 1);
        assert_int_equal(duet.pushes[i].method, VN_PUSH_PAGES);
        assert_int_equal(duet.pushes[i].len, 16 + LEN);
    }
    gpu_reaches(1, VK_SUCCESS);
    assert_int_equal(duet_wait_done(&duet), 3);
    assert_int_equal(duet.pushes[2].method, VN_PUSH_PAGES);
    assert_int_equal(vns_memories_read(memories, &ranges, 1, 0), 0);
    assert_int_equal(vns_report_done(&duet.channel, QUEUE, 2, VK_SUCCESS), 0);
    duet_wait(&duet, 5);
    expect_done(4, 2, VK_SUCCESS);
}

static void only_the_named_pages_are_compared(void **state)
{
    (void)state;
    assert_int_equal(announce(1, 1, 4096, 1), 0);
    vns_queue_submitted(queue, VK_SUCCESS);
    memset(gpu.bytes, 1, 3 * 4096);
    gpu_reaches(1, VK_SUCCESS);
    assert_int_equal(duet_wait_done(&duet), 1);
    assert_int_equal(duet.bytes[4095], 0);
    assert_int_equal(duet.bytes[4096], 1);
    assert_int_equal(duet.bytes[8191], 1);
    assert_int_equal(duet.bytes[8192], 0);
}

static void the_hosts_write_wins_and_is_flushed(void **state)
{
    struct vn_delta_codec *codec;
    struct vn_shadow twin;
    struct wire_enc e;
    size_t page = 0;
    uint8_t *host = calloc(1, BYTES);
    (void)state;
    assert_int_equal(gpu.flushes, 1); /* of the zeros */
    assert_int_equal(vn_delta_codec_create(0, &codec), 0);
    assert_int_equal(vn_shadow_init(&twin, BYTES), 0);
    wire_enc_init(&e, 1 << 20);
    memset(host + 10, 5, 10);
    assert_int_equal(
        vn_shadow_encode(&twin, host, (struct vn_pages){0}, &page, 1, codec, &e, 1 << 16), 1);
    gpu.bytes[12] = 9;
    gpu.bytes[30] = 9;
    assert_int_equal(vns_memories_apply(memories, MEMORY, wire_enc_data(&e), wire_enc_len(&e)), 0);
    assert_int_equal(gpu.flushes, 2);
    assert_int_equal(gpu.bytes[12], 5);
    assert_int_equal(gpu.bytes[30], 9);
    struct vns_range range = {.memory = MEMORY, .bytes = BYTES};
    assert_int_equal(vns_memories_read(memories, &range, 1, 0), 0);
    assert_int_equal(gpu.invalidates, 1);
    vn_shadow_fini(&twin);
    vn_delta_codec_destroy(codec);
    wire_enc_fini(&e);
    free(host);
}

static void deltas_for_memory_that_is_not_mapped_are_refused(void **state)
{
    (void)state;
    assert_int_equal(vns_memories_apply(memories, 99, "", 0), -ENOENT);
    assert_int_equal(vns_memories_map(memories, 99), VK_ERROR_MEMORY_MAP_FAILED);
    assert_int_equal(vns_memories_apply(memories, MEMORY, "\xff", 1), -EPROTO);
}

/* A client may free memory whose batch is not done. */
static void freed_memory_is_not_read(void **state)
{
    (void)state;
    submit(1, 1, BYTES, VK_SUCCESS);
    vns_memories_forget(memories, MEMORY);
    gpu.bytes[0] = 1;
    gpu_reaches(1, VK_SUCCESS);
    duet_wait(&duet, 1);
    expect_done(0, 1, VK_SUCCESS);
}

/* ---- failures ---- */

static struct vns_question question(uint64_t number, uint32_t first, uint32_t count)
{
    return (struct vns_question){.number = number,
                                 .id = 21,
                                 .use = 31,
                                 .pool = (VkQueryPool)(uintptr_t)(41 + first),
                                 .first = first,
                                 .count = count,
                                 .values = 1};
}

static int ask(uint64_t number, uint32_t first, uint32_t count)
{
    struct vns_question asked = question(number, first, count);
    return vns_results_ask(queue, &asked);
}

static void results_come_before_the_report(void **state)
{
    (void)state;
    assert_int_equal(ask(1, 3, 2), 0);
    assert_int_equal(ask(2, 7, 1), 0);
    submit(1, 1, 0, VK_SUCCESS);
    submit(2, 1, 0, VK_SUCCESS);
    gpu_reaches(1, VK_SUCCESS);
    duet_wait(&duet, 2);
    const struct duet_push *push = &duet.pushes[0];
    assert_int_equal(push->method, VN_PUSH_RESULTS);
    assert_int_equal(push->len, 24 + 2 * 16);
    assert_int_equal(wire_load64(push->head), 21);
    assert_int_equal(wire_load64(push->head + 8), 31);
    assert_int_equal(wire_load32(push->head + 16), 3);
    expect_done(1, 1, VK_SUCCESS);
    gpu_reaches(2, VK_SUCCESS);
    duet_wait(&duet, 4);
    assert_int_equal(duet.pushes[2].len, 24 + 16);
    expect_done(3, 2, VK_SUCCESS);
}

static void pools_that_end_are_not_read(void **state)
{
    (void)state;
    assert_int_equal(ask(1, 3, 2), 0);
    assert_int_equal(ask(1, 7, 1), 0);
    submit(1, 1, 0, VK_SUCCESS);
    vns_results_forget(queue, question(1, 3, 2).pool);
    gpu_reaches(1, VK_SUCCESS);
    assert_int_equal(duet_wait_done(&duet), 1);
    assert_int_equal(duet.pushes[0].len, 24 + 16);
}

/* Beyond the limit they are left out; the client notices that nothing has come. */
static void questions_are_bounded(void **state)
{
    (void)state;
    struct vns_question wide = question(1, 0, 1);
    wide.values = UINT32_MAX;
    assert_int_equal(vns_results_ask(queue, &wide), -EPROTO);
    assert_int_equal(ask(1, 0, 0), -EPROTO);
    assert_int_equal(ask(1, 0, VN_RESULTS_BYTES / 16 + 1), -EPROTO);
    for (int i = 0; i < VNS_QUESTIONS_MAX + 5; i++)
        assert_int_equal(ask(1, 0, 1), 0);
    submit(1, 1, 0, VK_SUCCESS);
    gpu_reaches(1, VK_SUCCESS);
    assert_int_equal(duet_wait_done(&duet), VNS_QUESTIONS_MAX);
}

static void a_failed_submission_is_reported_after_those_before_it(void **state)
{
    (void)state;
    submit(1, 1, 0, VK_SUCCESS);
    submit(2, 1, 0, VK_ERROR_OUT_OF_DEVICE_MEMORY);
    submit(3, 1, 0, VK_SUCCESS);
    gpu_reaches(1, VK_SUCCESS);
    duet_wait(&duet, 2);
    expect_done(0, 1, VK_SUCCESS);
    expect_done(1, 3, VK_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(queue->ended, VK_ERROR_OUT_OF_DEVICE_MEMORY);
}

static void a_lost_device_ends_everything_outstanding(void **state)
{
    (void)state;
    submit(1, 2, 0, VK_SUCCESS);
    submit(3, 1, 0, VK_SUCCESS);
    gpu_reaches(0, VK_ERROR_DEVICE_LOST);
    duet_wait(&duet, 1);
    uint64_t told = duet_done(&duet, 0).number;
    if (told < 3) {
        duet_wait(&duet, 2);
        told = duet_done(&duet, 1).number;
    }
    assert_int_equal(told, 3);
    assert_int_equal(duet_done(&duet, 0).result, VK_ERROR_DEVICE_LOST);
}

static void numbers_must_follow_each_other(void **state)
{
    (void)state;
    assert_int_equal(announce(2, 1, 0, 0), -EPROTO);
    assert_int_equal(announce(1, 0, 0, 0), -EPROTO);
    assert_int_equal(announce(1, 1, 0, 0), 0);
    assert_int_equal(announce(2, 1, 0, 0), -EPROTO); /* the first waits for its submission */
}

static void pending_batches_have_a_limit(void **state)
{
    (void)state;
    submit(1, MAX_PENDING, 0, VK_SUCCESS);
    assert_int_equal(announce(MAX_PENDING + 1, 1, 0, 0), -EDQUOT);
}

static void memory_has_a_limit(void **state)
{
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = 1};
    VkDeviceMemory memory;
    (void)state;
    assert_int_equal(vns_memories_allocate(memories, &device, 8, &info, &memory),
                     VK_ERROR_OUT_OF_DEVICE_MEMORY);
    info.allocationSize = UINT64_MAX;
    assert_int_equal(vns_memories_allocate(memories, &device, 8, &info, &memory),
                     VK_ERROR_OUT_OF_DEVICE_MEMORY);
    info.memoryTypeIndex = 1;
    assert_int_equal(vns_memories_allocate(memories, &device, 8, &info, &memory), VK_ERROR_UNKNOWN);
    vns_memories_forget(memories, MEMORY);
    info = (VkMemoryAllocateInfo){.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                  .allocationSize = 1};
    assert_int_equal(vns_memories_allocate(memories, &device, 8, &info, &memory), VK_SUCCESS);
    vns_memories_free_device(memories, &device);
    assert_int_equal(gpu.frees, 1); /* of the one that the client had not freed */
    info.allocationSize = BYTES;
    assert_int_equal(vns_memories_allocate(memories, &device, 10, &info, &memory), VK_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_batch_is_reported_when_the_device_is_there, start, end),
        cmocka_unit_test_setup_teardown(quiet_batches_are_told_with_the_next_that_is_not, start,
                                        end),
        cmocka_unit_test_setup_teardown(who_asks_for_a_quiet_batch_is_told, start, end),
        cmocka_unit_test_setup_teardown(settling_before_a_submission_signals_less_than_it_will,
                                        start, end),
        cmocka_unit_test_setup_teardown(a_device_lost_while_settling_is_told, start, end),
        cmocka_unit_test_setup_teardown(failures_of_quiet_batches_are_told, start, end),
        cmocka_unit_test_setup_teardown(a_signal_that_fails_is_told_to_who_asked, start, end),
        cmocka_unit_test_setup_teardown(short_work_is_reported_without_the_thread, start, end),
        cmocka_unit_test_setup_teardown(long_work_is_left_to_the_thread, start, end),
        cmocka_unit_test_setup_teardown(what_arrives_meanwhile_leaves_it_to_the_thread, start, end),
        cmocka_unit_test_setup_teardown(a_second_queue_takes_the_executor, start, end),
        cmocka_unit_test_setup_teardown(updates_are_submitted_together, start, end),
        cmocka_unit_test_setup_teardown(what_spares_updates_does_not_wait_for_them, start, end),
        cmocka_unit_test_setup_teardown(who_waits_for_an_update_has_it_submitted_first, start, end),
        cmocka_unit_test_setup_teardown(an_update_that_is_reported_is_submitted_at_once, start,
                                        end),
        cmocka_unit_test_setup_teardown(updates_that_fail_are_told, start, end),
        cmocka_unit_test_setup_teardown(other_queues_wait_for_updates, start, end),
        cmocka_unit_test_setup_teardown(what_follows_early_work_waits_at_the_device, start, end),
        cmocka_unit_test_setup_teardown(what_is_followed_is_signalled, start, end),
        cmocka_unit_test_setup_teardown(one_batch_is_waited_for, start, end),
        cmocka_unit_test_setup_teardown(few_early_batches_are_under_way, start, end),
        cmocka_unit_test_setup_teardown(a_wait_that_cannot_be_submitted_ends_the_queue, start, end),
        cmocka_unit_test_setup_teardown(what_other_queues_wrote_comes_before_the_report, start,
                                        end),
        cmocka_unit_test_setup_teardown(who_asks_for_a_quiet_batch_is_told_by_the_executor, start,
                                        end),
        cmocka_unit_test_setup_teardown(a_device_lost_under_the_executor_is_told, start, end),
        cmocka_unit_test_setup_teardown(a_queue_that_ends_reports_what_is_held, start, end),
        cmocka_unit_test_setup_teardown(whole_pages_are_stored_and_do_not_come_back,
                                        start_incoherent, end),
        cmocka_unit_test_setup_teardown(what_a_batch_wrote_comes_before_its_report, start, end),
        cmocka_unit_test_setup_teardown(awaited_pages_come_whole_until_their_batch_is_done, start,
                                        end),
        cmocka_unit_test_setup_teardown(only_the_named_pages_are_compared, start, end),
        cmocka_unit_test_setup_teardown(the_hosts_write_wins_and_is_flushed, start_incoherent, end),
        cmocka_unit_test_setup_teardown(deltas_for_memory_that_is_not_mapped_are_refused, start,
                                        end),
        cmocka_unit_test_setup_teardown(freed_memory_is_not_read, start, end),
        cmocka_unit_test_setup_teardown(results_come_before_the_report, start, end),
        cmocka_unit_test_setup_teardown(pools_that_end_are_not_read, start, end),
        cmocka_unit_test_setup_teardown(questions_are_bounded, start, end),
        cmocka_unit_test_setup_teardown(a_failed_submission_is_reported_after_those_before_it,
                                        start, end),
        cmocka_unit_test_setup_teardown(a_lost_device_ends_everything_outstanding, start, end),
        cmocka_unit_test_setup_teardown(numbers_must_follow_each_other, start, end),
        cmocka_unit_test_setup_teardown(pending_batches_have_a_limit, start, end),
        cmocka_unit_test_setup_teardown(memory_has_a_limit, start, end),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    spins = true;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
