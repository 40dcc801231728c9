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

struct vn_pushes;
struct vn_memory;
struct vn_queue;
struct vn_debug;

/* debug (may be NULL) gets the server's debug messages.  NULL when out of memory. */
struct vn_pushes *vn_pushes_create(struct vn_debug *debug);
void vn_pushes_destroy(struct vn_pushes *pushes);

extern const struct vn_push_ops vn_push_handlers; /* for vn_link_create, with pushes as user */

/* 0 or -ENOMEM. */
int vn_pushes_add_memory(struct vn_pushes *pushes, struct vn_memory *memory) MUST_CHECK;
void vn_pushes_remove_memory(struct vn_pushes *pushes, struct vn_memory *memory);
int vn_pushes_add_queue(struct vn_pushes *pushes, struct vn_queue *queue) MUST_CHECK;
void vn_pushes_remove_queue(struct vn_pushes *pushes, struct vn_queue *queue);

/* What was told of buffers with that usage on the device; false: nothing. */
bool vn_pushes_find_regular(struct vn_pushes *pushes, uint64_t device, uint32_t usage,
                            struct vn_regular *out);
/* What was told of a memory's address, once; 0: nothing. */
uint64_t vn_pushes_take_address(struct vn_pushes *pushes, uint64_t memory);

/* Whether a posted command has failed; sticky, and the reason was logged. */
bool vn_pushes_failed(const struct vn_pushes *pushes);

#endif
