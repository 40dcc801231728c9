#include "rpc/resume/kept.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    RING_FIRST_BYTES = 16 << 10,
    PIECES_FIRST = 16,
    COPY_BYTES = 256 << 10, /* a block for a copy: a chunk of a message */
    SPARES = 32             /* blocks kept for reuse, since fresh ones cost page faults */
};

/* Bytes in order: the ring's next ones (data is NULL), an owner's, or a copy of its own. */
struct piece {
    const uint8_t *data;
    uint64_t len;
    void *owner; /* of data, or NULL */
    void *copy;  /* which holds data, or NULL */
    bool block;  /* of COPY_BYTES */
};

struct rpc_kept {
    rpc_kept_drop_fn *drop;
    uint64_t limit, skip;
    uint64_t acked, written;
    bool broken;
    uint8_t *ring; /* its size is a power of two */
    size_t ring_bytes;
    uint64_t ring_from, ring_to; /* bytes in it, counted for ever */
    struct piece *pieces;        /* a ring of its own, likewise */
    size_t piece_room;
    uint64_t first, end;
    void *spares[SPARES];
    int spare_count;
};

static struct piece *piece_at(const struct rpc_kept *k, uint64_t i)
{
    return &k->pieces[i & (k->piece_room - 1)];
}

struct rpc_kept *rpc_kept_create(uint64_t limit, rpc_kept_drop_fn *drop)
{
    struct rpc_kept *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->limit = limit;
    k->drop = drop;
    return k;
}

/* Small copies have memory of their own, so that they do not hold much more than they are. */
static bool takes_block(uint64_t len)
{
    return len > COPY_BYTES / 2 && len <= COPY_BYTES;
}

static void *copy_get(struct rpc_kept *k, uint64_t len)
{
    if (!takes_block(len))
        return malloc(len);
    return k->spare_count > 0 ? k->spares[--k->spare_count] : malloc(COPY_BYTES);
}

static void copy_put(struct rpc_kept *k, void *copy, bool block)
{
    if (block && k->spare_count < SPARES)
        k->spares[k->spare_count++] = copy;
    else
        free(copy);
}

static void piece_let_go(struct rpc_kept *k, struct piece *p)
{
    if (p->owner)
        k->drop(p->owner);
    copy_put(k, p->copy, p->block);
}

/* Nothing is kept any more, and never again. */
static void give_up(struct rpc_kept *k)
{
    for (; k->first != k->end; k->first++)
        piece_let_go(k, piece_at(k, k->first));
    while (k->spare_count > 0)
        free(k->spares[--k->spare_count]);
    free(k->ring);
    free(k->pieces);
    k->ring = NULL;
    k->pieces = NULL;
    k->ring_bytes = k->piece_room = 0;
    k->ring_from = k->ring_to = 0;
    k->broken = true;
}

void rpc_kept_destroy(struct rpc_kept *k)
{
    if (!k)
        return;
    give_up(k);
    free(k);
}

void rpc_kept_set_limit(struct rpc_kept *k, uint64_t limit)
{
    k->limit = limit;
}

void rpc_kept_skip(struct rpc_kept *k, uint64_t skip)
{
    k->skip = skip;
}

bool rpc_kept_is_broken(const struct rpc_kept *k)
{
    return k->broken;
}

uint64_t rpc_kept_written(const struct rpc_kept *k)
{
    return k->written;
}

uint64_t rpc_kept_acked(const struct rpc_kept *k)
{
    return k->acked;
}

/* ---- writing ---- */

static bool ring_reserve(struct rpc_kept *k, size_t len)
{
    size_t used = (size_t)(k->ring_to - k->ring_from), bytes = k->ring_bytes;
    if (LIKELY(bytes - used >= len))
        return true;
    if (bytes == 0)
        bytes = RING_FIRST_BYTES;
    while (bytes - used < len)
        bytes *= 2;
    uint8_t *ring = malloc(bytes);
    if (!ring)
        return false;
    for (uint64_t i = k->ring_from; i < k->ring_to;) {
        size_t from = (size_t)i & (k->ring_bytes - 1), to = (size_t)i & (bytes - 1);
        size_t n = (size_t)(k->ring_to - i);
        n = n < k->ring_bytes - from ? n : k->ring_bytes - from;
        n = n < bytes - to ? n : bytes - to;
        memcpy(ring + to, k->ring + from, n);
        i += n;
    }
    free(k->ring);
    k->ring = ring;
    k->ring_bytes = bytes;
    return true;
}

static void ring_put(struct rpc_kept *k, const uint8_t *data, size_t len)
{
    size_t at = (size_t)k->ring_to & (k->ring_bytes - 1);
    size_t part = len < k->ring_bytes - at ? len : k->ring_bytes - at;
    memcpy(k->ring + at, data, part);
    memcpy(k->ring, data + part, len - part);
    k->ring_to += len;
}

static bool pieces_reserve(struct rpc_kept *k)
{
    size_t used = (size_t)(k->end - k->first);
    if (LIKELY(used < k->piece_room))
        return true;
    size_t room = k->piece_room ? 2 * k->piece_room : PIECES_FIRST;
    struct piece *pieces = malloc(room * sizeof *pieces);
    if (!pieces)
        return false;
    for (uint64_t i = k->first; i != k->end; i++)
        pieces[i & (room - 1)] = *piece_at(k, i);
    free(k->pieces);
    k->pieces = pieces;
    k->piece_room = room;
    return true;
}

/* What of this write has numbers; they are counted.  0: nothing to keep. */
static size_t number(struct rpc_kept *k, size_t len)
{
    size_t skip = k->skip < len ? (size_t)k->skip : len;
    k->skip -= skip;
    len -= skip;
    k->written += len;
    if (!k->broken && k->written - k->acked > k->limit)
        give_up(k);
    return k->broken ? 0 : len;
}

void rpc_kept_copy(struct rpc_kept *k, const void *data, size_t len)
{
    size_t n = number(k, len);
    if (n == 0)
        return;
    struct piece *last = k->end != k->first ? piece_at(k, k->end - 1) : NULL;
    bool joins = last && !last->data;
    if (!ring_reserve(k, n) || (!joins && !pieces_reserve(k))) {
        give_up(k);
        return;
    }
    ring_put(k, (const uint8_t *)data + (len - n), n);
    if (joins)
        last->len += n;
    else
        *piece_at(k, k->end++) = (struct piece){.len = n};
}

bool rpc_kept_refer(struct rpc_kept *k, const void *data, size_t len, void *owner)
{
    size_t n = number(k, len);
    if (n == 0)
        return false;
    const uint8_t *from = (const uint8_t *)data + (len - n);
    struct piece *last = k->end != k->first ? piece_at(k, k->end - 1) : NULL;
    if (last && last->owner == owner && last->data + last->len == from) {
        last->len += n;
        return false;
    }
    if (!pieces_reserve(k)) {
        give_up(k);
        return false;
    }
    *piece_at(k, k->end++) = (struct piece){.data = from, .len = n, .owner = owner};
    return true;
}

void rpc_kept_own(struct rpc_kept *k, void *owner)
{
    for (uint64_t i = k->end; i != k->first; i--) {
        struct piece *p = piece_at(k, i - 1);
        if (p->owner != owner)
            continue;
        uint8_t *copy = copy_get(k, p->len);
        if (!copy) {
            give_up(k);
            return;
        }
        memcpy(copy, p->data, p->len);
        p->data = p->copy = copy;
        p->block = takes_block(p->len);
        p->owner = NULL;
        k->drop(owner);
    }
}

/* ---- acknowledging and writing again ---- */

int rpc_kept_ack(struct rpc_kept *k, uint64_t number)
{
    if (number < k->acked || number > k->written)
        return -EPROTO;
    uint64_t n = number - k->acked;
    k->acked = number;
    while (n > 0 && !k->broken) {
        struct piece *p = piece_at(k, k->first);
        uint64_t part = n < p->len ? n : p->len;
        if (p->data)
            p->data += part;
        else
            k->ring_from += part;
        p->len -= part;
        n -= part;
        if (p->len == 0) {
            k->first++;
            piece_let_go(k, p);
        }
    }
    return 0;
}

/* Adds `len` bytes of the ring; how many segments. */
static int gather_ring(const struct rpc_kept *k, uint64_t from, uint64_t len, struct iovec *iov,
                       int max)
{
    int count = 0;
    while (len > 0 && count < max) {
        size_t at = (size_t)from & (k->ring_bytes - 1);
        size_t n = len < k->ring_bytes - at ? (size_t)len : k->ring_bytes - at;
        iov[count++] = (struct iovec){k->ring + at, n};
        from += n;
        len -= n;
    }
    return count;
}

int rpc_kept_gather(const struct rpc_kept *k, uint64_t from, struct iovec *iov, int max)
{
    assert(!k->broken && from >= k->acked && from <= k->written);
    uint64_t skip = from - k->acked, ring = k->ring_from;
    int count = 0;
    for (uint64_t i = k->first; i != k->end && count < max; i++) {
        const struct piece *p = piece_at(k, i);
        uint64_t passed = skip < p->len ? skip : p->len, left = p->len - passed;
        skip -= passed;
        if (left > 0 && p->data)
            iov[count++] = (struct iovec){(void *)(uintptr_t)(p->data + passed), (size_t)left};
        else if (left > 0)
            count += gather_ring(k, ring + passed, left, iov + count, max - count);
        if (!p->data)
            ring += p->len;
    }
    return count;
}
