/* venus/client/object/local.h - objects that never leave the client: private data and deferred
 * operations; and what the client must remember of render passes.
 *
 * Trust: the program's own.  Threads: as Vulkan.  Lifetime: of the handles. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_LOCAL_H
#define HAWSER_VENUS_CLIENT_OBJECT_LOCAL_H

#include "venus/client/icd.h"

extern const struct vn_entry vn_entries_private_data[];
extern const struct vn_entry vn_entries_deferred[];
extern const struct vn_entry vn_entries_render_pass[];

#endif
