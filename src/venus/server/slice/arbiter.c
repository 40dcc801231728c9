#include "venus/server/slice/arbiter.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"

struct session {
    struct vns_slice_member member; /* the first: a member is its session */
    struct session *next;
    int socket;
    bool lost; /* to be cleared away */
};

struct vns_arbiter {
    int epoll; /* the sessions' sockets, and `stop` */
    int stop;
    int board_fd;
    struct vns_slice_board *board;
    pthread_mutex_t lock; /* of the rest */
    struct session *sessions;
    struct vns_schedule schedule;
    bool runs;
    pthread_t thread;
};

/* One byte wakes the session, which looks at the board. */
static void go(void *user, struct vns_slice_member *member)
{
    struct session *session = (struct session *)member;
    (void)user;
    if (send(session->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
        session->lost = true;
}

static void receive(struct vns_arbiter *a, struct session *session)
{
    struct vns_slice_message message;
    ssize_t n = recv(session->socket, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof(message) ||
        vns_schedule_handle(&a->schedule, &session->member, &message, hw_now_ns()))
        session->lost = true; /* the session has ended, or is none */
}

static void clear_lost(struct vns_arbiter *a)
{
    for (struct session **at = &a->sessions; *at;) {
        struct session *session = *at;
        if (!session->lost) {
            at = &session->next;
            continue;
        }
        *at = session->next;
        vns_schedule_leave(&a->schedule, &session->member, hw_now_ns());
        /* A relay that was just forked may have a copy still: closing alone would not end it. */
        (void)epoll_ctl(a->epoll, EPOLL_CTL_DEL, session->socket, NULL);
        close(session->socket);
        free(session);
        at = &a->sessions; /* who is told to go on meanwhile may be lost, too */
    }
}

static int timeout_ms(uint64_t ns)
{
    return ns == HW_NEVER ? -1 : (int)((ns + HW_MS - 1) / HW_MS) + (ns == 0);
}

static void *arbiter_main(void *arg)
{
    enum { EVENTS = 16 };
    struct vns_arbiter *a = arg;
    struct epoll_event events[EVENTS];
    bool stop = false;
    int wait_ms = -1;
    while (!stop) {
        int n = epoll_wait(a->epoll, events, EVENTS, wait_ms);
        pthread_mutex_lock(&a->lock);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr)
                receive(a, events[i].data.ptr);
            else
                stop = true;
        }
        wait_ms = timeout_ms(vns_schedule_look(&a->schedule, hw_now_ns()));
        clear_lost(a);
        pthread_mutex_unlock(&a->lock);
    }
    return NULL;
}

static int watch(const struct vns_arbiter *a, int fd, struct session *session)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = session};
    return epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* The arbiter's mapping is the only one that can ever be written. */
static int make_board(struct vns_arbiter *a)
{
    const int seals = F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    a->board_fd = memfd_create("hawser-slices", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (a->board_fd < 0 || ftruncate(a->board_fd, sizeof(*a->board)))
        return -errno;
    void *map = mmap(NULL, sizeof(*a->board), PROT_READ | PROT_WRITE, MAP_SHARED, a->board_fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    a->board = map;
    return fcntl(a->board_fd, F_ADD_SEALS, seals) ? -errno : 0;
}

static int start(struct vns_arbiter *a, uint64_t slice_ns)
{
    int rc = make_board(a);
    if (rc)
        return rc;
    vns_schedule_init(&a->schedule, slice_ns, a->board, go, a);
    a->epoll = epoll_create1(EPOLL_CLOEXEC);
    a->stop = eventfd(0, EFD_CLOEXEC);
    if (a->epoll < 0 || a->stop < 0)
        return -errno;
    rc = watch(a, a->stop, NULL);
    if (rc)
        return rc;
    rc = hw_thread_start(&a->thread, arbiter_main, a);
    a->runs = rc == 0;
    return rc;
}

int vns_arbiter_create(uint64_t slice_ns, struct vns_arbiter **out)
{
    struct vns_arbiter *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->epoll = a->stop = a->board_fd = -1;
    pthread_mutex_init(&a->lock, NULL);
    int rc = start(a, slice_ns);
    if (rc) {
        vns_arbiter_destroy(a);
        return rc;
    }
    *out = a;
    return 0;
}

void vns_arbiter_destroy(struct vns_arbiter *a)
{
    if (!a)
        return;
    if (a->runs) {
        (void)eventfd_write(a->stop, 1);
        pthread_join(a->thread, NULL);
    }
    for (struct session *session = a->sessions; session; session = session->next)
        session->lost = true;
    clear_lost(a);
    if (a->epoll >= 0)
        close(a->epoll);
    if (a->stop >= 0)
        close(a->stop);
    if (a->board)
        munmap(a->board, sizeof(*a->board));
    if (a->board_fd >= 0)
        close(a->board_fd);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

int vns_arbiter_invite(struct vns_arbiter *a, uint32_t id, struct vns_slice_tenant *tenant)
{
    int ends[2];
    struct session *session = calloc(1, sizeof(*session));
    if (!session)
        return -ENOMEM;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        free(session);
        return -errno;
    }
    *session = (struct session){.member = {.id = id, .tenant = tenant}, .socket = ends[0]};
    pthread_mutex_lock(&a->lock);
    int rc = watch(a, ends[0], session); /* the thread comes to it after the lock */
    if (rc == 0) {
        vns_schedule_join(&a->schedule, &session->member);
        session->next = a->sessions;
        a->sessions = session;
    }
    pthread_mutex_unlock(&a->lock);
    if (rc == 0)
        return ends[1];
    close(ends[0]);
    close(ends[1]);
    free(session);
    return rc;
}

int vns_arbiter_board(const struct vns_arbiter *a)
{
    return a->board_fd;
}
