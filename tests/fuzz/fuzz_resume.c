/* What a peer says about a resumption: the request that a server reads, and frames of offers and
 * acknowledgements in both roles.  The first byte chooses what the rest is.  Whatever comes, an
 * endpoint is well or ends with -EPROTO, and a request that is taken is written as it was read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "bench/rpc/loopback.h"
#include "rpc/endpoint/ep.h"
#include "rpc/resume/attempt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REQUEST, TO_CONNECTOR, TO_ACCEPTOR, ANSWER, CHOICES };

static void require(int holds)
{
    if (!holds)
        abort();
}

static void say_nothing(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

static void read_request(const uint8_t *data, size_t size)
{
    struct rpc_resume_request request;
    uint8_t again[RPC_RESUME_REQUEST_BYTES];
    if (rpc_resume_get_request(data, size, &request)) {
        require(size != sizeof again);
        return;
    }
    require(size == sizeof again);
    rpc_resume_put_request(&request, again);
    require(memcmp(again, data, size) == 0);
}

static void turn(struct rpc_loopnet *net, struct rpc_ep *ep[2], int turns)
{
    for (int i = 0; i < turns; i++) {
        for (int side = 0; side < 2; side++) {
            struct rpc_msg *msg;
            (void)rpc_poll(ep[side]);
            while ((msg = rpc_recv(ep[side])) != NULL)
                rpc_release(ep[side], msg);
            (void)rpc_flush(ep[side]);
        }
        rpc_loopnet_spend(net, HW_US);
    }
}

static void open_pair(struct rpc_loopnet *net, struct rpc_transport *ends[2], struct rpc_ep *ep[2])
{
    require(rpc_loopnet_pair(net, ends) == 0);
    for (int i = 0; i < 2; i++) {
        struct rpc_config config = {.accepting = i == 1,
                                    .resumes = i == 0,
                                    .window_bytes = RPC_WINDOW_MIN,
                                    .clock = rpc_loopnet_clock(net)};
        require(rpc_ep_create(ends[i], &config, &ep[i]) == 0);
    }
    turn(net, ep, 4);
    require(rpc_ep_status(ep[0]) == 0 && rpc_ep_status(ep[1]) == 0);
}

/* The bytes of frames come straight from the wire, behind an offer where an acceptor reads them. */
static void read_frames(struct rpc_loopnet *net, const uint8_t *data, size_t size, int reader)
{
    struct rpc_transport *ends[2];
    struct rpc_ep *ep[2];
    struct rpc_resume_key key = {.session = 1};
    open_pair(net, ends, ep);
    if (reader == 1) {
        require(rpc_ep_offer_resume(ep[1], &key, HW_SEC, 0) == 0);
        turn(net, ep, 4);
    }
    struct iovec iov = {(void *)(uintptr_t)data, size};
    (void)ends[1 - reader]->ops->send(ends[1 - reader], &iov, size > 0);
    turn(net, ep, 4);
    int rc = rpc_ep_status(ep[reader]);
    require(rc <= 0 && rc != -EAGAIN && rc != -EINPROGRESS);
    for (int i = 0; i < 2; i++)
        rpc_ep_destroy(ep[i]);
}

/* A server that answers an attempt to resume with these bytes. */
static void read_answer(struct rpc_loopnet *net, const uint8_t *data, size_t size)
{
    struct rpc_transport *ends[2], *again[2];
    struct rpc_ep *ep[2], *caller;
    struct rpc_resume_key key = {.session = 1};
    struct rpc_resume_request request;
    struct rpc_attempt *attempt;
    open_pair(net, ends, ep);
    require(rpc_ep_offer_resume(ep[1], &key, HW_SEC, 0) == 0);
    turn(net, ep, 4);
    rpc_loopnet_reset(ends[0]);
    rpc_ep_resume_request(ep[0], &request);
    require(rpc_loopnet_pair(net, again) == 0);
    struct rpc_config config = {.accepting = true, .clock = rpc_loopnet_clock(net)};
    require(rpc_ep_create(again[1], &config, &caller) == 0);
    config.accepting = false;
    require(rpc_attempt_create(again[0], &config, &request, &attempt) == 0);
    for (int i = 0; i < 4; i++) {
        (void)rpc_attempt_poll(attempt);
        (void)rpc_poll(caller);
        rpc_loopnet_spend(net, HW_US);
    }
    struct iovec iov = {(void *)(uintptr_t)data, size};
    (void)again[1]->ops->send(again[1], &iov, size > 0);
    rpc_loopnet_spend(net, HW_US);
    if (rpc_attempt_poll(attempt) == 0)
        (void)!rpc_attempt_finish(attempt, ep[0]);
    else
        rpc_attempt_destroy(attempt);
    turn(net, ep, 2);
    struct rpc_msg *msg;
    while ((msg = rpc_recv(caller)) != NULL)
        rpc_release(caller, msg);
    rpc_ep_destroy(caller);
    for (int i = 0; i < 2; i++)
        rpc_ep_destroy(ep[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rpc_loopnet_options options = {.seed = 1};
    struct rpc_loopnet *net;
    if (size == 0)
        return 0;
    hw_log_set_sink(say_nothing, NULL);
    require(rpc_loopnet_create(&options, &net) == 0);
    switch (data[0] % CHOICES) {
    case REQUEST:
        read_request(data + 1, size - 1);
        break;
    case ANSWER:
        read_answer(net, data + 1, size - 1);
        break;
    default:
        read_frames(net, data + 1, size - 1, data[0] % CHOICES == TO_ACCEPTOR);
        break;
    }
    rpc_loopnet_destroy(net);
    return 0;
}
