#include "serve/session/relay.h"

#include "base/looks.h"
#include "rpc/resume/resume.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10 }; /* sixteen TLS records: one write of a socket */

static const uint64_t look_ns = HW_SEC; /* between two looks at a silent host */
static uint64_t host_limit_ns, resume_limit_ns;

static bool send_near(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        }
    }
    return true;
}

static int send_far(struct rpc_transport *t, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        struct iovec iov = {(void *)(uintptr_t)bytes, len};
        ssize_t n = t->ops->send(t, &iov, 1);
        if (n == -EAGAIN)
            (void)t->ops->wait(t, RPC_WAIT_SEND, HW_NEVER);
        else if (n < 0)
            return (int)n;
        else {
            bytes += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* Whoever sends to that host comes back, too. */
static void end_far(struct rpc_transport *t)
{
    (void)shutdown(t->ops->poll_fd(t), SHUT_RDWR);
}

static void sleep_for(uint64_t ns)
{
    struct timespec nap = hw_timespec(ns);
    while (nanosleep(&nap, &nap))
        ;
}

static void *to_session(void *arg)
{
    struct relay_connection *c = arg;
    struct rpc_transport *t = c->far;
    static _Thread_local uint8_t buffer[BUFFER_BYTES];
    struct hw_looks looks;
    uint64_t heard = hw_now_ns();
    hw_looks_init(&looks, look_ns, heard);
    ssize_t n;
    for (;;) {
        struct iovec iov = {buffer, sizeof(buffer)};
        n = t->ops->recv(t, &iov, 1, look_ns);
        uint64_t looked = hw_looks_at(&looks, hw_now_ns());
        if (n >= 0 || t->ops->host_answers(t, host_limit_ns))
            heard = looked;
        /* After a pause of our own, its answers are still on their way at the first look. */
        if (n == -EAGAIN && looked - heard < look_ns)
            continue;
        if (n < 0 || !send_near(c->near, buffer, (size_t)n))
            break;
    }
    bool cut = n < 0 && (atomic_load_explicit(&c->cut, memory_order_relaxed) ||
                         !rpc_resume_is_told(t, (int)n));
    if (cut) {
        end_far(t);
        sleep_for(resume_limit_ns);
    }
    shutdown(c->near, SHUT_WR); /* the session sees the end, and ends its side */
    return NULL;
}

/* The session waits for room meanwhile, rather than to find an end again and again. */
static void await_session(int near)
{
    struct pollfd p = {.fd = near, .events = POLLRDHUP};
    while (poll(&p, 1, -1) <= 0)
        ;
}

static void *to_client(void *arg)
{
    struct relay_connection *c = arg;
    static _Thread_local uint8_t buffer[BUFFER_BYTES];
    for (;;) {
        ssize_t n = recv(c->near, buffer, sizeof(buffer), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        int rc = send_far(c->far, buffer, (size_t)n);
        if (rc == 0)
            continue;
        if (!rpc_resume_is_told(c->far, rc))
            atomic_store_explicit(&c->cut, true, memory_order_relaxed);
        end_far(c->far);
        await_session(c->near);
        break;
    }
    return NULL;
}

void relay_run(struct relay_connection *connections, unsigned count, uint64_t host_ns,
               uint64_t resume_ns)
{
    pthread_t session_side[RELAY_CONNECTIONS_MAX];
    unsigned started = 0;
    assert(count <= RELAY_CONNECTIONS_MAX);
    host_limit_ns = host_ns;
    resume_limit_ns = resume_ns;
    while (started < count) {
        pthread_t other;
        if (pthread_create(&other, NULL, to_session, &connections[started]) ||
            pthread_create(&session_side[started], NULL, to_client, &connections[started]))
            _exit(1);
        started++;
    }
    /* The session's process has closed all: what it wrote is written. */
    for (unsigned i = 0; i < count; i++)
        pthread_join(session_side[i], NULL);
    _exit(0);
}
