#include "kv/daemon/permits.h"

#include "kv/daemon/view_peers.h"

/* The member with which we own the key; NULL: we do not, or alone. */
static struct kv_peer *other_owner(struct kv_daemon *d, const struct kv_block_key *key)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_view_owners(&d->view, kv_block_hash(key), d->config.copies, owners);
    struct kv_peer *other = NULL;
    bool ours = false;
    for (uint32_t i = 0; i < count; i++) {
        ours |= d->view.members[owners[i]].id == d->self;
        if (d->peer_of[owners[i]] != KV_PEER_NONE)
            other = &d->peers[d->peer_of[owners[i]]];
    }
    return ours ? other : NULL;
}

bool kv_permit_reads(struct kv_daemon *d, const struct kv_block_key *key)
{
    const struct kv_peer *other = other_owner(d, key);
    uint64_t agreed = kv_blocks_agreed(d->blocks, key);
    /* After the request came: a process may have been stopped since this turn began. */
    return other && agreed && agreed == other->permit && kv_daemon_now(d) < other->permit_until_ns;
}

void kv_permit_give(struct kv_daemon *d, const struct kv_peer *peer,
                    const struct kv_peer_request *r, struct kv_peer_opened *opened)
{
    const struct kv_block_key *key = d->scratch->keys;
    struct kv_peer *other = other_owner(d, key);
    if (!kv_block_key_is_named(key) || !other || other->id != peer->id || r->epoch != d->view.epoch)
        return;
    uint64_t now = kv_daemon_now(d);
    while (!other->given)
        other->given = ++d->permits;
    other->given_until_ns = now + KV_PERMIT_NS;
    opened->permit = other->given;
    opened->agreed = kv_blocks_may_agree(d->blocks, key, r->handle, r->checksum, now);
}

void kv_permit_take(struct kv_daemon *d, struct kv_peer *peer, const struct kv_block_key *key,
                    const struct kv_peer_opened *opened, uint64_t asked_ns, uint32_t put_count)
{
    if (!opened->permit)
        return;
    peer->permit = opened->permit;
    peer->permit_until_ns = asked_ns + KV_PERMIT_NS / 8 * 7;
    if (opened->agreed && kv_blocks_opened(d->blocks, key) == put_count &&
        kv_blocks_may_agree(d->blocks, key, opened->version, opened->checksum, d->now_ns))
        kv_blocks_agree(d->blocks, key, opened->permit);
}

uint64_t kv_permit_wait(struct kv_daemon *d, const struct kv_block_key *key, bool alone)
{
    uint64_t until = d->permits_until_ns, now = kv_daemon_now(d);
    struct kv_peer *other = alone ? other_owner(d, key) : NULL;
    if (other) {
        other->given = 0;
        until = other->given_until_ns > until ? other->given_until_ns : until;
        until = d->lives_until_ns > until ? d->lives_until_ns : until;
    }
    return until > now ? until - now : 0;
}

void kv_permits_end(struct kv_daemon *d)
{
    for (uint32_t i = 0; i < d->peer_count; i++) {
        struct kv_peer *peer = &d->peers[i];
        peer->given = 0;
        if (peer->given_until_ns > d->permits_until_ns)
            d->permits_until_ns = peer->given_until_ns;
    }
}
