/* Messages about blocks of a hostile daemon.  First the decoders alone: what they take comes back
 * as the same bytes, and is in range.  Then a whole daemon with a store and a local client: the
 * input is a series of what its peer asks, of what its client asks, and of what the peer answers
 * then.  Every call and every request must be answered, nothing may be served that differs from its
 * checksum, and the daemon must live. */
#include "fuzz.h"
#include "kv/common/blockmsg.h"
#include "kv/common/peerblock.h"
#include "kv_rig.h"

#include <string.h>

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
        require(a.stale_view || a.payload_len == 0 || a.result == KV_OK);
    if (kv_peer_opened_decode(data, size, &o) == 0) {
        uint8_t bytes[KV_PEER_OPENED_BYTES];
        kv_peer_opened_encode(&o, bytes);
        require(memcmp(bytes, data, sizeof(bytes)) == 0);
    }
}

struct hostile {
    struct rig_net net;
    struct rig_client client;
    const uint8_t *arena;
    const uint8_t *input; /* what is left of it */
    size_t left;
    uint64_t ticket;
};

static uint8_t next(struct hostile *h)
{
    if (h->left == 0)
        return 0;
    h->left--;
    return *h->input++;
}

/* ---- the hostile peer ---- */

/* What the daemon asks is answered with the next bytes of the input. */
static void answer_calls(void *user)
{
    struct hostile *h = user;
    struct rpc_msg *msg;
    while ((msg = rpc_recv(h->net.peer)) != NULL) {
        size_t len = next(h);
        len = len < h->left ? len : h->left;
        struct iovec iov = {(void *)(uintptr_t)h->input, len};
        struct rpc_send send = {.iov = &iov, .iov_count = len ? 1 : 0};
        h->input += len;
        h->left -= len;
        if (msg->kind == RPC_CALL)
            (void)rpc_reply(h->net.peer, msg, 0, &send);
        rpc_release(h->net.peer, msg);
    }
}

static void peer_asks(struct hostile *h)
{
    uint32_t method = KV_PEER_OPEN_GET + next(h) % (KV_PEER_METHOD_END - KV_PEER_OPEN_GET);
    size_t len = next(h);
    len = len < h->left ? len : h->left;
    const uint8_t *payload = h->input;
    h->input += len;
    h->left -= len;
    rig_net_call(&h->net, method, payload, len);
}

/* ---- the local client ---- */

static struct kv_port_answer ask(struct hostile *h, const struct kv_block_request *r,
                                 const struct kv_block_key *keys)
{
    struct kv_port_answer a;
    uint8_t payload[512];
    uint32_t slot;
    int len = kv_block_request_encode(r, keys, payload, sizeof(payload));
    struct kv_port_request request = {
        .op = KV_BLOCK, .value = payload, .value_len = (uint32_t)len, .timeout_us = 100000};
    require(len > 0 && kv_port_submit(&h->client.port, &request, &slot) == 0);
    (void)kv_port_must_ring(&h->client.port);
    kv_client_slot_wake(h->net.daemon, h->client.client_slot);
    for (int i = 0; i < 60 && !kv_port_has_answer(&h->client.port); i++)
        rig_net_turn(&h->net);
    require(kv_port_take(&h->client.port, &a) == 1 && a.slot == slot);
    return a;
}

/* What a peer sends is held against its checksum on arrival: no reader is given anything else. */
static void check_granted(struct hostile *h, const struct kv_block_granted *g)
{
    struct kv_block_request verify = {.op = KV_BLOCK_VERIFY, .handle = g->handle};
    require(kv_checksum_add(0, h->arena + g->offset, g->len) == g->checksum);
    struct kv_port_answer a = ask(h, &verify, NULL);
    require(a.result == KV_OK);
    kv_port_free(&h->client.port, a.slot);
}

static void client_asks(struct hostile *h)
{
    static const enum kv_block_op ops[] = {
        KV_BLOCK_GET,    KV_BLOCK_PUT_START, KV_BLOCK_PUT_COMMIT, KV_BLOCK_DELETE,
        KV_BLOCK_EXISTS, KV_BLOCK_PUT_ABORT, KV_BLOCK_PUT_STAGED};
    struct kv_block_key keys[4];
    uint8_t what = next(h);
    struct kv_block_request r = {.op = ops[what % ARRAY_LEN(ops)], .len = 1 + (uint32_t)next(h)};
    for (uint32_t i = 0; i < 4; i++)
        keys[i] = (struct kv_block_key){.len = 2, .bytes = {'k', (uint8_t)((what >> 3) + i)}};
    bool handle =
        r.op == KV_BLOCK_PUT_COMMIT || r.op == KV_BLOCK_PUT_ABORT || r.op == KV_BLOCK_PUT_STAGED;
    r.key_count = handle ? 0 : r.op == KV_BLOCK_EXISTS ? 4 : 1;
    r.handle = h->ticket;
    struct kv_port_answer a = ask(h, &r, keys);
    struct kv_block_granted g;
    bool granted = a.result == KV_OK && r.op == KV_BLOCK_GET;
    if (granted)
        require(kv_block_granted_decode(a.value, a.value_len, RIG_ARENA, &g) == 0);
    if (a.result == KV_OK && r.op == KV_BLOCK_PUT_START)
        memcpy(&h->ticket, a.value, sizeof(h->ticket));
    kv_port_free(&h->client.port, a.slot);
    if (granted)
        check_granted(h, &g);
}

/* ---- both ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(64) uint8_t arena[RIG_ARENA];
    struct kv_blocks_config blocks = rig_blocks(arena);
    struct hostile h = {.net = {.serve = answer_calls, .user = &h}, .arena = arena};
    rig_be_quiet();
    try_decoders(data, size);
    rig_net_open(&h.net, &blocks, 0);
    rig_net_join(&h.net);
    require(kv_daemon_peer_up(h.net.daemon, 1));
    rig_client_open(&h.client, h.net.daemon);
    h.input = data;
    h.left = size;
    while (h.left > 0) {
        if (next(&h) & 1)
            peer_asks(&h);
        else
            client_asks(&h);
    }
    rig_net_await(&h.net);
    require(h.net.answered == h.net.asked || rpc_ep_status(h.net.peer));
    rig_client_close(&h.client);
    rig_net_close(&h.net);
    return 0;
}
