/* command/listen.h - addresses on which a command listens, as the user wrote them.
 *
 * Trust: the user's.  One that cannot be read, or whose name nobody knows, is wrong usage; whether
 * others may reach it is for the caller to judge.
 * Threads: any.  Lifetime: none. */
#ifndef HAWSER_COMMAND_LISTEN_H
#define HAWSER_COMMAND_LISTEN_H

#include "command/command.h"
#include "rpc/transport/addr.h"

/* `option` is named in the message: "--listen".  CMD_DONE, or CMD_USAGE after a message. */
enum cmd_exit cmd_listen_read(const char *command, const char *option, const char *text,
                              struct rpc_addr *out) MUST_CHECK;
/* The second half, of an address that was read before. */
enum cmd_exit cmd_listen_resolve(const char *command, const char *option,
                                 const struct rpc_addr *addr) MUST_CHECK;

#endif
