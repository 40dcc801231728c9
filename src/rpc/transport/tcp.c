/* tcp.c - TCP: names, IPv4 and IPv6, socket tuning; with TLS where the security says so. */
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "rpc/transport/sock.h"
#include "rpc/transport/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOCKET_BUFFER_DEFAULT = 4 << 20, BACKLOG = 128 };

struct tcp_listener {
    struct rpc_listener base;
    int fd;
    uint32_t buffer_bytes;
    struct rpc_tls_context *tls; /* a reference, or NULL */
};

/* SO_SNDBUF below the kernel's own autotuning maximum would slow a connection down, so the
 * default is only set where the kernel gives all of it; what the user asks for is set as asked. */
static void set_buffer(int fd, int option, int force, int bytes, bool asked)
{
    if (setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof bytes) == 0 || !asked)
        return;
    int got = 0;
    socklen_t len = sizeof got;
    if (setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof bytes) == 0 &&
        getsockopt(fd, SOL_SOCKET, option, &got, &len) == 0 && got / 2 < bytes)
        hw_info(HW_CAT_NET,
                "the kernel gives %d of %d bytes of socket buffer; raise "
                "net.core.rmem_max and wmem_max for more",
                got / 2, bytes);
}

static void tune(int fd, uint32_t buffer_bytes)
{
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
    bool asked = buffer_bytes != 0;
    int bytes = asked ? (int)buffer_bytes : SOCKET_BUFFER_DEFAULT;
    set_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE, bytes, asked);
    set_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE, bytes, asked);
}

static uint32_t wanted_buffer(void)
{
    uint64_t bytes;
    (void)hw_env_size("VENUS_SOCKET_BUFFER_BYTES", 0, 4 << 10, 1 << 30, &bytes);
    return (uint32_t)bytes;
}

static bool is_loopback(const struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)addr)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

static void format_sockaddr(const struct sockaddr_storage *addr, socklen_t len, char *buf,
                            size_t size)
{
    char host[INET6_ADDRSTRLEN + 16], port[8];
    if (getnameinfo((const struct sockaddr *)addr, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(buf, size, "unknown address");
    else
        snprintf(buf, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static int wrap(int fd, struct rpc_tls_context *tls, bool accepting, const char *host,
                struct rpc_transport **out)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    char peer[RPC_PEER_NAME_CHARS] = "gone";
    bool local = false;
    if (getpeername(fd, (struct sockaddr *)&addr, &len) == 0) {
        format_sockaddr(&addr, len, peer, sizeof peer);
        local = is_loopback(&addr);
    }
    if (!tls)
        return rpc_sock_wrap(fd, "tcp", local, peer, out);
    int rc = rpc_tls_wrap(fd, tls, accepting, host, out);
    if (rc == 0) {
        (*out)->local = local;
        memcpy((*out)->peer, peer, sizeof peer);
    }
    return rc;
}

static int resolve(const struct rpc_addr *addr, int flags, struct addrinfo **list,
                   char why[RPC_WHY_CHARS])
{
    char port[8];
    snprintf(port, sizeof port, "%u", addr->port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    int rc = getaddrinfo(addr->host[0] ? addr->host : NULL, port, &hints, list);
    if (rc == 0)
        return 0;
    snprintf(why, RPC_WHY_CHARS, "cannot resolve \"%.100s\": %s; check the name in the address",
             addr->host, gai_strerror(rc));
    return -EADDRNOTAVAIL;
}

static int dial_one(const struct addrinfo *a, const struct rpc_net_options *options,
                    uint64_t timeout_ns, int *fd_out)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (!options->untuned)
        tune(fd, wanted_buffer());
    int rc = rpc_sock_connect(fd, a->ai_addr, a->ai_addrlen, timeout_ns);
    if (rc)
        close(fd);
    else
        *fd_out = fd;
    return rc;
}

int rpc_tcp_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                 struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    struct addrinfo *list;
    int rc = resolve(addr, 0, &list, why);
    if (rc)
        return rc;
    uint64_t deadline = hw_now_ns() + options->timeout_ns;
    int fd = -1;
    rc = -EADDRNOTAVAIL;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        uint64_t now = hw_now_ns();
        rc = dial_one(a, options, deadline > now ? deadline - now : 0, &fd);
    }
    freeaddrinfo(list);
    if (rc) {
        char text[RPC_ADDR_HOST_CHARS + 16];
        rpc_addr_format(addr, text, sizeof text);
        snprintf(why, RPC_WHY_CHARS, "cannot reach %.110s: %s%s", text, hw_strerror(rc),
                 rc == -EMFILE ? "" : "; is \"hawser serve\" running there?");
        return rc;
    }
    const struct rpc_security *sec = options->security;
    rc = wrap(fd, sec ? sec->tls : NULL, false, addr->host, out);
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "cannot set up the connection: %s", strerror(-rc));
    return rc;
}

static int tcp_accept(struct rpc_listener *l, struct rpc_transport **out)
{
    struct tcp_listener *listener = (struct tcp_listener *)l;
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return errno == EINTR || errno == ECONNABORTED ? -EAGAIN : -errno;
    tune(fd, listener->buffer_bytes);
    return wrap(fd, listener->tls, true, NULL, out);
}

static int tcp_listener_poll_fd(struct rpc_listener *l)
{
    return ((struct tcp_listener *)l)->fd;
}

static void tcp_listener_destroy(struct rpc_listener *l)
{
    struct tcp_listener *listener = (struct tcp_listener *)l;
    close(listener->fd);
    rpc_tls_context_unref(listener->tls);
    free(listener);
}

static const struct rpc_listener_ops tcp_listener_ops = {
    .accept = tcp_accept,
    .poll_fd = tcp_listener_poll_fd,
    .destroy = tcp_listener_destroy,
};

static int listen_one(const struct addrinfo *a, int *fd_out)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int one = 1, zero = 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    *fd_out = fd;
    return 0;
}

int rpc_tcp_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                   struct rpc_listener **out, char why[RPC_WHY_CHARS])
{
    struct addrinfo *list;
    int rc = resolve(addr, AI_PASSIVE, &list, why);
    if (rc)
        return rc;
    int fd = -1;
    /* Every-address listening prefers IPv6, which takes IPv4 too. */
    for (int family = addr->host[0] ? AF_UNSPEC : AF_INET6; fd < 0; family = AF_UNSPEC) {
        for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
            if (family == AF_UNSPEC || family == a->ai_family)
                rc = listen_one(a, &fd);
        if (family == AF_UNSPEC)
            break;
    }
    freeaddrinfo(list);
    if (fd < 0) {
        char text[RPC_ADDR_HOST_CHARS + 16];
        rpc_addr_format(addr, text, sizeof text);
        snprintf(why, RPC_WHY_CHARS, "cannot listen on %.110s: %s%s", text, hw_strerror(rc),
                 rpc_listen_remedy(RPC_SCHEME_TCP, rc));
        return rc;
    }
    struct tcp_listener *listener = calloc(1, sizeof *listener);
    if (!listener) {
        close(fd);
        return -ENOMEM;
    }
    listener->base.ops = &tcp_listener_ops;
    listener->fd = fd;
    listener->buffer_bytes = wanted_buffer();
    const struct rpc_security *sec = options->security;
    listener->tls = sec && sec->tls ? rpc_tls_context_ref(sec->tls) : NULL;
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;
    (void)getsockname(fd, (struct sockaddr *)&bound, &len);
    format_sockaddr(&bound, len, listener->base.address, sizeof listener->base.address);
    *out = &listener->base;
    return 0;
}
