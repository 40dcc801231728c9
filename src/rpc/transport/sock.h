/* rpc/transport/sock.h - stream sockets as transports; private to the tcp, unix, shm and tls files.
 *
 * Threads: as rpc/transport/transport.h.  Lifetime: wrap takes the descriptor. */
#ifndef HAWSER_RPC_TRANSPORT_SOCK_H
#define HAWSER_RPC_TRANSPORT_SOCK_H

#include "rpc/transport/net.h"

#include <sys/socket.h>

/* Takes a connected stream socket, also on failure, and makes it blocking: each call says for
 * itself whether it waits.  name is "tcp" or "unix".  0 or -ENOMEM. */
int rpc_sock_wrap(int fd, const char *name, bool local, const char *peer,
                  struct rpc_transport **out) MUST_CHECK;

/* What an errno of send or recv on a connected socket means, in the words of rpc/rpc.h. */
int rpc_sock_gone(int error);

/* host_answers of a transport on this TCP socket. */
bool rpc_sock_host_answers(int fd, uint64_t within_ns);

/* is_behind of a transport on this socket. */
bool rpc_sock_is_behind(int fd);

/* Waits on one descriptor.  0 when any of `events` (or an error) shows, -ETIMEDOUT. */
int rpc_sock_poll(int fd, short events, uint64_t timeout_ns);

/* Descriptors of a received message, appended to fds.  Their new number, or -EPROTO when more
 * came than fit: then all of this message are closed, and -1 where they were put. */
int rpc_sock_take_fds(struct msghdr *msg, int *fds, int count, int max);

enum { RPC_SOCK_FDS_MAX = 64 }; /* of one message; the kernel takes 253 */

/* A message of just len bytes.  How many descriptors came with it; or -ESHUTDOWN at the end,
 * -EPROTO for one of another size or with more descriptors, or another -errno: then none stays
 * open. */
int rpc_sock_recv_fds(int fd, int flags, void *data, size_t len, int *fds, int max);

/* sendmsg with descriptors.  As sendmsg, with -errno. */
ssize_t rpc_sock_send_fds(int fd, const struct iovec *iov, int count, const int *fds, int fd_count);

/* connect() with a limit in time.  0 or a negative errno. */
int rpc_sock_connect(int fd, const struct sockaddr *addr, socklen_t len,
                     uint64_t timeout_ns) MUST_CHECK;

/* Unix sockets, shared by the unix and the shm transport. */
int rpc_unix_dial_fd(const char *path, uint64_t timeout_ns, int *fd_out,
                     char why[RPC_WHY_CHARS]) MUST_CHECK;
/* Who the peer is, by the kernel's word: "unix pid 12 uid 0", and whether that is our user. */
enum rpc_peer_user rpc_unix_peer(int fd, const char *scheme, char peer[RPC_PEER_NAME_CHARS]);

/* Makes a transport of a caller's socket, which it takes, also on failure. */
typedef int rpc_unix_welcome_fn(int fd, struct rpc_transport **out);
/* Listens on a socket file that only we may open, and whose stale predecessor is replaced. */
int rpc_unix_listen_with(const struct rpc_addr *addr, rpc_unix_welcome_fn *welcome,
                         struct rpc_listener **out, char why[RPC_WHY_CHARS]) MUST_CHECK;

int rpc_tcp_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                 struct rpc_transport **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
int rpc_tcp_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                   struct rpc_listener **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
int rpc_unix_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                  struct rpc_transport **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
int rpc_unix_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                    struct rpc_listener **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
int rpc_shm_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                 struct rpc_transport **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
/* The accepting end of one that was handed over.  Takes the descriptors, also on failure. */
int rpc_shm_take_over(const struct rpc_transport_state *state, const int *fds, int count,
                      struct rpc_transport **out) MUST_CHECK;
int rpc_shm_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                   struct rpc_listener **out, char why[RPC_WHY_CHARS]) MUST_CHECK;

#endif
