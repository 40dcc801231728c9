/* Messages about blocks of a hostile daemon.  First the decoders alone: what they take comes back
 * as the same bytes, and is in range.  Then a whole daemon with a store and a local client: the
 * input is a series of what its peer asks, of what its client asks, and of what the peer answers
 * then.  Every call and every request must be answered, nothing may be served that differs from its
 * checksum, and the daemon must live. */
#include "base/log.h"
#include "kv/blockmsg.h"
#include "kv/daemon.h"
#include "kv/message.h"
#include "kv/peerblock.h"
#include "rpc/loopback.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA = 1 << 16, STAGING = 4096 };

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

static void ring(void *user)
{
    (void)user;
}

static void try_decoders(const uint8_t *data, size_t size)
{
    static struct kv_block_key keys[KV_BLOCK_CHAIN_MAX];
    static uint8_t again[KV_PEER_REQUEST_MAX];
    struct kv_peer_request r;
    struct kv_peer_answer a;
    struct kv_peer_opened o;
    for (uint32_t method = KV_PEER_OPEN_GET - 1; method <= KV_PEER_METHOD_END; method++) {
        if (kv_peer_request_decode(method, data, size, &r, keys))
            continue;
        int len = kv_peer_request_encode(&r, keys, again, sizeof(again));
        require(len > 0 && (size_t)len + r.byte_count == size);
        require(memcmp(again, data, (size_t)len) == 0);
        require(r.byte_count == 0 || r.bytes == data + len);
    }
    if (kv_peer_answer_decode(data, size, &a) == 0)
        require(a.stale_view || a.body_len == 0 || a.result == KV_OK);
    if (kv_peer_opened_decode(data, size, &o) == 0) {
        uint8_t bytes[KV_PEER_OPENED_BYTES];
        kv_peer_opened_encode(&o, bytes);
        require(memcmp(bytes, data, sizeof(bytes)) == 0);
    }
}

struct net {
    struct rpc_loopnet *loop;
    struct kv_daemon *daemon;
    struct rpc_ep *peer;
    struct kv_seat *seat;
    struct kv_port port;
    void *map;
    const uint8_t *arena;
    const uint8_t *input; /* what is left of it */
    size_t left;
    uint32_t asked, answered;
    uint64_t ticket;
};

static uint8_t next(struct net *n)
{
    if (n->left == 0)
        return 0;
    n->left--;
    return *n->input++;
}

/* ---- the hostile peer ---- */

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    (void)status, (void)reply;
    ((struct net *)user)->answered++;
}

/* What the daemon asks is answered with the next bytes of the input. */
static void answer_calls(struct net *n)
{
    struct rpc_msg *msg;
    while ((msg = rpc_recv(n->peer)) != NULL) {
        size_t len = next(n);
        len = len < n->left ? len : n->left;
        struct iovec iov = {(void *)(uintptr_t)n->input, len};
        struct rpc_send send = {.iov = &iov, .iov_count = len ? 1 : 0};
        n->input += len;
        n->left -= len;
        if (msg->kind == RPC_CALL)
            (void)rpc_reply(n->peer, msg, 0, &send);
        rpc_release(n->peer, msg);
    }
}

static void turn(struct net *n, uint64_t ns)
{
    for (int i = 0; i < 4; i++) {
        (void)rpc_poll(n->peer);
        answer_calls(n);
        (void)rpc_flush(n->peer);
        (void)kv_daemon_turn(n->daemon);
        (void)rpc_loopnet_step(n->loop, rpc_loopnet_now(n->loop) + ns);
    }
}

static void call(struct net *n, uint32_t method, const uint8_t *data, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct rpc_send send = {.method = method, .iov = &iov, .iov_count = len ? 1 : 0};
    if (rpc_call(n->peer, &send, on_answer, n, NULL) == 0)
        n->asked++;
    turn(n, HW_MS);
}

static void peer_asks(struct net *n)
{
    uint32_t method = KV_PEER_OPEN_GET + next(n) % (KV_PEER_METHOD_END - KV_PEER_OPEN_GET);
    size_t len = next(n);
    len = len < n->left ? len : n->left;
    const uint8_t *body = n->input;
    n->input += len;
    n->left -= len;
    call(n, method, body, len);
}

/* ---- the local client ---- */

static struct kv_port_answer ask(struct net *n, const struct kv_block_request *r,
                                 const struct kv_block_key *keys)
{
    struct kv_port_answer a;
    uint8_t body[512];
    uint32_t slot;
    int len = kv_block_request_encode(r, keys, body, sizeof(body));
    struct kv_port_request request = {
        .op = KV_BLOCK, .value = body, .value_len = (uint32_t)len, .timeout_us = 100000};
    require(len > 0 && kv_port_submit(&n->port, &request, &slot) == 0);
    (void)kv_port_must_ring(&n->port);
    kv_seat_wake(n->daemon, n->seat);
    for (int i = 0; i < 60 && !kv_port_has_answer(&n->port); i++)
        turn(n, HW_MS);
    require(kv_port_take(&n->port, &a) == 1 && a.slot == slot);
    return a;
}

/* What differs from its checksum was sent so by the peer, and goes when its reader says so. */
static void check_granted(struct net *n, const struct kv_block_granted *g)
{
    struct kv_block_request verify = {.op = KV_BLOCK_VERIFY, .handle = g->handle};
    bool good = kv_block_checksum(n->arena + g->offset, g->len) == g->checksum;
    struct kv_port_answer a = ask(n, &verify, NULL);
    require(a.result == (good ? KV_OK : KV_MISS));
    kv_port_free(&n->port, a.slot);
}

static void client_asks(struct net *n)
{
    static const enum kv_block_op ops[] = {KV_BLOCK_GET,    KV_BLOCK_PUT_START, KV_BLOCK_PUT_COMMIT,
                                           KV_BLOCK_DELETE, KV_BLOCK_EXISTS,    KV_BLOCK_MATCH,
                                           KV_BLOCK_PIN,    KV_BLOCK_PUT_ABORT};
    struct kv_block_key keys[4];
    uint8_t what = next(n);
    struct kv_block_request r = {.op = ops[what % 8], .len = 1 + (uint32_t)next(n)};
    for (uint32_t i = 0; i < 4; i++)
        keys[i] = (struct kv_block_key){.len = 2, .bytes = {'k', (uint8_t)((what >> 3) + i)}};
    bool handle = r.op == KV_BLOCK_PUT_COMMIT || r.op == KV_BLOCK_PUT_ABORT;
    r.key_count = handle ? 0 : r.op == KV_BLOCK_EXISTS || r.op == KV_BLOCK_MATCH ? 4 : 1;
    r.handle = n->ticket;
    struct kv_port_answer a = ask(n, &r, keys);
    struct kv_block_granted g;
    bool granted = a.result == KV_OK && r.op == KV_BLOCK_GET;
    if (granted)
        require(kv_block_granted_decode(a.value, a.value_len, ARENA, &g) == 0);
    if (a.result == KV_OK && r.op == KV_BLOCK_PUT_START)
        memcpy(&n->ticket, a.value, sizeof(n->ticket));
    kv_port_free(&n->port, a.slot);
    if (granted)
        check_granted(n, &g);
}

/* ---- both ---- */

static void open_client(struct net *n)
{
    static const struct kv_region_shape shape = {
        .depth = 2, .value_max = 4096, .staging_bytes = STAGING};
    size_t bytes = (kv_region_bytes(&shape) + 63) / 64 * 64;
    n->map = aligned_alloc(64, bytes);
    require(n->map != NULL);
    memset(n->map, 0, bytes);
    kv_region_format(n->map, &shape);
    require(kv_daemon_attach(n->daemon, n->map, &shape, ring, NULL, &n->seat) == 0);
    kv_port_init(&n->port, n->map, &shape);
}

static void open_net(struct net *n, uint8_t *arena)
{
    struct rpc_loopnet_options options = {.seed = 1, .delay_ns = 1000};
    struct rpc_transport *pair[2];
    require(rpc_loopnet_create(&options, &n->loop) == 0);
    require(rpc_loopnet_pair(n->loop, pair) == 0);
    struct kv_daemon_config config = {.ranks = 2,
                                      .daemons = 1,
                                      .store_bytes = 4096,
                                      .store_entries = 32,
                                      .blocks = {.arena = arena,
                                                 .arena_bytes = ARENA,
                                                 .entries = 32,
                                                 .open_puts = 8,
                                                 .leases = 8},
                                      .clock = rpc_loopnet_clock(n->loop),
                                      .seed = 1};
    struct rpc_config accepting = {.accepting = true, .clock = rpc_loopnet_clock(n->loop)};
    struct rpc_config calling = {.clock = rpc_loopnet_clock(n->loop)};
    struct rpc_ep *ep;
    uint8_t join[KV_JOIN_BYTES];
    require(kv_daemon_create(&config, &n->daemon) == 0);
    require(rpc_ep_create(pair[1], &accepting, &ep) == 0);
    require(rpc_ep_create(pair[0], &calling, &n->peer) == 0);
    kv_daemon_adopt(n->daemon, ep, -1);
    for (int i = 0; i < 20 && rpc_ep_status(n->peer); i++)
        turn(n, HW_MS);
    kv_join_encode(&(struct kv_join){.ranks = 2, .daemons = 1, .rank = 1}, join);
    call(n, KV_METHOD_JOIN, join, sizeof(join));
    require(kv_daemon_peer_up(n->daemon, 1));
    open_client(n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(64) uint8_t arena[ARENA];
    struct net n = {.arena = arena};
    hw_log_set_sink(swallow, NULL);
    try_decoders(data, size);
    open_net(&n, arena);
    n.input = data;
    n.left = size;
    while (n.left > 0) {
        if (next(&n) & 1)
            peer_asks(&n);
        else
            client_asks(&n);
    }
    for (int i = 0; i < 20 && n.answered < n.asked; i++)
        turn(&n, HW_MS);
    require(n.answered == n.asked || rpc_ep_status(n.peer));
    rpc_ep_destroy(n.peer);
    kv_daemon_detach(n.daemon, n.seat);
    kv_daemon_destroy(n.daemon);
    rpc_loopnet_destroy(n.loop);
    free(n.map);
    return 0;
}
