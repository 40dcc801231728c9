#include "rpc/sock.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

struct sock {
    struct rpc_transport base;
    struct rpc_transport_ops ops; /* a copy, for the name */
    int fd;
};

/* A wait of at least this long is one blocking recv instead of poll and recv; the kernel ends
 * it after the slice (SO_RCVTIMEO), which the contract allows. */
static const uint64_t slice_ns = 250 * HW_MS;

int rpc_sock_gone(int error)
{
    switch (error) {
    case ETIMEDOUT: /* the kernel's own retries, not a deadline of ours */
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
        return -EHOSTDOWN;
    case ENOMEM:
    case ENOBUFS:
        return -ENOMEM;
    default:
        return -ECONNRESET;
    }
}

static ssize_t sock_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct sock *s = (struct sock *)t;
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
    for (;;) {
        ssize_t n = count == 1
                        ? send(s->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
                        : sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0)
            return n;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return -EAGAIN;
        if (errno != EINTR)
            return rpc_sock_gone(errno);
    }
}

int rpc_sock_poll(int fd, short events, uint64_t timeout_ns)
{
    struct pollfd p = {.fd = fd, .events = events};
    uint64_t start = hw_now_ns(), spent = 0;
    for (;;) {
        uint64_t left = timeout_ns > spent ? timeout_ns - spent : 0;
        struct timespec ts = {.tv_sec = (time_t)(left / HW_SEC), .tv_nsec = (long)(left % HW_SEC)};
        int n = ppoll(&p, 1, timeout_ns == HW_NEVER ? NULL : &ts, NULL);
        if (n >= 0 || errno != EINTR)
            return n > 0 ? 0 : -ETIMEDOUT;
        spent = hw_now_ns() - start;
    }
}

static ssize_t sock_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                         uint64_t timeout_ns)
{
    struct sock *s = (struct sock *)t;
    int flags = timeout_ns >= slice_ns ? 0 : MSG_DONTWAIT;
    if (timeout_ns > 0 && flags && rpc_sock_poll(s->fd, POLLIN, timeout_ns))
        return -EAGAIN;
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
    ssize_t n =
        count == 1 ? recv(s->fd, iov->iov_base, iov->iov_len, flags) : recvmsg(s->fd, &msg, flags);
    if (n > 0)
        return n;
    if (n == 0)
        return -ESHUTDOWN;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return -EAGAIN;
    return rpc_sock_gone(errno);
}

static int sock_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    short mask =
        (short)((events & RPC_WAIT_RECV ? POLLIN : 0) | (events & RPC_WAIT_SEND ? POLLOUT : 0));
    return rpc_sock_poll(((struct sock *)t)->fd, mask, timeout_ns);
}

static int sock_poll_fd(struct rpc_transport *t)
{
    return ((struct sock *)t)->fd;
}

static void sock_destroy(struct rpc_transport *t)
{
    struct sock *s = (struct sock *)t;
    close(s->fd);
    free(s);
}

int rpc_sock_wrap(int fd, const char *name, bool local, const char *peer,
                  struct rpc_transport **out)
{
    struct sock *s = calloc(1, sizeof *s);
    if (!s) {
        close(fd);
        return -ENOMEM;
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && flags & O_NONBLOCK)
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    struct timeval slice = {.tv_usec = (suseconds_t)(slice_ns / HW_US)};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
    s->fd = fd;
    s->ops = (struct rpc_transport_ops){
        .name = name,
        .send = sock_send,
        .recv = sock_recv,
        .wait = sock_wait,
        .poll_fd = sock_poll_fd,
        .destroy = sock_destroy,
    };
    s->base.ops = &s->ops;
    s->base.local = local;
    snprintf(s->base.peer, sizeof s->base.peer, "%s", peer);
    *out = &s->base;
    return 0;
}

int rpc_sock_connect(int fd, const struct sockaddr *addr, socklen_t len, uint64_t timeout_ns)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
        return -errno;
    if (connect(fd, addr, len) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return -errno; /* EAGAIN from a Unix socket: its backlog is full */
    int rc = rpc_sock_poll(fd, POLLOUT, timeout_ns);
    if (rc)
        return rc;
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
        return -errno;
    return -error;
}
