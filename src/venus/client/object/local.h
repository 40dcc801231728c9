/* venus/client/object/local.h - objects that never leave the client: private data and deferred
 * operations; and what the client must remember of render passes.
 *
 * Trust: the program's own.  Threads: as Vulkan.  Lifetime: of the handles. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_LOCAL_H
#define HAWSER_VENUS_CLIENT_OBJECT_LOCAL_H

#include "venus/client/icd.h"

extern const struct vnc_entry vnc_entries_private_data[];
struct vn_object;
/* The object ends, and with it what the program stored for it.  Cheap while there is no slot. */
void vnc_private_data_forget(const struct vn_object *object);
/* Objects for which the slot holds something. */
size_t vnc_private_data_words(VkPrivateDataSlot slot);

extern const struct vnc_entry vnc_entries_deferred[];
extern const struct vnc_entry vnc_entries_answers[];
extern const struct vnc_entry vnc_entries_render_pass[];

#endif
