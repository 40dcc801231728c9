/* Bytes into buffers; see update.h. */
#include "venus/server/submit/update.h"

#include <stdlib.h>

#include "venus/server/submit/queue.h"

/* Submissions of updates in flight.  They keep the device busy while a program fills a buffer piece
 * by piece; for each the driver holds the bytes of one message. */
enum { SLOTS = 16 };

struct vns_updater {
    VkCommandPool pool;
    VkCommandBuffer commands[SLOTS];
    uint64_t numbers[SLOTS]; /* of the batches that they were submitted with last */
    unsigned next;
    bool is_open; /* the last one taken is being recorded, for batches up to `number` */
    uint64_t number;
};

static VkResult make(const struct vns_queue *q, struct vns_updater *u)
{
    const struct vn_driver *d = &q->device->driver;
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = q->family};
    VkResult result = d->vkCreateCommandPool(q->device->handle, &pool, NULL, &u->pool);
    if (result < 0)
        return result;
    VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = u->pool,
                                            .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                            .commandBufferCount = SLOTS};
    result = d->vkAllocateCommandBuffers(q->device->handle, &commands, u->commands);
    if (result < 0)
        d->vkDestroyCommandPool(q->device->handle, u->pool, NULL);
    return result;
}

static VkResult get_updater(struct vns_queue *q)
{
    if (q->updater)
        return VK_SUCCESS;
    struct vns_updater *made = calloc(1, sizeof(*made));
    VkResult result = made ? make(q, made) : VK_ERROR_OUT_OF_HOST_MEMORY;
    if (result < 0)
        free(made);
    else
        q->updater = made;
    return result;
}

void vns_updater_destroy(struct vns_updater *updater, const struct vns_queue *queue)
{
    if (updater)
        queue->device->driver.vkDestroyCommandPool(queue->device->handle, updater->pool, NULL);
    free(updater);
}

static void put_barrier(const struct vn_driver *d, VkCommandBuffer commands)
{
    VkMemoryBarrier all = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
    };
    d->vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                            VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 1, &all, 0, NULL, 0, NULL);
}

static VkResult open_next(struct vns_queue *q, struct vns_updater *u)
{
    const struct vn_driver *d = &q->device->driver;
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                      .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    unsigned slot = (u->next + 1) % SLOTS;
    VkResult result = u->numbers[slot] ? vns_queue_wait(q, u->numbers[slot]) : VK_SUCCESS;
    if (result >= 0)
        result = d->vkBeginCommandBuffer(u->commands[slot], &begin);
    if (result < 0)
        return result;
    put_barrier(d, u->commands[slot]);
    u->next = slot;
    u->is_open = true;
    return VK_SUCCESS;
}

VkResult vns_update_add(struct vns_queue *q, const struct vns_update *updates, uint32_t count,
                        uint64_t number)
{
    const struct vn_driver *d = &q->device->driver;
    VkResult result = get_updater(q);
    if (result >= 0 && !q->updater->is_open)
        result = open_next(q, q->updater);
    if (result < 0)
        return result;
    VkCommandBuffer commands = q->updater->commands[q->updater->next];
    for (uint32_t i = 0; i < count; i++) {
        const struct vns_update *u = &updates[i];
        d->vkCmdUpdateBuffer(commands, u->buffer, u->offset, u->size, u->bytes);
        put_barrier(d, commands);
    }
    q->updater->number = number;
    return VK_SUCCESS;
}

VkResult vns_update_submit(struct vns_queue *q)
{
    struct vns_updater *u = q->updater;
    if (!u || !u->is_open)
        return VK_SUCCESS;
    u->is_open = false;
    VkResult result = q->device->driver.vkEndCommandBuffer(u->commands[u->next]);
    if (result >= 0)
        result = vns_submit_own(q->device->driver.vkQueueSubmit, q->handle,
                                &(struct vns_own_batch){.commands = u->commands[u->next],
                                                        .signal = q->timeline,
                                                        .value = u->number});
    if (result >= 0)
        u->numbers[u->next] = u->number;
    return result;
}
