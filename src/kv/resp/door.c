#include "kv/resp/door.h"

#include "base/clock.h"
#include "base/log.h"
#include "kv/resp/session.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 128,
    SEND_LIMIT_S = 30 /* a peer that takes nothing for so long is gone */
};

struct session {
    struct resp_door *door;
    int fd; /* -1: the place is free */
    uint64_t id;
};

struct resp_door {
    struct resp_door_options options;
    int fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t left; /* a session has ended */
    bool stopping;       /* (lock) */
    uint32_t count;      /* of sessions (lock) */
    uint64_t ids;
    struct session sessions[RESP_SESSIONS_MAX]; /* (lock) */
};

/* ---- sessions ---- */

static void *session_main(void *user)
{
    struct session *s = user;
    struct resp_door *door = s->door;
    struct resp_session_options options = {.fd = s->fd,
                                           .socket = door->options.socket,
                                           .id = s->id,
                                           .password_len = door->options.password_len,
                                           .tenants = door->options.tenants,
                                           .may_flush = door->options.may_flush,
                                           .open = door->options.open};
    if (options.password_len)
        options.password = door->options.password;
    resp_session_run(&options);
    pthread_mutex_lock(&door->lock);
    close(s->fd);
    s->fd = -1;
    door->count--;
    pthread_cond_signal(&door->left);
    pthread_mutex_unlock(&door->lock);
    return NULL;
}

/* Under the lock. */
static struct session *place_of(struct resp_door *door)
{
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX; i++)
        if (door->sessions[i].fd < 0)
            return &door->sessions[i];
    return NULL;
}

static bool start_session(struct resp_door *door, int fd)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_mutex_lock(&door->lock);
    struct session *s = door->stopping ? NULL : place_of(door);
    bool started = false;
    if (s) {
        *s = (struct session){.door = door, .fd = fd, .id = ++door->ids};
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        started = pthread_create(&thread, &attr, session_main, s) == 0;
        pthread_attr_destroy(&attr);
        if (!started)
            s->fd = -1;
        door->count += started;
    }
    pthread_mutex_unlock(&door->lock);
    return started;
}

static void admit(struct resp_door *door, int fd)
{
    static const char full[] = "-ERR max number of clients reached\r\n";
    struct timeval limit = {.tv_sec = SEND_LIMIT_S};
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (door->options.addr.scheme == RPC_SCHEME_TCP)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (start_session(door, fd))
        return;
    (void)send(fd, full, sizeof(full) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static bool is_stopping(struct resp_door *door)
{
    pthread_mutex_lock(&door->lock);
    bool stopping = door->stopping;
    pthread_mutex_unlock(&door->lock);
    return stopping;
}

static void *door_main(void *user)
{
    struct resp_door *door = user;
    for (;;) {
        int fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC);
        if (is_stopping(door)) {
            if (fd >= 0)
                close(fd);
            return NULL;
        }
        if (fd >= 0) {
            admit(door, fd);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            hw_warn(HW_CAT_KV, "Redis clients: cannot accept: %s", strerror(errno));
            struct timespec pause = {.tv_nsec = 100 * HW_MS};
            nanosleep(&pause, NULL); /* no descriptors: some will be free again */
        }
    }
}

/* ---- listening ---- */

static int listen_unix(struct resp_door *door)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat st;
    _Static_assert(sizeof(addr.sun_path) >= RPC_ADDR_PATH_CHARS, "a path fits");
    memcpy(addr.sun_path, door->options.addr.path, strlen(door->options.addr.path) + 1);
    door->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (door->fd < 0)
        return -errno;
    if (lstat(addr.sun_path, &st) == 0 && S_ISSOCK(st.st_mode)) { /* of one that was killed? */
        if (connect(door->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
            return -EADDRINUSE;
        unlink(addr.sun_path);
    }
    mode_t before = umask(0177); /* from the moment it exists */
    int rc = bind(door->fd, (struct sockaddr *)&addr, sizeof(addr)) ? -errno : 0;
    umask(before);
    return rc;
}

static int listen_tcp(struct resp_door *door)
{
    struct rpc_addr *addr = &door->options.addr;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof(bound);
    char port[8];
    int on = 1;
    snprintf(port, sizeof(port), "%u", addr->port);
    if (getaddrinfo(addr->host[0] ? addr->host : NULL, port, &hints, &list))
        return -EADDRNOTAVAIL;
    door->fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = door->fd < 0 ? -errno : 0;
    if (rc == 0) {
        (void)setsockopt(door->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        rc = bind(door->fd, list->ai_addr, list->ai_addrlen) ? -errno : 0;
    }
    freeaddrinfo(list);
    if (rc == 0 && getsockname(door->fd, (struct sockaddr *)&bound, &size) == 0)
        addr->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                       : ((struct sockaddr_in *)&bound)->sin_port);
    return rc;
}

static int listen_at(struct resp_door *door, char why[RPC_WHY_CHARS])
{
    char text[RPC_ADDR_HOST_CHARS + 16];
    int rc = door->options.addr.scheme == RPC_SCHEME_UNIX ? listen_unix(door) : listen_tcp(door);
    if (rc == 0 && listen(door->fd, BACKLOG))
        rc = -errno;
    if (rc) {
        rpc_addr_format(&door->options.addr, text, sizeof(text));
        snprintf(why, RPC_WHY_CHARS, "cannot listen on %.180s: %s", text,
                 rc == -EADDRINUSE ? "another server has it" : strerror(-rc));
    }
    return rc;
}

int resp_door_open(const struct resp_door_options *options, struct resp_door **out,
                   char why[RPC_WHY_CHARS])
{
    struct resp_door *door = calloc(1, sizeof(*door));
    if (!door) {
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        return -ENOMEM;
    }
    door->options = *options;
    door->fd = -1;
    pthread_mutex_init(&door->lock, NULL);
    pthread_cond_init(&door->left, NULL);
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX; i++)
        door->sessions[i].fd = -1;
    int rc = listen_at(door, why);
    if (rc == 0 && pthread_create(&door->thread, NULL, door_main, door)) {
        snprintf(why, RPC_WHY_CHARS, "cannot start a thread");
        rc = -EAGAIN;
    }
    if (rc) {
        if (door->fd >= 0)
            close(door->fd);
        free(door);
        return rc;
    }
    *out = door;
    return 0;
}

void resp_door_close(struct resp_door *door)
{
    if (!door)
        return;
    pthread_mutex_lock(&door->lock);
    door->stopping = true;
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX; i++)
        if (door->sessions[i].fd >= 0)
            (void)shutdown(door->sessions[i].fd, SHUT_RDWR);
    pthread_mutex_unlock(&door->lock);
    (void)shutdown(door->fd, SHUT_RDWR); /* ends accept */
    pthread_join(door->thread, NULL);
    pthread_mutex_lock(&door->lock);
    while (door->count > 0)
        pthread_cond_wait(&door->left, &door->lock);
    pthread_mutex_unlock(&door->lock);
    close(door->fd);
    if (door->options.addr.scheme == RPC_SCHEME_UNIX)
        unlink(door->options.addr.path);
    pthread_cond_destroy(&door->left);
    pthread_mutex_destroy(&door->lock);
    free(door);
}

const struct rpc_addr *resp_door_addr(const struct resp_door *door)
{
    return &door->options.addr;
}
