/* Recordings of command buffers; see recordings.h. */
#include "venus/server/stream/recordings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "venus/common/protocol.h"
#include "venus/server/session/device.h"
#include "venus/server/stream/pending.h"

enum {
    /* Resets of a pool, with others of it in use, after which the driver's memory is worth more
     * than a recording that nobody asked for. */
    IDLE_RESETS = 64,
    /* Memory that a command buffer keeps for its next recording: no limit counts it. */
    SPARE_BYTES = 4 << 10,
};

/* ---- keeping ---- */

static void drop_bytes(struct vns_objects *o, struct vns_recording *recording)
{
    o->kept_bytes -= recording->len;
    recording->len = 0;
    recording->whole = recording->stands = false;
    if (recording->cap > SPARE_BYTES) {
        free(recording->bytes);
        recording->bytes = NULL;
        recording->cap = 0;
    }
    if (recording->set_cap > SPARE_BYTES / sizeof(*recording->sets)) {
        free(recording->sets);
        recording->sets = NULL;
        recording->set_cap = 0;
    }
    vns_recording_restart(o, recording);
}

void vns_recording_free(struct vns_objects *o, struct vns_thing *buffer)
{
    struct vns_recording *recording = buffer->recording;
    if (!recording)
        return;
    drop_bytes(o, recording);
    free(recording->bytes);
    free(recording->sets);
    free(recording);
    buffer->recording = NULL;
}

int vns_recording_begin(struct vns_objects *o, struct vns_thing *buffer, bool keeps)
{
    if (!keeps) {
        vns_recording_free(o, buffer);
        return 0;
    }
    if (!buffer->recording)
        buffer->recording = calloc(1, sizeof(*buffer->recording));
    if (!buffer->recording)
        return -ENOMEM;
    drop_bytes(o, buffer->recording);
    return 0;
}

int vns_recording_append(struct vns_objects *o, struct vns_thing *buffer, const void *bytes,
                         size_t len)
{
    struct vns_recording *recording = buffer->recording;
    if (!recording || recording->whole)
        return -EPROTO;
    if (len > VN_KEPT_RECORDING_MAX - recording->len ||
        len > VN_KEPT_RECORDINGS_MAX - o->kept_bytes)
        return -EDQUOT;
    if (!hw_grow(&recording->bytes, &recording->cap, recording->len + len, 1))
        return -ENOMEM;
    memcpy(recording->bytes + recording->len, bytes, len);
    recording->len += len;
    o->kept_bytes += len;
    return 0;
}

/* ---- executing ---- */

void vns_recording_restart(const struct vns_objects *o, struct vns_recording *recording)
{
    recording->set_count = 0;
    recording->ended = o->ended;
    recording->stands = recording->unfit = false;
}

void vns_recording_names(struct vns_thing *buffer, const struct vns_thing *thing)
{
    struct vns_recording *recording = buffer->recording;
    if (!recording || recording->unfit)
        return;
    if (thing->type != VK_OBJECT_TYPE_DESCRIPTOR_SET) {
        recording->unfit = true; /* what it executes may be recorded otherwise */
        return;
    }
    if (!hw_grow(&recording->sets, &recording->set_cap, recording->set_count + 1,
                 sizeof(*recording->sets))) {
        recording->unfit = true;
        return;
    }
    recording->sets[recording->set_count++] = (struct vns_set_seen){thing->id, thing->version};
}

void vns_recording_end(struct vns_thing *buffer)
{
    struct vns_recording *recording = buffer->recording;
    if (!recording)
        return;
    recording->whole = recording->used = true;
    recording->stands = !recording->unfit && !recording->once && !buffer->incomplete;
}

bool vns_recording_stands(const struct vns_objects *o, const struct vns_thing *buffer)
{
    const struct vns_recording *recording = buffer->recording;
    bool stands = recording && recording->stands &&
                  (recording->set_count == 0 || recording->ended == o->ended);
    for (size_t i = 0; stands && i < recording->set_count; i++) {
        const struct vns_thing *set =
            vns_objects_find(o, recording->sets[i].id, VK_OBJECT_TYPE_DESCRIPTOR_SET);
        stands = set && set->version == recording->sets[i].version;
    }
    return stands;
}

/* ---- resets ---- */

static void note_reset(struct vns_thing *buffer)
{
    buffer->recorded = buffer->begun = false;
    if (buffer->recording)
        buffer->recording->stands = false;
}

void vns_recording_moved(struct vns_thing *buffer)
{
    note_reset(buffer);
}

VkResult vns_recording_reset(struct vns_thing *buffer, VkCommandBufferResetFlags flags)
{
    note_reset(buffer);
    return buffer->device->driver.vkResetCommandBuffer(buffer->handle, flags);
}

static bool is_used(const struct vns_thing *buffer)
{
    return buffer->recorded &&
           (!buffer->recording || !buffer->recording->stands || buffer->recording->used);
}

/* Whether the driver keeps its recording for the next time. */
static bool outlasts(struct vns_recording *recording)
{
    if (!recording || !recording->stands)
        return false;
    recording->idle = recording->used ? 0 : recording->idle + 1;
    recording->used = false;
    return recording->idle < IDLE_RESETS;
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
    if (buffer->recording)
        buffer->recording->stands = false;
}

VkResult vns_recordings_reset_pool(struct vns_thing *pool, VkCommandPoolResetFlags flags,
                                   bool may_be_pending)
{
    bool used = false, stands = false;
    bool pending = may_be_pending && vns_pending_has_spares(pool);
    for (const struct vns_thing *buffer = pool->members; buffer; buffer = buffer->next) {
        used |= is_used(buffer);
        stands |= buffer->recording && buffer->recording->stands;
        pending = pending || (may_be_pending && vns_pending_is(buffer));
    }
    if (!pending && (!stands || (flags & VK_COMMAND_POOL_RESET_RELEASE_RESOURCES_BIT)))
        return reset_all(pool, flags);
    VkResult result = VK_SUCCESS;
    for (struct vns_thing *buffer = pool->members; used && buffer; buffer = buffer->next) {
        if (!buffer->recorded || outlasts(buffer->recording))
            continue;
        if (pending && vns_pending_is(buffer)) {
            leave_pending(buffer);
            continue;
        }
        VkResult one = vns_recording_reset(buffer, 0);
        result = result < 0 ? result : one;
    }
    return result;
}
