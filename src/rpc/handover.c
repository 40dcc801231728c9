#include "rpc/handover.h"

#include "rpc/endpoint/ep.h"
#include "rpc/transport/sock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rpc_transport_hand_over(struct rpc_transport *t, struct rpc_transport_state *out,
                            int fds[RPC_TRANSPORT_FDS])
{
    *out = (struct rpc_transport_state){.local = t->local};
    snprintf(out->name, sizeof out->name, "%s", t->ops->name);
    memcpy(out->peer, t->peer, sizeof out->peer);
    return t->ops->hand_over ? t->ops->hand_over(t, out, fds) : -EOPNOTSUPP;
}

int rpc_transport_take_over(const struct rpc_transport_state *state, const int *fds, int count,
                            struct rpc_transport **out)
{
    static const char *const names[] = {"tcp", "unix", "tls"}; /* an endpoint keeps the pointer */
    if (strcmp(state->name, "shm") == 0)
        return rpc_shm_take_over(state, fds, count, out);
    for (size_t i = 0; count == 1 && i < ARRAY_LEN(names); i++) {
        if (strcmp(state->name, names[i]) == 0)
            return rpc_sock_wrap(fds[0], names[i], state->local, state->peer, out);
    }
    for (int i = 0; i < count; i++)
        close(fds[i]);
    return -EINVAL;
}

/* Nothing of an earlier or a later message is under way, in either direction. */
static bool is_at_rest(const struct rpc_ep *ep)
{
    for (int i = 0; i < RPC_STREAMS; i++) {
        if (ep->rx.partial[i])
            return false;
    }
    return ep->status == 0 && !ep->send_error && !ep->inbox && !ep->rx.direct &&
           ep->calls_to_answer == 1 && ep->tx.busy_streams == 0 && ep->tx.fd_count == 0 &&
           !rpc_tx_pending(&ep->tx);
}

/* The call as its frame, then what came behind it. */
static int put_bytes(const struct rpc_ep *ep, const struct rpc_msg *first, struct rpc_handover *out)
{
    const struct rpc_rx_msg *msg = (const struct rpc_rx_msg *)first;
    struct rpc_frame frame = {.kind = RPC_FRAME_CALL,
                              .stream = first->stream,
                              .len = (uint32_t)first->len,
                              .id = msg->id,
                              .method = first->method};
    uint8_t header[RPC_FRAME_HEADER_MAX];
    size_t header_len = rpc_frame_encode(&frame, header), rest_len;
    const uint8_t *rest = rpc_rx_peek(&ep->rx, &rest_len);
    if (first->len > RPC_INLINE_BYTES || first->fd_count > 0 ||
        header_len + first->len + rest_len > sizeof out->bytes)
        return -EMSGSIZE;
    memcpy(out->bytes, header, header_len);
    memcpy(out->bytes + header_len, first->data, first->len);
    memcpy(out->bytes + header_len + first->len, rest, rest_len);
    out->byte_count = (uint32_t)(header_len + first->len + rest_len);
    return 0;
}

int rpc_ep_hand_over(struct rpc_ep *ep, const struct rpc_msg *first, struct rpc_handover *out)
{
    assert(first->kind == RPC_CALL);
    (void)rpc_flush(ep);
    if (!is_at_rest(ep))
        return -EBUSY;
    int rc = put_bytes(ep, first, out);
    if (rc)
        return rc;
    memcpy(out->peer_name, ep->peer_name, sizeof out->peer_name);
    out->peer_capabilities = ep->peer_capabilities;
    out->peer_takes_fds = ep->peer_takes_fds;
    out->peer_resumes = ep->peer_resumes;
    out->received = hw_counter_load(&ep->stats.bytes_received) - ep->received_before;
    out->message_max = ep->message_max;
    out->max_calls = ep->calls.limit;
    out->credit = ep->tx.credit;
    out->outstanding = ep->tx.outstanding;
    out->queue_limit = ep->tx.queue_limit;
    out->credit_due = ep->credit_due;
    out->credit_asked = ep->credit_asked;
    out->credit_wanted = ep->credit_wanted;
    out->ping_every_ns = ep->ping_every_ns;
    out->silent_ns = ep->silent_ns;
    return 0;
}

int rpc_ep_hand_over_resume(struct rpc_ep *ep, const struct rpc_msg *call, uint32_t *id)
{
    size_t rest;
    (void)rpc_flush(ep);
    (void)rpc_rx_peek(&ep->rx, &rest);
    if (!is_at_rest(ep) || rest > 0 || call->stream != 0)
        return -EBUSY;
    *id = ((const struct rpc_rx_msg *)call)->id;
    return 0;
}

/* As if they had just been read. */
static int refill(struct rpc_rx *rx, const uint8_t *bytes, size_t len)
{
    struct iovec iov[2];
    if (rpc_rx_space(rx, iov) != 1 || iov[0].iov_len < len)
        return -EINVAL;
    memcpy(iov[0].iov_base, bytes, len);
    rpc_rx_filled(rx, len);
    return 0;
}

int rpc_ep_take_over(const struct rpc_handover *state, const int *fds, int count,
                     const struct rpc_config *config, struct rpc_ep **out)
{
    struct rpc_transport *transport;
    struct rpc_ep *ep;
    int rc = rpc_transport_take_over(&state->transport, fds, count, &transport);
    if (rc == 0)
        rc = rpc_ep_create(transport, config, &ep);
    if (rc)
        return rc;
    rc = refill(&ep->rx, state->bytes, state->byte_count);
    if (rc) {
        rpc_ep_destroy(ep);
        return rc;
    }
    free(ep->handshake);
    ep->handshake = NULL;
    ep->status = 0;
    snprintf(ep->reason, sizeof ep->reason, "connected");
    memcpy(ep->peer_name, state->peer_name, sizeof ep->peer_name);
    ep->peer_capabilities = state->peer_capabilities;
    ep->peer_takes_fds = state->peer_takes_fds;
    ep->peer_resumes = state->peer_resumes;
    ep->message_max = state->message_max;
    ep->calls.limit = state->max_calls;
    ep->tx.credit = state->credit;
    ep->tx.outstanding = state->outstanding;
    ep->tx.queue_limit = state->queue_limit;
    ep->credit_due = state->credit_due;
    ep->credit_asked = state->credit_asked;
    ep->credit_wanted = state->credit_wanted;
    ep->ping_every_ns = state->ping_every_ns;
    ep->silent_ns = state->silent_ns;
    *out = ep;
    return 0;
}
