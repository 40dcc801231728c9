/* command/kvranks.h - what kvd and benchkv share: which rank this process is, and names of choices.
 *
 * Threads: any.  Lifetime: static tables. */
#ifndef HAWSER_COMMAND_KVRANKS_H
#define HAWSER_COMMAND_KVRANKS_H

#include "command/command.h"

#include <stdbool.h>
#include <stdint.h>

/* In the order of enum rpc_flush_policy and enum rpc_wait_mode; NULL-terminated. */
extern const char *const cmd_flush_names[];
extern const char *const cmd_wait_names[];

/* What a launcher says: mpirun's or srun's number for this process.  False when none does. */
bool cmd_launched_rank(uint32_t *rank_out);
/* How many processes it started; 0 when none did. */
uint32_t cmd_launched_ranks(void);
/* --rank of `command`, else the launcher's word, else 0: a script that a launcher started may start
 * ranks of its own.  given: the option's text, NULL without it. */
enum cmd_exit cmd_rank(const char *command, const char *given, uint32_t *out);

/* The variables of a command that has ranks. */
extern const struct cmd_env cmd_rank_env[];

#endif
