/* See objects.h. */
#include "venus/client/object/objects.h"

#include "venus/client/memory/memory.h"
#include "venus/client/object/descriptor.h"
#include "venus/client/object/local.h"
#include "venus/client/object/pipeline.h"
#include "venus/client/object/query.h"
#include "venus/client/object/sync.h"
#include "venus/client/record/command.h"
#include "venus/client/submit/queue.h"

#include <stdlib.h>

static size_t size_of(uint32_t type)
{
    switch (type) {
    case VK_OBJECT_TYPE_DEVICE:
        return sizeof(struct vnc_device);
    case VK_OBJECT_TYPE_QUEUE:
        return sizeof(struct vnc_queue);
    case VK_OBJECT_TYPE_DEVICE_MEMORY:
        return sizeof(struct vnc_memory);
    case VK_OBJECT_TYPE_BUFFER:
    case VK_OBJECT_TYPE_BUFFER_VIEW:
    case VK_OBJECT_TYPE_IMAGE:
        return sizeof(struct vnc_resource);
    case VK_OBJECT_TYPE_FENCE:
        return sizeof(struct vnc_fence);
    case VK_OBJECT_TYPE_SEMAPHORE:
        return sizeof(struct vnc_semaphore);
    case VK_OBJECT_TYPE_QUERY_POOL:
        return vnc_query_pool_size();
    case VK_OBJECT_TYPE_COMMAND_POOL:
        return vnc_command_pool_size();
    case VK_OBJECT_TYPE_COMMAND_BUFFER:
        return vnc_command_buffer_size();
    case VK_OBJECT_TYPE_PIPELINE:
        return sizeof(struct vnc_pipeline);
    default: {
        size_t size = vnc_descriptor_size(type);
        return size ? size : sizeof(struct vn_object);
    }
    }
}

static void init_resource(struct vnc_resource *resource, struct vnc_device *device)
{
    resource->device = device;
    resource->refs = 1;
    wire_enc_init(&resource->created, VNC_MEMO_KEY_BYTES);
}

/* parent is a device for all of these. */
static void init(struct vn_object *object, struct vn_object *parent)
{
    struct vnc_device *device = (struct vnc_device *)parent;
    switch (object->type) {
    case VK_OBJECT_TYPE_DEVICE_MEMORY:
        ((struct vnc_memory *)object)->device = device;
        ((struct vnc_memory *)object)->refs = 1;
        break;
    case VK_OBJECT_TYPE_BUFFER:
    case VK_OBJECT_TYPE_BUFFER_VIEW:
    case VK_OBJECT_TYPE_IMAGE:
        init_resource((struct vnc_resource *)object, device);
        break;
    case VK_OBJECT_TYPE_FENCE:
        ((struct vnc_fence *)object)->device = device;
        break;
    case VK_OBJECT_TYPE_SEMAPHORE:
        ((struct vnc_semaphore *)object)->device = device;
        ((struct vnc_semaphore *)object)->refs = 1;
        break;
    case VK_OBJECT_TYPE_QUERY_POOL:
        vnc_query_pool_init((struct vnc_query_pool *)object, device);
        break;
    case VK_OBJECT_TYPE_PIPELINE:
        vnc_pipeline_init((struct vnc_pipeline *)object, device);
        break;
    case VK_OBJECT_TYPE_QUEUE:
        ((struct vnc_queue *)object)->device = device;
        vnc_queue_init((struct vnc_queue *)object);
        break;
    case VK_OBJECT_TYPE_COMMAND_BUFFER:
        vnc_command_buffer_init((struct vnc_command_buffer *)object, device);
        break;
    default:
        break;
    }
}

/* What the loader wants to find in a dispatchable handle before it puts its own word there. */
static const uintptr_t loader_magic = 0x01cdc0de;

void *vnc_object_create(struct vnc_link *link, uint32_t type, struct vn_object *parent)
{
    struct vn_object *object = calloc(1, size_of(type));
    if (!object)
        return NULL;
    object->loader = loader_magic;
    object->id = vnc_link_ids(link, 1);
    object->client = vnc_link_client(link);
    object->type = type;
    init(object, parent);
    return object;
}

void vnc_object_destroy(struct vn_object *object)
{
    if (!object)
        return;
    vnc_private_data_forget(object);
    switch (object->type) {
    case VK_OBJECT_TYPE_DEVICE_MEMORY:
        vnc_memory_unref((struct vnc_memory *)object);
        return;
    case VK_OBJECT_TYPE_BUFFER:
    case VK_OBJECT_TYPE_BUFFER_VIEW:
    case VK_OBJECT_TYPE_IMAGE:
        vnc_resource_retire((struct vnc_resource *)object);
        return;
    case VK_OBJECT_TYPE_SEMAPHORE:
        vnc_semaphore_unref((struct vnc_semaphore *)object);
        return;
    case VK_OBJECT_TYPE_QUERY_POOL:
        vnc_query_pool_retire((struct vnc_query_pool *)object);
        return;
    case VK_OBJECT_TYPE_QUEUE:
        vnc_queue_fini((struct vnc_queue *)object);
        break;
    case VK_OBJECT_TYPE_COMMAND_BUFFER:
        vnc_command_buffer_fini((struct vnc_command_buffer *)object);
        break;
    case VK_OBJECT_TYPE_COMMAND_POOL:
        vnc_command_pool_fini(object);
        break;
    case VK_OBJECT_TYPE_RENDER_PASS:
        free((void *)object->facts);
        break;
    case VK_OBJECT_TYPE_SHADER_MODULE:
        vn_shader_destroy((struct vn_shader *)object->facts);
        break;
    case VK_OBJECT_TYPE_PIPELINE:
        vnc_pipeline_fini((struct vnc_pipeline *)object);
        break;
    default:
        if (vnc_descriptor_size(object->type)) {
            vnc_descriptor_fini(object);
            return;
        }
        break;
    }
    free(object);
}
