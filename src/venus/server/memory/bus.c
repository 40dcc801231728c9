/* Copies by the device; see bus.h. */
#include "venus/server/memory/bus.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/units.h"
#include "venus/server/submit/queue.h"

enum { QUEUES_MAX = 64 }; /* of a device; with more, the CPU reads */

static const uint64_t wait_slice_ns = 200 * HW_MS;

struct vns_bus {
    struct vns_queue *queue;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkSemaphore done; /* a timeline: the copies so far */
    uint64_t copies;
    VkBuffer staging;
    VkDeviceMemory memory;
    const uint8_t *bytes; /* of staging */
    bool broken;          /* what it needs could not be made, or a copy has failed */
};

/* ---- the knob ---- */

static bool is_forced, is_forbidden;

static void read_knob(void)
{
    bool on = true;
    (void)hw_env_bool("VENUS_BUS_COPY", true, &on);
    is_forbidden = !on;
    is_forced = on && getenv("VENUS_BUS_COPY") && *getenv("VENUS_BUS_COPY");
}

static bool is_wanted(const struct vns_bus_source *from, size_t len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_knob);
    if (is_forbidden || !from->shared || len > VNS_BUS_MOST)
        return false;
    return is_forced || (!from->cached && len >= VNS_BUS_LEAST);
}

/* ---- what a copy needs ---- */

static bool can_copy(const struct vns_device *device, uint32_t family)
{
    const VkQueueFlags any = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT | VK_QUEUE_TRANSFER_BIT;
    for (uint32_t i = 0; i < device->family_count; i++) {
        if (device->families[i].family == family)
            return device->families[i].can & any;
    }
    return false;
}

static struct vns_queue *find_queue(const struct vns_device *device)
{
    struct vns_queue *queue = device->queues;
    while (queue && !can_copy(device, queue->family))
        queue = queue->next;
    return queue;
}

/* The first type among the bits that the CPU caches; -1: none. */
static int find_cached_type(const struct vns_device *device, uint32_t bits)
{
    const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                         VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
                                         VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    for (uint32_t i = 0; i < device->memory.memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = device->memory.memoryTypes[i].propertyFlags;
        if ((bits >> i & 1) && (flags & wanted) == wanted)
            return (int)i;
    }
    return -1;
}

static VkResult create_buffer(const struct vns_device *device, VkDeviceSize size,
                              VkBufferUsageFlags usage, VkBuffer *out, VkMemoryRequirements *needs)
{
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = size, .usage = usage};
    VkResult result = device->driver.vkCreateBuffer(device->handle, &info, NULL, out);
    if (result == VK_SUCCESS)
        device->driver.vkGetBufferMemoryRequirements(device->handle, *out, needs);
    return result;
}

static VkResult make_staging(struct vns_bus *bus, const struct vns_device *device)
{
    const struct vn_driver *d = &device->driver;
    VkMemoryRequirements needs;
    void *bytes;
    VkResult result = create_buffer(device, VNS_BUS_MOST, VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                                    &bus->staging, &needs);
    if (result < 0)
        return result;
    int type = find_cached_type(device, needs.memoryTypeBits);
    if (type < 0)
        return VK_ERROR_FEATURE_NOT_PRESENT;
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = needs.size,
                                 .memoryTypeIndex = (uint32_t)type};
    result = d->vkAllocateMemory(device->handle, &info, NULL, &bus->memory);
    if (result == VK_SUCCESS)
        result = d->vkBindBufferMemory(device->handle, bus->staging, bus->memory, 0);
    if (result == VK_SUCCESS)
        result = device->map_memory(device->handle, bus->memory, 0, VK_WHOLE_SIZE, 0, &bytes);
    if (result == VK_SUCCESS)
        bus->bytes = bytes;
    return result;
}

static VkResult make_commands(struct vns_bus *bus, const struct vns_device *device)
{
    const struct vn_driver *d = &device->driver;
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = bus->queue->family};
    VkSemaphoreTypeCreateInfo timeline = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                       .pNext = &timeline};
    VkResult result = d->vkCreateCommandPool(device->handle, &pool, NULL, &bus->pool);
    if (result < 0)
        return result;
    VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = bus->pool,
                                            .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                            .commandBufferCount = 1};
    result = d->vkAllocateCommandBuffers(device->handle, &commands, &bus->commands);
    return result < 0 ? result : d->vkCreateSemaphore(device->handle, &semaphore, NULL, &bus->done);
}

/* Once for a device; NULL where it cannot be had. */
static struct vns_bus *get_bus(struct vns_device *device)
{
    struct vns_queue *queue = find_queue(device);
    if (!device->bus && queue) {
        device->bus = calloc(1, sizeof(*device->bus));
        if (!device->bus)
            return NULL;
        device->bus->queue = queue;
        device->bus->broken =
            make_commands(device->bus, device) < 0 || make_staging(device->bus, device) < 0;
    }
    return device->bus && !device->bus->broken ? device->bus : NULL;
}

void vns_bus_destroy(struct vns_bus *bus, const struct vns_device *device)
{
    const struct vn_driver *d = &device->driver;
    if (!bus)
        return;
    if (bus->staging)
        d->vkDestroyBuffer(device->handle, bus->staging, NULL);
    if (bus->memory)
        d->vkFreeMemory(device->handle, bus->memory, NULL);
    if (bus->done)
        d->vkDestroySemaphore(device->handle, bus->done, NULL);
    if (bus->pool)
        d->vkDestroyCommandPool(device->handle, bus->pool, NULL);
    free(bus);
}

/* ---- copying ---- */

/* A buffer over the range; false where the driver does not let one be there. */
static bool cover(const struct vns_device *device, const struct vns_bus_source *from, uint64_t off,
                  size_t len, VkBuffer *out)
{
    VkMemoryRequirements needs;
    VkBuffer buffer;
    if (create_buffer(device, len, VK_BUFFER_USAGE_TRANSFER_SRC_BIT, &buffer, &needs) < 0)
        return false;
    bool fits = (needs.memoryTypeBits >> from->type & 1) && needs.alignment &&
                off % needs.alignment == 0 && needs.size <= from->size - off;
    if (!fits || device->driver.vkBindBufferMemory(device->handle, buffer, from->memory, off) < 0) {
        device->driver.vkDestroyBuffer(device->handle, buffer, NULL);
        return false;
    }
    *out = buffer;
    return true;
}

static VkResult record(const struct vns_bus *bus, const struct vn_driver *d, VkBuffer from,
                       size_t len)
{
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                      .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    VkMemoryBarrier before = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                              .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
                              .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT};
    VkMemoryBarrier after = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                             .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                             .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    VkBufferCopy all = {.size = len};
    VkResult result = d->vkBeginCommandBuffer(bus->commands, &begin);
    if (result < 0)
        return result;
    d->vkCmdPipelineBarrier(bus->commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                            VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &before, 0, NULL, 0, NULL);
    d->vkCmdCopyBuffer(bus->commands, from, bus->staging, 1, &all);
    d->vkCmdPipelineBarrier(bus->commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                            VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &after, 0, NULL, 0, NULL);
    return d->vkEndCommandBuffer(bus->commands);
}

/* The semaphores of all queues, which have reached these values: what their work wrote is to be
 * seen by the copy. */
struct waits {
    uint32_t count;
    VkSemaphore semaphores[QUEUES_MAX];
    uint64_t values[QUEUES_MAX];
    VkPipelineStageFlags stages[QUEUES_MAX];
};

/* False when there is work under way. */
static bool gather_waits(const struct vns_device *device, struct waits *waits)
{
    waits->count = 0;
    for (struct vns_queue *q = device->queues; q; q = q->next) {
        if (waits->count == QUEUES_MAX || !vns_queue_is_idle(q))
            return false;
        if (q->signalled == 0)
            continue;
        waits->semaphores[waits->count] = q->timeline;
        waits->values[waits->count] = q->signalled;
        waits->stages[waits->count++] = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    }
    return true;
}

static VkResult submit(struct vns_bus *bus, const struct vns_device *device,
                       const struct waits *waits)
{
    uint64_t value = bus->copies + 1;
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .waitSemaphoreValueCount = waits->count,
                                            .pWaitSemaphoreValues = waits->values,
                                            .signalSemaphoreValueCount = 1,
                                            .pSignalSemaphoreValues = &value};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .waitSemaphoreCount = waits->count,
                         .pWaitSemaphores = waits->semaphores,
                         .pWaitDstStageMask = waits->stages,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &bus->commands,
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &bus->done};
    VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &bus->done,
                                .pValues = &value};
    VkResult result = device->driver.vkQueueSubmit(bus->queue->handle, 1, &info, VK_NULL_HANDLE);
    if (result < 0)
        return result;
    bus->copies = value;
    do
        result = device->wait_semaphores(device->handle, &wait, wait_slice_ns);
    while (result == VK_TIMEOUT);
    return result;
}

bool vns_bus_read(struct vns_device *device, const struct vns_bus_source *from, uint64_t off,
                  uint8_t *to, size_t len)
{
    struct waits waits;
    VkBuffer source;
    if (!is_wanted(from, len) || !gather_waits(device, &waits))
        return false;
    struct vns_bus *bus = get_bus(device);
    if (!bus || !cover(device, from, off, len, &source))
        return false;
    VkResult result = record(bus, &device->driver, source, len);
    if (result == VK_SUCCESS)
        result = submit(bus, device, &waits);
    bus->broken = result < 0; /* a device that is lost is told by the next submission */
    if (result == VK_SUCCESS)
        memcpy(to, bus->bytes, len);
    device->driver.vkDestroyBuffer(device->handle, source, NULL);
    return result == VK_SUCCESS;
}
