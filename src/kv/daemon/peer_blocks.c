/* peer_blocks.c - requests of other daemons about our blocks.
 *
 * A daemon serves a key only if it owns the key in its own view.  Otherwise it answers with the
 * epoch of that view, and the other daemon looks at its own view again.  Tickets and leases belong
 * to the connection they were given to and end with it. */
#include "kv/daemon/peer_requests.h"

#include "kv/daemon/copies.h"
#include "kv/daemon/permits.h"
#include "kv/daemon/remote/remote.h"
#include "kv/daemon/view_peers.h"

#include "wire/le.h"

/* An answer: a head in the scratch, and for a READ bytes in the arena. */
struct reply {
    enum kv_result result;
    uint32_t len;
    const uint8_t *bytes;
    uint32_t byte_count;
    bool stale_view;
};

static bool owns_all(const struct kv_daemon *d, uint32_t count)
{
    const struct kv_block_key *keys = d->scratch->keys;
    for (uint32_t i = 0; i < count; i++)
        if (kv_share_of(d, &keys[i]) == KV_SHARE_NONE)
            return false;
    return true;
}

static struct reply plain(enum kv_result result)
{
    return (struct reply){.result = result};
}

static bool has_newest(const struct kv_peer_request *r, const struct kv_block_lease *ours)
{
    return r->checksum == ours->checksum ||
           (r->handle && !kv_block_is_newer(ours->version, ours->checksum, r->handle, r->checksum));
}

/* There is none, also where a cached replica is: it may be of one that was deleted meanwhile. */
static struct reply no_value(struct kv_daemon *d, struct kv_peer *peer,
                             const struct kv_peer_request *r)
{
    struct kv_peer_opened none = {.chunk = 1};
    kv_permit_give(d, peer, r, &none);
    if (!none.permit)
        return plain(KV_MISS);
    kv_peer_opened_encode(&none, d->scratch->answer + 1);
    return (struct reply){.result = KV_OK, .len = KV_PEER_OPENED_BYTES};
}

static struct reply open_get(struct kv_daemon *d, struct kv_peer *peer,
                             const struct kv_peer_request *r)
{
    struct kv_block_lease lease;
    const struct kv_block_key *key = d->scratch->keys;
    if (kv_block_key_is_named(key) && !kv_blocks_owns(d->blocks, key))
        return no_value(d, peer, r);
    enum kv_result result = kv_blocks_get(d->blocks, &peer->holder, key, d->now_ns, &lease);
    if (result != KV_OK)
        return plain(result);
    uint32_t most = rpc_ep_message_max(peer->ep) - 1;
    struct kv_peer_opened opened = {.lease = lease.handle,
                                    .checksum = lease.checksum,
                                    .tenant = lease.tenant,
                                    .version = lease.version,
                                    .len = lease.len,
                                    .chunk = most < KV_PEER_CHUNK ? most : KV_PEER_CHUNK,
                                    .same = has_newest(r, &lease)};
    if (opened.same)
        (void)kv_blocks_release(d->blocks, &peer->holder, lease.handle, d->now_ns);
    kv_permit_give(d, peer, r, &opened);
    kv_peer_opened_encode(&opened, d->scratch->answer + 1);
    return (struct reply){.result = KV_OK, .len = KV_PEER_OPENED_BYTES};
}

static struct reply read_chunk(struct kv_daemon *d, struct kv_peer *peer,
                               const struct kv_peer_request *r)
{
    struct reply reply = {.byte_count = r->len};
    d->turn_bytes += r->len < KV_PEER_CHUNK ? r->len : KV_PEER_CHUNK; /* the flush writes them */
    if (r->len < 1 || r->len > KV_PEER_CHUNK || r->len >= rpc_ep_message_max(peer->ep))
        return plain(KV_REFUSED);
    reply.result = kv_blocks_bytes(d->blocks, &peer->holder, r->handle, r->at, r->len, d->now_ns,
                                   &reply.bytes);
    return reply.result == KV_OK ? reply : plain(reply.result);
}

static struct reply open_put(struct kv_daemon *d, struct kv_peer *peer,
                             const struct kv_peer_request *r)
{
    uint64_t ticket, version = kv_blocks_version(d->blocks, d->scratch->keys);
    enum kv_result result = kv_blocks_swap_start(d->blocks, &peer->holder, d->scratch->keys,
                                                 r->tenant, r->len, r->handle, d->now_ns, &ticket);
    if (result != KV_OK)
        return plain(result);
    wire_store64(d->scratch->answer + 1, ticket);
    wire_store64(d->scratch->answer + 1 + 8, version);
    return (struct reply){.result = KV_OK, .len = KV_PEER_TICKET_BYTES};
}

/* Whether a change of the key's named value has to wait; then *reply says how long. */
static bool must_wait(struct kv_daemon *d, const struct kv_block_key *key,
                      const struct kv_peer_request *r, bool alone, struct reply *reply)
{
    bool again = r->len > 0;
    uint64_t ns = kv_permit_wait(d, key, !again && (alone || r->epoch != d->view.epoch));
    wire_store64(d->scratch->answer + 1, ns);
    *reply = (struct reply){.result = KV_OK, .len = KV_PEER_WAIT_BYTES};
    return ns > 0;
}

/* A named value was committed, as the other owner may have done, too: then they agree on it. */
static struct reply committed(struct kv_daemon *d, struct kv_peer *peer,
                              const struct kv_peer_request *r)
{
    const struct kv_peer_request has = {
        .epoch = r->epoch, .handle = r->tenant, .checksum = r->checksum};
    struct kv_peer_opened opened = {.permit = 0};
    kv_permit_give(d, peer, &has, &opened);
    wire_store64(d->scratch->answer + 1, opened.permit);
    d->scratch->answer[9] = opened.agreed;
    return (struct reply){.result = KV_OK, .len = opened.permit ? KV_PEER_PERMIT_BYTES : 0};
}

static struct reply commit(struct kv_daemon *d, struct kv_peer *peer,
                           const struct kv_peer_request *r)
{
    struct kv_block_key *key = d->scratch->keys;
    struct kv_blocks_put put;
    struct reply reply;
    bool known = kv_blocks_put_look(d->blocks, &peer->holder, r->handle, &put);
    if (known && kv_share_of(d, &put.key) == KV_SHARE_NONE) /* no more; nobody would find it */
        return (struct reply){.result = KV_NOT_OWNER, .stale_view = true};
    bool named = known && kv_block_key_is_named(&put.key);
    if (named)
        *key = put.key;
    if (named && must_wait(d, key, r, r->flag, &reply))
        return reply;
    if (named && !r->at &&
        kv_blocks_put_version(d->blocks, &peer->holder, r->handle, r->tenant) != r->tenant)
        return reply; /* says: at once, with the first version after what is replaced */
    enum kv_result result = (r->at ? kv_blocks_put_commit_decided : kv_blocks_put_commit_as)(
        d->blocks, &peer->holder, r->handle, r->checksum, r->tenant, d->now_ns);
    if (result == KV_OK && named)
        return committed(d, peer, r);
    return plain(result == KV_MISS ? KV_REFUSED : result);
}

static struct reply delete_block(struct kv_daemon *d, const struct kv_peer_request *r)
{
    const struct kv_block_key *key = d->scratch->keys;
    struct reply reply;
    if (!r->flag)
        return plain(kv_blocks_delete(d->blocks, key, d->now_ns));
    if (must_wait(d, key, r, false, &reply))
        return reply;
    return plain(kv_blocks_delete_old(d->blocks, key, r->handle, d->now_ns));
}

static struct reply look(struct kv_daemon *d)
{
    struct kv_blocks_look is;
    uint8_t *answer = d->scratch->answer + 1;
    if (!kv_blocks_look(d->blocks, d->scratch->keys, &is))
        return plain(KV_MISS);
    wire_store64(answer, is.version);
    wire_store64(answer + 8, is.end_ms);
    wire_store32(answer + 16, is.len);
    return (struct reply){.result = KV_OK, .len = KV_PEER_LOOK_BYTES};
}

static struct reply exists(struct kv_daemon *d, uint32_t count)
{
    const struct kv_block_key *keys = d->scratch->keys;
    uint8_t *answer = d->scratch->answer + 1;
    for (uint32_t i = 0; i < count; i++)
        answer[i] = kv_blocks_owns(d->blocks, &keys[i]);
    return (struct reply){.result = KV_OK, .len = count};
}

static struct reply versions(struct kv_daemon *d, uint32_t count)
{
    const struct kv_block_key *keys = d->scratch->keys;
    for (uint32_t i = 0; i < count; i++) {
        bool own = kv_blocks_owns(d->blocks, &keys[i]);
        uint64_t version = own ? kv_blocks_version(d->blocks, &keys[i]) + 1 : 0;
        wire_store64(d->scratch->answer + 1 + 8 * i, version);
    }
    return (struct reply){.result = KV_OK, .len = 8 * count};
}

/* Drops the block if it is corrupt, and fetches it from another owner. */
static enum kv_result verify(struct kv_daemon *d, struct kv_peer *peer)
{
    struct kv_block_lease lease;
    struct kv_block_holder *holder = &peer->holder;
    enum kv_result result = kv_blocks_get(d->blocks, holder, d->scratch->keys, d->now_ns, &lease);
    if (result == KV_OK)
        result = kv_blocks_verify(d->blocks, holder, lease.handle, d->now_ns);
    if (result == KV_OK)
        return kv_blocks_release(d->blocks, holder, lease.handle, d->now_ns);
    (void)kv_remote_repair(d, d->scratch->keys, 0);
    return result;
}

static struct reply execute(struct kv_daemon *d, struct kv_peer *peer,
                            const struct kv_peer_request *r)
{
    struct kv_blocks *b = d->blocks;
    struct kv_block_holder *holder = &peer->holder;
    const struct kv_block_key *keys = d->scratch->keys;
    switch (r->method) {
    case KV_PEER_OPEN_GET:
        return open_get(d, peer, r);
    case KV_PEER_READ:
        return read_chunk(d, peer, r);
    case KV_PEER_OPEN_PUT:
        return open_put(d, peer, r);
    case KV_PEER_WRITE:
        d->turn_bytes += r->byte_count;
        return plain(
            kv_blocks_put_write(b, holder, r->handle, r->at, r->bytes, r->byte_count, d->now_ns));
    case KV_PEER_COMMIT:
        return commit(d, peer, r);
    case KV_PEER_DELETE:
        return delete_block(d, r);
    case KV_PEER_LOOK:
        return look(d);
    case KV_PEER_EXISTS:
        return r->flag ? versions(d, r->key_count) : exists(d, r->key_count);
    case KV_PEER_CLOSE:
        return plain(kv_blocks_release(b, holder, r->handle, d->now_ns));
    case KV_PEER_CORRUPT:
        return plain(verify(d, peer));
    case KV_PEER_REPAIR:
        if (kv_blocks_may_restore(b, keys, r->len))
            kv_copies_restore(d, keys, r->len, r->checksum);
        return plain(KV_OK);
    case KV_PEER_ABORT:
        return plain(kv_blocks_put_abort(b, holder, r->handle, d->now_ns));
    case KV_PEER_METHOD_END:
        break;
    }
    return plain(KV_REFUSED);
}

/* Nothing to free: the lease keeps the bytes in place for seconds.  If they change after that, the
 * reader finds it by the checksum. */
static void let_sent(void *user)
{
    (void)user;
}

static void send_bytes(struct kv_peer *peer, struct rpc_msg *msg, const struct reply *reply)
{
    static const uint8_t ok = KV_OK;
    struct iovec iov[2] = {{(void *)(uintptr_t)&ok, sizeof(ok)},
                           {(void *)(uintptr_t)reply->bytes, reply->byte_count}};
    struct rpc_send send = {.iov = iov, .iov_count = 2, .sent = let_sent};
    (void)rpc_reply(peer->ep, msg, 0, &send); /* an ended connection is found by its poll */
}

static void send_head(struct kv_daemon *d, struct kv_peer *peer, struct rpc_msg *msg,
                      const struct reply *reply)
{
    uint8_t small[1 + KV_PEER_EPOCH_BYTES];
    uint8_t *head = reply->len ? d->scratch->answer : small;
    uint32_t len = reply->len;
    head[0] = reply->stale_view ? KV_PEER_STALE_VIEW : (uint8_t)reply->result;
    if (reply->stale_view) {
        wire_store64(head + 1, d->view.epoch);
        len = KV_PEER_EPOCH_BYTES;
    }
    struct iovec iov = {head, 1 + len};
    struct rpc_send send = {.iov = &iov, .iov_count = 1};
    (void)rpc_reply(peer->ep, msg, 0, &send);
}

void kv_peer_serve_block(struct kv_daemon *d, struct kv_peer *peer, struct rpc_msg *msg)
{
    struct kv_peer_request r;
    struct reply reply = plain(KV_REFUSED);
    if (d->blocks &&
        kv_peer_request_decode(msg->method, msg->data, msg->len, &r, d->scratch->keys) == 0) {
        reply.stale_view = !owns_all(d, r.key_count);
        if (!reply.stale_view)
            reply = execute(d, peer, &r);
    }
    if (msg->kind != RPC_CALL)
        return;
    if (reply.bytes)
        send_bytes(peer, msg, &reply);
    else
        send_head(d, peer, msg, &reply);
}
