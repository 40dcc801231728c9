/* See server.h. */
#include "server.h"

#include <errno.h>

#include "base/clock.h"
#include "bench/rpc/loopback.h"
#include "fuzz.h"

static struct {
    struct rpc_transport base; /* the client's end */
    struct rpc_transport *inner;
    struct rpc_loopnet *net;
    struct rpc_ep *ep; /* the server */
    bool answers;
    int status;
    const uint8_t *data;
    size_t size;
} server;

static void answer(struct rpc_msg *call)
{
    struct iovec iov = {(void *)(uintptr_t)server.data, server.size};
    struct rpc_send send = {.iov = &iov, .iov_count = server.size > 0};
    (void)rpc_reply(server.ep, call, server.status, server.status ? NULL : &send);
}

static void take_turn(void)
{
    struct rpc_msg *msg;
    (void)rpc_poll(server.ep);
    while ((msg = rpc_recv(server.ep)) != NULL) {
        if (msg->kind == RPC_CALL && server.answers)
            answer(msg);
        rpc_release(server.ep, msg);
    }
    (void)rpc_flush(server.ep);
}

static ssize_t line_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    (void)t;
    return server.inner->ops->send(server.inner, iov, count);
}

static ssize_t line_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                         uint64_t timeout_ns)
{
    (void)t;
    take_turn();
    ssize_t n = server.inner->ops->recv(server.inner, iov, count, 0);
    if (n == -EAGAIN && timeout_ns)
        rpc_loopnet_reset(server.inner);
    return n;
}

static int line_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    (void)t;
    take_turn();
    int rc = server.inner->ops->wait(server.inner, events, 0);
    if (rc && timeout_ns)
        rpc_loopnet_reset(server.inner);
    return rc;
}

static int line_poll_fd(struct rpc_transport *t)
{
    (void)t;
    return -1;
}

static void line_destroy(struct rpc_transport *t)
{
    (void)t;
    server.inner->ops->destroy(server.inner);
}

static const struct rpc_transport_ops line_ops = {
    .name = "line",
    .send = line_send,
    .recv = line_recv,
    .wait = line_wait,
    .poll_fd = line_poll_fd,
    .destroy = line_destroy,
};

struct rpc_transport *server_start(void)
{
    struct rpc_loopnet_options options = {.seed = 1};
    struct rpc_config config = {
        .accepting = true, .heartbeat_ns = HW_NEVER, .wait = RPC_WAIT_BLOCK};
    struct rpc_transport *ends[2];
    require(rpc_loopnet_create(&options, &server.net) == 0);
    require(rpc_loopnet_pair(server.net, ends) == 0);
    require(rpc_ep_create(ends[1], &config, &server.ep) == 0);
    server.base = (struct rpc_transport){.ops = &line_ops, .peer = "fuzzer"};
    server.inner = ends[0];
    return &server.base;
}

void server_end(void)
{
    rpc_ep_destroy(server.ep);
    rpc_loopnet_destroy(server.net);
    server.answers = false;
}

void server_answer(int status, const uint8_t *data, size_t size)
{
    server.answers = true;
    server.status = status;
    server.data = data;
    server.size = size;
}

void server_answer_nothing(void)
{
    server.answers = false;
}

void server_push(uint32_t method, const uint8_t *data, size_t size)
{
    struct iovec iov = {(void *)(uintptr_t)data, size};
    struct rpc_send send = {.method = method, .iov = &iov, .iov_count = size > 0};
    (void)!rpc_push(server.ep, &send); /* there may be no credit left, or no client */
}

/* Without a heartbeat the client has no thread; a wait that spins would only take longer. */
int __wrap_rpc_client_connect(const struct rpc_addr *addr, const struct rpc_net_options *net,
                              const struct rpc_client_options *options, struct rpc_client **out,
                              char why[RPC_WHY_CHARS])
{
    struct rpc_client_options here = *options;
    (void)addr, (void)net;
    here.config.heartbeat_ns = HW_NEVER;
    here.config.wait = RPC_WAIT_BLOCK;
    return rpc_client_create(server_start(), &here, out, why);
}
