/* venus/server/session/objects.h - what the ids of a client stand for.
 *
 * An id is an object of the driver, or poisoned: its creation failed.  Objects of a pool end with
 * the pool, and all of a device with the device, so that no id outlives what it stands for.
 *
 * Trust: ids are a peer's; each is looked up with its type.
 * Threads: the executor's only.
 * Lifetime: init/fini; the driver's objects are not touched. */
#ifndef HAWSER_VENUS_SERVER_SESSION_OBJECTS_H
#define HAWSER_VENUS_SERVER_SESSION_OBJECTS_H

#include <stdbool.h>
#include <vulkan/vulkan_core.h>

#include "venus/common/keymap.h"

struct vns_device;
struct vns_compile;
struct vns_recording;
struct vns_queue;
struct vns_spare;

/* A batch that executes something; NULL: none does. */
struct vns_use {
    struct vns_queue *queue;
    uint64_t batch;
};

struct vns_thing {
    uint64_t id;
    void *handle; /* NULL: void */
    uint32_t type;
    bool recorded;                   /* a command buffer that the driver has not reset since */
    bool begun;                      /* a command buffer between begin and end */
    bool incomplete;                 /* a command buffer whose recording was not executed in full */
    bool misnamed;                   /* likewise, since a command named an unknown id */
    bool secondary;                  /* a command buffer's level */
    bool scattered;                  /* a command buffer: more queues may execute it than `use` */
    struct vns_use use;              /* of a command buffer, the last */
    struct vns_spare *spares;        /* of a command pool, oldest first; see pending.h */
    struct vns_recording *recording; /* a command buffer's, kept; or NULL */
    uint64_t version;                /* a descriptor set's: changes with each update */
    struct vns_compile *compile;     /* a pipeline's job that is not done; its handle comes then */
    uint32_t users;                  /* jobs that use it */
    bool doomed;                     /* has no id any more, and ends with its last user */
    bool exclusive;                  /* a pipeline cache that serves one job at a time */
    struct vns_device *device;       /* NULL for the instance, physical devices and devices */
    struct vns_thing *pool;          /* that it was allocated from, or NULL */
    struct vns_thing *members;       /* of a pool */
    struct vns_thing *next, **link;  /* among the pool's members */
};

struct vns_objects {
    struct vn_keymap things;  /* id to struct vns_thing */
    struct vn_keymap devices; /* dispatchable handle of a device to struct vns_device */
    uint64_t max;             /* things at a time */
    uint64_t max_pipelines;
    uint64_t pipelines;
    uint64_t kept_bytes;           /* of recordings */
    uint64_t ended;                /* things so far that a descriptor set can have held */
    uint64_t left, left_pipelines; /* behind by a client that destroyed their device */
    /* The last answer of vns_objects_device: a stream speaks to one object for long. */
    const void *last_handle;
    struct vns_device *last_device;
};

void vns_objects_init(struct vns_objects *objects, uint64_t max, uint64_t max_pipelines);
void vns_objects_fini(struct vns_objects *objects);

/* NULL when the id is unknown or of another type; VK_OBJECT_TYPE_UNKNOWN takes any. */
struct vns_thing *vns_objects_find(const struct vns_objects *objects, uint64_t id, uint32_t type);

/* Registers an object, poisoned when handle is NULL.  pool is 0 or the handle of a registered pool.
 * 0, -EEXIST for an id in use or 0, -EDQUOT over a limit, -ENOMEM. */
int vns_objects_add(struct vns_objects *objects, uint32_t type, uint64_t id, void *handle,
                    struct vns_device *device, struct vns_thing *pool) MUST_CHECK;
/* The object is another one of the driver's from now on.  0 or -ENOMEM, which changes nothing. */
int vns_objects_replace(struct vns_objects *objects, struct vns_thing *thing,
                        void *handle) MUST_CHECK;
/* Forgets an object and, of a pool, its members.  An unknown id is none.  One that has users is
 * left to them. */
void vns_objects_remove(struct vns_objects *objects, uint64_t id);
/* Forgets the members of a pool that was reset. */
void vns_objects_empty(struct vns_objects *objects, struct vns_thing *pool);
/* Forgets all that belongs to a device.  What the client should have destroyed before still counts
 * against the limits: a driver may keep it.  Memory does not: see vns_memories_free_device. */
void vns_objects_remove_device(struct vns_objects *objects, const struct vns_device *device);

/* The device behind a dispatchable handle: a device, queue or command buffer; NULL for others. */
struct vns_device *vns_objects_device(struct vns_objects *objects, const void *handle);

#endif
