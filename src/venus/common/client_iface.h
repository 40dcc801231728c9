/* venus/common/client_iface.h - what generated entrypoints ask of the client.
 *
 * The entrypoints encode; the client owns streams, order, ids and objects.  Every struct
 * vn_object knows its client, so an entrypoint needs no global state.
 *
 * Threads: entrypoints run on the program's threads, as Vulkan lets them.  begin takes whatever
 * lock orders the stream, and post or call gives it back.
 * Lifetime: the client outlives its objects.
 *
 * Errors: VkResult, since the program sees it.  A lost server is VK_ERROR_DEVICE_LOST from all. */
#ifndef HAWSER_VENUS_COMMON_CLIENT_IFACE_H
#define HAWSER_VENUS_COMMON_CLIENT_IFACE_H

#include "venus/common/decoder.h"
#include "venus/common/object.h"
#include "wire/enc.h"

/* What a recorded command can do beside what the client notes when it is recorded; "effects" of
 * spec/policy.json. */
enum vn_effects {
    VN_WRITES_SETS = 1 << 0,    /* through the sets of graphics and ray tracing */
    VN_WRITES_IMAGES = 1 << 1,  /* images, which commands and shaders reach by many ways */
    VN_USES_ADDRESSES = 1 << 2, /* reads buffers whose address the program knows */
    VN_WRITES_ALL = 1 << 3,
    VN_WATCHED = 1 << 4,   /* the host can ask how far it is */
    VN_READS_ALL = 1 << 5, /* what it reads is not followed */
    VN_READS_IMAGES = 1 << 6,
    VN_WRITES_ADDRESSES = 1 << 7, /* writes buffers whose address the program knows */
    VN_ANYTHING = VN_WRITES_ALL | VN_WATCHED | VN_READS_ALL,
};

struct vn_client_ops {
    /* Where the next command of this command buffer is recorded; NULL when it cannot record.  Ended
     * by recorded: no other thread looks at the recording meanwhile. */
    struct wire_enc *(*record)(struct vn_client *client, struct vn_object *command_buffer,
                               unsigned effects);
    void (*recorded)(struct vn_client *client, struct vn_object *command_buffer);
    /* The next command of this command buffer writes these queries, or resets them. */
    void (*queries)(struct vn_client *client, struct vn_object *command_buffer,
                    struct vn_object *pool, uint32_t first, uint32_t count, bool written);
    /* The next command ends these objects, or what they hold: recordings under way that name them
     * must come before it. */
    void (*ending)(struct vn_client *client, struct vn_object *device, uint64_t count,
                   struct vn_object *const *objects);

    /* An encoder for one command, or NULL when the server is lost.  Ended by post or call. */
    struct wire_enc *(*begin)(struct vn_client *client);
    /* Sends one way.  VK_SUCCESS, or an error (the encoder's own included); nothing was sent then.
     */
    VkResult (*post)(struct vn_client *client, struct wire_enc *e);
    /* Ends the connection: a command that returns nothing could not be sent. */
    void (*lose)(struct vn_client *client);
    /* Sends and waits.  On VK_SUCCESS reply is ready to decode and ended by finish. */
    VkResult (*call)(struct vn_client *client, struct wire_enc *e, struct vn_decoder *reply);
    /* VK_SUCCESS, or VK_ERROR_DEVICE_LOST when the reply was not well formed. */
    VkResult (*finish)(struct vn_client *client, struct vn_decoder *reply);

    /* A new object with a fresh id, or NULL.  parent is the first handle of the command. */
    struct vn_object *(*object_new)(struct vn_client *client, uint32_t type,
                                    struct vn_object *parent);
    void (*object_free)(struct vn_client *client, struct vn_object *object);
};

struct vn_client {
    const struct vn_client_ops *ops;
    bool sync; /* VENUS_SYNC: what could be posted is called */
};

static inline struct vn_client *vn_client_of(const void *handle)
{
    return vn_object_of(handle)->client;
}

/* The recording stream of a command buffer, or NULL. */
static inline struct wire_enc *vn_client_record(VkCommandBuffer command_buffer, unsigned effects)
{
    struct vn_object *object = (struct vn_object *)command_buffer;
    return object->client->ops->record(object->client, object, effects);
}

static inline void vn_client_recorded(VkCommandBuffer command_buffer)
{
    struct vn_object *object = (struct vn_object *)command_buffer;
    object->client->ops->recorded(object->client, object);
}

static inline void vn_client_queries(VkCommandBuffer command_buffer, VkQueryPool pool,
                                     uint32_t first, uint32_t count, bool written)
{
    struct vn_object *object = (struct vn_object *)command_buffer;
    object->client->ops->queries(object->client, object, (struct vn_object *)pool, first, count,
                                 written);
}

static inline void vn_client_ending(const void *device, uint64_t count, const void *handles)
{
    struct vn_client *client = vn_client_of(device);
    client->ops->ending(client, (struct vn_object *)(uintptr_t)device, count, handles);
}

/* Fills handles[0..count) with new objects, or with NULL and returns false. */
bool vn_client_new(const void *parent, uint32_t type, uint64_t count, void *handles);
/* Frees the objects of handles[0..count); NULL is skipped.  The array is not written. */
void vn_client_free(struct vn_client *client, uint64_t count, const void *handles);
/* The same, and the array becomes NULL. */
void vn_client_undo(struct vn_client *client, uint64_t count, void *handles);

/* For replies: the handle when the server created its object, else NULL, and the object is
 * dropped.  Where it is needed, since the program is told of success, its absence is an error. */
void *vn_dec_created(struct vn_decoder *d, void *handle, bool needed);
/* How many elements of size bytes the server is asked for where the program has room for count: no
 * more than one answer holds.  Of more the program is told as Vulkan tells it, by VK_INCOMPLETE. */
static inline uint64_t vn_room(uint64_t count, size_t size)
{
    return count < VN_OUTPUT_MAX / size ? count : VN_OUTPUT_MAX / size;
}
/* A count of the server that must fit the room the program gave; 0 and an error when it does not.
 */
uint32_t vn_dec_room(struct vn_decoder *d, uint64_t count, uint64_t room);

#endif
