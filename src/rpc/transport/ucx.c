/* rpc/transport/ucx.c - a connection is one UCP worker with one endpoint; its bytes are a UCP
 * stream.
 *
 * Beside the stream run active messages that make its beginning and end exact.  HELLO tells the
 * dialling side that it was accepted; UCX itself would need both sides to work on it at once.  And
 * UCX tells the end of a connection on a socket of its own, which drops what is unread: so destroy
 * sends END with the number of bytes sent, the peer answers END_READ once its reader has had them
 * all, and only then, or after RPC_UCX_LINGER_MS, is the endpoint closed.
 *
 * One mutex a connection serialises every call on its worker (UCX 1.13 is known to assert when
 * two threads use an endpoint) and is never held while sleeping.  Callbacks run inside those calls,
 * so they run under the mutex too.  A thread in send may take in the data that another sleeps for:
 * send then wakes the sleeper with ucp_worker_signal. */
#include "rpc/transport/ucx.h"

#include "base/clock.h"
#include "rpc/transport/ucx_internal.h"
#include "wire/le.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum { AM_HELLO = 1, AM_END, AM_END_READ };
enum { POLL_US = 50 };   /* between two looks where UCX has no event to wait for */
enum { CLOSE_MS = 200 }; /* for UCX's own farewell, once ours is done */

struct ucx_buffer {
    struct ucx_transport *owner;
    uint8_t *data;
    bool busy;
};

struct ucx_piece {
    uint8_t *data;
    size_t len;
};

struct ucx_transport {
    struct rpc_transport base;
    struct rpc_ucx_context *context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    int event_fd;

    pthread_mutex_t lock; /* guards everything below and every UCX call on worker and ep */
    int error;            /* sticky: 0 or what recv and send answer from now on */
    bool armed;           /* somebody sleeps, or may, on event_fd */

    struct ucx_buffer buffers[RPC_UCX_BUFFERS];
    uint8_t *memory; /* of all buffers */
    unsigned busy;
    uint64_t sent;

    struct ucx_piece queue[RPC_UCX_QUEUE]; /* taken from UCX, not yet read; a ring */
    unsigned head, queued;
    size_t head_done; /* bytes of the first piece that were read */
    uint64_t consumed;

    unsigned controls; /* our active messages that UCX still holds */
    bool greeted;      /* the peer has accepted */
    uint8_t end_header[8];
    uint64_t end_at; /* the peer's total, once end_seen */
    bool end_seen, end_answered;
    bool end_read; /* the peer has read all of ours */
};

/* fd -1 only passes the time.  A signal ends the sleep early; callers look again anyway. */
static void sleep_on(int fd, uint64_t deadline)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    uint64_t now = hw_now_ns();
    if (now >= deadline)
        return;
    uint64_t left = deadline - now;
    struct timespec ts = hw_timespec(left);
    (void)ppoll(&pfd, 1, deadline == HW_NEVER ? NULL : &ts, NULL);
}

/* ---- the incoming half; all under the lock ---- */

static void fail(struct ucx_transport *t, int error)
{
    assert(error < 0);
    if (!t->error)
        t->error = error;
}

static bool at_end(const struct ucx_transport *t)
{
    return t->end_seen && t->consumed >= t->end_at;
}

static bool readable(const struct ucx_transport *t)
{
    return t->queued || t->error || at_end(t);
}

/* Takes what UCX has for us into the queue, as far as it has room. */
static void pull(struct ucx_transport *t)
{
    while (t->queued < RPC_UCX_QUEUE) {
        size_t len = 0;
        ucs_status_ptr_t data = ucp_stream_recv_data_nb(t->ep, &len);
        if (!data)
            return;
        if (UCS_PTR_IS_ERR(data)) {
            fail(t, rpc_ucx_errno(UCS_PTR_STATUS(data)));
            return;
        }
        unsigned tail = (t->head + t->queued++) % RPC_UCX_QUEUE;
        t->queue[tail] = (struct ucx_piece){.data = data, .len = len};
    }
}

static void drop_first_piece(struct ucx_transport *t)
{
    assert(t->queued > 0);
    ucp_stream_data_release(t->ep, t->queue[t->head].data);
    t->head = (t->head + 1) % RPC_UCX_QUEUE;
    t->queued--;
    t->head_done = 0;
}

static size_t copy_out(struct ucx_transport *t, uint8_t *to, size_t room)
{
    size_t done = 0;
    while (done < room) {
        if (!t->queued)
            pull(t);
        if (!t->queued)
            break;
        const struct ucx_piece *piece = &t->queue[t->head];
        size_t n = piece->len - t->head_done;
        if (n > room - done)
            n = room - done;
        memcpy(to + done, piece->data + t->head_done, n);
        done += n;
        t->head_done += n;
        if (t->head_done == piece->len)
            drop_first_piece(t);
    }
    return done;
}

static size_t read_queue(struct ucx_transport *t, const struct iovec *iov, int count)
{
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        size_t n = copy_out(t, iov[i].iov_base, iov[i].iov_len);
        total += n;
        if (n < iov[i].iov_len)
            break;
    }
    t->consumed += total;
    return total;
}

static void control_sent(void *request, ucs_status_t status, void *user)
{
    struct ucx_transport *t = user;
    (void)status; /* a failure reaches us through the endpoint's error handler */
    t->controls--;
    ucp_request_free(request);
}

/* The header must stay valid until UCX has sent it, so it lives in the transport. */
static void send_control(struct ucx_transport *t, unsigned id, const void *header, size_t len)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = control_sent,
        .user_data = t,
    };
    ucs_status_ptr_t req = ucp_am_send_nbx(t->ep, id, header, len, NULL, 0, &param);
    if (UCS_PTR_IS_ERR(req))
        fail(t, rpc_ucx_errno(UCS_PTR_STATUS(req)));
    else if (req)
        t->controls++;
}

static void answer_end(struct ucx_transport *t)
{
    if (!at_end(t) || t->end_answered || t->error)
        return;
    t->end_answered = true;
    send_control(t, AM_END_READ, NULL, 0);
}

static unsigned progress(struct ucx_transport *t)
{
    unsigned events = ucp_worker_progress(t->worker);
    answer_end(t);
    return events;
}

/* What recv answers when there is nothing to read. */
static int end_state(const struct ucx_transport *t)
{
    if (at_end(t))
        return t->consumed == t->end_at ? -ESHUTDOWN : -EPROTO;
    return t->error ? t->error : -EAGAIN;
}

static ssize_t recv_now(struct ucx_transport *t, const struct iovec *iov, int count)
{
    size_t n = read_queue(t, iov, count);
    if (!n && !readable(t)) {
        progress(t);
        n = read_queue(t, iov, count);
    }
    answer_end(t);
    return n ? (ssize_t)n : end_state(t);
}

/* Shared memory has no event for room in the peer's queue, so what waits for it must be polled. */
static bool must_poll(const struct ucx_transport *t)
{
    return !t->context->peer_failure && (t->busy || t->controls);
}

/* True when the owner may sleep on event_fd. */
static bool arm_locked(struct ucx_transport *t)
{
    t->armed = !must_poll(t) && ucp_worker_arm(t->worker) == UCS_OK;
    if (!t->armed && t->queued < RPC_UCX_QUEUE)
        progress(t);
    return t->armed;
}

/* Gives up the lock until something may have happened. */
static void doze(struct ucx_transport *t, uint64_t deadline)
{
    bool poll_again = t->queued == RPC_UCX_QUEUE || must_poll(t);
    bool armed = !poll_again && arm_locked(t);
    uint64_t soon = hw_now_ns() + POLL_US * HW_US;
    pthread_mutex_unlock(&t->lock);
    if (armed)
        sleep_on(t->event_fd, deadline);
    else if (poll_again)
        sleep_on(-1, soon < deadline ? soon : deadline);
    pthread_mutex_lock(&t->lock);
    t->armed = false;
}

static ssize_t ucx_recv(struct rpc_transport *base, const struct iovec *iov, int count,
                        uint64_t timeout_ns)
{
    struct ucx_transport *t = CONTAINER_OF(base, struct ucx_transport, base);
    uint64_t deadline = timeout_ns ? hw_after(timeout_ns) : 0;
    pthread_mutex_lock(&t->lock);
    t->armed = false;
    ssize_t n = recv_now(t, iov, count);
    while (n == -EAGAIN && timeout_ns && hw_now_ns() < deadline) {
        doze(t, deadline);
        n = recv_now(t, iov, count);
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* ---- the outgoing half; all under the lock ---- */

struct source {
    const struct iovec *iov;
    int count;
    size_t done; /* of iov[0] */
};

static size_t gather(struct source *src, uint8_t *to, size_t room)
{
    size_t total = 0;
    while (src->count > 0 && total < room) {
        size_t n = src->iov->iov_len - src->done;
        if (n > room - total)
            n = room - total;
        memcpy(to + total, (const uint8_t *)src->iov->iov_base + src->done, n);
        total += n;
        src->done += n;
        if (src->done == src->iov->iov_len) {
            src->iov++;
            src->count--;
            src->done = 0;
        }
    }
    return total;
}

static struct ucx_buffer *free_buffer(struct ucx_transport *t)
{
    for (size_t i = 0; t->busy < RPC_UCX_BUFFERS && i < RPC_UCX_BUFFERS; i++) {
        if (!t->buffers[i].busy)
            return &t->buffers[i];
    }
    return NULL;
}

static void buffer_sent(void *request, ucs_status_t status, void *user)
{
    struct ucx_buffer *buffer = user;
    assert(buffer->busy && buffer->owner->busy > 0);
    buffer->busy = false;
    buffer->owner->busy--;
    if (status != UCS_OK)
        fail(buffer->owner, rpc_ucx_errno(status));
    ucp_request_free(request);
}

static int buffer_post(struct ucx_buffer *buffer, size_t len)
{
    struct ucx_transport *t = buffer->owner;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = buffer_sent,
        .user_data = buffer,
    };
    ucs_status_ptr_t req = ucp_stream_send_nbx(t->ep, buffer->data, len, &param);
    if (UCS_PTR_IS_ERR(req)) {
        fail(t, rpc_ucx_errno(UCS_PTR_STATUS(req)));
        return t->error;
    }
    if (req) {
        buffer->busy = true;
        t->busy++;
    }
    t->sent += len;
    return 0;
}

/* Moves sends along.  Progress takes in data as well; a full queue stops it, so that a peer that
 * sends while our owner does not read is held back and not stored. */
static void progress_sends(struct ucx_transport *t)
{
    if (t->queued == RPC_UCX_QUEUE)
        return;
    progress(t);
    pull(t);
    if (t->armed && readable(t))
        ucp_worker_signal(t->worker);
}

static ssize_t send_now(struct ucx_transport *t, const struct iovec *iov, int count)
{
    struct source src = {.iov = iov, .count = count};
    size_t total = 0;
    if (t->busy)
        progress_sends(t);
    if (t->end_seen)
        return -EPIPE;
    while (!t->error && src.count > 0) {
        struct ucx_buffer *buffer = free_buffer(t);
        size_t n = buffer ? gather(&src, buffer->data, RPC_UCX_BUFFER_BYTES) : 0;
        if (!n || buffer_post(buffer, n) < 0)
            break;
        total += n;
    }
    /* A thread that armed before these sends does not know that they must be polled. */
    if (t->armed && must_poll(t))
        ucp_worker_signal(t->worker);
    if (total)
        return (ssize_t)total;
    return t->error ? t->error : -EAGAIN;
}

static ssize_t ucx_send(struct rpc_transport *base, const struct iovec *iov, int count)
{
    struct ucx_transport *t = CONTAINER_OF(base, struct ucx_transport, base);
    pthread_mutex_lock(&t->lock);
    ssize_t n = send_now(t, iov, count);
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* ---- waiting ---- */

static bool ready(struct ucx_transport *t, unsigned events)
{
    pull(t);
    if (t->error || at_end(t))
        return true;
    return ((events & RPC_WAIT_RECV) && t->queued) ||
           ((events & RPC_WAIT_SEND) && (t->busy < RPC_UCX_BUFFERS || t->end_seen));
}

static int ucx_wait(struct rpc_transport *base, unsigned events, uint64_t timeout_ns)
{
    struct ucx_transport *t = CONTAINER_OF(base, struct ucx_transport, base);
    uint64_t deadline = hw_after(timeout_ns);
    pthread_mutex_lock(&t->lock);
    t->armed = false;
    progress_sends(t);
    bool ok = ready(t, events);
    while (!ok && hw_now_ns() < deadline) {
        doze(t, deadline);
        progress_sends(t);
        ok = ready(t, events);
    }
    pthread_mutex_unlock(&t->lock);
    return ok ? 0 : -ETIMEDOUT;
}

static int ucx_poll_fd(struct rpc_transport *base)
{
    return CONTAINER_OF(base, struct ucx_transport, base)->event_fd;
}

static int ucx_arm(struct rpc_transport *base, unsigned events)
{
    struct ucx_transport *t = CONTAINER_OF(base, struct ucx_transport, base);
    pthread_mutex_lock(&t->lock);
    bool stay = ready(t, events) || !arm_locked(t);
    pthread_mutex_unlock(&t->lock);
    return stay ? 1 : 0;
}

/* ---- making and unmaking a connection ---- */

static void on_error(void *user, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    fail(user, rpc_ucx_errno(status));
}

static ucs_status_t on_hello(void *user, const void *header, size_t header_len, void *data,
                             size_t len, const ucp_am_recv_param_t *param)
{
    struct ucx_transport *t = user;
    (void)header, (void)header_len, (void)data, (void)len, (void)param;
    t->greeted = true;
    return UCS_OK;
}

static ucs_status_t on_end(void *user, const void *header, size_t header_len, void *data,
                           size_t len, const ucp_am_recv_param_t *param)
{
    struct ucx_transport *t = user;
    (void)data;
    (void)param;
    if (header_len != sizeof(t->end_header) || len || t->end_seen) {
        fail(t, -EPROTO);
        return UCS_OK;
    }
    t->end_at = wire_load64(header);
    t->end_seen = true;
    return UCS_OK;
}

static ucs_status_t on_end_read(void *user, const void *header, size_t header_len, void *data,
                                size_t len, const ucp_am_recv_param_t *param)
{
    struct ucx_transport *t = user;
    (void)header, (void)header_len, (void)data, (void)len, (void)param;
    t->end_read = true;
    return UCS_OK;
}

/* Progresses until done says so or the deadline passes.  Only for a thread that is alone with the
 * connection, at its beginning or end. */
static bool progress_until(struct ucx_transport *t, uint64_t deadline,
                           bool (*done)(struct ucx_transport *t, void *arg), void *arg)
{
    for (;;) {
        progress(t);
        if (done(t, arg))
            return true;
        if (hw_now_ns() >= deadline)
            return false;
        pthread_mutex_lock(&t->lock);
        doze(t, deadline);
        pthread_mutex_unlock(&t->lock);
    }
}

static bool request_done(struct ucx_transport *t, void *request)
{
    (void)t;
    return ucp_request_check_status(request) != UCS_INPROGRESS;
}

static bool controls_sent(struct ucx_transport *t, void *arg)
{
    (void)arg;
    return !t->controls || t->error;
}

static bool greeted(struct ucx_transport *t, void *arg)
{
    (void)arg;
    return t->greeted || t->error;
}

static void discard_unread(struct ucx_transport *t)
{
    for (pull(t); t->queued; pull(t)) {
        while (t->queued)
            drop_first_piece(t);
    }
}

/* Nobody will read any more, so what still comes in is dropped. */
static bool farewell_done(struct ucx_transport *t, void *arg)
{
    (void)arg;
    discard_unread(t);
    return t->end_read || t->end_seen || t->error;
}

static void farewell(struct ucx_transport *t)
{
    discard_unread(t);
    if (t->error || t->end_seen)
        return;
    wire_store64(t->end_header, t->sent);
    send_control(t, AM_END, t->end_header, sizeof(t->end_header));
    progress_until(t, hw_after(RPC_UCX_LINGER_MS * HW_MS), farewell_done, NULL);
}

/* UCX allows the immediate close in peer-failure mode only.  Without it the endpoint goes with
 * its worker: the orderly close would wait for the peer, and a worker must not be destroyed with
 * one pending. */
static void close_endpoint(struct ucx_transport *t)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    if (!t->context->peer_failure)
        return;
    ucs_status_ptr_t req = ucp_ep_close_nbx(t->ep, &param);
    if (UCS_PTR_IS_PTR(req)) {
        progress_until(t, hw_after(CLOSE_MS * HW_MS), request_done, req);
        ucp_request_free(req);
    }
}

void rpc_ucx_conn_destroy(struct rpc_transport *base)
{
    struct ucx_transport *t = CONTAINER_OF(base, struct ucx_transport, base);
    if (t->ep)
        close_endpoint(t);
    if (t->worker)
        ucp_worker_destroy(t->worker);
    rpc_ucx_context_unref(t->context);
    pthread_mutex_destroy(&t->lock);
    free(t->memory);
    free(t);
}

static void ucx_destroy(struct rpc_transport *base)
{
    farewell(CONTAINER_OF(base, struct ucx_transport, base));
    rpc_ucx_conn_destroy(base);
}

/* Nobody tells whether a host on a fabric is up but its own messages. */
static bool ucx_host_answers(struct rpc_transport *transport, uint64_t within_ns)
{
    (void)transport, (void)within_ns;
    return false;
}

static const struct rpc_transport_ops ucx_ops = {
    .name = "ucx",
    .send = ucx_send,
    .recv = ucx_recv,
    .wait = ucx_wait,
    .poll_fd = ucx_poll_fd,
    .arm = ucx_arm,
    .host_answers = ucx_host_answers,
    .destroy = ucx_destroy,
};

static int set_handler(struct ucx_transport *t, unsigned id, ucp_am_recv_callback_t cb)
{
    const ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = id,
        .cb = cb,
        .arg = t,
    };
    return rpc_ucx_errno(ucp_worker_set_am_recv_handler(t->worker, &param));
}

/* Spins a little before it sleeps: the lock is held for microseconds. */
static void lock_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

static void buffers_init(struct ucx_transport *t)
{
    for (size_t i = 0; i < RPC_UCX_BUFFERS; i++) {
        t->buffers[i].owner = t;
        t->buffers[i].data = t->memory + i * RPC_UCX_BUFFER_BYTES;
    }
}

int rpc_ucx_conn_create(struct rpc_ucx_context *context, struct rpc_transport **out)
{
    struct ucx_transport *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->base.ops = &ucx_ops;
    t->context = rpc_ucx_context_ref(context);
    lock_init(&t->lock);
    t->memory = malloc((size_t)RPC_UCX_BUFFERS * RPC_UCX_BUFFER_BYTES);
    int rc = t->memory ? rpc_ucx_worker_create(context, &t->worker, &t->event_fd) : -ENOMEM;
    if (!rc)
        rc = set_handler(t, AM_HELLO, on_hello);
    if (!rc)
        rc = set_handler(t, AM_END, on_end);
    if (!rc)
        rc = set_handler(t, AM_END_READ, on_end_read);
    if (rc) {
        rpc_ucx_conn_destroy(&t->base);
        return rc;
    }
    buffers_init(t);
    *out = &t->base;
    return 0;
}

static int endpoint_create(struct ucx_transport *t, const ucp_ep_params_t *peer)
{
    ucp_ep_params_t params = *peer;
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode =
        t->context->peer_failure ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    params.err_handler.cb = on_error;
    params.err_handler.arg = t;
    return rpc_ucx_errno(ucp_ep_create(t->worker, &params, &t->ep));
}

int rpc_ucx_conn_connect(struct rpc_transport *base, const ucp_ep_params_t *to,
                         uint64_t deadline_ns)
{
    struct ucx_transport *t = CONTAINER_OF(base, struct ucx_transport, base);
    assert(!t->ep);
    int rc = endpoint_create(t, to);
    if (rc)
        return rc;
    return progress_until(t, deadline_ns, greeted, NULL) ? t->error : -ETIMEDOUT;
}

static void note_reached(struct ucx_transport *t)
{
    ucp_ep_attr_t attr = {.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR};
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&attr.local_sockaddr;
    if (ucp_ep_query(t->ep, &attr) == UCS_OK && v4->sin_family == AF_INET)
        inet_ntop(AF_INET, &v4->sin_addr, t->base.reached, sizeof(t->base.reached));
}

/* Sends the greeting that ends the caller's dial, if that is possible at once.  Else UCX keeps it
 * and sends it at the owner's next call. */
int rpc_ucx_conn_accept(struct rpc_transport *base, const ucp_ep_params_t *from)
{
    struct ucx_transport *t = CONTAINER_OF(base, struct ucx_transport, base);
    assert(!t->ep);
    int rc = endpoint_create(t, from);
    if (rc)
        return rc;
    send_control(t, AM_HELLO, NULL, 0);
    progress_until(t, hw_after(RPC_UCX_ACCEPT_MS * HW_MS), controls_sent, NULL);
    note_reached(t);
    return t->error;
}
