/* venus/client/icd.h - the functions that the loader finds.
 *
 * Each file of the client exports a table of the commands that it implements; every other command
 * is served by generated code.  What has neither is not offered: an extension is, only when all
 * its commands are there.
 *
 * Trust: the loader and the program.  Threads: any; constant.  Lifetime: static. */
#ifndef HAWSER_VENUS_CLIENT_ICD_H
#define HAWSER_VENUS_CLIENT_ICD_H

#include <vulkan/vulkan_core.h>

#include "venus/common/commands.h"

/* What the loader wants to find in a dispatchable handle before it puts its own word there. */
#define VNC_LOADER_MAGIC ((uintptr_t)0x01cdc0de)

struct vnc_entry {
    const char *name; /* canonical; NULL ends a table */
    PFN_vkVoidFunction function;
};

/* Checks that the function has the command's type. */
#define VNC_ENTRY(command, fn)                                                                     \
    {                                                                                              \
#command, (PFN_vkVoidFunction)(1 ? (fn) : (PFN_##command)0)                                \
    }

/* The version of Vulkan that we offer at most: the registry's, or the last one of which every
 * command is there. */
uint32_t vnc_icd_version(void);

/* Our function for a command, or NULL. */
PFN_vkVoidFunction vnc_icd_entry(const struct vn_command_info *command);

/* Whether the policy lets us offer an extension and all its commands are there. */
bool vnc_icd_has_extension(const struct vn_extension_info *extension);

/* Whether one of the origins of a command is a version up to this one; false when none is. */
bool vnc_icd_in_version(const struct vn_command_info *command, uint32_t version);

extern const struct vnc_entry vnc_entries_icd[];

#endif
