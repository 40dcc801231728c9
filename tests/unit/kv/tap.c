#include "tap.h"

#include "unit.h"

#include <stdlib.h>

static ssize_t tap_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct rpc_transport *inner = ((struct tap *)t)->inner;
    return inner->ops->send(inner, iov, count);
}

static ssize_t tap_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                        uint64_t timeout_ns)
{
    struct rpc_transport *inner = ((struct tap *)t)->inner;
    return inner->ops->recv(inner, iov, count, timeout_ns);
}

static int tap_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    struct rpc_transport *inner = ((struct tap *)t)->inner;
    return inner->ops->wait(inner, events, timeout_ns);
}

static int tap_poll_fd(struct rpc_transport *t)
{
    (void)t;
    return -1;
}

static void tap_destroy(struct rpc_transport *t)
{
    struct tap *tap = (struct tap *)t;
    tap->table[tap->index] = NULL;
    rpc_transport_destroy(tap->inner);
    free(tap);
}

static const struct rpc_transport_ops tap_ops = {.name = "tap",
                                                 .send = tap_send,
                                                 .recv = tap_recv,
                                                 .wait = tap_wait,
                                                 .poll_fd = tap_poll_fd,
                                                 .destroy = tap_destroy};

struct tap *tap_create(struct rpc_transport *inner, struct tap **table, uint32_t places)
{
    struct tap *tap = calloc(1, sizeof(*tap));
    uint32_t i = 0;
    assert_non_null(tap);
    while (i < places && table[i])
        i++;
    assert_true(i < places);
    *tap = (struct tap){.base = *inner, .inner = inner, .table = table, .index = i};
    tap->base.ops = &tap_ops;
    table[i] = tap;
    return tap;
}
