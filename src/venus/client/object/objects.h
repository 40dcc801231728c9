/* venus/client/object/objects.h - making and freeing what handles point to.
 *
 * A handle is the address of an object, which begins with struct vn_object.  Types that the client
 * must remember things about have a struct of their own (device.h, memory.h, ...); all others are
 * a bare struct vn_object.  vnc_object_create knows the sizes.
 *
 * Trust: the program's own.  Threads: any.  Lifetime: create/destroy. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_OBJECTS_H
#define HAWSER_VENUS_CLIENT_OBJECT_OBJECTS_H

#include "venus/client/link/link.h"
#include "venus/common/chain.h"

/* Zeroed but for its head, with a fresh id; NULL when out of memory.  parent is the handle it was
 * made from: for most types a device. */
void *vnc_object_create(struct vnc_link *link, uint32_t type, struct vn_object *parent);
/* Frees what the type holds beside itself, too.  NULL is fine. */
void vnc_object_destroy(struct vn_object *object);

/* Casts a handle of any kind to the struct behind it. */
#define VNC_OBJECT(type, handle) ((struct type *)(uintptr_t)(handle))
/* And back. */
#define VNC_HANDLE(type, object) ((type)(uintptr_t)(object))

#endif
