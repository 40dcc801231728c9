/* Raw limits of plain sockets: TCP on loopback, and Unix. */
#include "bench/rpc/raw_limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct raw_socket {
    struct raw_link base;
    int fds[2];
    int fd; /* the end in use */
    uint64_t spin_ns;
    struct bench_delay relay; /* pid 0: none */
};

/* Bounds every blocking receive by RAW_SILENCE_NS. */
static int bound_socket(int fd)
{
    struct timeval silence = {.tv_sec = RAW_SILENCE_NS / HW_SEC};
    return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence)) ? -errno : 0;
}

/* Buffers that the kernel caps are no failure: our own transport is capped alike. */
static int tune(int fd, bool tcp)
{
    int one = 1, bytes = RAW_BUFFER_BYTES;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    if (tcp && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
        return -errno;
    return bound_socket(fd);
}

static int listen_loopback(uint16_t *port_out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&at, len) || listen(fd, 1) ||
        getsockname(fd, (struct sockaddr *)&at, &len)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    *port_out = ntohs(at.sin_port);
    return fd;
}

static int connect_loopback(uint16_t port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int rc = tune(fd, true);
    if (rc == 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)))
        rc = -errno;
    if (rc) {
        close(fd);
        return rc;
    }
    return fd;
}

/* relay NULL: straight to the listener. */
static int tcp_pair(struct bench_line line, struct bench_delay *relay, int fds[2])
{
    uint16_t port = 0;
    int rc = 0, listener = listen_loopback(&port), near = -1, far = -1;
    if (listener < 0)
        return listener;
    if (relay) {
        rc = bench_delay_start(port, line, relay);
        port = relay->port;
    }
    near = rc ? rc : connect_loopback(port);
    far = near < 0 ? near : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    rc = near < 0 ? near : far < 0 ? -errno : tune(far, true);
    close(listener);
    if (rc == 0) {
        fds[0] = near;
        fds[1] = far;
        return 0;
    }
    if (near >= 0)
        close(near);
    if (far >= 0)
        close(far);
    if (relay)
        bench_delay_stop(relay);
    return rc;
}

int raw_tcp_pair(int fds[2])
{
    return tcp_pair((struct bench_line){0}, NULL, fds);
}

static int unix_pair(int fds[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
        return -errno;
    int rc = tune(fds[0], false);
    if (rc == 0)
        rc = tune(fds[1], false);
    if (rc) {
        close(fds[0]);
        close(fds[1]);
    }
    return rc;
}

static int socket_create(const struct raw_ops *ops, const struct raw_options *options,
                         struct raw_link **out)
{
    struct raw_socket *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->base.ops = ops;
    s->spin_ns = options->spin_ns;
    s->fd = -1;
    int rc = ops == &raw_unix
                 ? unix_pair(s->fds)
                 : tcp_pair(options->line, bench_delay_is_needed(&options->line) ? &s->relay : NULL,
                            s->fds);
    if (rc) {
        free(s);
        return rc;
    }
    *out = &s->base;
    return 0;
}

static int tcp_create(const struct raw_options *options, struct raw_link **out)
{
    return socket_create(&raw_tcp, options, out);
}

static int unix_create(const struct raw_options *options, struct raw_link **out)
{
    return socket_create(&raw_unix, options, out);
}

static int socket_begin(struct raw_link *link, bool server)
{
    struct raw_socket *s = (struct raw_socket *)link;
    s->fd = s->fds[server];
    close(s->fds[!server]);
    s->fds[!server] = -1;
    if (server)
        s->relay.pid = 0; /* the client's to stop */
    return 0;
}

static int socket_send(struct raw_link *link, const void *data, size_t len)
{
    struct raw_socket *s = (struct raw_socket *)link;
    for (size_t at = 0; at < len;) {
        ssize_t n = send(s->fd, (const char *)data + at, len - at, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN ? -ETIMEDOUT : -EPIPE;
        at += (size_t)n;
    }
    return 0;
}

/* Spins with empty reads for as long as the options allow, then sleeps in the kernel. */
static ssize_t recv_some(struct raw_socket *s, void *data, size_t len)
{
    if (s->spin_ns == 0)
        return recv(s->fd, data, len, 0);
    uint64_t start = hw_now_ns();
    uint64_t spin = s->spin_ns < RAW_SILENCE_NS ? s->spin_ns : RAW_SILENCE_NS;
    do {
        ssize_t n = recv(s->fd, data, len, MSG_DONTWAIT);
        if (n >= 0 || errno != EAGAIN)
            return n;
    } while (hw_now_ns() - start < spin);
    return s->spin_ns == HW_NEVER ? -1 : recv(s->fd, data, len, 0);
}

static int socket_recv(struct raw_link *link, void *data, size_t len)
{
    struct raw_socket *s = (struct raw_socket *)link;
    for (size_t at = 0; at < len;) {
        ssize_t n = recv_some(s, (char *)data + at, len - at);
        if (n == 0)
            return -EPIPE;
        if (n < 0)
            return errno == EAGAIN ? -ETIMEDOUT : -EPIPE;
        at += (size_t)n;
    }
    return 0;
}

static void socket_destroy(struct raw_link *link)
{
    struct raw_socket *s = (struct raw_socket *)link;
    for (int i = 0; i < 2; i++) {
        if (s->fds[i] >= 0)
            close(s->fds[i]);
    }
    bench_delay_stop(&s->relay);
    free(s);
}

const struct raw_ops raw_tcp = {
    .name = "plain TCP socket",
    .create = tcp_create,
    .begin = socket_begin,
    .send = socket_send,
    .recv = socket_recv,
    .destroy = socket_destroy,
};

const struct raw_ops raw_unix = {
    .name = "plain Unix socket",
    .create = unix_create,
    .begin = socket_begin,
    .send = socket_send,
    .recv = socket_recv,
    .destroy = socket_destroy,
};
