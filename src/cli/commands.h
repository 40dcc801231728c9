/* cli/commands.h - the subcommands that are a door to the rest; main.c lists them. */
#ifndef HAWSER_CLI_COMMANDS_H
#define HAWSER_CLI_COMMANDS_H

#include "command/command.h"

extern const struct cmd_command cmd_drain;
extern const struct cmd_command cmd_info;
extern const struct cmd_command cmd_keygen;
extern const struct cmd_command cmd_run_program;
extern const struct cmd_command cmd_kvd;
extern const struct cmd_command cmd_kvctl;
extern const struct cmd_command cmd_model;
extern const struct cmd_command cmd_llm;
extern const struct cmd_command cmd_chat;

#endif
