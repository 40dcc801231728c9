/* serve/gateway.h - the subcommand `gateway`; cli/main.c lists it. */
#ifndef HAWSER_SERVE_GATEWAY_H
#define HAWSER_SERVE_GATEWAY_H

#include "command/command.h"

extern const struct cmd_command cmd_gateway;

#endif
