/* venus/common/exec.h - executing decoded commands at the server.
 *
 * A command is {u32 id, u32 bytes, payload}.  Its payload is decoded and checked as a whole; only
 * then is a hook or the driver called.  Objects that it created are registered under the ids that
 * the client chose, and the reply is encoded where one was asked for (a post has none).
 *
 * An object that the driver did not create leaves a poisoned id.  A command that names one, or an
 * id that nobody knows, is skipped: neither hook nor driver sees it, what it should have created is
 * poisoned too, and a result is VK_ERROR_UNKNOWN.  Void ids among those that a command destroys do
 * not stop it: they end, and the driver gets VK_NULL_HANDLE for them.
 *
 * Trust: the stream is a peer's; see decoder.h.  The driver is trusted.
 * Threads: one at a time per struct vn_exec.  Lifetime: all members are the caller's. */
#ifndef HAWSER_VENUS_COMMON_EXEC_H
#define HAWSER_VENUS_COMMON_EXEC_H

#include "venus/common/decoder.h"
#include "wire/enc.h"

struct vn_driver; /* generated: the driver's functions, one PFN_ a command */
struct vn_hooks;  /* generated: what is called instead of the driver, one a command, or NULL */

struct vn_exec_ops {
    /* A command was decoded and is executed next, or skipped.  NULL: no such call. */
    void (*decoded)(void *objects);
    /* Whether an id may be given to a new object: not 0 and never used before. */
    bool (*id_is_fresh)(void *objects, uint64_t id);
    /* 0, or a negative errno that ends the session; the object is then the callee's to destroy.
     * A NULL handle makes the id poisoned. */
    int (*created)(void *objects, uint32_t type, uint64_t id, void *handle);
    void (*destroyed)(void *objects, uint32_t type, uint64_t id);
    /* A command returned an error.  For a post this is the only place that learns of it. */
    void (*failed)(void *objects, uint32_t command, VkResult result);
    /* A command named a poisoned id and was not executed; failed is not called for it. */
    void (*skipped)(void *objects, uint32_t command);
    /* The functions for a dispatchable handle, whose device may have others than its neighbour;
     * handle is NULL for commands without one.  Without this call vn_exec.driver serves all. */
    const struct vn_driver *(*driver_of)(void *objects, const void *handle);
};

struct vn_exec {
    const struct vn_driver *driver;
    const struct vn_hooks *hooks;
    const struct vn_exec_ops *ops;
    void *objects;
    struct wire_enc *reply; /* NULL when none is asked for */
};

/* Generated.  d->poisoned is the caller's to set: true skips a command that names no poisoned id,
 * too. 0, or a negative errno that ends the session: -ENOSYS when the command is not known or the
 * driver does not have it, else what the decoder found. */
int vn_dispatch(struct vn_exec *x, uint32_t command, struct vn_decoder *d) MUST_CHECK;

/* For generated code. */
static inline const struct vn_driver *vn_exec_driver(const struct vn_exec *x, const void *handle)
{
    return x->ops->driver_of ? x->ops->driver_of(x->objects, handle) : x->driver;
}

int vn_exec_ready(struct vn_exec *x, const struct vn_decoder *d);
void vn_exec_check(struct vn_exec *x, struct vn_decoder *d, uint64_t count, const uint64_t *ids);
int vn_exec_created(struct vn_exec *x, uint32_t type, uint64_t count, const uint64_t *ids,
                    const void *handles);
void vn_exec_destroyed(struct vn_exec *x, uint32_t type, uint64_t count, const uint64_t *ids);
void vn_exec_result(struct vn_exec *x, uint32_t command, VkResult result);

#endif
