/* Command buffers in place of pending ones; see pending.h. */
#include "venus/server/stream/pending.h"

#include <stdlib.h>

#include "venus/server/stream/bodies.h"
#include "venus/server/submit/queue.h"

enum { SPARES_MAX = 8 }; /* of a pool: past it the wait is the lesser evil */

struct vn_spare {
    struct vn_spare *next;
    void *handle;
    struct vn_use use;
};

void vn_pending_note(struct vn_thing *buffer, struct vn_queue *queue)
{
    if (buffer->device == queue->device) /* else it is no submission that a driver takes */
        buffer->use = (struct vn_use){queue, queue->next_number - 1};
}

static bool is_under_way(const struct vn_use *use)
{
    return use->queue && !vn_queue_has_reached(use->queue, use->batch);
}

bool vn_pending_is(const struct vn_thing *buffer)
{
    return buffer->secondary || is_under_way(&buffer->use);
}

bool vn_pending_has_spares(const struct vn_thing *pool)
{
    const struct vn_spare *spare = pool->spares;
    while (spare && !is_under_way(&spare->use))
        spare = spare->next;
    return spare;
}

/* One that is done, unlinked, or a new one; NULL. */
static struct vn_spare *take_spare(struct vn_thing *pool)
{
    unsigned count = 0;
    for (struct vn_spare **at = &pool->spares; *at; at = &(*at)->next, count++) {
        struct vn_spare *spare = *at;
        if (!is_under_way(&spare->use)) {
            *at = spare->next;
            return spare;
        }
    }
    struct vn_spare *made = count < SPARES_MAX ? calloc(1, sizeof(*made)) : NULL;
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

static void add_spare(struct vn_thing *pool, struct vn_spare *spare)
{
    spare->next = pool->spares;
    pool->spares = spare;
}

bool vn_pending_renew(struct vn_objects *o, struct vn_thing *buffer)
{
    struct vn_spare *spare = buffer->secondary || !buffer->pool ? NULL : take_spare(buffer->pool);
    if (!spare)
        return false;
    void *old = buffer->handle;
    bool done = vn_objects_replace(o, buffer, spare->handle) == 0;
    if (done) {
        *spare = (struct vn_spare){.handle = old, .use = buffer->use};
        buffer->use = (struct vn_use){0};
        vn_body_moved(buffer);
    }
    add_spare(buffer->pool, spare);
    return done;
}

void vn_pending_free(struct vn_thing *pool)
{
    while (pool->spares) {
        struct vn_spare *spare = pool->spares;
        pool->spares = spare->next;
        free(spare);
    }
}
