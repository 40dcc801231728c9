/* command/drivers.h - which Vulkan driver this process, or a program that it starts, uses:
 * Hawser's, or a software one.
 *
 * Threads: before any is started, since it changes the environment.  Lifetime: values. */
#ifndef HAWSER_COMMAND_DRIVERS_H
#define HAWSER_COMMAND_DRIVERS_H

#include "command/command.h"

#include <limits.h>

/* The manifest of Hawser's driver: HAWSER_ICD, or beside this program in a build folder
 * (BUILD/src/cli), or installed. */
bool cmd_find_manifest(char out[PATH_MAX]) MUST_CHECK;

/* Makes it the only driver of a loader that this process, or a program it starts, opens. */
void cmd_use_manifest(const char *path);

/* Leaves the installed driver out of such a loader, unless the environment names drivers: a server
 * would ask itself for GPUs.  Loaders before 1.3.234 do not heed it.  False: the variable that
 * the loader reads cannot be set. */
bool cmd_leave_out_manifest(void) MUST_CHECK;

/* Starts this program again with a software driver in its environment.  find-vulkan finds the
 * driver, lays one out where none works, and runs us in its environment: a preloaded library takes
 * effect in a new program only, so the environment cannot just be set.  CMD_DONE when this process
 * runs under a software driver already; otherwise it is replaced and does not return, unless
 * find-vulkan cannot be started: CMD_FAILED after a message. */
enum cmd_exit cmd_software(void) MUST_CHECK;

/* Where find-vulkan is; false where it is missing. */
bool cmd_find_software(char script[PATH_MAX]) MUST_CHECK;

#endif
