/* venus/client/link/pushes.h - what the server tells unasked, brought to the objects it is about.
 *
 * One for each link.  Memory and queues are found by id under a lock of their own, so that a push
 * never meets one that is being freed.
 *
 * Trust: ids are the server's; one that is not known is skipped (its object was freed here while
 * the push was under way).
 * Threads: any.  Lifetime: create/destroy; outlives its link. */
#ifndef HAWSER_VENUS_CLIENT_LINK_PUSHES_H
#define HAWSER_VENUS_CLIENT_LINK_PUSHES_H

#include "venus/client/link/link.h"

/* What buffers of a kind need (REGULAR). */
struct vnc_regular {
    uint32_t usage;
    uint32_t types; /* of the driver's memory */
    uint64_t alignment;
    uint64_t grain; /* of their size */
    uint64_t size;  /* of the largest */
};

struct vnc_pushes;
struct vnc_memory;
struct vnc_queue;
struct vnc_debug;
struct vnc_query_pool;
struct vnc_pipeline;

/* debug (may be NULL) gets the server's debug messages.  NULL when out of memory. */
struct vnc_pushes *vnc_pushes_create(struct vnc_debug *debug);
void vnc_pushes_destroy(struct vnc_pushes *pushes);

/* Gives the messages to another instance, or with NULL to nobody. */
void vnc_pushes_set_debug(struct vnc_pushes *pushes, struct vnc_debug *debug);

/* Brings a push to its object.  0, or a negative errno that ends the link. */
int vnc_pushes_take(struct vnc_pushes *pushes, const struct rpc_msg *push) MUST_CHECK;
/* An rpc_landing, with pushes as user: the bytes of whole pages may be received in a region, for as
 * long as it keeps them there. */
uint8_t *vnc_pushes_place(void *pushes, uint32_t method, const uint8_t *head, size_t len,
                          void **owner);
void vnc_pushes_leave(void *region);

/* 0 or -ENOMEM. */
int vnc_pushes_add_memory(struct vnc_pushes *pushes, struct vnc_memory *memory) MUST_CHECK;
void vnc_pushes_remove_memory(struct vnc_pushes *pushes, struct vnc_memory *memory);
int vnc_pushes_add_queue(struct vnc_pushes *pushes, struct vnc_queue *queue) MUST_CHECK;
void vnc_pushes_remove_queue(struct vnc_pushes *pushes, struct vnc_queue *queue);
/* Where there is no memory for it, results do not arrive. */
void vnc_pushes_add_query_pool(struct vnc_pushes *pushes, uint64_t id, struct vnc_query_pool *pool);
void vnc_pushes_remove_query_pool(struct vnc_pushes *pushes, uint64_t id);
/* Until it is compiled.  0 or -ENOMEM. */
int vnc_pushes_add_pipeline(struct vnc_pushes *pushes, struct vnc_pipeline *pipeline) MUST_CHECK;
void vnc_pushes_remove_pipeline(struct vnc_pushes *pushes, struct vnc_pipeline *pipeline);
/* How many are not. */
size_t vnc_pushes_pipelines(struct vnc_pushes *pushes);
void vnc_pushes_remove_device(struct vnc_pushes *pushes, uint64_t device);

/* What the server tells of buffers on the device. */
void vnc_pushes_add_regular(struct vnc_pushes *pushes, uint64_t device,
                            const struct vnc_regular *kind);
/* What was told of buffers with that usage; false: nothing. */
bool vnc_pushes_find_regular(struct vnc_pushes *pushes, uint64_t device, uint32_t usage,
                             struct vnc_regular *out);
/* What was told of a memory's address, once; 0: nothing. */
uint64_t vnc_pushes_take_address(struct vnc_pushes *pushes, uint64_t memory);

/* Whether a posted command of the device has failed that did not create an object; sticky, and the
 * first reason was logged.  An object whose creation failed is poisoned at the server, and work
 * that uses it fails by itself. */
bool vnc_pushes_failed(struct vnc_pushes *pushes, uint64_t device);
/* The same, with the command of the wire (0: not known) and what it failed with. */
bool vnc_pushes_find_failure(struct vnc_pushes *pushes, uint64_t device, uint32_t *command,
                             VkResult *result);

#endif
