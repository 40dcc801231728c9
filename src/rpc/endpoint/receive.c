/* receive.c - what arrives: the handshake, frames, the heartbeat, and waiting for them. */
#include "rpc/endpoint/ep.h"
#include "rpc/resume/resume.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    READS_A_POLL = 16, /* so that one busy peer cannot hold a loop of many endpoints */
    CANCEL_SEARCH = 64
};

static void inbox_add(struct rpc_ep *ep, struct rpc_rx_msg *msg)
{
    msg->next = NULL;
    if (ep->inbox)
        ep->inbox_last->next = msg;
    else
        ep->inbox = msg;
    ep->inbox_last = msg;
}

static void release(struct rpc_ep *ep, struct rpc_rx_msg *msg)
{
    ep->credit_due += rpc_rx_release(&ep->rx, msg);
}

static int on_reply(struct rpc_ep *ep, struct rpc_rx_msg *msg, uint64_t now)
{
    struct rpc_pending_call call;
    if (rpc_calls_answer(&ep->calls, msg->id, &call)) {
        release(ep, msg);
        return rpc_ep_fail(ep, -EPROTO, "answered a call that was not made");
    }
    hw_counter_bump(&ep->stats.replies, 1);
    if (call.fn) {
        rpc_ep_note_time(&ep->stats.rtt_ns, &ep->stats.rtt_max_ns, now - call.sent_ns);
        call.fn(call.user, msg->error, &msg->msg);
    }
    release(ep, msg);
    return 0;
}

static int on_request(struct rpc_ep *ep, struct rpc_rx_msg *msg)
{
    if (msg->msg.kind == RPC_CALL && ep->calls_to_answer++ >= ep->config.max_calls) {
        ep->calls_to_answer--;
        release(ep, msg);
        return rpc_ep_fail(ep, -EPROTO, "more than %u calls in flight", ep->config.max_calls);
    }
    if (msg->msg.kind == RPC_PUSH && ep->config.accepting) {
        release(ep, msg);
        return rpc_ep_fail(ep, -EPROTO, "a push from the connecting side");
    }
    inbox_add(ep, msg);
    return 0;
}

/* The descriptors that a message's frame promised have come before it. */
static int claim_fds(struct rpc_ep *ep, struct rpc_rx_msg *msg)
{
    const struct rpc_transport_ops *ops = ep->transport->ops;
    bool all = ops->take_fd != NULL;
    for (int i = 0; i < msg->msg.fd_count; i++) {
        msg->fds[i] = all ? ops->take_fd(ep->transport) : -1;
        all = all && msg->fds[i] >= 0;
    }
    if (all)
        return 0;
    release(ep, msg);
    return rpc_ep_fail(ep, -EPROTO, "promised descriptors that did not come");
}

static int on_message(struct rpc_ep *ep, struct rpc_rx_msg *msg, uint64_t now)
{
    hw_counter_bump(&ep->stats.msgs_received, 1);
    if (UNLIKELY(msg->msg.fd_count > 0)) {
        int rc = claim_fds(ep, msg);
        if (rc)
            return rc;
    }
    return msg->msg.kind == RPC_REPLY ? on_reply(ep, msg, now) : on_request(ep, msg);
}

/* A cancel only saves us work, so the search for its call is short. */
static void on_cancel(struct rpc_ep *ep, uint32_t id)
{
    struct rpc_rx_msg *msg = ep->inbox;
    for (int i = 0; msg && i < CANCEL_SEARCH; i++, msg = msg->next)
        if (msg->msg.kind == RPC_CALL && msg->id == id)
            msg->cancelled = true;
}

static int on_bye(struct rpc_ep *ep, const struct rpc_frame *frame)
{
    size_t have;
    const char *text = (const char *)rpc_rx_peek(&ep->rx, &have);
    assert(frame->len <= have);
    int error = rpc_error_from_wire(frame->method);
    if (error == -EAGAIN)
        error = -ESHUTDOWN; /* no status an endpoint can have */
    int shown = frame->len < RPC_ERROR_TEXT_MAX ? (int)frame->len : RPC_ERROR_TEXT_MAX;
    return rpc_ep_fail(ep, error, "the peer closed the connection%s%.*s", shown ? ": " : "", shown,
                       text);
}

static int on_control(struct rpc_ep *ep, const struct rpc_frame *frame)
{
    switch (frame->kind) {
    case RPC_FRAME_CREDIT:
        if (rpc_tx_credit(&ep->tx, frame->value))
            return rpc_ep_fail(ep, -EPROTO, "returned more credit than it had");
        ep->credit_asked = false;
        return 0;
    case RPC_FRAME_PING: {
        struct rpc_frame pong = {.kind = RPC_FRAME_PONG, .value = frame->value};
        if (UNLIKELY(ep->mute))
            return 0;
        ep->credit_wanted = true;
        /* A peer that pings without reading must not fill our memory. */
        if (rpc_answers_wait(ep))
            return 0;
        if (rpc_tx_control(&ep->tx, &pong, NULL))
            return rpc_ep_fail(ep, -ENOMEM, "out of memory");
        return 0;
    }
    case RPC_FRAME_PONG:
        return 0;
    case RPC_FRAME_CANCEL:
        on_cancel(ep, frame->id);
        return 0;
    case RPC_FRAME_BYE:
        return on_bye(ep, frame);
    case RPC_FRAME_OFFER:
    case RPC_FRAME_ACK:
        if (ep->resume)
            return rpc_resume_on_frame(ep, frame);
        return rpc_ep_fail(ep, -EPROTO, "a frame for resumption, which was not agreed on");
    default:
        return rpc_ep_fail(ep, -EPROTO, "unknown frame %u", frame->kind);
    }
}

static int rx_error(struct rpc_ep *ep, int rc)
{
    if (rc == -ENOBUFS)
        return rpc_ep_fail(ep, -EPROTO, "sent more than its credit of %u bytes",
                           ep->config.window_bytes);
    if (rc == -EPROTO)
        return rpc_ep_fail(ep, rc, "malformed frame");
    return rpc_ep_fail(ep, rc, "cannot receive: %s", strerror(-rc));
}

static int parse_frames(struct rpc_ep *ep, uint64_t now)
{
    int messages = 0;
    while (ep->status == 0) {
        struct rpc_frame frame;
        struct rpc_rx_msg *msg;
        int rc = rpc_rx_next(&ep->rx, &frame, &msg);
        if (rc < 0)
            return rx_error(ep, rc);
        if (rc == 0)
            return messages;
        rc = msg ? on_message(ep, msg, now) : on_control(ep, &frame);
        if (rc)
            return rc;
        messages++;
    }
    return ep->status;
}

/* Done on our side and every byte of ours written: frames from here on. */
static int try_open(struct rpc_ep *ep)
{
    int rc = rpc_flush(ep);
    if (rc == 0 && ep->handshake->state == RPC_HS_DONE)
        rpc_ep_open(ep);
    return ep->status;
}

static int parse_handshake(struct rpc_ep *ep)
{
    struct rpc_handshake *hs = ep->handshake;
    size_t len, used;
    const uint8_t *p = rpc_rx_peek(&ep->rx, &len);
    if (ep->transport->ops->binding) {
        int rc = ep->transport->ops->binding(ep->transport, hs->binding);
        if (rc)
            return rpc_ep_fail(ep, rc, "the TLS channel has no exporter");
    }
    int rc = rpc_handshake_feed(hs, p, len, &used);
    rpc_rx_skip(&ep->rx, used, rc == -EINPROGRESS);
    int opened = try_open(ep); /* also sends a refusal */
    if (rc != 0 && rc != -EINPROGRESS)
        return rpc_ep_fail(ep, rc, "%s", hs->why);
    return opened;
}

static int parse(struct rpc_ep *ep, uint64_t now)
{
    if (UNLIKELY(ep->status == -EINPROGRESS)) {
        int rc = ep->handshake->state == RPC_HS_DONE ? try_open(ep) : parse_handshake(ep);
        if (rc)
            return rc == -EINPROGRESS ? 0 : rc;
    }
    return parse_frames(ep, now);
}

/* Reads until the transport has no more, before the peer is judged.  The number of messages, or the
 * status. */
static int read_and_parse(struct rpc_ep *ep, uint64_t now, uint64_t looked)
{
    int messages = 0;
    for (int i = 0; i < READS_A_POLL; i++) {
        size_t asked = 0;
        ssize_t n = 0;
        if (!rpc_rx_unparsed(&ep->rx)) {
            struct iovec iov[2];
            int count = rpc_rx_space(&ep->rx, iov);
            for (int k = 0; k < count; k++)
                asked += iov[k].iov_len;
            n = ep->transport->ops->recv(ep->transport, iov, count, 0);
            if (n == -EAGAIN && !ep->send_error)
                break;
            if (n == -EAGAIN)
                n = ep->send_error; /* all that had arrived is read */
            if (n < 0)
                return rpc_ep_lost(ep, (int)n);
            rpc_rx_filled(&ep->rx, (size_t)n);
            hw_counter_bump(&ep->stats.reads, 1);
            hw_counter_bump(&ep->stats.bytes_received, (uint64_t)n);
        }
        ep->last_received_ns = looked;
        int rc = parse(ep, now);
        if (rc < 0)
            return rc;
        messages += rc;
        if ((size_t)n < asked || asked == 0)
            break; /* a short read: there is no more */
    }
    return messages;
}

static void expire_calls(struct rpc_ep *ep, uint64_t now)
{
    struct rpc_pending_call call;
    uint32_t id;
    while (rpc_calls_expire(&ep->calls, now, &id, &call) == 0) {
        hw_counter_bump(&ep->stats.timeouts, 1);
        rpc_ep_send_cancel(ep, id);
        call.fn(call.user, -ETIMEDOUT, NULL);
    }
}

/* Ends the connection to a peer that is silent for too long.  One whose host answers is stopped, in
 * a debugger for example, and is looked at again after a ping. */
static int check_silence(struct rpc_ep *ep, uint64_t looked)
{
    double seconds = (double)ep->silent_ns / 1e9;
    if (ep->silent_ns == HW_NEVER || looked - ep->last_received_ns < ep->silent_ns)
        return 0;
    bool stopped = ep->config.tolerates_silence &&
                   (!ep->transport->ops->host_answers ||
                    ep->transport->ops->host_answers(ep->transport, ep->silent_ns));
    if (!stopped && ep->resume && rpc_resume_sever(ep->resume))
        return 0;
    if (!ep->config.tolerates_silence)
        return rpc_ep_fail(ep, -EHOSTDOWN,
                           "silent for %.1f s: it is stopped, or the network is cut", seconds);
    if (!stopped)
        return rpc_ep_fail(ep, -EHOSTDOWN,
                           "its host is silent for %.1f s: it is down, or the network is cut",
                           seconds);
    ep->last_received_ns = looked - ep->silent_ns + ep->ping_every_ns;
    return 0;
}

static int heartbeat(struct rpc_ep *ep, uint64_t now, uint64_t looked)
{
    if (ep->status == -EINPROGRESS) {
        if (looked < ep->handshake_deadline_ns)
            return 0;
        return rpc_ep_fail(ep, -ETIMEDOUT, "no complete hello within %.1f s",
                           (double)ep->config.handshake_ns / 1e9);
    }
    if (UNLIKELY(ep->resume) && rpc_resume_is_cut(ep->resume))
        return rpc_resume_tick(ep, now);
    int rc = check_silence(ep, looked);
    if (rc)
        return rc;
    if (ep->ping_every_ns != HW_NEVER && now - ep->last_sent_ns >= ep->ping_every_ns) {
        struct rpc_frame ping = {.kind = RPC_FRAME_PING, .value = now};
        if (rpc_tx_pending(&ep->tx) || rpc_tx_control(&ep->tx, &ping, NULL) == 0)
            (void)rpc_flush(ep); /* also what only waits for the program to flush */
        ep->last_sent_ns = now;  /* a full transport is tried again after as long */
    }
    return ep->status;
}

int rpc_poll(struct rpc_ep *ep)
{
    if (UNLIKELY(ep->status && ep->status != -EINPROGRESS))
        return ep->status;
    if (UNLIKELY(ep->handshake))
        (void)try_open(ep);
    if (ep->config.flush == RPC_FLUSH_ADAPTIVE)
        (void)rpc_flush(ep);
    uint64_t now = rpc_ep_now(ep);
    uint64_t looked = hw_looks_at(&ep->looks, now);
    int messages = read_and_parse(ep, now, looked);
    if (messages < 0)
        return messages;
    if (UNLIKELY(rpc_calls_overdue(&ep->calls, now)))
        expire_calls(ep, now);
    int rc = heartbeat(ep, now, looked);
    if (rc && rc != -EINPROGRESS)
        return rc;
    /* Replies made by callbacks, pongs and large credit returns do not wait for the next poll. */
    if (ep->config.flush != RPC_FLUSH_BATCH || rpc_ep_owes_credit(ep))
        (void)rpc_flush(ep);
    if (ep->trace)
        rpc_ep_trace(ep);
    return ep->status && ep->status != -EINPROGRESS ? ep->status : messages;
}

/* Replies are never refused, so a peer that sends requests and reads no answers would fill our
 * memory.  Its next requests therefore wait, and hold its credit, until it has read some.  Only the
 * accepting side does this: if both did, each could wait for the other. */
static bool may_deliver(const struct rpc_ep *ep)
{
    return ep->inbox && (!ep->config.accepting || !rpc_answers_wait(ep));
}

bool rpc_answers_wait(const struct rpc_ep *ep)
{
    return ep->tx.queued_bytes > ep->tx.queue_limit;
}

struct rpc_msg *rpc_recv(struct rpc_ep *ep)
{
    while (may_deliver(ep)) {
        struct rpc_rx_msg *msg = ep->inbox;
        ep->inbox = msg->next;
        if (!msg->cancelled)
            return &msg->msg;
        (void)rpc_reply(ep, &msg->msg, -ECANCELED, NULL);
        release(ep, msg);
    }
    return NULL;
}

void rpc_release(struct rpc_ep *ep, struct rpc_msg *msg)
{
    release(ep, (struct rpc_rx_msg *)msg);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t rpc_next_tick(const struct rpc_ep *ep)
{
    uint64_t next = rpc_calls_next_deadline(&ep->calls), missed = ep->looks.missed_ns;
    if (ep->status == -EINPROGRESS) {
        if (ep->looks.every_ns != HW_NEVER) /* no ping is due that would cause a look */
            next = earlier(next, ep->looks.last_ns + ep->looks.every_ns);
        return earlier(next, ep->handshake_deadline_ns + missed);
    }
    if (ep->status)
        return 0;
    if (UNLIKELY(ep->resume) && rpc_resume_is_cut(ep->resume))
        return earlier(next, rpc_resume_next_tick(ep->resume));
    if (ep->ping_every_ns != HW_NEVER)
        next = earlier(next, ep->last_sent_ns + ep->ping_every_ns);
    if (ep->silent_ns != HW_NEVER)
        next = earlier(next, ep->last_received_ns + ep->silent_ns + missed);
    return next;
}

struct look {
    struct rpc_transport *transport;
    struct iovec iov[2];
    int count;
    ssize_t n;
};

static bool bytes_came(void *user)
{
    struct look *l = user;
    l->n = l->transport->ops->recv(l->transport, l->iov, l->count, 0);
    return l->n != -EAGAIN;
}

int rpc_wait_bytes(struct rpc_ep *ep, uint64_t timeout_ns)
{
    if (rpc_rx_unparsed(&ep->rx))
        return 0;
    struct rpc_transport *t = ep->transport;
    if (UNLIKELY(atomic_load_explicit(&ep->send_blocked, memory_order_relaxed)))
        return t->ops->wait(t, RPC_WAIT_RECV | RPC_WAIT_SEND, timeout_ns);
    uint64_t start = rpc_ep_now(ep), left = timeout_ns;
    struct look look = {.transport = t};
    look.count = rpc_rx_space(&ep->rx, look.iov);
    if (!hw_wait_until(&ep->wait, bytes_came, &look, &left))
        look.n = t->ops->recv(t, look.iov, look.count, left);
    if (look.n > 0) {
        rpc_rx_filled(&ep->rx, (size_t)look.n);
        hw_counter_bump(&ep->stats.reads, 1);
        hw_counter_bump(&ep->stats.bytes_received, (uint64_t)look.n);
    }
    /* rpc_poll sees an error again and may end the connection.  A transport may also return early
     * for no reason. */
    return look.n == -EAGAIN && rpc_ep_now(ep) - start >= timeout_ns ? -ETIMEDOUT : 0;
}

int rpc_wait(struct rpc_ep *ep, uint64_t timeout_ns)
{
    if (may_deliver(ep) || (ep->status && ep->status != -EINPROGRESS))
        return 0;
    uint64_t next = rpc_next_tick(ep);
    if (next == HW_NEVER)
        return rpc_wait_bytes(ep, timeout_ns);
    uint64_t now = rpc_ep_now(ep);
    uint64_t left = next > now ? next - now : 0;
    if (timeout_ns <= left)
        return rpc_wait_bytes(ep, timeout_ns);
    (void)rpc_wait_bytes(ep, left);
    return 0; /* something is due, if nothing came */
}
