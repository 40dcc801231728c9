#include "venus/server/upload/share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "rpc/transport/sock.h"

enum op { OP_GET, OP_PUT, OP_DOUBT };

/* Plain structures: both processes are the same program. */
struct question {
    uint32_t op;
    uint32_t len;
    uint8_t name[VN_NAME_BYTES]; /* but for OP_PUT */
};

struct answer {
    int32_t status;
};

struct vns_upload_share {
    struct vns_upload_store *store;
    int epoll; /* the sessions' sockets, and `stop` */
    int stop;
    bool runs;
    pthread_t thread;
    uint8_t piece[VN_PIECE_MAX];
};

/* ---- descriptors ---- */

/* A message of len bytes with a descriptor at most; *fd is -1 without.  0 or a negative errno. */
static int receive(int socket, int flags, void *data, size_t len, int *fd)
{
    *fd = -1;
    int count = rpc_sock_recv_fds(socket, flags, data, len, fd, 1);
    if (count < 0)
        *fd = -1;
    return count < 0 ? count : 0;
}

static int transmit(int socket, const void *data, size_t len, int fd)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    ssize_t n = fd >= 0 ? rpc_sock_send_fds(socket, &iov, 1, &fd, 1)
                        : send(socket, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n == (ssize_t)len)
        return 0;
    return fd >= 0 ? (int)n : -errno;
}

/* From the start of a file.  0, -EIO when it is shorter, or a negative errno. */
static int read_piece(int fd, uint8_t *to, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = pread(fd, to + at, len - at, (off_t)at);
        if (n == 0)
            return -EIO;
        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* ---- in the server's process ---- */

/* Of other files a read may take for ever. */
static bool is_memory(int fd)
{
    return fd >= 0 && fcntl(fd, F_GET_SEALS) >= 0;
}

static int put(struct vns_upload_share *s, int fd, size_t len)
{
    uint8_t name[VN_NAME_BYTES];
    int rc = is_memory(fd) ? read_piece(fd, s->piece, len) : -EINVAL;
    if (rc)
        return rc;
    vn_piece_name(s->piece, len, name);
    return vns_upload_store_put(s->store, name, s->piece, len);
}

static int doubt(struct vns_upload_share *s, const uint8_t name[VN_NAME_BYTES], size_t len)
{
    uint8_t real[VN_NAME_BYTES];
    int fd = vns_upload_store_open(s->store, name, len);
    if (fd < 0)
        return fd;
    int rc = read_piece(fd, s->piece, len);
    close(fd);
    vn_piece_name(s->piece, len, real);
    if (rc || memcmp(real, name, VN_NAME_BYTES) == 0)
        return rc;
    hw_warn(HW_CAT_MEMORY,
            "the upload cache holds a piece that is not what its name says; removed");
    vns_upload_store_drop(s->store, name);
    return 0;
}

/* *out: a descriptor that goes with the answer, or -1. */
static int answer(struct vns_upload_share *s, const struct question *q, int fd, int *out)
{
    if (q->len == 0 || q->len > VN_PIECE_MAX)
        return -EINVAL;
    switch (q->op) {
    case OP_GET:
        *out = vns_upload_store_open(s->store, q->name, q->len);
        return *out < 0 ? *out : 0;
    case OP_PUT:
        return put(s, fd, q->len);
    case OP_DOUBT:
        return doubt(s, q->name, q->len);
    default:
        return -EINVAL;
    }
}

static void serve(struct vns_upload_share *s, int socket)
{
    struct question q;
    int fd, out = -1;
    int rc = receive(socket, MSG_DONTWAIT, &q, sizeof(q), &fd);
    if (rc == -EAGAIN)
        return;
    if (rc == 0) {
        struct answer a = {.status = answer(s, &q, fd, &out)};
        rc = transmit(socket, &a, sizeof(a), a.status ? -1 : out);
    }
    if (fd >= 0)
        close(fd);
    if (out >= 0)
        close(out);
    if (rc) { /* the session has ended, or is none */
        /* A relay that was just forked may have a copy still: closing alone would not end it. */
        (void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, socket, NULL);
        close(socket);
    }
}

static void *serve_main(void *arg)
{
    enum { EVENTS = 16 };
    struct vns_upload_share *s = arg;
    struct epoll_event events[EVENTS];
    bool stop = false;
    int n;
    /* At the end the sessions have ended, so each socket that is left is ready to be closed. */
    while ((n = epoll_wait(s->epoll, events, EVENTS, stop ? 0 : -1)) != 0) {
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != s->stop)
                serve(s, events[i].data.fd);
            else if (!stop)
                stop = epoll_ctl(s->epoll, EPOLL_CTL_DEL, s->stop, NULL) == 0;
        }
    }
    return NULL;
}

static int add(const struct vns_upload_share *s, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int start(struct vns_upload_share *s)
{
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->stop = eventfd(0, EFD_CLOEXEC);
    if (s->epoll < 0 || s->stop < 0)
        return -errno;
    int rc = add(s, s->stop);
    if (rc)
        return rc;
    rc = hw_thread_start(&s->thread, serve_main, s);
    s->runs = rc == 0;
    return rc;
}

int vns_upload_share_create(struct vns_upload_store *store, struct vns_upload_share **out)
{
    struct vns_upload_share *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->store = store;
    s->epoll = s->stop = -1;
    int rc = start(s);
    if (rc) {
        vns_upload_share_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void vns_upload_share_destroy(struct vns_upload_share *s)
{
    if (!s)
        return;
    if (s->runs) {
        (void)eventfd_write(s->stop, 1);
        pthread_join(s->thread, NULL);
    }
    if (s->epoll >= 0)
        close(s->epoll);
    if (s->stop >= 0)
        close(s->stop);
    free(s);
}

int vns_upload_share_invite(struct vns_upload_share *s)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return -errno;
    int rc = add(s, ends[0]); /* from here on it is the thread's */
    if (rc) {
        close(ends[0]);
        close(ends[1]);
        return rc;
    }
    return ends[1];
}

uint64_t vns_upload_share_limit(const struct vns_upload_share *s)
{
    return vns_upload_store_limit(s->store);
}

/* ---- in a session's process ---- */

struct vns_upload_user {
    int socket;
    uint64_t limit;
    pthread_mutex_t lock; /* from a question to its answer */
};

int vns_upload_user_create(int socket, uint64_t limit, struct vns_upload_user **out)
{
    struct vns_upload_user *u = calloc(1, sizeof(*u));
    if (!u) {
        close(socket);
        return -ENOMEM;
    }
    u->socket = socket;
    u->limit = limit;
    pthread_mutex_init(&u->lock, NULL);
    *out = u;
    return 0;
}

void vns_upload_user_destroy(struct vns_upload_user *u)
{
    if (!u)
        return;
    close(u->socket);
    pthread_mutex_destroy(&u->lock);
    free(u);
}

uint64_t vns_upload_user_limit(const struct vns_upload_user *u)
{
    return u->limit;
}

/* fd (or -1) goes with the question; *got comes with the answer. */
static int ask(struct vns_upload_user *u, const struct question *q, int fd, int *got)
{
    struct answer a;
    *got = -1;
    pthread_mutex_lock(&u->lock);
    int rc = transmit(u->socket, q, sizeof(*q), fd);
    if (rc == 0)
        rc = receive(u->socket, 0, &a, sizeof(a), got);
    pthread_mutex_unlock(&u->lock);
    return rc ? rc : a.status;
}

int vns_upload_user_get(struct vns_upload_user *u, const uint8_t name[VN_NAME_BYTES], void *to,
                        size_t len)
{
    struct question q = {.op = OP_GET, .len = (uint32_t)len};
    int fd;
    memcpy(q.name, name, sizeof(q.name));
    int rc = ask(u, &q, -1, &fd);
    if (rc == 0)
        rc = fd < 0 ? -EPROTO : read_piece(fd, to, len);
    if (fd >= 0)
        close(fd);
    return rc;
}

int vns_upload_user_put(struct vns_upload_user *u, const void *bytes, size_t len)
{
    struct question q = {.op = OP_PUT, .len = (uint32_t)len};
    int none, fd = memfd_create("hawser-piece", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = vns_upload_write(fd, bytes, len);
    if (rc == 0)
        rc = ask(u, &q, fd, &none);
    close(fd);
    return rc;
}

void vns_upload_user_doubt(struct vns_upload_user *u, const uint8_t name[VN_NAME_BYTES], size_t len)
{
    struct question q = {.op = OP_DOUBT, .len = (uint32_t)len};
    int none;
    memcpy(q.name, name, sizeof(q.name));
    (void)ask(u, &q, -1, &none); /* who asks next looks again */
}
