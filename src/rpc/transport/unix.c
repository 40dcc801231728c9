/* unix.c - Unix sockets: one host, the kernel's word on who the peer is. */
#include "base/log.h"
#include "rpc/transport/sock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 128,
    /* A few large messages: with less, a sender has to sleep until a sleeping peer has read. */
    SEND_BUFFER_BYTES = 1 << 20,
};

/* A socket file, and which one it is: only the file we made is removed. */
struct socket_file {
    int fd;
    char path[RPC_ADDR_PATH_CHARS];
    uint64_t device, inode;
};

struct unix_listener {
    struct rpc_listener base;
    struct socket_file socket;
    rpc_unix_welcome_fn *welcome;
};

static void fill_sockaddr(const char *path, struct sockaddr_un *addr)
{
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(addr->sun_path, path, strlen(path) + 1);
}

/* As far as the kernel lets us: without the right to force it net.core.wmem_max is the limit. */
static void tune(int fd)
{
    int bytes = SEND_BUFFER_BYTES;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes))
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

enum rpc_peer_user rpc_unix_peer(int fd, const char *scheme, char peer[RPC_PEER_NAME_CHARS])
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
        snprintf(peer, RPC_PEER_NAME_CHARS, "%s peer", scheme);
        return RPC_USER_OTHER;
    }
    snprintf(peer, RPC_PEER_NAME_CHARS, "%s pid %d uid %u", scheme, (int)cred.pid, cred.uid);
    return cred.uid == geteuid() || cred.uid == 0 ? RPC_USER_SAME : RPC_USER_OTHER;
}

static int wrap(int fd, struct rpc_transport **out)
{
    char peer[RPC_PEER_NAME_CHARS];
    enum rpc_peer_user user = rpc_unix_peer(fd, "unix", peer);
    tune(fd);
    int rc = rpc_sock_wrap(fd, "unix", true, peer, out);
    if (rc == 0)
        (*out)->user = user;
    return rc;
}

int rpc_unix_dial_fd(const char *path, uint64_t timeout_ns, int *fd_out, char why[RPC_WHY_CHARS])
{
    struct sockaddr_un addr;
    fill_sockaddr(path, &addr);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc =
        fd < 0 ? -errno : rpc_sock_connect(fd, (struct sockaddr *)&addr, sizeof addr, timeout_ns);
    if (rc == 0) {
        *fd_out = fd;
        return 0;
    }
    if (fd >= 0)
        close(fd);
    const char *remedy = rc == -ENOENT || rc == -ECONNREFUSED ? "; is \"hawser serve\" running?"
                         : rc == -EACCES
                             ? "; a server's socket is for its owner: run the client as that user"
                             : "";
    snprintf(why, RPC_WHY_CHARS, "cannot reach unix:%s: %s%s", path, hw_strerror(rc), remedy);
    return rc;
}

int rpc_unix_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                  struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    int fd;
    int rc = rpc_unix_dial_fd(addr->path, options->timeout_ns, &fd, why);
    if (rc)
        return rc;
    rc = wrap(fd, out);
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "cannot set up the connection: %s", strerror(-rc));
    return rc;
}

/* A socket file that nobody listens on is left from a process that was killed. */
static bool remove_stale(const struct sockaddr_un *addr)
{
    struct stat st;
    if (lstat(addr->sun_path, &st) || !S_ISSOCK(st.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    bool stale = connect(fd, (const struct sockaddr *)addr, sizeof *addr) && errno == ECONNREFUSED;
    close(fd);
    return stale && unlink(addr->sun_path) == 0;
}

static int unix_listen_fd(const char *path, struct socket_file *out, char why[RPC_WHY_CHARS])
{
    struct sockaddr_un addr;
    fill_sockaddr(path, &addr);
    struct stat st;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        goto fail;
    /* Set on the socket before bind, so that the file is never open to others. */
    if (fchmod(fd, 0600))
        goto fail;
    int bound = bind(fd, (struct sockaddr *)&addr, sizeof addr);
    if (bound && errno == EADDRINUSE) {
        if (remove_stale(&addr))
            bound = bind(fd, (struct sockaddr *)&addr, sizeof addr);
        else
            errno = EADDRINUSE;
    }
    if (bound || listen(fd, BACKLOG) || lstat(path, &st))
        goto fail;
    *out = (struct socket_file){.fd = fd, .device = st.st_dev, .inode = st.st_ino};
    memcpy(out->path, path, strlen(path) + 1);
    return 0;
fail:;
    int rc = -errno;
    if (fd >= 0)
        close(fd);
    snprintf(why, RPC_WHY_CHARS, "cannot listen on unix:%s: %s%s", path, hw_strerror(rc),
             rpc_listen_remedy(RPC_SCHEME_UNIX, rc));
    return rc;
}

static void unix_listen_close(struct socket_file *s)
{
    struct stat st;
    if (lstat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode)
        (void)unlink(s->path);
    close(s->fd);
}

static int unix_accept(struct rpc_listener *l, struct rpc_transport **out)
{
    struct unix_listener *listener = (struct unix_listener *)l;
    int fd = accept4(listener->socket.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return errno == EINTR || errno == ECONNABORTED ? -EAGAIN : -errno;
    return listener->welcome(fd, out);
}

static int unix_listener_poll_fd(struct rpc_listener *l)
{
    return ((struct unix_listener *)l)->socket.fd;
}

static void unix_listener_destroy(struct rpc_listener *l)
{
    struct unix_listener *listener = (struct unix_listener *)l;
    unix_listen_close(&listener->socket);
    free(listener);
}

static const struct rpc_listener_ops unix_listener_ops = {
    .accept = unix_accept,
    .poll_fd = unix_listener_poll_fd,
    .destroy = unix_listener_destroy,
};

int rpc_unix_listen_with(const struct rpc_addr *addr, rpc_unix_welcome_fn *welcome,
                         struct rpc_listener **out, char why[RPC_WHY_CHARS])
{
    struct unix_listener *listener = calloc(1, sizeof *listener);
    if (!listener)
        return -ENOMEM;
    int rc = unix_listen_fd(addr->path, &listener->socket, why);
    if (rc) {
        free(listener);
        return rc;
    }
    listener->base.ops = &unix_listener_ops;
    listener->welcome = welcome;
    rpc_addr_format(addr, listener->base.address, sizeof listener->base.address);
    *out = &listener->base;
    return 0;
}

int rpc_unix_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                    struct rpc_listener **out, char why[RPC_WHY_CHARS])
{
    (void)options;
    return rpc_unix_listen_with(addr, wrap, out, why);
}

int rpc_unix_pair(struct rpc_transport *out[2])
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
        return -errno;
    char peer[RPC_PEER_NAME_CHARS];
    rpc_unix_peer(fds[0], "unix pair", peer);
    struct rpc_transport *pair[2];
    int rc = rpc_sock_wrap(fds[0], "unix", true, peer, &pair[0]);
    if (rc) {
        close(fds[1]);
        return rc;
    }
    rc = rpc_sock_wrap(fds[1], "unix", true, peer, &pair[1]);
    if (rc) {
        rpc_transport_destroy(pair[0]);
        return rc;
    }
    out[0] = pair[0];
    out[1] = pair[1];
    return 0;
}
