#include "kv/daemon/peer_requests.h"

#include "kv/common/message.h"
#include "kv/daemon/peers.h"

static void on_request(struct kv_daemon *d, struct kv_peer *peer, struct rpc_msg *msg)
{
    struct rpc_ep *ep = peer->ep;
    struct kv_value_request r;
    struct kv_outcome o = {.result = KV_REFUSED};
    if (msg->method >= KV_PEER_OPEN_GET && msg->method < KV_PEER_METHOD_END) {
        hw_counter_bump(&d->stats.block_served, 1); /* before an answer can be seen */
        kv_peer_serve_block(d, peer, msg);
    } else if (msg->kind == RPC_CALL) {
        if (kv_value_request_decode(msg->method, msg->data, msg->len, &r) == 0) {
            struct kv_place place = kv_place_of(r.key, d->config.ranks, d->config.daemons);
            if (place.rank == d->config.rank && place.daemon == d->config.index)
                o = kv_store_execute(d->store, r.op, r.key, r.value, r.value_len);
        }
        kv_peer_reply(ep, msg, &o);
        hw_counter_bump(&d->stats.incoming, 1);
    }
    rpc_release(ep, msg);
}

uint32_t kv_peer_requests_serve(struct kv_daemon *d)
{
    uint32_t events = d->unjoined_count ? kv_peers_serve_unjoined(d) : 0;
    for (struct kv_peer *peer = d->awake; peer; peer = peer->awake_next) {
        struct rpc_msg *msg;
        while (peer->up && d->turn_bytes < KV_TURN_BYTES && (msg = rpc_recv(peer->ep)) != NULL) {
            on_request(d, peer, msg);
            events++;
        }
    }
    d->more_to_serve = d->turn_bytes >= KV_TURN_BYTES;
    return events;
}
