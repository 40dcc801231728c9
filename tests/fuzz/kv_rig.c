#include "kv_rig.h"

#include "base/log.h"
#include "fuzz.h"
#include "kv/common/message.h"

#include <stdlib.h>
#include <string.h>

enum { TURNS_MAX = 20 }; /* for anything that both sides do without delay */

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

void rig_be_quiet(void)
{
    hw_log_set_sink(swallow, NULL);
}

struct kv_blocks_config rig_blocks(uint8_t arena[RIG_ARENA])
{
    return (struct kv_blocks_config){
        .arena = arena, .arena_bytes = RIG_ARENA, .entries = 32, .open_puts = 8, .leases = 8};
}

/* ---- a local client ---- */

static void ring(void *user)
{
    (void)user;
}

void rig_client_open(struct rig_client *c, struct kv_daemon *daemon)
{
    static const struct kv_region_shape shape = {
        .depth = 2, .value_max = 4096, .staging_bytes = RIG_STAGING};
    size_t bytes = (kv_region_bytes(&shape) + 63) / 64 * 64;
    *c = (struct rig_client){.daemon = daemon, .map = aligned_alloc(64, bytes)};
    require(c->map != NULL);
    memset(c->map, 0, bytes);
    kv_region_format(c->map, &shape);
    require(kv_daemon_attach(daemon, c->map, &shape, ring, NULL, &c->client_slot) == 0);
    kv_port_init(&c->port, c->map, &shape);
}

void rig_client_close(struct rig_client *c)
{
    kv_daemon_detach(c->daemon, c->client_slot);
    free(c->map);
}

/* ---- a peer ---- */

void rig_net_open(struct rig_net *n, const struct kv_blocks_config *blocks, uint32_t window_bytes)
{
    struct rpc_loopnet_options options = {.seed = 1, .delay_ns = 1000};
    struct rpc_transport *pair[2];
    require(rpc_loopnet_create(&options, &n->loop) == 0);
    require(rpc_loopnet_pair(n->loop, pair) == 0);
    struct kv_daemon_config config = {.ranks = 2,
                                      .daemons = 1,
                                      .store_bytes = 4096,
                                      .store_entries = 32,
                                      .blocks = *blocks,
                                      .clock = rpc_loopnet_clock(n->loop),
                                      .seed = 1};
    struct rpc_config calling = {.window_bytes = window_bytes, .clock = rpc_loopnet_clock(n->loop)};
    struct rpc_config accepting = calling;
    accepting.accepting = true;
    struct rpc_ep *ep;
    require(kv_daemon_create(&config, &n->daemon) == 0);
    require(rpc_ep_create(pair[1], &accepting, &ep) == 0);
    require(rpc_ep_create(pair[0], &calling, &n->peer) == 0);
    kv_daemon_adopt(n->daemon, ep, -1);
    for (int i = 0; i < TURNS_MAX && rpc_ep_status(n->peer); i++)
        rig_net_turn(n);
    require(rpc_ep_status(n->peer) == 0);
}

void rig_net_close(struct rig_net *n)
{
    rpc_ep_destroy(n->peer);
    kv_daemon_destroy(n->daemon);
    rpc_loopnet_destroy(n->loop);
}

void rig_net_turn(struct rig_net *n)
{
    for (int i = 0; i < 4; i++) {
        (void)rpc_poll(n->peer);
        if (n->serve)
            n->serve(n->user);
        (void)rpc_flush(n->peer);
        (void)kv_daemon_turn(n->daemon);
        (void)rpc_loopnet_step(n->loop, rpc_loopnet_now(n->loop) + HW_MS);
    }
}

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    (void)status, (void)reply;
    ((struct rig_net *)user)->answered++;
}

void rig_net_call(struct rig_net *n, uint32_t method, const uint8_t *data, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct rpc_send send = {.method = method, .iov = &iov, .iov_count = len ? 1 : 0};
    if (rpc_call(n->peer, &send, on_answer, n, NULL) == 0)
        n->asked++;
    rig_net_turn(n);
}

void rig_net_join(struct rig_net *n)
{
    uint8_t join[KV_JOIN_BYTES];
    kv_join_encode(&(struct kv_join){.ranks = 2, .daemons = 1, .rank = 1, .copies = 1}, join);
    rig_net_call(n, KV_METHOD_JOIN, join, sizeof(join));
}

void rig_net_await(struct rig_net *n)
{
    for (int i = 0; i < TURNS_MAX && n->answered < n->asked; i++)
        rig_net_turn(n);
}
