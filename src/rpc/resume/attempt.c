#include "rpc/resume/attempt.h"

#include "base/clock.h"
#include "rpc/endpoint/ep.h"
#include "rpc/methods.h"
#include "wire/dec.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rpc_attempt {
    struct rpc_ep *ep;
    uint8_t request[RPC_RESUME_REQUEST_BYTES];
    bool asked;
    int status;        /* -EINPROGRESS until there is an answer */
    uint64_t received; /* bytes that the acceptor has */
    char why[RPC_WHY_CHARS];
};

int rpc_attempt_create(struct rpc_transport *connection, const struct rpc_config *config,
                       const struct rpc_resume_request *request, struct rpc_attempt **out)
{
    struct rpc_attempt *a = calloc(1, sizeof *a);
    if (!a) {
        rpc_transport_destroy(connection);
        return -ENOMEM;
    }
    struct rpc_config own = *config;
    own.resumes = false;
    own.resuming = true;
    own.owner_tells = true;
    own.heartbeat_ns = HW_NEVER;
    int rc = rpc_ep_create(connection, &own, &a->ep);
    if (rc) {
        free(a);
        return rc;
    }
    rpc_resume_put_request(request, a->request);
    a->status = -EINPROGRESS;
    *out = a;
    return 0;
}

void rpc_attempt_destroy(struct rpc_attempt *a)
{
    if (!a)
        return;
    rpc_ep_destroy(a->ep);
    OPENSSL_cleanse(a->request, sizeof a->request);
    free(a);
}

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    struct rpc_attempt *a = user;
    if (a->status != -EINPROGRESS)
        return;
    a->status = status;
    if (status) {
        snprintf(a->why, sizeof a->why, "%.*s", reply ? (int)reply->len : 0,
                 reply ? (const char *)reply->data : "");
        return;
    }
    struct wire_dec d;
    wire_dec_init(&d, reply->data, reply->len);
    a->received = wire_get_u64(&d);
    if (wire_dec_end(&d))
        a->status = -EPROTO;
    /* What follows is not for this endpoint: it parses no further. */
    a->ep->status = -ECANCELED;
}

static int ask(struct rpc_attempt *a)
{
    struct iovec iov = {a->request, sizeof a->request};
    struct rpc_send send = {.method = RPC_METHOD_RESUME,
                            .iov = &iov,
                            .iov_count = 1,
                            .timeout_ns = a->ep->config.handshake_ns};
    a->asked = true;
    int rc = rpc_call(a->ep, &send, on_answer, a, NULL);
    if (rc == 0)
        (void)rpc_flush(a->ep);
    return rc;
}

int rpc_attempt_poll(struct rpc_attempt *a)
{
    if (a->status != -EINPROGRESS)
        return a->status;
    (void)rpc_poll(a->ep); /* a failure is the endpoint's status */
    int rc = rpc_ep_status(a->ep);
    if (a->status == -EINPROGRESS && rc == 0 && !a->asked)
        rc = ask(a);
    if (a->status == -EINPROGRESS && rc && rc != -EINPROGRESS)
        a->status = rc;
    return a->status;
}

void rpc_attempt_wait(struct rpc_attempt *a, uint64_t timeout_ns)
{
    (void)rpc_wait(a->ep, timeout_ns);
}

const char *rpc_attempt_reason(const struct rpc_attempt *a)
{
    return a->why[0] ? a->why : rpc_ep_reason(a->ep);
}

int rpc_attempt_finish(struct rpc_attempt *a, struct rpc_ep *ep)
{
    assert(a->status == 0);
    uint8_t early[RPC_RX_BLOCK_BYTES];
    size_t len;
    const uint8_t *rest = rpc_rx_peek(&a->ep->rx, &len);
    memcpy(early, rest, len);
    struct rpc_transport *connection = rpc_ep_strip(a->ep);
    int rc = rpc_ep_resume(ep, connection, early, len, a->received);
    OPENSSL_cleanse(a->request, sizeof a->request);
    free(a);
    return rc;
}
