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

#endif
