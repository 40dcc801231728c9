#include "kv/daemon/view_peers.h"

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

/* Where the number of an id is, or would be. */
static uint32_t *place_of(const struct kv_daemon *d, uint64_t id)
{
    uint64_t at = id % KV_PEER_PLACES;
    while (d->by_id[at] && d->peers[d->by_id[at] - 1].id != id)
        at = (at + 1) % KV_PEER_PLACES;
    return (uint32_t *)(uintptr_t)&d->by_id[at];
}

int kv_daemon_peer_of(const struct kv_daemon *d, uint64_t member)
{
    uint32_t found = *place_of(d, member);
    return found && member != d->self ? (int)(found - 1) : -1;
}

struct kv_peer *kv_peer_of(struct kv_daemon *d, uint64_t member)
{
    int number = kv_daemon_peer_of(d, member);
    return number < 0 ? NULL : &d->peers[number];
}

struct kv_peer *kv_peer_spare(struct kv_daemon *d)
{
    for (uint32_t i = d->spare_from; i < d->peer_room; i++) {
        struct kv_peer *peer = &d->peers[i];
        if (i >= d->peer_count || (!peer->id && !peer->dialling && !peer->is_listed)) {
            d->peer_count = i >= d->peer_count ? i + 1 : d->peer_count;
            d->spare_from = i + 1;
            peer_clear(d, i);
            return peer;
        }
    }
    return NULL;
}

void kv_peer_free(struct kv_peer *peer)
{
    struct kv_daemon *d = peer->daemon;
    peer->id = 0;
    peer->wanted = peer->caller = peer->we_dial = false;
    if (peer->number < d->spare_from)
        d->spare_from = peer->number;
}

static void fill_table(struct kv_daemon *d)
{
    memset(d->by_id, 0, sizeof(d->by_id));
    for (uint32_t i = 0; i < d->peer_count; i++)
        if (d->peers[i].id && !d->peers[i].caller)
            *place_of(d, d->peers[i].id) = i + 1;
}

void kv_view_peers_place(struct kv_daemon *d)
{
    bool mesh = d->view.count <= KV_MESH_MAX;
    fill_table(d);
    for (uint32_t i = 0; i < d->view.count; i++) {
        const struct kv_member *m = &d->view.members[i];
        struct kv_peer *peer = kv_peer_of(d, m->id);
        if (!peer && m->id != d->self && d->config.member && (peer = kv_peer_spare(d)) != NULL) {
            peer->id = m->id;
            peer->we_dial = true;
            peer->dial_at_ns = d->now_ns;
            snprintf(peer->address, sizeof(peer->address), "%s", m->address);
            *place_of(d, m->id) = peer->number + 1;
        }
        if (peer && peer->we_dial && (mesh || !d->config.member))
            kv_peer_want(peer);
        d->peer_of[i] = peer ? peer->number : KV_PEER_NONE;
    }
    d->alone = d->view.count == 1 && d->view.members[0].id == d->self;
    atomic_store_explicit(&d->stats.view_epoch, d->view.epoch, memory_order_relaxed);
    atomic_store_explicit(&d->stats.view_members, d->view.count, memory_order_relaxed);
}

void kv_peer_want(struct kv_peer *peer)
{
    struct kv_daemon *d = peer->daemon;
    peer->missed_ns = peer->wanted ? peer->missed_ns : d->now_ns;
    peer->wanted = true;
    if (peer->is_listed || peer->ep || peer->dialling)
        return;
    peer->is_listed = true;
    peer->want_next = d->wanting;
    d->wanting = peer;
}

void kv_view_peers_init(struct kv_daemon *d)
{
    char name[KV_MEMBER_NAME_CHARS];
    d->peer_count = d->spare_from = d->config.ranks; /* number 0 stays ours */
    for (uint32_t i = 0; i < d->peer_count; i++)
        peer_clear(d, i);
    if (d->config.member) { /* until the first view nobody knows who has which block */
        d->self = d->config.member;
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

uint32_t kv_view_disown(struct kv_daemon *d)
{
    enum { KEYS = 64, STEPS = 4096 }; /* of one turn: the owner of a key is found by all members */
    struct kv_block_key *keys = d->scratch->keys;
    uint32_t count = KEYS;
    d->disown_from = kv_blocks_walk(d->blocks, d->disown_from, STEPS, keys, &count);
    for (uint32_t i = 0; i < count; i++)
        if (kv_block_key_is_named(&keys[i]) && kv_share_of(d, &keys[i]) == KV_SHARE_NONE)
            kv_blocks_disown(d->blocks, &keys[i]);
    d->disowning = d->disown_from > 0;
    return 1;
}
