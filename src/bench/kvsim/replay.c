#include "bench/kvsim/replay.h"

#include "kv/store/blocks.h"
#include "kv/store/extents.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { NEVER = UINT32_MAX };

static int check_trace(const struct kv_trace *t, uint32_t capacity, uint32_t *ids)
{
    uint32_t last = 0;
    *ids = 0;
    if (capacity < 1 || capacity > KV_BLOCK_ENTRIES_MAX || t->id_count > KV_TRACE_BLOCKS_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < t->request_count; i++) {
        if (t->ends[i] < last || t->ends[i] > t->id_count)
            return -EINVAL;
        last = t->ends[i];
    }
    for (uint32_t i = 0; i < t->id_count; i++) {
        if (t->ids[i] >= KV_TRACE_IDS_MAX)
            return -EINVAL;
        *ids = t->ids[i] >= *ids ? t->ids[i] + 1 : *ids;
    }
    return last == t->id_count ? 0 : -EINVAL;
}

/* ---- the store ---- */

struct replayed {
    struct kv_blocks *blocks;
    struct kv_block_holder holder;
    const uint8_t *arena;
    bool wrong;
};

struct kv_block_key kv_trace_key(uint32_t id)
{
    struct kv_block_key key;
    int rc = kv_block_key_set(&key, &id, sizeof(id));
    assert(rc == 0);
    (void)rc;
    return key;
}

/* True for a hit; else the block is there from now on. */
static bool access_block(struct replayed *r, uint32_t id)
{
    struct kv_block_key key = kv_trace_key(id);
    struct kv_block_lease lease;
    uint64_t ticket;
    if (kv_blocks_get(r->blocks, &r->holder, &key, 0, &lease) == KV_OK) {
        r->wrong |= memcmp(r->arena + lease.offset, &id, sizeof(id)) != 0;
        (void)kv_blocks_release(r->blocks, &r->holder, lease.handle, 0);
        return true;
    }
    if (kv_blocks_put_start(r->blocks, &r->holder, &key, 0, sizeof(id), 0, &ticket) == KV_OK) {
        (void)kv_blocks_put_write(r->blocks, &r->holder, ticket, 0, &id, sizeof(id), 0);
        (void)kv_blocks_put_commit(r->blocks, &r->holder, ticket, 0);
    }
    return false;
}

typedef bool access_fn(void *user, uint32_t position);

static void replay(const struct kv_trace *t, access_fn *access, void *user,
                   struct kv_replay_result *out)
{
    *out = (struct kv_replay_result){0};
    for (uint32_t i = 0, at = 0; i < t->request_count; i++) {
        bool whole = true;
        for (; at < t->ends[i]; at++) {
            bool hit = access(user, at);
            whole = whole && hit;
            out->hits += hit;
            out->prefix_hits += whole;
        }
    }
}

struct store_run {
    struct replayed replayed;
    const struct kv_trace *trace;
};

static bool access_store(void *user, uint32_t position)
{
    struct store_run *run = user;
    return access_block(&run->replayed, run->trace->ids[position]);
}

int kv_replay_store(const struct kv_trace *t, enum kv_policy_kind policy, uint32_t capacity,
                    struct kv_replay_result *out)
{
    uint32_t ids;
    int rc = check_trace(t, capacity, &ids);
    if (rc)
        return rc;
    size_t bytes = (size_t)capacity * KV_GRANULE;
    uint8_t *arena = aligned_alloc(KV_GRANULE, bytes);
    if (!arena)
        return -ENOMEM;
    struct store_run run = {.replayed = {.holder = KV_BLOCK_HOLDER_INIT, .arena = arena},
                            .trace = t};
    struct kv_blocks_config config = {.arena = arena,
                                      .arena_bytes = bytes,
                                      .entries = capacity,
                                      .policy = policy,
                                      .memory = kv_heap()};
    struct kv_replay_result result;
    rc = kv_blocks_create(&config, &run.replayed.blocks);
    if (rc == 0) {
        replay(t, access_store, &run, &result);
        rc = run.replayed.wrong ? -EIO : 0;
        kv_blocks_destroy(run.replayed.blocks);
    }
    free(arena);
    if (rc == 0)
        *out = result;
    return rc;
}

/* ---- the optimum ---- */

/* What is kept, in a heap by the position of its next use: the last one on top.  A position also
 * says which block it is.  Those that have been used meanwhile are thrown out when they come up. */
struct optimum {
    const struct kv_trace *trace;
    uint32_t *next_use; /* of each position: the next of the same block, or NEVER */
    uint32_t *kept;     /* of each block: the next use it is kept for; 0: it is not kept */
    uint32_t *heap;
    uint32_t heap_count, kept_count, capacity;
};

static void heap_push(struct optimum *o, uint32_t position)
{
    uint32_t at = o->heap_count++;
    for (; at > 0 && o->heap[(at - 1) / 2] < position; at = (at - 1) / 2)
        o->heap[at] = o->heap[(at - 1) / 2];
    o->heap[at] = position;
}

static void heap_pop(struct optimum *o)
{
    uint32_t last = o->heap[--o->heap_count], at = 0;
    for (uint32_t child; (child = 2 * at + 1) < o->heap_count; at = child) {
        if (child + 1 < o->heap_count && o->heap[child + 1] > o->heap[child])
            child++;
        if (o->heap[child] <= last)
            break;
        o->heap[at] = o->heap[child];
    }
    o->heap[at] = last;
}

/* Makes place for a block whose next use is at `next`; false when all that is kept is needed
 * sooner. */
static bool optimum_room(struct optimum *o, uint32_t next)
{
    if (o->kept_count < o->capacity)
        return true;
    while (o->kept[o->trace->ids[o->heap[0]]] != o->heap[0])
        heap_pop(o);
    if (o->heap[0] <= next)
        return false;
    o->kept[o->trace->ids[o->heap[0]]] = 0;
    o->kept_count--;
    heap_pop(o);
    return true;
}

static bool access_optimum(void *user, uint32_t position)
{
    struct optimum *o = user;
    uint32_t *kept = &o->kept[o->trace->ids[position]], next = o->next_use[position];
    bool hit = *kept != 0;
    o->kept_count -= hit;
    *kept = 0;
    if (next != NEVER && optimum_room(o, next)) {
        *kept = next;
        o->kept_count++;
        heap_push(o, next);
    }
    return hit;
}

static void find_next_uses(const struct optimum *o, uint32_t ids)
{
    memset(o->kept, 0xff, ids * sizeof(uint32_t)); /* used for the last position of each block */
    for (uint32_t i = o->trace->id_count; i-- > 0;) {
        o->next_use[i] = o->kept[o->trace->ids[i]];
        o->kept[o->trace->ids[i]] = i;
    }
    memset(o->kept, 0, ids * sizeof(uint32_t));
}

int kv_replay_optimum(const struct kv_trace *t, uint32_t capacity, struct kv_replay_result *out)
{
    uint32_t ids;
    int rc = check_trace(t, capacity, &ids);
    if (rc)
        return rc;
    /* Each access pushes at most one position. */
    struct optimum o = {.trace = t,
                        .next_use = calloc((size_t)t->id_count + 1, sizeof(uint32_t)),
                        .kept = calloc((size_t)ids + 1, sizeof(uint32_t)),
                        .heap = calloc((size_t)t->id_count + 1, sizeof(uint32_t)),
                        .capacity = capacity};
    if (o.next_use && o.kept && o.heap) {
        find_next_uses(&o, ids);
        replay(t, access_optimum, &o, out);
    } else {
        rc = -ENOMEM;
    }
    free(o.next_use);
    free(o.kept);
    free(o.heap);
    return rc;
}
