/* See objects.h. */
#include "venus/client/object/objects.h"

#include "venus/client/memory/memory.h"
#include "venus/client/object/descriptor.h"
#include "venus/client/object/pipeline.h"
#include "venus/client/object/sync.h"
#include "venus/client/record/command.h"
#include "venus/client/submit/queue.h"

#include <stdlib.h>

static size_t size_of(uint32_t type)
{
    switch (type) {
    case VK_OBJECT_TYPE_DEVICE:
        return sizeof(struct vn_device);
    case VK_OBJECT_TYPE_QUEUE:
        return sizeof(struct vn_queue);
    case VK_OBJECT_TYPE_DEVICE_MEMORY:
        return sizeof(struct vn_memory);
    case VK_OBJECT_TYPE_BUFFER:
    case VK_OBJECT_TYPE_BUFFER_VIEW:
    case VK_OBJECT_TYPE_IMAGE:
        return sizeof(struct vn_resource);
    case VK_OBJECT_TYPE_FENCE:
        return sizeof(struct vn_fence);
    case VK_OBJECT_TYPE_SEMAPHORE:
        return sizeof(struct vn_semaphore);
    case VK_OBJECT_TYPE_COMMAND_POOL:
        return vn_command_pool_size();
    case VK_OBJECT_TYPE_COMMAND_BUFFER:
        return vn_command_buffer_size();
    case VK_OBJECT_TYPE_PIPELINE:
        return sizeof(struct vn_pipeline);
    default: {
        size_t size = vn_descriptor_size(type);
        return size ? size : sizeof(struct vn_object);
    }
    }
}

static void init_resource(struct vn_resource *resource, struct vn_device *device)
{
    resource->device = device;
    resource->refs = 1;
    wire_enc_init(&resource->created, VN_MEMO_KEY_BYTES);
}

/* parent is a device for all of these. */
static void init(struct vn_object *object, struct vn_object *parent)
{
    struct vn_device *device = (struct vn_device *)parent;
    switch (object->type) {
    case VK_OBJECT_TYPE_DEVICE_MEMORY:
        ((struct vn_memory *)object)->device = device;
        ((struct vn_memory *)object)->refs = 1;
        break;
    case VK_OBJECT_TYPE_BUFFER:
    case VK_OBJECT_TYPE_BUFFER_VIEW:
    case VK_OBJECT_TYPE_IMAGE:
        init_resource((struct vn_resource *)object, device);
        break;
    case VK_OBJECT_TYPE_FENCE:
        ((struct vn_fence *)object)->device = device;
        break;
    case VK_OBJECT_TYPE_SEMAPHORE:
        ((struct vn_semaphore *)object)->device = device;
        ((struct vn_semaphore *)object)->refs = 1;
        break;
    case VK_OBJECT_TYPE_QUEUE:
        ((struct vn_queue *)object)->device = device;
        vn_queue_init((struct vn_queue *)object);
        break;
    case VK_OBJECT_TYPE_COMMAND_BUFFER:
        vn_command_buffer_init((struct vn_command_buffer *)object, device);
        break;
    default:
        break;
    }
}

/* What the loader wants to find in a dispatchable handle before it puts its own word there. */
static const uintptr_t loader_magic = 0x01cdc0de;

void *vn_object_create(struct vn_link *link, uint32_t type, struct vn_object *parent)
{
    struct vn_object *object = calloc(1, size_of(type));
    if (!object)
        return NULL;
    object->loader = loader_magic;
    object->id = vn_link_ids(link, 1);
    object->client = vn_link_client(link);
    object->type = type;
    init(object, parent);
    return object;
}

void vn_object_destroy(struct vn_object *object)
{
    if (!object)
        return;
    switch (object->type) {
    case VK_OBJECT_TYPE_DEVICE_MEMORY:
        vn_memory_unref((struct vn_memory *)object);
        return;
    case VK_OBJECT_TYPE_BUFFER:
    case VK_OBJECT_TYPE_BUFFER_VIEW:
    case VK_OBJECT_TYPE_IMAGE:
        vn_resource_retire((struct vn_resource *)object);
        return;
    case VK_OBJECT_TYPE_SEMAPHORE:
        vn_semaphore_unref((struct vn_semaphore *)object);
        return;
    case VK_OBJECT_TYPE_QUEUE:
        vn_queue_fini((struct vn_queue *)object);
        break;
    case VK_OBJECT_TYPE_COMMAND_BUFFER:
        vn_command_buffer_fini((struct vn_command_buffer *)object);
        break;
    case VK_OBJECT_TYPE_COMMAND_POOL:
        vn_command_pool_fini(object);
        break;
    case VK_OBJECT_TYPE_RENDER_PASS:
        free((void *)object->facts);
        break;
    case VK_OBJECT_TYPE_SHADER_MODULE:
        vn_shader_destroy((struct vn_shader *)object->facts);
        break;
    case VK_OBJECT_TYPE_PIPELINE:
        free(((struct vn_pipeline *)object)->writes);
        break;
    default:
        if (vn_descriptor_size(object->type)) {
            vn_descriptor_fini(object);
            return;
        }
        break;
    }
    free(object);
}
