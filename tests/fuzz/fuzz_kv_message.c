/* Messages of a hostile rank.  First the decoders alone: what they take must be in range.  Then a
 * whole daemon behind a loopback network: the input is a series of calls that a connected peer
 * makes, before and after a proper JOIN; each must be answered, and the daemon must live. */
#include "base/log.h"
#include "kv/daemon.h"
#include "kv/message.h"
#include "rpc/loopback.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

static void try_decoders(const uint8_t *data, size_t size)
{
    struct kv_join join;
    struct kv_remote_request request;
    struct kv_remote_answer answer;
    if (kv_join_decode(data, size, &join) == 0) {
        uint8_t again[KV_JOIN_BYTES];
        require(join.rank < join.ranks && join.index < join.daemons);
        kv_join_encode(&join, again);
        require(size == sizeof(again) && memcmp(data, again, size) == 0);
    }
    for (uint32_t method = 0; method < KV_OP_END + 1; method++)
        if (kv_remote_request_decode(method, data, size, &request) == 0)
            require(request.value + request.value_len == data + size);
    if (kv_remote_answer_decode(data, size, &answer) == 0)
        require(answer.value_len == 0 || answer.result == KV_OK);
}

struct net {
    struct rpc_loopnet *loop;
    struct kv_daemon *daemon;
    struct rpc_ep *peer;
    uint32_t asked, answered;
};

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    (void)status, (void)reply;
    ((struct net *)user)->answered++;
}

static void turn(struct net *n)
{
    for (int i = 0; i < 4; i++) {
        (void)rpc_poll(n->peer);
        (void)rpc_flush(n->peer);
        (void)kv_daemon_turn(n->daemon);
        (void)rpc_loopnet_step(n->loop, rpc_loopnet_now(n->loop) + HW_MS);
    }
}

static void call(struct net *n, uint32_t method, const uint8_t *data, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct rpc_send send = {.method = method, .iov = &iov, .iov_count = len ? 1 : 0};
    if (rpc_call(n->peer, &send, on_answer, n, NULL) == 0)
        n->asked++;
    turn(n);
}

static void open_net(struct net *n)
{
    struct rpc_loopnet_options options = {.seed = 1, .delay_ns = 1000};
    struct rpc_transport *pair[2];
    require(rpc_loopnet_create(&options, &n->loop) == 0);
    require(rpc_loopnet_pair(n->loop, pair) == 0);
    struct kv_daemon_config config = {.ranks = 2,
                                      .daemons = 1,
                                      .store_bytes = 4096,
                                      .store_entries = 32,
                                      .clock = rpc_loopnet_clock(n->loop),
                                      .seed = 1};
    struct rpc_config accepting = {
        .accepting = true, .window_bytes = RPC_WINDOW_MIN, .clock = rpc_loopnet_clock(n->loop)};
    struct rpc_config calling = {.window_bytes = RPC_WINDOW_MIN,
                                 .clock = rpc_loopnet_clock(n->loop)};
    struct rpc_ep *ep;
    require(kv_daemon_create(&config, &n->daemon) == 0);
    require(rpc_ep_create(pair[1], &accepting, &ep) == 0);
    require(rpc_ep_create(pair[0], &calling, &n->peer) == 0);
    kv_daemon_adopt(n->daemon, ep, -1);
    for (int i = 0; i < 20 && rpc_ep_status(n->peer); i++)
        turn(n);
    require(rpc_ep_status(n->peer) == 0);
}

/* Each call: a length, a method, and so many bytes. */
static void make_calls(struct net *n, const uint8_t *data, size_t size)
{
    while (size >= 2) {
        size_t len = data[0] < size - 2 ? data[0] : size - 2;
        call(n, data[1], data + 2, len);
        data += 2 + len;
        size -= 2 + len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct net n = {0};
    uint8_t join[KV_JOIN_BYTES];
    hw_log_set_sink(swallow, NULL);
    try_decoders(data, size);
    open_net(&n);
    make_calls(&n, data, size / 2);
    kv_join_encode(&(struct kv_join){.ranks = 2, .daemons = 1, .rank = 1}, join);
    call(&n, KV_METHOD_JOIN, join, sizeof(join));
    make_calls(&n, data + size / 2, size - size / 2);
    for (int i = 0; i < 20 && n.answered < n.asked; i++)
        turn(&n);
    require(n.answered == n.asked);
    rpc_ep_destroy(n.peer);
    kv_daemon_destroy(n.daemon);
    rpc_loopnet_destroy(n.loop);
    return 0;
}
