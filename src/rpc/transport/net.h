/* rpc/transport/net.h - from an address to a transport: dial and listen over every scheme.
 *
 * Trust: a peer's name is what the kernel says, never what the peer says.
 * Threads: any.  Lifetime: the caller destroys what it gets (an endpoint takes its transport). */
#ifndef HAWSER_RPC_TRANSPORT_NET_H
#define HAWSER_RPC_TRANSPORT_NET_H

#include "rpc/security/security.h"
#include "rpc/transport/addr.h"
#include "rpc/transport/transport.h"

struct rpc_net_options {
    const struct rpc_security *security; /* NULL: no TLS */
    uint64_t timeout_ns;                 /* dial: for the connection; 0: 5 s */
    bool untuned;                        /* tcp: the kernel's defaults, for comparison */
};

/* 0, or a negative errno with cause and remedy in why. */
int rpc_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
             struct rpc_transport **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
int rpc_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
               struct rpc_listener **out, char why[RPC_WHY_CHARS]) MUST_CHECK;

/* Puts a transport behind a scheme, for one that not every program wants to carry: UCX brings
 * hooks into malloc and madvise.  Before any thread dials or listens. */
typedef int rpc_dial_fn(const struct rpc_addr *addr, const struct rpc_net_options *options,
                        struct rpc_transport **out, char why[RPC_WHY_CHARS]);
typedef int rpc_listen_fn(const struct rpc_addr *addr, const struct rpc_net_options *options,
                          struct rpc_listener **out, char why[RPC_WHY_CHARS]);
void rpc_net_register(enum rpc_scheme scheme, rpc_dial_fn *dial, rpc_listen_fn *listen);

/* A connected pair in this process, over a socketpair or an shm ring pair: tests, benchmarks,
 * and parents that fork workers. */
int rpc_unix_pair(struct rpc_transport *out[2]) MUST_CHECK;
int rpc_shm_pair(uint32_t ring_bytes, struct rpc_transport *out[2]) MUST_CHECK;

#endif
