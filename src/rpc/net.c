#include "rpc/net.h"

#include "base/clock.h"
#include "rpc/sock.h"
#ifdef HAVE_UCX
#include "rpc/ucx.h"
#endif

#include <errno.h>
#include <stdio.h>

static const uint64_t dial_default_ns = 5 * HW_SEC;

typedef int dial_fn(const struct rpc_addr *, const struct rpc_net_options *,
                    struct rpc_transport **, char why[RPC_WHY_CHARS]);
typedef int listen_fn(const struct rpc_addr *, const struct rpc_net_options *,
                      struct rpc_listener **, char why[RPC_WHY_CHARS]);

#ifdef HAVE_UCX
static int ucx_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                    struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    return rpc_ucx_dial(addr, options->timeout_ns, out, why);
}

static int ucx_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                      struct rpc_listener **out, char why[RPC_WHY_CHARS])
{
    (void)options;
    return rpc_ucx_listen(addr, out, why);
}
#else
static int no_ucx(char why[RPC_WHY_CHARS])
{
    snprintf(why, RPC_WHY_CHARS, "built without UCX; install libucx-dev and build again");
    return -EPROTONOSUPPORT;
}

static int ucx_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                    struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    (void)addr, (void)options, (void)out;
    return no_ucx(why);
}

static int ucx_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                      struct rpc_listener **out, char why[RPC_WHY_CHARS])
{
    (void)addr, (void)options, (void)out;
    return no_ucx(why);
}
#endif

static const struct {
    dial_fn *dial;
    listen_fn *listen;
} transports[] = {
    [RPC_SCHEME_TCP] = {rpc_tcp_dial, rpc_tcp_listen},
    [RPC_SCHEME_UNIX] = {rpc_unix_dial, rpc_unix_listen},
    [RPC_SCHEME_SHM] = {rpc_shm_dial, rpc_shm_listen},
    [RPC_SCHEME_UCX] = {ucx_dial, ucx_listen},
};

int rpc_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
             struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    struct rpc_net_options complete = options ? *options : (struct rpc_net_options){0};
    if (complete.timeout_ns == 0)
        complete.timeout_ns = dial_default_ns;
    return transports[addr->scheme].dial(addr, &complete, out, why);
}

int rpc_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
               struct rpc_listener **out, char why[RPC_WHY_CHARS])
{
    struct rpc_net_options complete = options ? *options : (struct rpc_net_options){0};
    return transports[addr->scheme].listen(addr, &complete, out, why);
}
