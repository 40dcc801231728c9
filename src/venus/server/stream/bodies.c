/* Bodies of command buffers; see bodies.h. */
#include "venus/server/stream/bodies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "venus/common/protocol.h"
#include "venus/server/session/device.h"
#include "venus/server/stream/pending.h"

enum {
    /* Resets of a pool, with others of it in use, after which the driver's memory is worth more
     * than a body that nobody asked for. */
    IDLE_RESETS = 64,
    /* Memory that a command buffer keeps for its next body: no limit counts it. */
    SPARE_BYTES = 4 << 10,
};

/* ---- keeping ---- */

static void drop_bytes(struct vns_objects *o, struct vns_body *body)
{
    o->kept_bytes -= body->len;
    body->len = 0;
    body->whole = body->stands = false;
    if (body->cap > SPARE_BYTES) {
        free(body->bytes);
        body->bytes = NULL;
        body->cap = 0;
    }
    if (body->set_cap > SPARE_BYTES / sizeof(*body->sets)) {
        free(body->sets);
        body->sets = NULL;
        body->set_cap = 0;
    }
    vns_body_restart(o, body);
}

void vns_body_free(struct vns_objects *o, struct vns_thing *buffer)
{
    struct vns_body *body = buffer->body;
    if (!body)
        return;
    drop_bytes(o, body);
    free(body->bytes);
    free(body->sets);
    free(body);
    buffer->body = NULL;
}

int vns_body_begin(struct vns_objects *o, struct vns_thing *buffer, bool keeps)
{
    if (!keeps) {
        vns_body_free(o, buffer);
        return 0;
    }
    if (!buffer->body)
        buffer->body = calloc(1, sizeof(*buffer->body));
    if (!buffer->body)
        return -ENOMEM;
    drop_bytes(o, buffer->body);
    return 0;
}

int vns_body_append(struct vns_objects *o, struct vns_thing *buffer, const void *bytes, size_t len)
{
    struct vns_body *body = buffer->body;
    if (!body || body->whole)
        return -EPROTO;
    if (len > VN_KEPT_BODY_MAX - body->len || len > VN_KEPT_BODIES_MAX - o->kept_bytes)
        return -EDQUOT;
    if (len > body->cap - body->len) {
        size_t cap = body->cap ? body->cap : 1024;
        while (cap < body->len + len)
            cap *= 2;
        uint8_t *larger = realloc(body->bytes, cap);
        if (!larger)
            return -ENOMEM;
        body->bytes = larger;
        body->cap = cap;
    }
    memcpy(body->bytes + body->len, bytes, len);
    body->len += len;
    o->kept_bytes += len;
    return 0;
}

/* ---- executing ---- */

void vns_body_restart(const struct vns_objects *o, struct vns_body *body)
{
    body->set_count = 0;
    body->ended = o->ended;
    body->stands = body->unfit = false;
}

void vns_body_names(struct vns_thing *buffer, const struct vns_thing *thing)
{
    struct vns_body *body = buffer->body;
    if (!body || body->unfit)
        return;
    if (thing->type != VK_OBJECT_TYPE_DESCRIPTOR_SET) {
        body->unfit = true; /* what it executes may be recorded otherwise */
        return;
    }
    if (body->set_count == body->set_cap) {
        size_t cap = body->set_cap ? body->set_cap * 2 : 32;
        struct vns_set_seen *more = realloc(body->sets, cap * sizeof(*more));
        if (!more) {
            body->unfit = true;
            return;
        }
        body->sets = more;
        body->set_cap = cap;
    }
    body->sets[body->set_count++] = (struct vns_set_seen){thing->id, thing->version};
}

void vns_body_end(struct vns_thing *buffer)
{
    struct vns_body *body = buffer->body;
    if (!body)
        return;
    body->whole = body->used = true;
    body->stands = !body->unfit && !body->once && !buffer->spoilt;
}

bool vns_body_stands(const struct vns_objects *o, const struct vns_thing *buffer)
{
    const struct vns_body *body = buffer->body;
    bool stands = body && body->stands && (body->set_count == 0 || body->ended == o->ended);
    for (size_t i = 0; stands && i < body->set_count; i++) {
        const struct vns_thing *set =
            vns_objects_find(o, body->sets[i].id, VK_OBJECT_TYPE_DESCRIPTOR_SET);
        stands = set && set->version == body->sets[i].version;
    }
    return stands;
}

/* ---- resets ---- */

static void note_reset(struct vns_thing *buffer)
{
    buffer->recorded = buffer->begun = false;
    if (buffer->body)
        buffer->body->stands = false;
}

void vns_body_moved(struct vns_thing *buffer)
{
    note_reset(buffer);
}

VkResult vns_body_reset(struct vns_thing *buffer, VkCommandBufferResetFlags flags)
{
    note_reset(buffer);
    return buffer->device->driver.vkResetCommandBuffer(buffer->handle, flags);
}

static bool is_used(const struct vns_thing *buffer)
{
    return buffer->recorded && (!buffer->body || !buffer->body->stands || buffer->body->used);
}

/* Whether the driver keeps its recording for the next time. */
static bool outlasts(struct vns_body *body)
{
    if (!body || !body->stands)
        return false;
    body->idle = body->used ? 0 : body->idle + 1;
    body->used = false;
    return body->idle < IDLE_RESETS;
}

static VkResult reset_all(struct vns_thing *pool, VkCommandPoolResetFlags flags)
{
    for (struct vns_thing *buffer = pool->members; buffer; buffer = buffer->next)
        note_reset(buffer);
    return pool->device->driver.vkResetCommandPool(pool->device->handle, pool->handle, flags);
}

/* It stays recorded: a later reset of the pool passes this one on. */
static void leave_pending(struct vns_thing *buffer)
{
    buffer->begun = false;
    if (buffer->body)
        buffer->body->stands = false;
}

VkResult vns_bodies_reset_pool(struct vns_thing *pool, VkCommandPoolResetFlags flags,
                               bool may_be_pending)
{
    bool used = false, stands = false;
    bool pending = may_be_pending && vns_pending_has_spares(pool);
    for (const struct vns_thing *buffer = pool->members; buffer; buffer = buffer->next) {
        used |= is_used(buffer);
        stands |= buffer->body && buffer->body->stands;
        pending = pending || (may_be_pending && vns_pending_is(buffer));
    }
    if (!pending && (!stands || (flags & VK_COMMAND_POOL_RESET_RELEASE_RESOURCES_BIT)))
        return reset_all(pool, flags);
    VkResult result = VK_SUCCESS;
    for (struct vns_thing *buffer = pool->members; used && buffer; buffer = buffer->next) {
        if (!buffer->recorded || outlasts(buffer->body))
            continue;
        if (pending && vns_pending_is(buffer)) {
            leave_pending(buffer);
            continue;
        }
        VkResult one = vns_body_reset(buffer, 0);
        result = result < 0 ? result : one;
    }
    return result;
}
