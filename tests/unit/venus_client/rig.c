/* See rig.h. */
#include "rig.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "venus/client/object/objects.h"
#include "venus/common/protocol.h"

/* ---- the server: takes what comes, says that batches are done ---- */

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

static void push_compiled(struct rpc_ep *ep, uint64_t pipeline)
{
    uint8_t payload[8];
    wire_store64(payload, pipeline);
    struct iovec iov = {payload, sizeof(payload)};
    struct rpc_send send = {.method = VN_PUSH_COMPILED, .iov = &iov, .iov_count = 1};
    assert_int_equal(rpc_push(ep, &send), 0);
}

/* What no client can read. */
static void push_nonsense(struct rpc_ep *ep)
{
    struct iovec iov = {(void *)(uintptr_t) "?", 1};
    struct rpc_send send = {.method = VN_PUSH_DONE, .iov = &iov, .iov_count = 1};
    assert_int_equal(rpc_push(ep, &send), 0);
}

/* False when it is time to stop. */
static bool obey(struct rig_server *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->number)
        push_done(s->ep, s->queue, s->number);
    if (s->compiled)
        push_compiled(s->ep, s->compiled);
    if (s->babbles)
        push_nonsense(s->ep);
    s->number = s->compiled = 0;
    s->babbles = false;
    bool going = !s->stop;
    pthread_mutex_unlock(&s->lock);
    return going;
}

/* What the driver would answer is not known here, so no call succeeds unless the test knows. */
static void answer(struct rig_server *s, struct rpc_msg *call)
{
    pthread_mutex_lock(&s->lock);
    s->asked_len = call->len < sizeof(s->asked) ? call->len : sizeof(s->asked);
    memcpy(s->asked, call->data, s->asked_len);
    struct iovec iov = {s->answer, s->answer_len};
    struct rpc_send send = {.iov = &iov, .iov_count = 1};
    int rc = s->answer_len || s->answers_nothing ? rpc_reply(s->ep, call, 0, &send)
                                                 : rpc_reply(s->ep, call, -EIO, NULL);
    assert_int_equal(rc, 0);
    pthread_mutex_unlock(&s->lock);
}

/* Calls that wait for their answers. */
struct held {
    struct rpc_msg *calls[RIG_HOLD_MAX];
    uint32_t count;
    uint64_t since_ns;
};

static void take_call(struct rig_server *s, struct held *held, struct rpc_msg *call)
{
    assert_true(held->count < RIG_HOLD_MAX);
    if (held->count == 0)
        held->since_ns = hw_now_ns();
    held->calls[held->count++] = call;
    pthread_mutex_lock(&s->lock);
    s->held_most = held->count > s->held_most ? held->count : s->held_most;
    pthread_mutex_unlock(&s->lock);
}

static void answer_held(struct rig_server *s, struct held *held)
{
    pthread_mutex_lock(&s->lock);
    bool ready = held->count >= s->hold || hw_now_ns() - held->since_ns >= RIG_HOLD_MS * HW_MS;
    s->hold = ready && held->count ? 0 : s->hold;
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; ready && i < held->count; i++) {
        answer(s, held->calls[i]);
        rpc_release(s->ep, held->calls[i]);
    }
    held->count = ready ? 0 : held->count;
}

static void take_streamed(struct rig_server *s, struct rpc_msg *msg)
{
    pthread_mutex_lock(&s->lock);
    s->told = true;
    s->streamed_len = msg->len <= sizeof(s->streamed) ? msg->len : 0;
    memcpy(s->streamed, msg->data, s->streamed_len);
    pthread_mutex_unlock(&s->lock);
    rpc_release(s->ep, msg);
}

static void *serve(void *arg)
{
    struct rig_server *s = arg;
    struct held held = {0};
    struct rpc_transport *transport = NULL;
    struct rpc_config config = {.accepting = true};
    struct rpc_msg *msg;
    while (s->listener->ops->accept(s->listener, &transport) == -EAGAIN) {
        struct pollfd p = {.fd = s->listener->ops->poll_fd(s->listener), .events = POLLIN};
        poll(&p, 1, RIG_PATIENCE_MS);
    }
    assert_int_equal(rpc_ep_create(transport, &config, &s->ep), 0);
    do {
        (void)rpc_poll(s->ep);
        while ((msg = rpc_recv(s->ep)) != NULL) {
            if (msg->kind == RPC_CALL)
                take_call(s, &held, msg);
            else
                take_streamed(s, msg);
        }
        answer_held(s, &held);
        (void)rpc_flush(s->ep);
        (void)rpc_wait(s->ep, HW_MS);
    } while (obey(s));
    return NULL;
}

/* ---- the client: a device without a driver ---- */

PFN_vkVoidFunction rig_entry(const struct vnc_entry *table, const char *name)
{
    while (strcmp(table->name, name) != 0)
        table++;
    return table->function;
}

static void connect_link(struct rig *rig)
{
    char why[RPC_WHY_CHARS] = "";
    struct rpc_addr addr;
    struct rpc_net_options net = {0};
    assert_int_equal(rpc_addr_parse("127.0.0.1:0", &addr, why), 0);
    assert_int_equal(rpc_listen(&addr, &net, &rig->server.listener, why), 0);
    assert_int_equal(rpc_addr_parse(rig->server.listener->address, &addr, why), 0);
    pthread_mutex_init(&rig->server.lock, NULL);
    assert_int_equal(pthread_create(&rig->server.thread, NULL, serve, &rig->server), 0);
    rig->pushes = vnc_pushes_create(NULL);
    assert_non_null(rig->pushes);
    assert_int_equal(vnc_link_create(&addr, NULL, rig->pushes, &rig->link, why), 0);
}

int rig_start(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    connect_link(rig);
    rig->physical.link = rig->link;
    rig->device = vnc_object_create(rig->link, VK_OBJECT_TYPE_DEVICE, &rig->physical.object);
    rig->device->physical = &rig->physical;
    rig->device->pushes = rig->pushes;
    rig->device->queues = rig->queues;
    rig->device->queue_count = RIG_QUEUES;
    pthread_mutex_init(&rig->device->lock, NULL);
    assert_int_equal(vn_delta_codec_create(0, &rig->device->codec), 0);
    for (int i = 0; i < RIG_QUEUES; i++) {
        rig->queues[i] = vnc_object_create(rig->link, VK_OBJECT_TYPE_QUEUE, &rig->device->object);
        assert_int_equal(vnc_pushes_add_queue(rig->pushes, rig->queues[i]), 0);
    }
    rig->fence = vnc_object_create(rig->link, VK_OBJECT_TYPE_FENCE, &rig->device->object);
    rig->binary = vnc_object_create(rig->link, VK_OBJECT_TYPE_SEMAPHORE, &rig->device->object);
    rig->timeline = vnc_object_create(rig->link, VK_OBJECT_TYPE_SEMAPHORE, &rig->device->object);
    rig->timeline->timeline = true;
    rig->submit = (PFN_vkQueueSubmit)rig_entry(vnc_entries_queue, "vkQueueSubmit");
    rig->wait_idle = (PFN_vkQueueWaitIdle)rig_entry(vnc_entries_queue, "vkQueueWaitIdle");
    rig->status = (PFN_vkGetFenceStatus)rig_entry(vnc_entries_sync, "vkGetFenceStatus");
    rig->wait = (PFN_vkWaitForFences)rig_entry(vnc_entries_sync, "vkWaitForFences");
    *state = rig;
    return 0;
}

int rig_end(void **state)
{
    struct rig *rig = *state;
    pthread_mutex_lock(&rig->server.lock);
    rig->server.stop = true;
    pthread_mutex_unlock(&rig->server.lock);
    pthread_join(rig->server.thread, NULL);
    for (int i = 0; i < RIG_QUEUES; i++) {
        vnc_pushes_remove_queue(rig->pushes, rig->queues[i]);
        vnc_object_destroy(&rig->queues[i]->object);
    }
    vnc_object_destroy(&rig->fence->object);
    vnc_object_destroy(&rig->binary->object);
    vnc_object_destroy(&rig->timeline->object);
    vn_delta_codec_destroy(rig->device->codec);
    pthread_mutex_destroy(&rig->device->lock);
    vnc_object_destroy(&rig->device->object);
    vnc_link_destroy(rig->link);
    vnc_pushes_destroy(rig->pushes);
    rpc_ep_destroy(rig->server.ep);
    rpc_listener_destroy(rig->server.listener);
    pthread_mutex_destroy(&rig->server.lock);
    free(rig);
    return 0;
}

void rig_submit(struct rig *rig, int queue, struct vnc_command_buffer *commands,
                struct vnc_semaphore *wait, struct vnc_semaphore *signal, struct vnc_fence *fence)
{
    rig_submit_values(rig, queue, commands, wait, signal, (struct rig_values){1, 1}, fence);
}

void rig_submit_values(struct rig *rig, int queue, struct vnc_command_buffer *commands,
                       struct vnc_semaphore *wait, struct vnc_semaphore *signal,
                       struct rig_values of, struct vnc_fence *fence)
{
    VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkSemaphore waits = VNC_HANDLE(VkSemaphore, wait), signals = VNC_HANDLE(VkSemaphore, signal);
    VkCommandBuffer buffer = VNC_HANDLE(VkCommandBuffer, commands);
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .waitSemaphoreValueCount = wait != NULL,
                                            .pWaitSemaphoreValues = &of.wait,
                                            .signalSemaphoreValueCount = signal != NULL,
                                            .pSignalSemaphoreValues = &of.signal};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .waitSemaphoreCount = wait != NULL,
                         .pWaitSemaphores = &waits,
                         .pWaitDstStageMask = &stage,
                         .commandBufferCount = commands != NULL,
                         .pCommandBuffers = &buffer,
                         .signalSemaphoreCount = signal != NULL,
                         .pSignalSemaphores = &signals};
    assert_int_equal(
        rig->submit(VNC_HANDLE(VkQueue, rig->queues[queue]), 1, &info, VNC_HANDLE(VkFence, fence)),
        VK_SUCCESS);
}

void rig_report(struct rig *rig, int queue, uint64_t number)
{
    pthread_mutex_lock(&rig->server.lock);
    rig->server.queue = rig->queues[queue]->object.id;
    rig->server.number = number;
    pthread_mutex_unlock(&rig->server.lock);
    uint64_t deadline = hw_now_ns() + RIG_PATIENCE_MS * HW_MS;
    while (!vnc_queue_has_done(rig->queues[queue], number)) {
        assert_true(hw_now_ns() < deadline);
        vnc_link_poll(rig->link);
    }
}

void rig_report_compiled(struct rig *rig, uint64_t pipeline)
{
    pthread_mutex_lock(&rig->server.lock);
    rig->server.compiled = pipeline;
    pthread_mutex_unlock(&rig->server.lock);
}

void rig_babble(struct rig *rig)
{
    pthread_mutex_lock(&rig->server.lock);
    rig->server.babbles = true;
    pthread_mutex_unlock(&rig->server.lock);
}

bool rig_was_told(struct rig *rig)
{
    pthread_mutex_lock(&rig->server.lock);
    bool told = rig->server.told;
    pthread_mutex_unlock(&rig->server.lock);
    return told;
}

struct hw_driver_counts rig_sent(const struct rig *rig)
{
    struct hw_driver_counts counts;
    vnc_link_counts(rig->link, &counts);
    return counts;
}

bool rig_was_asked(struct rig *rig)
{
    pthread_mutex_lock(&rig->server.lock);
    bool asked = rig->server.asked_len > 0;
    pthread_mutex_unlock(&rig->server.lock);
    return asked;
}

void rig_forget_asked(struct rig *rig)
{
    pthread_mutex_lock(&rig->server.lock);
    rig->server.asked_len = 0;
    pthread_mutex_unlock(&rig->server.lock);
}

/* ---- recordings of copies ---- */

void rig_fill(void *bytes, size_t len, int seed)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)(seed + (int)(i % 256));
}

void rig_copy_make(struct rig *rig, struct rig_copy *c, size_t size)
{
    struct vn_object *device = &rig->device->object;
    struct vn_region_params params = {.size = size};
    c->memory = vnc_object_create(rig->link, VK_OBJECT_TYPE_DEVICE_MEMORY, device);
    c->memory->device = rig->device;
    c->memory->size = size;
    c->memory->host_visible = c->memory->tracked = true;
    assert_int_equal(vn_region_create(&params, &c->memory->region), 0);
    rig_fill(vn_region_memory(c->memory->region), size, 0x5a);
    c->memory->next_visible = rig->device->visible;
    rig->device->visible = c->memory;
    c->from = vnc_object_create(rig->link, VK_OBJECT_TYPE_BUFFER, device);
    c->to = vnc_object_create(rig->link, VK_OBJECT_TYPE_BUFFER, device);
    c->from->size = c->to->size = size;
    c->from->memory = vnc_memory_ref(c->memory);
    c->pool = vnc_object_create(rig->link, VK_OBJECT_TYPE_COMMAND_POOL, device);
    c->commands = vnc_object_create(rig->link, VK_OBJECT_TYPE_COMMAND_BUFFER, device);
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, c->commands);
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkBufferCopy all = {.size = size};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &info), VK_SUCCESS);
    RIG_COMMAND(vkCmdCopyBuffer)
    (commands, VNC_HANDLE(VkBuffer, c->from), VNC_HANDLE(VkBuffer, c->to), 1, &all);
    assert_int_equal(RIG_COMMAND(vkEndCommandBuffer)(commands), VK_SUCCESS);
}

void rig_copy_free(struct rig *rig, struct rig_copy *c)
{
    struct vnc_memory **at = &rig->device->visible;
    while (*at != c->memory)
        at = &(*at)->next_visible;
    *at = c->memory->next_visible;
    vnc_object_destroy((struct vn_object *)c->commands);
    vnc_object_destroy(c->pool);
    vnc_object_destroy(&c->to->object);
    vnc_object_destroy(&c->from->object);
    vn_region_destroy(c->memory->region);
    vnc_object_destroy(&c->memory->object);
}
