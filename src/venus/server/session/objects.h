/* venus/server/session/objects.h - what the ids of a client stand for.
 *
 * An id is an object of the driver, or void: its creation failed.  Objects of a pool end with the
 * pool, and all of a device with the device, so that no id outlives what it stands for.
 *
 * Trust: ids are a peer's; each is looked up with its type.
 * Threads: the executor's only.
 * Lifetime: init/fini; the driver's objects are not touched. */
#ifndef HAWSER_VENUS_SERVER_SESSION_OBJECTS_H
#define HAWSER_VENUS_SERVER_SESSION_OBJECTS_H

#include <stdbool.h>
#include <vulkan/vulkan_core.h>

#include "venus/common/keymap.h"

struct vn_device;
struct vn_compile;
struct vn_body;
struct vn_queue;
struct vn_spare;

/* A batch that executes something; NULL: none does. */
struct vn_use {
    struct vn_queue *queue;
    uint64_t batch;
};

struct vn_thing {
    uint64_t id;
    void *handle; /* NULL: void */
    uint32_t type;
    bool recorded;                 /* a command buffer that the driver has not reset since */
    bool begun;                    /* a command buffer between begin and end */
    bool spoilt;                   /* a command buffer whose recording was not executed in full */
    bool secondary;                /* a command buffer's level */
    struct vn_use use;             /* of a command buffer, the last */
    struct vn_spare *spares;       /* of a command pool; see pending.h */
    struct vn_body *body;          /* a command buffer's, kept; or NULL */
    uint64_t version;              /* a descriptor set's: changes with each update */
    struct vn_compile *compile;    /* a pipeline's job that is not done; its handle comes then */
    uint32_t users;                /* jobs that use it */
    bool doomed;                   /* has no id any more, and ends with its last user */
    bool exclusive;                /* a pipeline cache that serves one job at a time */
    struct vn_device *device;      /* NULL for the instance, physical devices and devices */
    struct vn_thing *pool;         /* that it was allocated from, or NULL */
    struct vn_thing *members;      /* of a pool */
    struct vn_thing *next, **link; /* among the pool's members */
};

struct vn_objects {
    struct vn_keymap things;  /* id to struct vn_thing */
    struct vn_keymap devices; /* dispatchable handle of a device to struct vn_device */
    uint64_t max;             /* things at a time */
    uint64_t max_pipelines;
    uint64_t pipelines;
    uint64_t kept_bytes;           /* of bodies */
    uint64_t ended;                /* things so far that a descriptor set can have held */
    uint64_t left, left_pipelines; /* behind by a client that destroyed their device */
    /* The last answer of vn_objects_device: a stream speaks to one object for long. */
    const void *last_handle;
    struct vn_device *last_device;
};

void vn_objects_init(struct vn_objects *objects, uint64_t max, uint64_t max_pipelines);
void vn_objects_fini(struct vn_objects *objects);

/* NULL when the id is unknown or of another type; VK_OBJECT_TYPE_UNKNOWN takes any. */
struct vn_thing *vn_objects_find(const struct vn_objects *objects, uint64_t id, uint32_t type);

/* Registers an object, void when handle is NULL.  pool is 0 or the handle of a registered pool.
 * 0, -EEXIST for an id in use or 0, -EDQUOT over a limit, -ENOMEM. */
int vn_objects_add(struct vn_objects *objects, uint32_t type, uint64_t id, void *handle,
                   struct vn_device *device, struct vn_thing *pool) MUST_CHECK;
/* The object is another one of the driver's from now on.  0 or -ENOMEM, which changes nothing. */
int vn_objects_replace(struct vn_objects *objects, struct vn_thing *thing, void *handle) MUST_CHECK;
/* Forgets an object and, of a pool, its members.  An unknown id is none.  One that has users is
 * left to them. */
void vn_objects_remove(struct vn_objects *objects, uint64_t id);
/* Forgets the members of a pool that was reset. */
void vn_objects_empty(struct vn_objects *objects, struct vn_thing *pool);
/* Forgets all that belongs to a device.  What the client should have destroyed before still counts
 * against the limits: a driver may keep it.  Memory does not: see vn_memories_free_device. */
void vn_objects_remove_device(struct vn_objects *objects, const struct vn_device *device);

/* The device behind a dispatchable handle: a device, queue or command buffer; NULL for others. */
struct vn_device *vn_objects_device(struct vn_objects *objects, const void *handle);

#endif
