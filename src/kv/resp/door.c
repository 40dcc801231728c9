#include "kv/resp/door.h"

#include "base/clock.h"
#include "base/log.h"
#include "rpc/transport/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { EVENTS_A_LOOK = 64 };

#define ACCEPT_PAUSE_NS (100 * HW_MS) /* when descriptors run out: some will be free again */

/* A connection.  It is the loop's, or that of a thread of its own from then on. */
struct session {
    struct resp_door *door;
    int fd;                          /* -1: the place is free (lock) */
    struct rpc_transport *transport; /* of TLS; it has the descriptor */
    struct resp_session *state;
    bool in_loop; /* the loop's alone: no thread serves it */
};

struct resp_door {
    struct resp_door_options options;
    int fd, epoll;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t left; /* a session has ended */
    bool stopping;       /* (lock) */
    uint32_t count;      /* of sessions (lock) */
    uint64_t ids;
    struct resp_counts counts;
    uint64_t look_at_ns;   /* the loop's: when the time for AUTH of one may be over */
    uint64_t accept_at_ns; /* the loop's: nobody is let in until then, for want of descriptors */
    bool complained;       /* about that, since the last one was let in */
    struct session sessions[RESP_SESSIONS_MAX];
};

/* ---- sessions ---- */

static void session_end(struct session *s)
{
    struct resp_door *door = s->door;
    resp_session_destroy(s->state);
    pthread_mutex_lock(&door->lock);
    if (s->transport)
        rpc_transport_destroy(s->transport);
    else
        close(s->fd); /* its epoll entry goes with it */
    s->fd = -1;
    door->count--;
    atomic_fetch_sub_explicit(&door->counts.connected, 1, memory_order_relaxed);
    pthread_cond_signal(&door->left);
    pthread_mutex_unlock(&door->lock);
}

static void *session_main(void *user)
{
    struct session *s = user;
    resp_session_run(s->state);
    session_end(s);
    return NULL;
}

/* The session goes on in a thread of its own. */
static void start_thread(struct session *s)
{
    pthread_attr_t attr;
    pthread_t thread;
    struct epoll_event none = {0};
    (void)epoll_ctl(s->door->epoll, EPOLL_CTL_DEL, s->fd, &none);
    s->in_loop = false;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &attr, session_main, s);
    pthread_attr_destroy(&attr);
    if (rc) {
        hw_warn(HW_CAT_KV, "Redis clients: cannot start a thread: %s; a connection is closed",
                strerror(rc));
        session_end(s);
    }
}

static void loop_end(struct session *s)
{
    s->in_loop = false;
    session_end(s);
}

static void session_turn(struct session *s)
{
    switch (resp_session_turn(s->state)) {
    case RESP_TURN_MORE:
        break;
    case RESP_TURN_WAIT:
        start_thread(s);
        break;
    case RESP_TURN_END:
        loop_end(s);
        break;
    }
}

static struct resp_session *make_session(struct resp_door *door, const struct session *s)
{
    const struct resp_door_options *o = &door->options;
    struct resp_session_options options = {.fd = s->fd,
                                           .transport = s->transport,
                                           .socket = o->socket,
                                           .hosts = door->options.hosts,
                                           .host_count = o->host_count,
                                           .id = ++door->ids,
                                           .password = o->password_len ? o->password : NULL,
                                           .password_len = o->password_len,
                                           .tenants = o->tenants,
                                           .may_flush = o->may_flush,
                                           .open = o->open,
                                           .auth_ns = o->auth_ns,
                                           .timeout_ns = o->timeout_ns,
                                           .store = o->store,
                                           .counts = &door->counts};
    return resp_session_create(&options);
}

/* A free place, which is the caller's then; NULL: none. */
static struct session *take_place(struct resp_door *door, int fd)
{
    struct session *found = NULL;
    pthread_mutex_lock(&door->lock);
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX && !found && !door->stopping; i++)
        if (door->sessions[i].fd < 0)
            found = &door->sessions[i];
    if (found) {
        *found = (struct session){.door = door, .fd = fd};
        door->count++;
        atomic_fetch_add_explicit(&door->counts.connected, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&door->counts.received, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&door->lock);
    return found;
}

/* The handshake is the thread's.  A place that fails is free again. */
static int start_tls(struct session *s)
{
    struct resp_door *door = s->door;
    int rc = rpc_tls_wrap(s->fd, door->options.tls, true, NULL, &s->transport);
    if (rc == 0)
        return 0;
    pthread_mutex_lock(&door->lock);
    s->fd = -1; /* it is closed */
    door->count--;
    atomic_fetch_sub_explicit(&door->counts.connected, 1, memory_order_relaxed);
    pthread_mutex_unlock(&door->lock);
    return rc;
}

static void let_in_loop(struct session *s)
{
    uint64_t end_ns = resp_session_auth_end(s->state);
    s->in_loop = true;
    if (end_ns < s->door->look_at_ns)
        s->door->look_at_ns = end_ns;
}

static void admit(struct resp_door *door, int fd)
{
    static const char full[] = "-ERR max number of clients reached\r\n";
    int on = 1;
    if (door->options.addr.scheme == RPC_SCHEME_TCP)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct session *s = take_place(door, fd);
    if (!s) {
        (void)send(fd, full, sizeof(full) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = s};
    if (door->options.tls && start_tls(s))
        return;
    s->state = make_session(door, s);
    if (!s->state || (!s->transport && epoll_ctl(door->epoll, EPOLL_CTL_ADD, fd, &event)))
        session_end(s);
    else if (s->transport)
        start_thread(s);
    else
        let_in_loop(s);
}

static bool is_stopping(struct resp_door *door)
{
    pthread_mutex_lock(&door->lock);
    bool stopping = door->stopping;
    pthread_mutex_unlock(&door->lock);
    return stopping;
}

/* Whether the loop looks at the listener, too. */
static void listen_for(struct resp_door *door, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = NULL};
    (void)epoll_ctl(door->epoll, EPOLL_CTL_MOD, door->fd, &event);
}

static void accept_one(struct resp_door *door)
{
    int fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        door->complained = false;
        admit(door, fd);
    } else if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED && !is_stopping(door)) {
        if (!door->complained)
            hw_warn(HW_CAT_KV, "Redis clients: cannot accept: %s", strerror(errno));
        door->complained = true;
        door->accept_at_ns = hw_now_ns() + ACCEPT_PAUSE_NS;
        listen_for(door, 0);
    }
}

/* Ends the sessions of the loop whose time for AUTH is over. */
static void end_late(struct resp_door *door, uint64_t now_ns)
{
    door->look_at_ns = HW_NEVER;
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX; i++) {
        struct session *s = &door->sessions[i];
        uint64_t end_ns = s->in_loop ? resp_session_auth_end(s->state) : HW_NEVER;
        if (end_ns <= now_ns)
            loop_end(s);
        else if (end_ns < door->look_at_ns)
            door->look_at_ns = end_ns;
    }
}

/* How long the loop may sleep, in ms; -1: for ever. */
static int sleep_max(struct resp_door *door)
{
    if (door->look_at_ns == HW_NEVER && door->accept_at_ns == HW_NEVER)
        return -1;
    uint64_t now_ns = hw_now_ns();
    if (now_ns >= door->look_at_ns)
        end_late(door, now_ns);
    if (now_ns >= door->accept_at_ns) {
        door->accept_at_ns = HW_NEVER;
        listen_for(door, EPOLLIN);
    }
    uint64_t at_ns = door->look_at_ns < door->accept_at_ns ? door->look_at_ns : door->accept_at_ns;
    return at_ns == HW_NEVER ? -1 : (int)((at_ns - now_ns) / HW_MS) + 1;
}

static void end_all(struct resp_door *door)
{
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX; i++)
        if (door->sessions[i].in_loop)
            loop_end(&door->sessions[i]);
}

static void *door_main(void *user)
{
    struct resp_door *door = user;
    struct epoll_event events[EVENTS_A_LOOK];
    while (!is_stopping(door)) {
        int n = epoll_wait(door->epoll, events, EVENTS_A_LOOK, sleep_max(door));
        for (int i = 0; i < n; i++)
            if (events[i].data.ptr)
                session_turn(events[i].data.ptr);
            else
                accept_one(door);
    }
    end_all(door);
    return NULL;
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
    struct epoll_event event = {.events = EPOLLIN};
    if (rc == 0 && (listen(door->fd, RESP_SESSIONS_MAX) || fcntl(door->fd, F_SETFL, O_NONBLOCK) ||
                    (door->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
                    epoll_ctl(door->epoll, EPOLL_CTL_ADD, door->fd, &event)))
        rc = -errno;
    if (rc) {
        rpc_addr_format(&door->options.addr, text, sizeof(text));
        snprintf(why, RPC_WHY_CHARS, "cannot listen on %.110s: %s%s", text, strerror(-rc),
                 rpc_listen_remedy(door->options.addr.scheme, rc));
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
    door->fd = door->epoll = -1;
    door->look_at_ns = door->accept_at_ns = HW_NEVER;
    door->counts.started_ns = hw_now_ns();
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
        if (door->epoll >= 0)
            close(door->epoll);
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
    (void)shutdown(door->fd, SHUT_RDWR); /* wakes the loop */
    pthread_join(door->thread, NULL);
    pthread_mutex_lock(&door->lock);
    while (door->count > 0)
        pthread_cond_wait(&door->left, &door->lock);
    pthread_mutex_unlock(&door->lock);
    close(door->fd);
    close(door->epoll);
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
