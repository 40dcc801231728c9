/* command/manifest.h - where the manifest of Hawser's Vulkan driver is, for whoever makes a loader
 * use it.
 *
 * Threads: any.  Lifetime: values. */
#ifndef HAWSER_COMMAND_MANIFEST_H
#define HAWSER_COMMAND_MANIFEST_H

#include "base/attr.h"

#include <limits.h>
#include <stdbool.h>

/* HAWSER_ICD, or beside this program in a build folder (BUILD/src/cli), or installed. */
bool cmd_find_manifest(char out[PATH_MAX]) MUST_CHECK;

/* Makes it the only driver of a loader that this process, or a program it starts, opens. */
void cmd_use_manifest(const char *path);

/* Leaves the installed driver out of such a loader, unless the environment names drivers: a server
 * would ask itself for GPUs.  Loaders before 1.3.234 do not heed it.  False: the variable that
 * the loader reads cannot be set. */
bool cmd_leave_out_manifest(void) MUST_CHECK;

#endif
