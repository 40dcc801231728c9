#include "serve/relay.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10 }; /* sixteen TLS records: one write of a socket */

static const uint64_t look_ns = HW_SEC; /* between two looks at a silent host */
static uint64_t host_limit_ns;

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

static bool send_far(struct rpc_transport *t, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        struct iovec iov = {(void *)(uintptr_t)bytes, len};
        ssize_t n = t->ops->send(t, &iov, 1);
        if (n == -EAGAIN)
            (void)t->ops->wait(t, RPC_WAIT_SEND, HW_NEVER);
        else if (n < 0)
            return false;
        else {
            bytes += n;
            len -= (size_t)n;
        }
    }
    return true;
}

static void *to_session(void *arg)
{
    struct relay_connection *c = arg;
    struct rpc_transport *t = c->far;
    static _Thread_local uint8_t buffer[BUFFER_BYTES];
    for (;;) {
        struct iovec iov = {buffer, sizeof(buffer)};
        ssize_t n = t->ops->recv(t, &iov, 1, look_ns);
        if (n == -EAGAIN && t->ops->host_answers(t, host_limit_ns))
            continue;
        if (n < 0 || !send_near(c->near, buffer, (size_t)n))
            break;
    }
    shutdown(c->near, SHUT_WR); /* the session sees the end, and ends its side */
    return NULL;
}

static void *to_client(void *arg)
{
    struct relay_connection *c = arg;
    static _Thread_local uint8_t buffer[BUFFER_BYTES];
    for (;;) {
        ssize_t n = recv(c->near, buffer, sizeof(buffer), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || !send_far(c->far, buffer, (size_t)n))
            break;
    }
    shutdown(c->near, SHUT_RD); /* a session that sends on finds out */
    return NULL;
}

void relay_run(struct relay_connection *connections, unsigned count, uint64_t host_ns)
{
    pthread_t session_side[RELAY_CONNECTIONS_MAX];
    unsigned started = 0;
    assert(count <= RELAY_CONNECTIONS_MAX);
    host_limit_ns = host_ns;
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
