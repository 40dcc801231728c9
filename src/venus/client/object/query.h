/* venus/client/object/query.h - query pools.
 *
 * Trust: the program's own.  Threads: as Vulkan.  Lifetime: of the handle. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_QUERY_H
#define HAWSER_VENUS_CLIENT_OBJECT_QUERY_H

#include "venus/client/icd.h"

extern const struct vnc_entry vnc_entries_query[];

#endif
