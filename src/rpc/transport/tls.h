/* rpc/transport/tls.h - TLS 1.3 over a connected socket, as a transport like any other.
 *
 * Trust: none in the peer until the handshake is done; a client then knows its server by CA and
 * name or by fingerprint (rpc/security/tlsctx.h), a server knows its client by the token in the
 * hello. Threads: as in rpc/transport/transport.h.  One lock covers the SSL object, taken for at
 * most one batch of records and never while sleeping. Lifetime: the transport owns the socket and
 * holds a reference to its context.
 *
 * Errors beside those of rpc/transport/transport.h, sticky, with a sentence from the reason op:
 *   -EACCES      the certificate was refused, by this side or by the peer
 *   -EPROTO      the peer does not speak TLS, or no TLS 1.3, or broke it
 *   -EPIPE       the stream ended without close_notify: what was read may not be all
 *
 * send: a caller that gets a partial count or -EAGAIN offers the same bytes first next time, and
 * may append others behind them. */
#ifndef HAWSER_RPC_TRANSPORT_TLS_H
#define HAWSER_RPC_TRANSPORT_TLS_H

#include "rpc/security/tlsctx.h"
#include "rpc/transport/transport.h"

enum {
    RPC_TLS_RECORD_BYTES = 16 << 10, /* the largest that TLS has */
    RPC_TLS_BATCH_RECORDS = 4        /* encrypted for one write: longer gains nothing measurable,
                                        and the reading thread waits for the lock that long */
};

/* Takes a connected and tuned TCP socket, also when it fails.  host is what the user asked for (a
 * name or an address); a client that checks by CA needs it, others may pass NULL.  The handshake
 * runs inside send, recv and wait; meanwhile send takes up to RPC_TLS_RECORD_BYTES, which go out
 * when it is done and the peer is known.  The caller fills in the transport's local and peer.  0,
 * -EINVAL, -ENOMEM. */
int rpc_tls_wrap(int fd, struct rpc_tls_context *ctx, bool accepting, const char *host,
                 struct rpc_transport **out) MUST_CHECK;

#endif
