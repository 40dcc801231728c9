/* rpc/transport/ucx_library.c - libhawser_ucx.so: UCX for programs that open it when they need it.
 */
#include "rpc/transport/ucx.h"

#define EXPORTED __attribute__((visibility("default")))

extern const char hawser_ucx_version[];
EXPORTED const char hawser_ucx_version[] = HAWSER_VERSION;

rpc_dial_fn hawser_ucx_dial;
EXPORTED int hawser_ucx_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                             struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    return rpc_ucx_dial(addr, options, out, why);
}
