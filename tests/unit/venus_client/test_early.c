/* Which fences are signalled before their work is done (docs/design/fences.md), with two queues and
 * a server that does nothing until it is told to. */
#include "unit.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/driver_counts.h"
#include "rpc/transport/net.h"
#include "venus/client/device/device.h"
#include "venus/client/memory/memory.h"
#include "venus/client/object/objects.h"
#include "venus/client/object/sync.h"
#include "venus/client/record/command.h"
#include "venus/client/submit/queue.h"
#include "venus/common/protocol.h"

enum { QUEUES = 2, PATIENCE_MS = 30000 };

/* ---- the server: takes what comes, says that batches are done ---- */

struct server {
    struct rpc_listener *listener;
    pthread_t thread;
    struct rpc_ep *ep;
    pthread_mutex_t lock; /* guards the rest */
    bool stop;
    uint64_t queue, number; /* to report; number 0: nothing */
};

static void push_done(struct rpc_ep *ep, uint64_t queue, uint64_t number)
{
    uint8_t recording[8 + 8 + 4];
    struct wire_enc e;
    wire_enc_init_fixed(&e, recording, sizeof(recording));
    wire_put_u64(&e, queue);
    wire_put_u64(&e, number);
    wire_put_i32(&e, VK_SUCCESS);
    struct iovec iov = {recording, sizeof(recording)};
    struct rpc_send send = {.method = VN_PUSH_DONE, .iov = &iov, .iov_count = 1};
    assert_int_equal(rpc_push(ep, &send), 0);
}

/* False when it is time to stop. */
static bool obey(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->number)
        push_done(s->ep, s->queue, s->number);
    s->number = 0;
    bool going = !s->stop;
    pthread_mutex_unlock(&s->lock);
    return going;
}

static void *serve(void *arg)
{
    struct server *s = arg;
    struct rpc_transport *transport = NULL;
    struct rpc_config config = {.accepting = true};
    struct rpc_msg *msg;
    while (s->listener->ops->accept(s->listener, &transport) == -EAGAIN) {
        struct pollfd p = {.fd = s->listener->ops->poll_fd(s->listener), .events = POLLIN};
        poll(&p, 1, PATIENCE_MS);
    }
    assert_int_equal(rpc_ep_create(transport, &config, &s->ep), 0);
    do {
        (void)rpc_poll(s->ep);
        while ((msg = rpc_recv(s->ep)) != NULL)
            rpc_release(s->ep, msg);
        (void)rpc_flush(s->ep);
        (void)rpc_wait(s->ep, HW_MS);
    } while (obey(s));
    return NULL;
}

/* ---- the client: a device without a driver ---- */

struct bench {
    struct server server;
    struct vnc_link *link;
    struct vnc_pushes *pushes;
    struct vnc_physical_device physical;
    struct vnc_device *device;
    struct vnc_queue *queues[QUEUES];
    struct vnc_fence *fence;
    struct vnc_semaphore *timeline, *binary;
    PFN_vkQueueSubmit submit;
    PFN_vkQueueWaitIdle wait_idle;
    PFN_vkGetFenceStatus status;
    PFN_vkWaitForFences wait;
};

static PFN_vkVoidFunction entry(const struct vnc_entry *table, const char *name)
{
    while (strcmp(table->name, name) != 0)
        table++;
    return table->function;
}

static void connect_link(struct bench *b)
{
    char why[RPC_WHY_CHARS] = "";
    struct rpc_addr addr;
    struct rpc_net_options net = {0};
    assert_int_equal(rpc_addr_parse("127.0.0.1:0", &addr, why), 0);
    assert_int_equal(rpc_listen(&addr, &net, &b->server.listener, why), 0);
    assert_int_equal(rpc_addr_parse(b->server.listener->address, &addr, why), 0);
    pthread_mutex_init(&b->server.lock, NULL);
    assert_int_equal(pthread_create(&b->server.thread, NULL, serve, &b->server), 0);
    b->pushes = vnc_pushes_create(NULL);
    assert_non_null(b->pushes);
    assert_int_equal(vnc_link_create(&addr, NULL, &vnc_push_handlers, b->pushes, &b->link, why), 0);
}

static int start(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    connect_link(b);
    b->physical.link = b->link;
    b->device = vnc_object_create(b->link, VK_OBJECT_TYPE_DEVICE, &b->physical.object);
    b->device->physical = &b->physical;
    b->device->pushes = b->pushes;
    b->device->queues = b->queues;
    b->device->queue_count = QUEUES;
    pthread_mutex_init(&b->device->lock, NULL);
    for (int i = 0; i < QUEUES; i++) {
        b->queues[i] = vnc_object_create(b->link, VK_OBJECT_TYPE_QUEUE, &b->device->object);
        assert_int_equal(vnc_pushes_add_queue(b->pushes, b->queues[i]), 0);
    }
    b->fence = vnc_object_create(b->link, VK_OBJECT_TYPE_FENCE, &b->device->object);
    b->binary = vnc_object_create(b->link, VK_OBJECT_TYPE_SEMAPHORE, &b->device->object);
    b->timeline = vnc_object_create(b->link, VK_OBJECT_TYPE_SEMAPHORE, &b->device->object);
    b->timeline->timeline = true;
    b->submit = (PFN_vkQueueSubmit)entry(vnc_entries_queue, "vkQueueSubmit");
    b->wait_idle = (PFN_vkQueueWaitIdle)entry(vnc_entries_queue, "vkQueueWaitIdle");
    b->status = (PFN_vkGetFenceStatus)entry(vnc_entries_sync, "vkGetFenceStatus");
    b->wait = (PFN_vkWaitForFences)entry(vnc_entries_sync, "vkWaitForFences");
    *state = b;
    return 0;
}

static int end(void **state)
{
    struct bench *b = *state;
    pthread_mutex_lock(&b->server.lock);
    b->server.stop = true;
    pthread_mutex_unlock(&b->server.lock);
    pthread_join(b->server.thread, NULL);
    for (int i = 0; i < QUEUES; i++) {
        vnc_pushes_remove_queue(b->pushes, b->queues[i]);
        vnc_object_destroy(&b->queues[i]->object);
    }
    vnc_object_destroy(&b->fence->object);
    vnc_object_destroy(&b->binary->object);
    vnc_object_destroy(&b->timeline->object);
    pthread_mutex_destroy(&b->device->lock);
    vnc_object_destroy(&b->device->object);
    vnc_link_destroy(b->link);
    vnc_pushes_destroy(b->pushes);
    rpc_ep_destroy(b->server.ep);
    rpc_listener_destroy(b->server.listener);
    pthread_mutex_destroy(&b->server.lock);
    free(b);
    return 0;
}

/* One batch without commands on the queue. */
static void submit(struct bench *b, int queue, struct vnc_semaphore *wait,
                   struct vnc_semaphore *signal, struct vnc_fence *fence)
{
    VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkSemaphore waits = VNC_HANDLE(VkSemaphore, wait), signals = VNC_HANDLE(VkSemaphore, signal);
    uint64_t value = 1;
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .waitSemaphoreValueCount = wait != NULL,
                                            .pWaitSemaphoreValues = &value,
                                            .signalSemaphoreValueCount = signal != NULL,
                                            .pSignalSemaphoreValues = &value};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .waitSemaphoreCount = wait != NULL,
                         .pWaitSemaphores = &waits,
                         .pWaitDstStageMask = &stage,
                         .signalSemaphoreCount = signal != NULL,
                         .pSignalSemaphores = &signals};
    assert_int_equal(
        b->submit(VNC_HANDLE(VkQueue, b->queues[queue]), 1, &info, VNC_HANDLE(VkFence, fence)),
        VK_SUCCESS);
}

static VkResult fence_status(struct bench *b)
{
    return b->status(VNC_HANDLE(VkDevice, b->device), VNC_HANDLE(VkFence, b->fence));
}

/* The server reports the batch, and the client has heard of it. */
static void report(struct bench *b, int queue, uint64_t number)
{
    pthread_mutex_lock(&b->server.lock);
    b->server.queue = b->queues[queue]->object.id;
    b->server.number = number;
    pthread_mutex_unlock(&b->server.lock);
    uint64_t deadline = hw_now_ns() + PATIENCE_MS * HW_MS;
    while (!vnc_queue_has_done(b->queues[queue], number)) {
        assert_true(hw_now_ns() < deadline);
        vnc_link_poll(b->link);
    }
}

static void what_nobody_sees_is_early(void **state)
{
    struct bench *b = *state;
    submit(b, 0, NULL, NULL, NULL);
    submit(b, 0, NULL, b->binary, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_false(vnc_queue_has_done(b->queues[0], 1));
}

static struct hw_driver_counts sent(const struct bench *b)
{
    struct hw_driver_counts counts;
    vnc_link_counts(b->link, &counts);
    return counts;
}

/* The server needs to know before the next submission, and no earlier. */
static void an_early_report_leaves_with_what_follows(void **state)
{
    struct bench *b = *state;
    VkFence fence = VNC_HANDLE(VkFence, b->fence);
    submit(b, 0, NULL, NULL, b->fence);
    struct hw_driver_counts before = sent(b);
    assert_int_equal(b->wait(VNC_HANDLE(VkDevice, b->device), 1, &fence, VK_TRUE, UINT64_MAX),
                     VK_SUCCESS);
    assert_int_equal(sent(b).messages_sent, before.messages_sent);
    submit(b, 0, NULL, NULL, NULL);
    submit(b, 0, NULL, NULL, NULL);
    struct hw_driver_counts after = sent(b);
    assert_int_equal(after.messages_sent, before.messages_sent + 2);
    assert_int_equal(after.exchanges, before.exchanges);
}

/* As do small copies: nobody waits for it. */
static void a_fence_alone_leaves_with_what_follows(void **state)
{
    struct bench *b = *state;
    submit(b, 0, NULL, NULL, NULL);
    struct hw_driver_counts before = sent(b);
    assert_int_equal(
        b->submit(VNC_HANDLE(VkQueue, b->queues[0]), 0, NULL, VNC_HANDLE(VkFence, b->fence)),
        VK_SUCCESS);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(sent(b).messages_sent, before.messages_sent);
    submit(b, 0, NULL, NULL, NULL);
    assert_int_equal(sent(b).messages_sent, before.messages_sent + 1);
}

/* ---- recordings of copies ---- */

#define COMMAND(name) ((PFN_##name)entry(vnc_entries_command, #name))

enum { SMALL = 4096, LARGE = 16 * VN_UPDATE_BYTES };

/* A recording that copies mapped memory to a buffer that the host cannot see. */
struct copy {
    struct vnc_memory *memory;
    struct vnc_resource *from, *to;
    struct vn_object *pool;
    struct vnc_command_buffer *commands;
};

static void copy_make(struct bench *b, struct copy *c, size_t size)
{
    struct vn_object *device = &b->device->object;
    struct vn_region_params params = {.size = size};
    c->memory = vnc_object_create(b->link, VK_OBJECT_TYPE_DEVICE_MEMORY, device);
    c->memory->device = b->device;
    c->memory->size = size;
    c->memory->host_visible = c->memory->tracked = true;
    assert_int_equal(vn_region_create(&params, &c->memory->region), 0);
    memset(vn_region_memory(c->memory->region), 0x5a, size);
    c->from = vnc_object_create(b->link, VK_OBJECT_TYPE_BUFFER, device);
    c->to = vnc_object_create(b->link, VK_OBJECT_TYPE_BUFFER, device);
    c->from->size = c->to->size = size;
    c->from->memory = vnc_memory_ref(c->memory);
    c->pool = vnc_object_create(b->link, VK_OBJECT_TYPE_COMMAND_POOL, device);
    c->commands = vnc_object_create(b->link, VK_OBJECT_TYPE_COMMAND_BUFFER, device);
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, c->commands);
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkBufferCopy all = {.size = size};
    assert_int_equal(COMMAND(vkBeginCommandBuffer)(commands, &info), VK_SUCCESS);
    COMMAND(vkCmdCopyBuffer)
    (commands, VNC_HANDLE(VkBuffer, c->from), VNC_HANDLE(VkBuffer, c->to), 1, &all);
    assert_int_equal(COMMAND(vkEndCommandBuffer)(commands), VK_SUCCESS);
}

static void copy_free(struct copy *c)
{
    vnc_object_destroy((struct vn_object *)c->commands);
    vnc_object_destroy(c->pool);
    vnc_object_destroy(&c->to->object);
    vnc_object_destroy(&c->from->object);
    vn_region_destroy(c->memory->region);
    vnc_object_destroy(&c->memory->object);
}

static void copy_submit(struct bench *b, const struct copy *c)
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
    struct bench *b = *state;
    struct copy c;
    copy_make(b, &c, SMALL);
    submit(b, 0, NULL, NULL, NULL);
    struct hw_driver_counts before = sent(b);
    copy_submit(b, &c);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(sent(b).messages_sent, before.messages_sent);
    submit(b, 0, NULL, NULL, NULL);
    struct hw_driver_counts after = sent(b);
    assert_int_equal(after.messages_sent, before.messages_sent + 1);
    assert_true(after.bytes_sent - before.bytes_sent > SMALL);
    copy_free(&c);
}

/* Where the host sees what is before it, it is a submission like any other. */
static void a_small_copy_behind_visible_work_does_not(void **state)
{
    struct bench *b = *state;
    struct copy c;
    copy_make(b, &c, SMALL);
    submit(b, 0, NULL, b->timeline, NULL);
    struct hw_driver_counts before = sent(b);
    copy_submit(b, &c);
    assert_int_equal(sent(b).messages_sent, before.messages_sent + 1);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    report(b, 0, 2);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    copy_free(&c);
}

static void a_large_copy_is_recorded(void **state)
{
    struct bench *b = *state;
    struct copy c;
    const struct vnc_copy *copies;
    copy_make(b, &c, LARGE);
    assert_int_equal(vnc_command_buffer_copies(c.commands, &copies), 0);
    submit(b, 0, NULL, NULL, NULL);
    struct hw_driver_counts before = sent(b);
    copy_submit(b, &c);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_true(sent(b).messages_sent > before.messages_sent);
    copy_free(&c);
}

/* The later forms of the same commands mean the same. */
static void a_small_copy_of_version_2_travels_with_its_bytes(void **state)
{
    struct bench *b = *state;
    struct copy c;
    copy_make(b, &c, SMALL);
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
    COMMAND(vkBeginCommandBuffer)(commands, &begin);
    COMMAND(vkCmdPipelineBarrier2)(commands, &barrier);
    COMMAND(vkCmdCopyBuffer2)(commands, &copy);
    COMMAND(vkEndCommandBuffer)(commands);
    VkCommandBufferSubmitInfo one = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO,
                                     .commandBuffer = commands};
    VkSubmitInfo2 info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                          .commandBufferInfoCount = 1,
                          .pCommandBufferInfos = &one};
    PFN_vkQueueSubmit2 submit2 = (PFN_vkQueueSubmit2)entry(vnc_entries_queue, "vkQueueSubmit2");
    submit(b, 0, NULL, NULL, NULL);
    struct hw_driver_counts before = sent(b);
    assert_int_equal(
        submit2(VNC_HANDLE(VkQueue, b->queues[0]), 1, &info, VNC_HANDLE(VkFence, b->fence)),
        VK_SUCCESS);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_int_equal(sent(b).messages_sent, before.messages_sent); /* nobody waits for it */
    copy_free(&c);
}

static void a_timeline_is_seen(void **state)
{
    struct bench *b = *state;
    submit(b, 0, NULL, b->timeline, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

static void who_waits_for_a_timeline_is_seen(void **state)
{
    struct bench *b = *state;
    submit(b, 0, b->timeline, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

static void what_comes_behind_visible_work_is_not_early(void **state)
{
    struct bench *b = *state;
    submit(b, 0, NULL, b->timeline, NULL);
    submit(b, 0, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    report(b, 0, 2);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

static void another_queue_is_another_matter(void **state)
{
    struct bench *b = *state;
    submit(b, 1, NULL, b->timeline, NULL);
    submit(b, 0, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

/* Unless a semaphore joins them: what the first does is done when the fence is signalled. */
static void a_semaphore_joins_queues(void **state)
{
    struct bench *b = *state;
    submit(b, 1, NULL, b->timeline, NULL);
    submit(b, 0, b->binary, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    report(b, 1, 1);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    report(b, 0, 1);
    assert_int_equal(fence_status(b), VK_SUCCESS);
}

/* Also for work behind the one that waited; and no longer once the other queue is done. */
static void a_chain_ends_with_what_it_waits_for(void **state)
{
    struct bench *b = *state;
    submit(b, 1, NULL, b->timeline, NULL);
    submit(b, 0, b->binary, NULL, NULL);
    submit(b, 0, NULL, NULL, b->fence);
    assert_int_equal(fence_status(b), VK_NOT_READY);
    report(b, 1, 1);
    assert_int_equal(b->wait_idle(VNC_HANDLE(VkQueue, b->queues[0])), VK_SUCCESS);
    assert_int_equal(fence_status(b), VK_SUCCESS);
    assert_false(vnc_queue_has_done(b->queues[0], 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_nobody_sees_is_early, start, end),
        cmocka_unit_test_setup_teardown(an_early_report_leaves_with_what_follows, start, end),
        cmocka_unit_test_setup_teardown(a_fence_alone_leaves_with_what_follows, start, end),
        cmocka_unit_test_setup_teardown(a_small_copy_travels_with_its_bytes, start, end),
        cmocka_unit_test_setup_teardown(a_small_copy_behind_visible_work_does_not, start, end),
        cmocka_unit_test_setup_teardown(a_large_copy_is_recorded, start, end),
        cmocka_unit_test_setup_teardown(a_small_copy_of_version_2_travels_with_its_bytes, start,
                                        end),
        cmocka_unit_test_setup_teardown(a_timeline_is_seen, start, end),
        cmocka_unit_test_setup_teardown(who_waits_for_a_timeline_is_seen, start, end),
        cmocka_unit_test_setup_teardown(what_comes_behind_visible_work_is_not_early, start, end),
        cmocka_unit_test_setup_teardown(another_queue_is_another_matter, start, end),
        cmocka_unit_test_setup_teardown(a_semaphore_joins_queues, start, end),
        cmocka_unit_test_setup_teardown(a_chain_ends_with_what_it_waits_for, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
