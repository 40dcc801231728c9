/* serve/serve.h - the subcommand `serve`; cli/main.c lists it. */
#ifndef HAWSER_SERVE_SERVE_H
#define HAWSER_SERVE_SERVE_H

#include "command/command.h"

extern const struct cmd_command cmd_serve;

#endif
