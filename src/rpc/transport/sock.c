#include "rpc/transport/sock.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

struct sock {
    struct rpc_transport base;
    struct rpc_transport_ops ops; /* a copy, for the name */
    int fd;
    bool expects_fds;
    int fds[RPC_FDS_QUEUED_MAX]; /* received, not yet taken */
    int fd_count;
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
    case ECONNABORTED: /* the kernel ended it, for want of its address */
        return -EHOSTDOWN;
    case ENOMEM:
    case ENOBUFS:
        return -ENOMEM;
    case EPIPE: /* FIN came before */
        return -EPIPE;
    default:
        return -ECONNRESET;
    }
}

/* A host that is up acknowledges data at once, and a probe of its full window too: so one that was
 * sent something again, or was probed more than once, since it last answered, does not. */
bool rpc_sock_host_answers(int fd, uint64_t within_ns)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        return false;
    bool waits = info.tcpi_retransmits > 0 || info.tcpi_probes > 1;
    return !waits || info.tcpi_last_ack_recv < within_ns / HW_MS;
}

/* TCP keeps about a millisecond's worth on its way to the line, and the rest unsent.  Of a Unix
 * socket the kernel tells only what the peer has not read. */
bool rpc_sock_is_behind(int fd)
{
    int bytes = 0, room = 0;
    socklen_t len = sizeof room;
    if (ioctl(fd, SIOCOUTQNSD, &bytes) == 0)
        return bytes > 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &len) == 0 && bytes > room / 2;
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
        struct timespec ts = hw_timespec(left);
        int n = ppoll(&p, 1, timeout_ns == HW_NEVER ? NULL : &ts, NULL);
        if (n >= 0 || errno != EINTR)
            return n > 0 ? 0 : -ETIMEDOUT;
        spent = hw_now_ns() - start;
    }
}

int rpc_sock_take_fds(struct msghdr *msg, int *fds, int count, int max)
{
    bool fits = !(msg->msg_flags & MSG_CTRUNC);
    int had = count;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (count < max) {
                fds[count++] = fd;
            } else {
                close(fd);
                fits = false;
            }
        }
    }
    if (fits)
        return count;
    while (count > had) {
        close(fds[--count]);
        fds[count] = -1;
    }
    return -EPROTO;
}

int rpc_sock_recv_fds(int fd, int flags, void *data, size_t len, int *fds, int max)
{
    union {
        char buf[CMSG_SPACE(RPC_SOCK_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {data, len};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.buf,
                         .msg_controllen = sizeof(control.buf)};
    ssize_t n;
    do
        n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    for (int i = 0; i < max; i++)
        fds[i] = -1;
    int count = rpc_sock_take_fds(&msg, fds, 0, max);
    if (count >= 0 && n == (ssize_t)len && !(msg.msg_flags & MSG_TRUNC))
        return count;
    for (int i = 0; i < max && fds[i] >= 0; i++)
        close(fds[i]);
    return n == 0 ? -ESHUTDOWN : -EPROTO;
}

ssize_t rpc_sock_send_fds(int fd, const struct iovec *iov, int count, const int *fds, int fd_count)
{
    assert(fd_count > 0 && fd_count <= RPC_SOCK_FDS_MAX);
    union {
        char buf[CMSG_SPACE(RPC_SOCK_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    size_t bytes = (size_t)fd_count * sizeof(int);
    struct msghdr msg = {.msg_iov = (struct iovec *)iov,
                         .msg_iovlen = (size_t)count,
                         .msg_control = control.buf,
                         .msg_controllen = CMSG_SPACE(bytes)};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(cmsg), fds, bytes);
    ssize_t n = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n < 0 ? -errno : n;
}

static ssize_t sock_send_fds(struct rpc_transport *t, const struct iovec *iov, int count,
                             const int *fds, int fd_count)
{
    struct sock *s = (struct sock *)t;
    for (;;) {
        ssize_t n = rpc_sock_send_fds(s->fd, iov, count, fds, fd_count);
        if (n >= 0 || n == -EAGAIN)
            return n;
        if (n != -EINTR)
            return rpc_sock_gone((int)-n);
    }
}

static void sock_expect_fds(struct rpc_transport *t)
{
    ((struct sock *)t)->expects_fds = true;
}

static int sock_take_fd(struct rpc_transport *t)
{
    struct sock *s = (struct sock *)t;
    if (s->fd_count == 0)
        return -1;
    int fd = s->fds[0];
    s->fd_count--;
    memmove(s->fds, s->fds + 1, (size_t)s->fd_count * sizeof s->fds[0]);
    return fd;
}

/* As recvmsg, with what descriptors come kept for take_fd. */
static ssize_t recv_with_fds(struct sock *s, const struct iovec *iov, int count, int flags)
{
    union {
        char buf[CMSG_SPACE(RPC_FDS_QUEUED_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr msg = {.msg_iov = (struct iovec *)iov,
                         .msg_iovlen = (size_t)count,
                         .msg_control = control.buf,
                         .msg_controllen = sizeof control.buf};
    ssize_t n = recvmsg(s->fd, &msg, flags | MSG_CMSG_CLOEXEC);
    if (n <= 0 || msg.msg_controllen == 0)
        return n;
    int fds = rpc_sock_take_fds(&msg, s->fds, s->fd_count, RPC_FDS_QUEUED_MAX);
    if (fds < 0) {
        errno = EPROTO;
        return -1;
    }
    s->fd_count = fds;
    return n;
}

static ssize_t sock_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                         uint64_t timeout_ns)
{
    struct sock *s = (struct sock *)t;
    int flags = timeout_ns >= slice_ns ? 0 : MSG_DONTWAIT;
    if (timeout_ns > 0 && flags && rpc_sock_poll(s->fd, POLLIN, timeout_ns))
        return -EAGAIN;
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
    ssize_t n = s->expects_fds ? recv_with_fds(s, iov, count, flags)
                : count == 1   ? recv(s->fd, iov->iov_base, iov->iov_len, flags)
                               : recvmsg(s->fd, &msg, flags);
    if (n > 0)
        return n;
    if (n == 0)
        return -ESHUTDOWN;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return -EAGAIN;
    return errno == EPROTO ? -EPROTO : rpc_sock_gone(errno);
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

static bool sock_host_answers(struct rpc_transport *t, uint64_t within_ns)
{
    return rpc_sock_host_answers(((struct sock *)t)->fd, within_ns);
}

static bool sock_is_behind(struct rpc_transport *t)
{
    return rpc_sock_is_behind(((struct sock *)t)->fd);
}

static int sock_descriptors(struct rpc_transport *t, int fds[RPC_TRANSPORT_FDS])
{
    fds[0] = ((struct sock *)t)->fd;
    return 1;
}

static int sock_hand_over(struct rpc_transport *t, struct rpc_transport_state *state,
                          int fds[RPC_TRANSPORT_FDS])
{
    struct sock *s = (struct sock *)t;
    (void)state;
    if (s->fd_count > 0)
        return -EBUSY;
    fds[0] = s->fd;
    return 1;
}

static void sock_destroy(struct rpc_transport *t)
{
    struct sock *s = (struct sock *)t;
    for (int i = 0; i < s->fd_count; i++)
        close(s->fds[i]);
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
        .host_answers = sock_host_answers,
        .is_behind = sock_is_behind,
        .descriptors = sock_descriptors,
        .hand_over = sock_hand_over,
        .destroy = sock_destroy,
    };
    int domain = 0;
    socklen_t len = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX) {
        s->ops.expect_fds = sock_expect_fds;
        s->ops.send_fds = sock_send_fds;
        s->ops.take_fd = sock_take_fd;
        s->ops.host_answers = NULL; /* the kernel is the same */
    }
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
