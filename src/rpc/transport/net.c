#include "rpc/transport/net.h"

#include "base/clock.h"
#include "rpc/transport/sock.h"

#include <errno.h>
#include <stdio.h>

static const uint64_t dial_default_ns = 5 * HW_SEC;

static int absent(const struct rpc_addr *addr, char why[RPC_WHY_CHARS])
{
    (void)addr;
    snprintf(why, RPC_WHY_CHARS,
             "this program has no UCX; use host:port, or build hawser where libucx-dev is");
    return -EPROTONOSUPPORT;
}

static int absent_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                       struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    (void)options, (void)out;
    return absent(addr, why);
}

static int absent_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                         struct rpc_listener **out, char why[RPC_WHY_CHARS])
{
    (void)options, (void)out;
    return absent(addr, why);
}

static struct {
    rpc_dial_fn *dial;
    rpc_listen_fn *listen;
} transports[] = {
    [RPC_SCHEME_TCP] = {rpc_tcp_dial, rpc_tcp_listen},
    [RPC_SCHEME_UNIX] = {rpc_unix_dial, rpc_unix_listen},
    [RPC_SCHEME_SHM] = {rpc_shm_dial, rpc_shm_listen},
    [RPC_SCHEME_UCX] = {absent_dial, absent_listen},
};

void rpc_net_register(enum rpc_scheme scheme, rpc_dial_fn *dial, rpc_listen_fn *listen)
{
    transports[scheme].dial = dial;
    transports[scheme].listen = listen;
}

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
