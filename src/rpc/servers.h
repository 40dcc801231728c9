/* rpc/servers.h - which servers the environment names.
 *
 * VENUS_SERVERS, a list that commas or blanks separate, else VENUS_SERVER_HOST and
 * VENUS_SERVER_PORT, else 127.0.0.1:28100.
 *
 * Trust: the environment is the user's; what is no address is found by rpc_addr_parse.
 * Threads: none may be changing the environment.  Lifetime: values. */
#ifndef HAWSER_RPC_SERVERS_H
#define HAWSER_RPC_SERVERS_H

#include "rpc/transport/addr.h"

/* One address of a list: more than any that is taken, so that one that is cut off is refused. */
enum { RPC_SERVER_CHARS = RPC_ADDR_HOST_CHARS + 64 };

/* The list: the variable itself, or what was put into buf. */
const char *rpc_servers_from_env(char buf[RPC_SERVER_CHARS]);

/* Whether the environment says where the server is; else the list is the default address. */
bool rpc_servers_named(void);

/* Takes the next address off a list; false when there is none. */
bool rpc_servers_next(const char **list, char out[RPC_SERVER_CHARS]) MUST_CHECK;

#endif
