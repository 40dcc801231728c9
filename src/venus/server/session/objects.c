/* Ids of a client; see objects.h. */
#include "venus/server/session/objects.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "venus/server/stream/pending.h"
#include "venus/server/stream/recordings.h"

void vns_objects_init(struct vns_objects *o, uint64_t max, uint64_t max_pipelines)
{
    *o = (struct vns_objects){.max = max, .max_pipelines = max_pipelines};
    vn_keymap_init(&o->things);
    vn_keymap_init(&o->devices);
}

void vns_objects_fini(struct vns_objects *o)
{
    size_t at = 0;
    struct vns_thing *thing;
    while ((thing = vn_keymap_next(&o->things, &at)) != NULL) {
        vns_recording_free(o, thing);
        vns_pending_free(thing);
        free(thing);
    }
    vn_keymap_fini(&o->things);
    vn_keymap_fini(&o->devices);
}

static void forget_last(struct vns_objects *o)
{
    o->last_handle = NULL;
    o->last_device = NULL;
}

struct vns_thing *vns_objects_find(const struct vns_objects *o, uint64_t id, uint32_t type)
{
    struct vns_thing *thing = vn_keymap_get(&o->things, id);
    return thing && (type == VK_OBJECT_TYPE_UNKNOWN || thing->type == type) ? thing : NULL;
}

static bool leads_to_device(uint32_t type)
{
    return type == VK_OBJECT_TYPE_DEVICE || type == VK_OBJECT_TYPE_QUEUE ||
           type == VK_OBJECT_TYPE_COMMAND_BUFFER;
}

static void join_pool(struct vns_thing *thing, struct vns_thing *pool)
{
    thing->pool = pool;
    thing->next = pool->members;
    thing->link = &pool->members;
    if (thing->next)
        thing->next->link = &thing->next;
    pool->members = thing;
}

static int check_room(const struct vns_objects *o, uint32_t type, uint64_t id)
{
    if (!id || vn_keymap_get(&o->things, id))
        return -EEXIST;
    if (vn_keymap_count(&o->things) + o->left >= o->max)
        return -EDQUOT;
    bool full = o->pipelines + o->left_pipelines >= o->max_pipelines;
    return type == VK_OBJECT_TYPE_PIPELINE && full ? -EDQUOT : 0;
}

int vns_objects_add(struct vns_objects *o, uint32_t type, uint64_t id, void *handle,
                    struct vns_device *device, struct vns_thing *pool)
{
    int rc = check_room(o, type, id);
    if (rc)
        return rc;
    struct vns_thing *thing = malloc(sizeof(*thing));
    if (!thing)
        return -ENOMEM;
    *thing = (struct vns_thing){.id = id, .handle = handle, .type = type, .device = device};
    if (handle && device && leads_to_device(type))
        rc = vn_keymap_put(&o->devices, (uintptr_t)handle, device);
    if (rc == 0)
        rc = vn_keymap_put(&o->things, id, thing);
    if (rc) {
        free(thing);
        return rc;
    }
    if (pool)
        join_pool(thing, pool);
    o->pipelines += type == VK_OBJECT_TYPE_PIPELINE;
    forget_last(o);
    return 0;
}

int vns_objects_replace(struct vns_objects *o, struct vns_thing *thing, void *handle)
{
    int rc = leads_to_device(thing->type)
                 ? vn_keymap_put(&o->devices, (uintptr_t)handle, thing->device)
                 : 0;
    if (rc)
        return rc;
    if (leads_to_device(thing->type))
        (void)vn_keymap_take(&o->devices, (uintptr_t)thing->handle);
    thing->handle = handle;
    forget_last(o);
    return 0;
}

static bool fits_set(uint32_t type)
{
    switch (type) {
    case VK_OBJECT_TYPE_BUFFER:
    case VK_OBJECT_TYPE_BUFFER_VIEW:
    case VK_OBJECT_TYPE_IMAGE:
    case VK_OBJECT_TYPE_IMAGE_VIEW:
    case VK_OBJECT_TYPE_SAMPLER:
    case VK_OBJECT_TYPE_DEVICE_MEMORY: /* of one of them */
    case VK_OBJECT_TYPE_ACCELERATION_STRUCTURE_KHR:
    case VK_OBJECT_TYPE_ACCELERATION_STRUCTURE_NV:
        return true;
    default:
        return false;
    }
}

void vns_objects_remove(struct vns_objects *o, uint64_t id)
{
    struct vns_thing *thing = vn_keymap_take(&o->things, id);
    if (!thing)
        return;
    vns_objects_empty(o, thing);
    vns_recording_free(o, thing);
    vns_pending_free(thing);
    o->ended += fits_set(thing->type);
    if (thing->pool) {
        *thing->link = thing->next;
        if (thing->next)
            thing->next->link = thing->link;
    }
    if (leads_to_device(thing->type))
        (void)vn_keymap_take(&o->devices, (uintptr_t)thing->handle);
    o->pipelines -= thing->type == VK_OBJECT_TYPE_PIPELINE;
    forget_last(o);
    if (thing->users)
        thing->doomed = true;
    else
        free(thing);
}

void vns_objects_empty(struct vns_objects *o, struct vns_thing *pool)
{
    while (pool->members) {
        struct vns_thing *first = pool->members;
        vns_objects_remove(o, first->id);
        assert(pool->members != first);
    }
}

/* True when it removed any: a removal moves others, perhaps to where this pass has been. */
static bool remove_some(struct vns_objects *o, const struct vns_device *device)
{
    bool removed = false;
    for (size_t at = 0;;) {
        size_t from = at;
        struct vns_thing *thing = vn_keymap_next(&o->things, &at);
        if (!thing)
            return removed;
        if (thing->device != device)
            continue;
        vns_objects_remove(o, thing->id);
        at = from;
        removed = true;
    }
}

static bool outlives_device(const struct vns_thing *thing)
{
    return thing->handle && thing->type != VK_OBJECT_TYPE_DEVICE &&
           thing->type != VK_OBJECT_TYPE_QUEUE && thing->type != VK_OBJECT_TYPE_DEVICE_MEMORY;
}

static void count_left(struct vns_objects *o, const struct vns_device *device)
{
    const struct vns_thing *thing;
    for (size_t at = 0; (thing = vn_keymap_next(&o->things, &at)) != NULL;) {
        if (thing->device != device || !outlives_device(thing))
            continue;
        o->left++;
        o->left_pipelines += thing->type == VK_OBJECT_TYPE_PIPELINE;
    }
}

void vns_objects_remove_device(struct vns_objects *o, const struct vns_device *device)
{
    count_left(o, device);
    while (remove_some(o, device))
        ;
}

struct vns_device *vns_objects_device(struct vns_objects *o, const void *handle)
{
    if (handle == o->last_handle)
        return o->last_device;
    o->last_device = vn_keymap_get(&o->devices, (uintptr_t)handle);
    o->last_handle = handle;
    return o->last_device;
}
