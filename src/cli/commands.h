/* cli/commands.h - the subcommands that are a door to the rest, and the table of all of them.
 *
 * Threads: one.  Lifetime: tables are static. */
#ifndef HAWSER_CLI_COMMANDS_H
#define HAWSER_CLI_COMMANDS_H

#include "command/command.h"

#include <stdio.h>

/* Under which heading the list of commands has one. */
enum cli_group { CLI_GPUS, CLI_MODELS, CLI_KV, CLI_MEASURE, CLI_HELP, CLI_GROUPS };

struct cli_entry {
    const char *name; /* NULL ends the table */
    const struct cmd_command *command;
    enum cli_group group;
};

extern const struct cli_entry cli_commands[]; /* in main.c */

/* NULL after a message that names the nearest command. */
const struct cmd_command *cli_find_command(const char *name);
/* What `hawser help` prints. */
void cli_print_commands(FILE *out);

extern const struct cmd_command cmd_doctor;
extern const struct cmd_command cmd_drain;
extern const struct cmd_command cmd_help;
extern const struct cmd_command cmd_top;
extern const struct cmd_command cmd_info;
extern const struct cmd_command cmd_keygen;
extern const struct cmd_command cmd_run_program;
extern const struct cmd_command cmd_kvd;
extern const struct cmd_command cmd_kv;
extern const struct cmd_command cmd_kvctl;
extern const struct cmd_command cmd_kvtop;
extern const struct cmd_command cmd_model;
extern const struct cmd_command cmd_llm;
extern const struct cmd_command cmd_chat;

#endif
