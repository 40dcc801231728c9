/* venus/client/device/servers.h - which servers an instance shall use.
 *
 * Trust: the environment is the user's; an address that cannot be read costs a warning.
 * Threads: none may be changing the environment.  Lifetime: values. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_SERVERS_H
#define HAWSER_VENUS_CLIENT_DEVICE_SERVERS_H

#include "rpc/transport/addr.h"

/* As rpc/servers.h says.  How many of the `max` there are; the others are warned of and left out.
 */
uint32_t vnc_servers_from_env(struct rpc_addr *out, uint32_t max);

#endif
