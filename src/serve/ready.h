/* serve/ready.h - tells whoever started this process that it is ready.
 *
 * Threads: one.  Lifetime: none. */
#ifndef HAWSER_SERVE_READY_H
#define HAWSER_SERVE_READY_H

#include "command/command.h"

/* Row for the option table of a command that serves; the member is a uint64_t. */
#define SERVE_READY_OPTION(type, member)                                                           \
    {                                                                                              \
        .name = "ready-fd", .kind = CMD_U64, .argument = "FD", .offset = offsetof(type, member),   \
        .min = 3, .max = 1 << 20,                                                                  \
        .help = "write a line to this descriptor when ready, then close it"                        \
    }

/* Flushes the output; writes to fd (0: none) and tells systemd.  CMD_DONE, or the exit status after
 * a message. */
enum cmd_exit serve_say_ready(const char *command, int fd);

#endif
