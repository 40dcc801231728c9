/* serve/serve.h - the subcommands of this room; cli/main.c lists them. */
#ifndef HAWSER_SERVE_SERVE_H
#define HAWSER_SERVE_SERVE_H

#include "command/command.h"

extern const struct cmd_command cmd_serve;
extern const struct cmd_command cmd_gateway;

#endif
