/* command/software.h - starts this program again with a software Vulkan driver in its environment.
 *
 * find-vulkan finds the driver, lays one out where none works, and runs us in its environment: a
 * preloaded library takes effect in a new program only, so the environment cannot just be set.
 *
 * Threads: before any is started.  Lifetime: none. */
#ifndef HAWSER_COMMAND_SOFTWARE_H
#define HAWSER_COMMAND_SOFTWARE_H

#include "command/command.h"

#include <limits.h>

/* CMD_DONE when this process runs under a software driver already; otherwise it is replaced and
 * does not return, unless find-vulkan cannot be started: CMD_FAILED after a message. */
enum cmd_exit cmd_software(void) MUST_CHECK;

/* Where find-vulkan is; false where it is missing. */
bool cmd_find_software(char script[PATH_MAX]) MUST_CHECK;

#endif
