#include "kv/cluster/http_post.h"

#include "base/clock.h"
#include "kv/cluster/http.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEAD_CHARS = 512 + RPC_ADDR_HOST_CHARS,
    READ_BYTES = 16 << 10,
    BUFFER_FIRST = 4 << 10 /* enough for every answer of a small cluster */
};

struct kv_post {
    int fd, wake_fd;
    struct kv_http http;
    char *body; /* [taken, len) is not taken yet */
    size_t taken, len, room;
    size_t scanned; /* no line ends before this */
};

/* ---- waiting ---- */

static int wait_for(int fd, short events, int wake_fd, uint64_t deadline_ns)
{
    struct pollfd fds[2] = {{.fd = wake_fd, .events = POLLIN}, {.fd = fd, .events = events}};
    for (;;) {
        uint64_t now = hw_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
        struct timespec limit = {.tv_sec = (time_t)(left / HW_SEC),
                                 .tv_nsec = (long)(left % HW_SEC)};
        int n = ppoll(fds, 2, &limit, NULL);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0)
            return fds[0].revents ? -ECANCELED : 0;
        if (n == 0 && hw_now_ns() >= deadline_ns)
            return -ETIMEDOUT;
    }
}

int kv_post_pause(int wake_fd, uint64_t deadline_ns)
{
    return wait_for(-1, 0, wake_fd, deadline_ns);
}

/* ---- connecting ---- */

/* Keepalive: notices within 10 s that a silent server is gone, also during a watch. */
static void watch_over(int fd)
{
    const int on = 1, idle_s = 4, every_s = 2, probes = 3;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

static int finish_connect(int fd, int wake_fd, uint64_t deadline_ns)
{
    int rc = wait_for(fd, POLLOUT, wake_fd, deadline_ns);
    int error = 0;
    socklen_t len = sizeof(error);
    if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len))
        return -errno;
    return rc ? rc : -error;
}

/* On one host the kernel may give a socket the very port that it dials while nobody listens there.
 * The socket then connects to itself and keeps the server from starting. */
static bool reached_itself(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

static int connect_one(const struct addrinfo *a, int wake_fd, uint64_t deadline_ns, int *fd_out)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int rc = connect(fd, a->ai_addr, a->ai_addrlen) ? -errno : 0;
    if (rc == -EINPROGRESS)
        rc = finish_connect(fd, wake_fd, deadline_ns);
    if (rc == 0 && reached_itself(fd))
        rc = -ECONNREFUSED;
    if (rc) {
        close(fd);
        return rc;
    }
    watch_over(fd);
    *fd_out = fd;
    return 0;
}

/* The addresses of a name share the time, so that a silent one leaves some to the next. */
static int connect_any(const struct addrinfo *list, const struct kv_post_request *r, int *fd_out)
{
    uint64_t count = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        count++;
    int rc = -EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a; a = a->ai_next, count--) {
        uint64_t now = hw_now_ns(), left = r->deadline_ns > now ? r->deadline_ns - now : 0;
        rc = connect_one(a, r->wake_fd, now + left / count, fd_out);
        if (rc == 0 || rc == -ECANCELED)
            break;
    }
    return rc;
}

static int connect_to(const struct kv_post_request *r, int *fd_out, char why[RPC_WHY_CHARS])
{
    char port[8];
    struct addrinfo *list, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    snprintf(port, sizeof(port), "%u", r->to->port);
    int error = getaddrinfo(r->to->host, port, &hints, &list);
    if (error) {
        snprintf(why, RPC_WHY_CHARS, "cannot resolve \"%.100s\": %s", r->to->host,
                 gai_strerror(error));
        return -EADDRNOTAVAIL;
    }
    int rc = connect_any(list, r, fd_out);
    freeaddrinfo(list);
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "cannot reach %.100s:%u: %s", r->to->host, r->to->port,
                 strerror(-rc));
    return rc;
}

/* ---- sending ---- */

static int send_all(int fd, const struct kv_post_request *r, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n > 0) {
            data += n;
            len -= (size_t)n;
            continue;
        }
        int rc = wait_for(fd, POLLOUT, r->wake_fd, r->deadline_ns);
        if (rc)
            return rc;
    }
    return 0;
}

static int send_request(int fd, const struct kv_post_request *r, char why[RPC_WHY_CHARS])
{
    char head[HEAD_CHARS], host[RPC_ADDR_HOST_CHARS + 16];
    size_t len = strlen(r->json);
    rpc_addr_format(r->to, host, sizeof(host));
    int head_len = snprintf(head, sizeof(head),
                            "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                            "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                            r->path, host, len);
    assert(head_len > 0 && (size_t)head_len < sizeof(head));
    int rc = send_all(fd, r, head, (size_t)head_len);
    if (rc == 0)
        rc = send_all(fd, r, r->json, len);
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "cannot send to %.100s: %s", host, strerror(-rc));
    return rc;
}

/* ---- the body ---- */

/* Drops what was taken; if that is not enough, doubles the buffer. */
static int make_room(struct kv_post *p, size_t more)
{
    if (p->taken > 0) {
        memmove(p->body, p->body + p->taken, p->len - p->taken);
        p->len -= p->taken;
        p->scanned -= p->taken;
        p->taken = 0;
    }
    if (p->len + more > KV_POST_BODY_MAX)
        return -E2BIG;
    if (p->len + more <= p->room)
        return 0;
    size_t room = p->room ? p->room : BUFFER_FIRST;
    while (room < p->len + more)
        room *= 2;
    char *body = realloc(p->body, room);
    if (!body)
        return -ENOMEM;
    p->body = body;
    p->room = room;
    return 0;
}

static int keep_body(void *user, const void *data, size_t len)
{
    struct kv_post *p = user;
    int rc = make_room(p, len);
    if (rc)
        return rc;
    memcpy(p->body + p->len, data, len);
    p->len += len;
    return 0;
}

int kv_post_open(const struct kv_post_request *request, struct kv_post **out,
                 char why[RPC_WHY_CHARS])
{
    int fd = -1;
    int rc = connect_to(request, &fd, why);
    if (rc)
        return rc;
    rc = send_request(fd, request, why);
    struct kv_post *p = rc ? NULL : calloc(1, sizeof(*p));
    if (!p) {
        close(fd);
        if (rc == 0)
            snprintf(why, RPC_WHY_CHARS, "out of memory");
        return rc ? rc : -ENOMEM;
    }
    p->fd = fd;
    p->wake_fd = request->wake_fd;
    kv_http_init(&p->http, keep_body, p);
    *out = p;
    return 0;
}

void kv_post_destroy(struct kv_post *p)
{
    if (!p)
        return;
    close(p->fd);
    free(p->body);
    free(p);
}

int kv_post_read(struct kv_post *p, uint64_t deadline_ns)
{
    char data[READ_BYTES];
    if (kv_http_done(&p->http))
        return -ESHUTDOWN;
    int rc = wait_for(p->fd, POLLIN, p->wake_fd, deadline_ns);
    if (rc)
        return rc;
    ssize_t n = recv(p->fd, data, sizeof(data), 0);
    if (n > 0)
        return kv_http_feed(&p->http, data, (size_t)n);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    rc = kv_http_end(&p->http);
    return rc ? rc : -ESHUTDOWN;
}

int kv_post_read_all(struct kv_post *p, uint64_t deadline_ns)
{
    int rc;
    do
        rc = kv_post_read(p, deadline_ns);
    while (rc == 0);
    return rc == -ESHUTDOWN ? 0 : rc;
}

unsigned kv_post_status(const struct kv_post *p)
{
    return p->http.status;
}

const char *kv_post_body(const struct kv_post *p, size_t *len_out)
{
    *len_out = p->len - p->taken;
    return *len_out ? p->body + p->taken : "";
}

const char *kv_post_line(struct kv_post *p, size_t *len_out)
{
    if (p->scanned == p->len)
        return NULL;
    char *end = memchr(p->body + p->scanned, '\n', p->len - p->scanned);
    if (!end) {
        p->scanned = p->len;
        return NULL;
    }
    const char *line = p->body + p->taken;
    *len_out = (size_t)(end - line);
    p->taken = p->scanned = (size_t)(end - p->body) + 1;
    return line;
}
