/* send.c - the verbs, and the flush that writes what they queued. */
#include "base/log.h"
#include "rpc/endpoint/ep.h"
#include "rpc/resume/resume.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    ADAPTIVE_BYTES = 64 << 10, /* past this, waiting for more gains nothing */
    POST_HOLD = 8,         /* a post waits for up to so many write times: a burst is few writes */
    CREDIT_RIDE_PART = 32, /* of the window: less is not worth its few bytes */
    CREDIT_ALONE_PART = 4  /* a quarter of the window comes back even without traffic */
};

/* How long a message may stay in the batch: a peer waits for a call, a reply or a push, not for a
 * post. */
static uint64_t hold_ns(const struct rpc_ep *ep, uint8_t kind)
{
    return kind == RPC_FRAME_POST ? POST_HOLD * ep->write_cost_ns : ep->write_cost_ns;
}

static bool flush_is_due(const struct rpc_ep *ep, uint8_t kind, uint64_t now)
{
    switch (ep->config.flush) {
    case RPC_FLUSH_INCREMENTAL:
        return true;
    case RPC_FLUSH_ADAPTIVE:
        return now - ep->queued_since_ns >= hold_ns(ep, kind) ||
               ep->tx.queued_bytes >= ADAPTIVE_BYTES;
    case RPC_FLUSH_BATCH:
        break;
    }
    return false;
}

static int check_fds(const struct rpc_ep *ep, const struct rpc_send *send, size_t payload)
{
    if (send->fd_count < 0 || send->fd_count > RPC_FDS_MAX)
        return -EINVAL;
    if (!rpc_ep_passes_fds(ep))
        return -EOPNOTSUPP;
    return payload > RPC_INLINE_BYTES ? -EMSGSIZE : 0;
}

static int check_send(const struct rpc_ep *ep, const struct rpc_send *send, uint32_t *payload)
{
    if (ep->status != 0 && ep->status != -EINPROGRESS)
        return ep->status;
    if (send->stream >= RPC_STREAMS || send->iov_count < 0 || send->iov_count > RPC_IOV_MAX)
        return -EINVAL;
    size_t total = 0;
    for (int i = 0; i < send->iov_count; i++) {
        if (send->iov[i].iov_len > ep->message_max - total)
            return -EMSGSIZE;
        total += send->iov[i].iov_len;
    }
    *payload = (uint32_t)total;
    return LIKELY(send->fd_count == 0) ? 0 : check_fds(ep, send, total);
}

/* A peer collects small returns of credit; one that runs short says so with a ping, and what is
 * due comes back at once. */
static void ask_for_credit(struct rpc_ep *ep)
{
    struct rpc_frame ping = {.kind = RPC_FRAME_PING};
    if (!ep->credit_asked && rpc_tx_control(&ep->tx, &ping, NULL) == 0)
        ep->credit_asked = true;
}

/* Descriptors travel with the batch, and the peer assigns them in the order of the messages.  So
 * the message must go into the batch at once and not wait in its stream. */
static int queue_with_fds(struct rpc_ep *ep, const struct rpc_frame *frame,
                          const struct rpc_send *send, uint32_t payload)
{
    if (ep->tx.busy_streams & 1u << frame->stream)
        return -ENOBUFS;
    int rc = rpc_tx_fds(&ep->tx, send->fds, send->fd_count);
    if (rc)
        return rc;
    struct rpc_frame with = *frame;
    with.fds = (uint32_t)send->fd_count;
    rc = rpc_tx_message(&ep->tx, &with, send, payload, false);
    if (rc)
        rpc_tx_fds_drop(&ep->tx, send->fd_count);
    return rc;
}

static int queue_message(struct rpc_ep *ep, const struct rpc_frame *frame,
                         const struct rpc_send *send, uint32_t payload, uint64_t now)
{
    bool must = frame->kind >= RPC_FRAME_REPLY;
    int rc = LIKELY(send->fd_count == 0) ? rpc_tx_message(&ep->tx, frame, send, payload, must)
                                         : queue_with_fds(ep, frame, send, payload);
    if (UNLIKELY(rc)) {
        if (rc == -EAGAIN) {
            hw_counter_bump(&ep->stats.no_credit, 1);
            ask_for_credit(ep);
        } else if (rc == -ENOBUFS) {
            hw_counter_bump(&ep->stats.queue_full, 1);
        }
        return rc;
    }
    hw_counter_bump(&ep->stats.msgs_sent, 1);
    if (ep->queued_since_ns == 0)
        ep->queued_since_ns = now;
    if (flush_is_due(ep, frame->kind, now))
        (void)rpc_flush(ep); /* what is left is pending; a failure is the endpoint's status */
    return 0;
}

static int one_way(struct rpc_ep *ep, uint8_t kind, const struct rpc_send *send)
{
    uint32_t payload;
    int rc = check_send(ep, send, &payload);
    if (rc)
        return rc;
    struct rpc_frame frame = {.kind = kind, .stream = send->stream, .method = send->method};
    return queue_message(ep, &frame, send, payload, rpc_ep_now(ep));
}

int rpc_post(struct rpc_ep *ep, const struct rpc_send *send)
{
    return one_way(ep, RPC_FRAME_POST, send);
}

int rpc_push(struct rpc_ep *ep, const struct rpc_send *send)
{
    return ep->config.accepting ? one_way(ep, RPC_FRAME_PUSH, send) : -EINVAL;
}

int rpc_call(struct rpc_ep *ep, const struct rpc_send *send, rpc_reply_fn *fn, void *user,
             uint32_t *id_out)
{
    uint32_t payload;
    int rc = check_send(ep, send, &payload);
    if (rc)
        return rc;
    uint64_t now = rpc_ep_now(ep);
    uint64_t timeout = send->timeout_ns ? send->timeout_ns : RPC_TIMEOUT_DEFAULT_NS;
    uint32_t id;
    rc = rpc_calls_add(&ep->calls, fn, user, now, timeout, &id);
    if (rc) {
        hw_counter_bump(&ep->stats.queue_full, rc == -ENOBUFS);
        return rc;
    }
    struct rpc_frame frame = {
        .kind = RPC_FRAME_CALL, .stream = send->stream, .id = id, .method = send->method};
    if (id_out)
        *id_out = id; /* before a flush can fail and run the callback */
    hw_counter_bump(&ep->stats.calls, 1);
    rc = queue_message(ep, &frame, send, payload, now);
    if (UNLIKELY(rc)) {
        hw_counter_bump(&ep->stats.calls, (uint64_t)-1);
        rpc_calls_forget(&ep->calls, id);
    }
    return rc;
}

void rpc_ep_send_cancel(struct rpc_ep *ep, uint32_t id)
{
    struct rpc_frame frame = {.kind = RPC_FRAME_CANCEL, .id = id};
    if (ep->status == 0 && rpc_tx_control(&ep->tx, &frame, NULL))
        hw_debug(HW_CAT_NET, "%s: no memory to cancel a call: the peer works in vain",
                 ep->transport->peer);
}

int rpc_cancel(struct rpc_ep *ep, uint32_t id)
{
    struct rpc_pending_call call;
    int rc = rpc_calls_end(&ep->calls, id, &call);
    if (rc)
        return rc;
    rpc_ep_send_cancel(ep, id);
    call.fn(call.user, -ECANCELED, NULL);
    return 0;
}

int rpc_reply(struct rpc_ep *ep, struct rpc_msg *call, int status, const struct rpc_send *send)
{
    struct rpc_rx_msg *msg = (struct rpc_rx_msg *)call;
    assert(call->kind == RPC_CALL && !msg->answered && status <= 0);
    static const struct rpc_send empty;
    if (!send)
        send = &empty;
    uint32_t payload;
    int rc = check_send(ep, send, &payload);
    if (rc)
        return rc;
    if (status < 0 && payload > RPC_ERROR_TEXT_MAX)
        return -EMSGSIZE;
    struct rpc_frame frame = {
        .kind = status == 0 ? RPC_FRAME_REPLY : RPC_FRAME_ERROR,
        .stream = call->stream,
        .id = msg->id,
        .method = status == 0 ? 0 : rpc_error_to_wire(status),
    };
    rc = queue_message(ep, &frame, send, payload, rpc_ep_now(ep));
    if (rc == -ENOMEM)
        return rpc_ep_fail(ep, rc, "out of memory"); /* a caller must not wait for nothing */
    if (rc)
        return rc;
    msg->answered = true;
    assert(ep->calls_to_answer > 0);
    ep->calls_to_answer--;
    return 0;
}

/* The handshake's own bytes go first and alone. */
static int flush_handshake(struct rpc_ep *ep)
{
    struct rpc_handshake *hs = ep->handshake;
    while (ep->handshake_sent < hs->out_len) {
        struct iovec iov = {hs->out + ep->handshake_sent, hs->out_len - ep->handshake_sent};
        ssize_t n = ep->transport->ops->send(ep->transport, &iov, 1);
        if (n < 0) {
            atomic_store_explicit(&ep->send_blocked, n == -EAGAIN, memory_order_relaxed);
            return (int)n;
        }
        ep->handshake_sent += (size_t)n;
        hw_counter_bump(&ep->stats.bytes_sent, (uint64_t)n);
    }
    atomic_store_explicit(&ep->send_blocked, false, memory_order_relaxed);
    return 0;
}

bool rpc_ep_owes_credit(const struct rpc_ep *ep)
{
    return ep->credit_due >= ep->config.window_bytes / CREDIT_ALONE_PART ||
           (ep->credit_wanted && ep->credit_due > 0);
}

static void add_credit_frame(struct rpc_ep *ep)
{
    bool ride = ep->credit_due >= ep->config.window_bytes / CREDIT_RIDE_PART;
    if (!rpc_ep_owes_credit(ep) && !(ride && rpc_tx_pending(&ep->tx)))
        return;
    struct rpc_frame frame = {.kind = RPC_FRAME_CREDIT, .value = ep->credit_due};
    if (rpc_tx_control(&ep->tx, &frame, NULL) == 0) {
        ep->credit_due = 0;
        ep->credit_wanted = false;
        hw_counter_bump(&ep->stats.credit_frames_sent, 1);
    }
}

static bool has_to_write(const struct rpc_ep *ep)
{
    return rpc_tx_pending(&ep->tx) || (UNLIKELY(ep->resume) && rpc_resume_replays(ep->resume));
}

static void note_write(struct rpc_ep *ep, uint64_t before, uint64_t after, size_t bytes)
{
    uint64_t took = after - before;
    rpc_ep_note_time(&ep->stats.write_ns, &ep->stats.write_max_ns, took);
    hw_counter_bump(&ep->stats.writes, 1);
    hw_counter_bump(&ep->stats.bytes_sent, bytes);
    /* Only small writes tell what a write costs; the cost of a large one is its bytes. */
    if (bytes <= ADAPTIVE_BYTES) {
        uint64_t old = ep->write_cost_ns;
        ep->write_cost_ns = old ? old - old / 8 + took / 8 : took;
    }
    ep->last_sent_ns = after;
}

/* One send: bytes taken, -EAGAIN, or what ended the stream.  *clock moves on to after it. */
static ssize_t write_once(struct rpc_ep *ep, const struct iovec *iov, int count, uint64_t *clock)
{
    const struct rpc_transport_ops *ops = ep->transport->ops;
    bool fds = UNLIKELY(ep->tx.fd_count > 0);
    ssize_t n = fds ? ops->send_fds(ep->transport, iov, count, ep->tx.fds, ep->tx.fd_count)
                    : ops->send(ep->transport, iov, count);
    if (fds && n > 0)
        rpc_tx_fds_sent(&ep->tx);
    if (UNLIKELY(n < 0)) {
        if (n == -EAGAIN)
            atomic_store_explicit(&ep->send_blocked, true, memory_order_relaxed);
        return n;
    }
    uint64_t after = rpc_ep_now(ep);
    note_write(ep, *clock, after, (size_t)n);
    *clock = after;
    return n;
}

static int write_pending(struct rpc_ep *ep)
{
    const struct iovec *iov;
    int count;
    uint64_t clock = rpc_ep_now(ep);
    if (ep->queued_since_ns) {
        rpc_ep_note_time(&ep->stats.queue_ns, &ep->stats.queue_max_ns, clock - ep->queued_since_ns);
        ep->queued_since_ns = 0;
    }
    while (UNLIKELY(ep->resume) && rpc_resume_replays(ep->resume)) {
        struct iovec again[RPC_IOV_MAX];
        ssize_t n = write_once(ep, again, rpc_resume_gather(ep, again), &clock);
        if (n < 0)
            return (int)n;
        rpc_resume_replayed(ep, (size_t)n);
    }
    if (LIKELY(rpc_tx_batch_only(&ep->tx))) {
        struct iovec batch = {ep->tx.batch.data, ep->tx.batch.len};
        ssize_t n = write_once(ep, &batch, 1, &clock);
        if (n < 0)
            return (int)n;
        if (LIKELY((size_t)n == batch.iov_len)) {
            rpc_tx_batch_written(&ep->tx);
        } else {
            (void)rpc_tx_gather(&ep->tx, &iov);
            rpc_tx_written(&ep->tx, (size_t)n);
        }
    }
    while ((count = rpc_tx_gather(&ep->tx, &iov)) > 0) {
        ssize_t n = write_once(ep, iov, count, &clock);
        if (n < 0)
            return (int)n;
        rpc_tx_written(&ep->tx, (size_t)n);
    }
    atomic_store_explicit(&ep->send_blocked, false, memory_order_relaxed);
    hw_counter_bump(&ep->stats.batches_sent, 1);
    return 0;
}

/* A goodbye or a refusal may lie unread: rpc_poll reads on, then ends the connection. */
static int send_failed(struct rpc_ep *ep, int rc)
{
    ep->send_error = rc;
    atomic_store_explicit(&ep->send_blocked, true, memory_order_relaxed);
    return -EAGAIN;
}

int rpc_flush(struct rpc_ep *ep)
{
    if (UNLIKELY(ep->send_error && (ep->status == 0 || ep->status == -EINPROGRESS)))
        return -EAGAIN;
    if (UNLIKELY(ep->status == -EINPROGRESS)) {
        int rc = flush_handshake(ep);
        return rc == 0 || rc == -EAGAIN ? rc : send_failed(ep, rc);
    }
    if (UNLIKELY(ep->status))
        return ep->status;
    if (ep->flushing)
        return 0; /* a `sent` callback sends: the loop below goes on with it */
    if (UNLIKELY(ep->tx.busy_streams && rpc_tx_short(&ep->tx)))
        ask_for_credit(ep);
    add_credit_frame(ep);
    if (ep->resume)
        rpc_resume_acknowledge(ep);
    if (!has_to_write(ep))
        return 0;
    ep->flushing = true;
    int rc = write_pending(ep);
    ep->flushing = false;
    if (ep->trace)
        rpc_ep_trace(ep);
    return rc == 0 || rc == -EAGAIN ? rc : send_failed(ep, rc);
}

bool rpc_pending(const struct rpc_ep *ep)
{
    if (ep->handshake)
        return ep->handshake_sent < ep->handshake->out_len;
    return has_to_write(ep);
}

bool rpc_send_blocked(const struct rpc_ep *ep)
{
    return atomic_load_explicit(&ep->send_blocked, memory_order_relaxed);
}

void rpc_ep_goodbye(struct rpc_ep *ep, int reason, const char *text)
{
    assert(ep->status == 0);
    size_t len = text ? strnlen(text, RPC_ERROR_TEXT_MAX) : 0;
    struct rpc_frame frame = {
        .kind = RPC_FRAME_BYE, .len = (uint32_t)len, .method = rpc_error_to_wire(reason)};
    if (rpc_tx_control(&ep->tx, &frame, text) == 0 && write_pending(ep) == 0 && ep->resume)
        rpc_resume_leave(ep);
}

int rpc_ep_flush_goodbye(struct rpc_ep *ep)
{
    assert(ep->status && ep->status != -EINPROGRESS);
    return rpc_tx_pending(&ep->tx) ? write_pending(ep) : 0;
}

void rpc_ep_shutdown(struct rpc_ep *ep, int reason, const char *text)
{
    if (ep->status == -EINPROGRESS && reason) {
        /* Drops what was not sent: a hello would let the peer go on. */
        if (ep->handshake_sent == 0)
            ep->handshake->out_len = 0;
        rpc_handshake_refuse(ep->handshake, reason, text ? text : "");
        (void)flush_handshake(ep);
    } else if (ep->status == 0) {
        rpc_ep_goodbye(ep, reason ? reason : -ESHUTDOWN, text);
    }
    (void)rpc_ep_fail(ep, -ESHUTDOWN, "closed by this side");
}
