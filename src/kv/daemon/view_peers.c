#include "kv/daemon/view_peers.h"

#include "base/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- numbers ---- */

static void peer_clear(struct kv_daemon *d, uint32_t number)
{
    d->peers[number] = (struct kv_peer){.daemon = d,
                                        .number = number,
                                        .session = d->peers[number].session,
                                        .holder = KV_BLOCK_HOLDER_INIT};
}

int kv_daemon_peer_of(const struct kv_daemon *d, uint64_t member)
{
    for (uint32_t i = 0; i < d->peer_count; i++)
        if (d->peers[i].id == member && member != d->self)
            return (int)i;
    return -1;
}

struct kv_peer *kv_peer_of(struct kv_daemon *d, uint64_t member)
{
    int number = kv_daemon_peer_of(d, member);
    return number < 0 ? NULL : &d->peers[number];
}

/* One that nobody has and nobody is dialling; number 0 stays ours.  NULL: none. */
static struct kv_peer *spare_peer(struct kv_daemon *d)
{
    for (uint32_t i = 1; i < KV_MEMBERS_MAX; i++) {
        struct kv_peer *peer = &d->peers[i];
        if (i >= d->peer_count || (!peer->id && !peer->dialling)) {
            d->peer_count = i >= d->peer_count ? i + 1 : d->peer_count;
            peer_clear(d, i);
            return peer;
        }
    }
    return NULL;
}

void kv_view_peers_place(struct kv_daemon *d)
{
    for (uint32_t i = 0; i < d->view.count; i++) {
        const struct kv_member *m = &d->view.members[i];
        struct kv_peer *peer = kv_peer_of(d, m->id);
        if (!peer && m->id != d->self && d->config.member && (peer = spare_peer(d)) != NULL) {
            peer->id = m->id;
            peer->we_dial = d->self > m->id;
            peer->dial_at_ns = d->now_ns;
            snprintf(peer->address, sizeof(peer->address), "%s", m->address);
        }
        d->peer_of[i] = peer ? peer->number : KV_PEER_NONE;
    }
    d->alone = d->view.count == 1 && d->view.members[0].id == d->self;
    atomic_store_explicit(&d->stats.view_epoch, d->view.epoch, memory_order_relaxed);
    atomic_store_explicit(&d->stats.view_members, d->view.count, memory_order_relaxed);
}

void kv_view_peers_init(struct kv_daemon *d)
{
    char name[KV_MEMBER_NAME_CHARS];
    d->peer_count = d->config.ranks;
    for (uint32_t i = 0; i < d->peer_count; i++)
        peer_clear(d, i);
    if (d->config.member) { /* alone until the first view */
        d->self = d->config.member;
        d->view = (struct kv_view){.count = 1, .members = {{.id = d->self}}};
    } else {
        kv_rank_name(d->config.rank, name);
        d->self = kv_member_id(name);
        for (uint32_t i = 0; i < d->peer_count; i++) {
            kv_rank_name(i, name);
            d->peers[i].id = kv_member_id(name);
            d->peers[i].we_dial = i < d->config.rank;
        }
        kv_view_of_ranks(d->config.ranks, &d->view);
    }
    kv_view_peers_place(d);
}

const struct kv_view *kv_daemon_view(const struct kv_daemon *d)
{
    return &d->view;
}

const char *kv_daemon_peer_address(const struct kv_daemon *d, int number)
{
    return d->peers[number].address;
}

/* ---- ownership ---- */

enum kv_share kv_share_of(const struct kv_daemon *d, const struct kv_block_key *key)
{
    uint32_t owners[KV_COPIES_MAX];
    if (d->alone)
        return KV_SHARE_SOLE;
    uint32_t count = kv_view_owners(&d->view, kv_block_hash(key), d->config.copies, owners);
    for (uint32_t i = 0; i < count; i++)
        if (d->view.members[owners[i]].id == d->self)
            return count == 1 ? KV_SHARE_SOLE : KV_SHARE_COPY;
    return KV_SHARE_NONE;
}
