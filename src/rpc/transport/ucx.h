/* rpc/transport/ucx.h - the byte stream over UCX, the way onto InfiniBand and RoCE.
 *
 * Trust: the network.  UCX 1.13.1 has no cryptography and is known to abort on a crafted TCP
 * packet (docs/decisions/0002-ucx.md), so both hosts and all that can reach the port must be
 * trusted; listening on a non-loopback address warns once a process.
 * Threads: as rpc/transport/transport.h: one in send while another is in recv or wait.  Connections
 * are independent of each other and of the listener that accepted them. What send took moves on
 * inside later calls (send, recv, wait, and arm before sleeping on poll_fd), so an owner keeps
 * calling one of them. Lifetime: the caller destroys what it gets.  destroy waits at most
 * RPC_UCX_LINGER_MS for the peer to read what was sent, then cuts: the peer sees -ESHUTDOWN if it
 * had read everything and -ECONNRESET if not, never a short stream that looks whole.
 *
 * IPv4 only; a loopback address also keeps UCX's data sockets on the loopback device, unless
 * UCX_NET_DEVICES names others.
 *
 * UCX_TLS and the other UCX_ variables work as UCX documents them.  Where UCX_TLS names a shared
 * memory transport ("posix,tcp"; tcp is needed to connect), UCX's peer-failure mode is off, since
 * it would drop that transport; both ends must then name it.  A killed peer is still noticed
 * through the connection's TCP socket; a hung one only by the heartbeat above.
 *
 * UCX is kept silent and out of the process' signals unless UCX_LOG_LEVEL, UCX_HANDLE_ERRORS,
 * UCX_ERROR_SIGNALS or UCX_DEBUG_SIGNO say otherwise. */
#ifndef HAWSER_RPC_TRANSPORT_UCX_H
#define HAWSER_RPC_TRANSPORT_UCX_H

#include "base/attr.h"
#include "rpc/transport/net.h"

enum {
    RPC_UCX_BUFFER_BYTES = 256 << 10, /* a send buffer; with less, streams over tcp are slower */
    RPC_UCX_BUFFERS = 8,              /* sends in flight; with the above 2 MiB a connection */
    RPC_UCX_QUEUE = 512,              /* pieces (8 KiB by default) kept unread while sending */
    RPC_UCX_BACKLOG = 64,             /* callers waiting for accept; later ones are turned away */
    RPC_UCX_ACCEPT_MS = 100,          /* a caller is in dial and answers within a few round trips */
    RPC_UCX_LINGER_MS = 500           /* far above a round trip, below what a user calls a hang */
};

/* Returns once the peer has accepted.  0, or a negative errno with the cause in why:
 * -ECONNREFUSED, -ETIMEDOUT, -EADDRNOTAVAIL for a name without an IPv4 address (resolving is
 * not bounded by its timeout), -ENOMEM, -EIO for what UCX refuses. */
int rpc_ucx_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                 struct rpc_transport **out, char why[RPC_WHY_CHARS]) MUST_CHECK;

/* 0, or a negative errno with the cause in why: -EADDRINUSE, -EADDRNOTAVAIL, -ENOMEM, -EIO.
 * The listener's poll_fd is armed whenever accept has returned.  Callers get on only while accept
 * is called, since it drives UCX; it may take RPC_UCX_ACCEPT_MS for a caller that answers slowly.
 */
int rpc_ucx_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                   struct rpc_listener **out, char why[RPC_WHY_CHARS]) MUST_CHECK;

/* Makes rpc_dial and rpc_listen take "ucx:" addresses. */
static inline void rpc_ucx_register(void)
{
    rpc_net_register(RPC_SCHEME_UCX, rpc_ucx_dial, rpc_ucx_listen);
}

#endif
