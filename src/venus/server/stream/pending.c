/* Command buffers in place of pending ones; see pending.h. */
#include "venus/server/stream/pending.h"

#include <assert.h>
#include <stdlib.h>

#include "venus/server/stream/recordings.h"
#include "venus/server/submit/queue.h"

/* Of a pool: past it the wait is the lesser evil.  llama.cpp has some forty command buffers a
 * graph. */
enum { SPARES_MAX = 256 };

struct vns_spare {
    struct vns_spare *next;
    void *handle;
    struct vns_use use;
};

static bool is_under_way(const struct vns_use *use)
{
    return use->queue && !vns_queue_has_reached(use->queue, use->batch);
}

void vns_pending_note(struct vns_thing *buffer, struct vns_queue *queue)
{
    assert(buffer->device == queue->device); /* a submission names no other */
    buffer->scattered |= buffer->use.queue != queue && is_under_way(&buffer->use);
    buffer->use = (struct vns_use){queue, queue->next_number - 1};
}

bool vns_pending_is(const struct vns_thing *buffer)
{
    return buffer->secondary || buffer->scattered || is_under_way(&buffer->use);
}

bool vns_pending_has_spares(const struct vns_thing *pool)
{
    const struct vns_spare *spare = pool->spares;
    while (spare && !is_under_way(&spare->use))
        spare = spare->next;
    return spare;
}

/* The oldest if it is done, unlinked, or else a new one; NULL. */
static struct vns_spare *take_spare(struct vns_thing *pool)
{
    struct vns_spare *oldest = pool->spares;
    if (oldest && !is_under_way(&oldest->use)) {
        pool->spares = oldest->next;
        return oldest;
    }
    unsigned count = 0;
    for (const struct vns_spare *spare = oldest; spare; spare = spare->next)
        count++;
    struct vns_spare *made = count < SPARES_MAX ? calloc(1, sizeof(*made)) : NULL;
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = (VkCommandPool)pool->handle,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = 1};
    VkCommandBuffer handle;
    if (made &&
        pool->device->driver.vkAllocateCommandBuffers(pool->device->handle, &info, &handle) >= 0) {
        made->handle = handle;
        return made;
    }
    free(made);
    return NULL;
}

static void add_spare(struct vns_thing *pool, struct vns_spare *spare)
{
    struct vns_spare **last = &pool->spares;
    while (*last)
        last = &(*last)->next;
    spare->next = NULL;
    *last = spare;
}

bool vns_pending_renew(struct vns_objects *o, struct vns_thing *buffer)
{
    bool can = buffer->pool && !buffer->secondary && !buffer->scattered;
    struct vns_spare *spare = can ? take_spare(buffer->pool) : NULL;
    if (!spare)
        return false;
    void *old = buffer->handle;
    bool done = vns_objects_replace(o, buffer, spare->handle) == 0;
    if (done) {
        *spare = (struct vns_spare){.handle = old, .use = buffer->use};
        buffer->use = (struct vns_use){0};
        vns_recording_moved(buffer);
    }
    add_spare(buffer->pool, spare);
    return done;
}

void vns_pending_free(struct vns_thing *pool)
{
    while (pool->spares) {
        struct vns_spare *spare = pool->spares;
        pool->spares = spare->next;
        free(spare);
    }
}
