#include "kv/store/policy.h"

#include <assert.h>
#include <errno.h>

enum {
    USES_MAX = 3,    /* uses counted for an item; more would keep it for too long */
    SMALL_SHARE = 2, /* the first queue's part of the weight: one in so many */
    GHOST_WAYS = 4,  /* places for a ghost in a set */
    NONE = KV_POLICY_NONE
};

enum { QUEUE_MAIN, QUEUE_SMALL, QUEUES };

struct item {
    uint32_t older, newer;
    uint64_t hash, weight;
    uint8_t queue, uses;
    bool in;
};

struct queue {
    uint32_t oldest, newest, count;
    uint64_t weight;
};

struct ghost {
    uint32_t mark; /* of its hash; 0: none */
    uint32_t left; /* how many had left the first queue before it */
};

struct kv_policy {
    enum kv_policy_kind kind;
    struct kv_memory memory;
    struct queue queues[QUEUES]; /* only s3fifo has a small one */
    uint32_t held_in_a_row;      /* s3fifo: seen while an item is looked for */
    uint32_t item_count;
    uint32_t left;       /* ever, from the first queue */
    uint32_t ghost_mask; /* sets of GHOST_WAYS, less one */
    struct ghost *ghosts;
    struct item items[];
};

const char *const kv_policy_names[KV_POLICY_KINDS + 1] = {
    [KV_POLICY_S3FIFO] = "s3fifo", [KV_POLICY_LRU] = "lru"};

/* ---- queues ---- */

static void push_newest(struct kv_policy *p, uint32_t at, uint8_t queue)
{
    struct item *it = &p->items[at];
    struct queue *q = &p->queues[queue];
    it->queue = queue;
    it->newer = NONE;
    it->older = q->newest;
    *(q->newest == NONE ? &q->oldest : &p->items[q->newest].newer) = at;
    q->newest = at;
    q->count++;
    q->weight += it->weight;
}

static void unlink_item(struct kv_policy *p, uint32_t at)
{
    struct item *it = &p->items[at];
    struct queue *q = &p->queues[it->queue];
    *(it->older == NONE ? &q->oldest : &p->items[it->older].newer) = it->newer;
    *(it->newer == NONE ? &q->newest : &p->items[it->newer].older) = it->older;
    q->count--;
    q->weight -= it->weight;
}

static void move_to_main(struct kv_policy *p, uint32_t at)
{
    unlink_item(p, at);
    push_newest(p, at, QUEUE_MAIN);
}

/* ---- ghosts ---- */

static struct ghost *ghost_set(const struct kv_policy *p, uint64_t hash)
{
    return &p->ghosts[(hash & p->ghost_mask) * GHOST_WAYS];
}

static uint32_t mark_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32) | 1;
}

/* As many are remembered as there are items. */
static bool is_fresh(const struct kv_policy *p, const struct ghost *g)
{
    uint32_t count = p->queues[QUEUE_MAIN].count + p->queues[QUEUE_SMALL].count;
    return g->mark && p->left - g->left <= count;
}

static void ghost_add(struct kv_policy *p, uint64_t hash)
{
    struct ghost *set = ghost_set(p, hash), *worst = set;
    for (int i = 1; i < GHOST_WAYS; i++)
        if (!set[i].mark || (worst->mark && p->left - set[i].left > p->left - worst->left))
            worst = &set[i];
    *worst = (struct ghost){.mark = mark_of(hash), .left = p->left++};
}

static bool ghost_take(struct kv_policy *p, uint64_t hash)
{
    struct ghost *set = ghost_set(p, hash);
    for (int i = 0; i < GHOST_WAYS; i++) {
        if (set[i].mark != mark_of(hash) || !is_fresh(p, &set[i]))
            continue;
        set[i].mark = 0;
        return true;
    }
    return false;
}

/* ---- choosing ---- */

static bool small_is_due(const struct kv_policy *p)
{
    const struct queue *small = &p->queues[QUEUE_SMALL], *main = &p->queues[QUEUE_MAIN];
    if (small->count == 0 || main->count == 0 || p->held_in_a_row >= main->count)
        return small->count > 0;
    return small->weight >= (small->weight + main->weight) / SMALL_SHARE;
}

/* One step: the item to evict, or NONE when an item was spared. */
static uint32_t s3fifo_step(struct kv_policy *p, kv_policy_held_fn *held, void *user)
{
    bool small = small_is_due(p);
    uint32_t at = p->queues[small ? QUEUE_SMALL : QUEUE_MAIN].oldest;
    struct item *it = &p->items[at];
    bool stays = held(user, at);
    if (it->uses == 0 && !stays) {
        if (small)
            ghost_add(p, it->hash);
        return at;
    }
    p->held_in_a_row = stays ? p->held_in_a_row + 1 : 0;
    it->uses = small || it->uses == 0 ? 0 : (uint8_t)(it->uses - 1);
    move_to_main(p, at);
    return NONE;
}

static uint32_t lru_step(struct kv_policy *p, kv_policy_held_fn *held, void *user)
{
    uint32_t at = p->queues[QUEUE_MAIN].oldest;
    if (!held(user, at))
        return at;
    move_to_main(p, at); /* in use now */
    return NONE;
}

uint32_t kv_policy_evict(struct kv_policy *p, kv_policy_held_fn *held, void *user)
{
    uint32_t count = p->queues[QUEUE_MAIN].count + p->queues[QUEUE_SMALL].count;
    p->held_in_a_row = 0;
    /* Each item is spared once for each counted use, and once to leave the small queue; after that
     * only held items are left. */
    for (uint64_t i = 0; i < (uint64_t)count * (USES_MAX + 2); i++) {
        uint32_t at =
            p->kind == KV_POLICY_LRU ? lru_step(p, held, user) : s3fifo_step(p, held, user);
        if (at == NONE)
            continue;
        kv_policy_remove(p, at);
        return at;
    }
    return NONE;
}

/* ---- calls ---- */

static uint32_t ghost_sets(uint32_t items)
{
    uint32_t sets = 1;
    while ((uint64_t)sets * GHOST_WAYS < items)
        sets *= 2;
    return sets;
}

int kv_policy_create(enum kv_policy_kind kind, uint32_t items, const struct kv_memory *memory,
                     struct kv_policy **out)
{
    if ((unsigned)kind >= KV_POLICY_KINDS || items < 1 || items > UINT32_MAX / 4)
        return -EINVAL;
    struct kv_policy *p =
        memory->alloc(memory->user, sizeof(*p) + (size_t)items * sizeof(struct item));
    if (!p)
        return -ENOMEM;
    uint32_t sets = ghost_sets(items);
    p->kind = kind;
    p->memory = *memory;
    p->item_count = items;
    p->ghost_mask = sets - 1;
    for (int i = 0; i < QUEUES; i++)
        p->queues[i] = (struct queue){.oldest = NONE, .newest = NONE};
    if (kind == KV_POLICY_S3FIFO) {
        p->ghosts = memory->alloc(memory->user, (size_t)sets * GHOST_WAYS * sizeof(struct ghost));
        if (!p->ghosts) {
            kv_policy_destroy(p);
            return -ENOMEM;
        }
    }
    *out = p;
    return 0;
}

void kv_policy_destroy(struct kv_policy *p)
{
    if (!p)
        return;
    struct kv_memory m = p->memory;
    m.release(m.user, p->ghosts);
    m.release(m.user, p);
}

void kv_policy_add(struct kv_policy *p, uint32_t at, uint64_t hash, uint64_t weight)
{
    assert(at < p->item_count && !p->items[at].in);
    bool small = p->kind == KV_POLICY_S3FIFO && !ghost_take(p, hash);
    p->items[at] = (struct item){.hash = hash, .weight = weight, .in = true};
    push_newest(p, at, small ? QUEUE_SMALL : QUEUE_MAIN);
}

void kv_policy_use(struct kv_policy *p, uint32_t at)
{
    struct item *it = &p->items[at];
    assert(at < p->item_count && it->in);
    if (p->kind == KV_POLICY_LRU)
        move_to_main(p, at);
    else if (it->uses < USES_MAX)
        it->uses++;
}

void kv_policy_remove(struct kv_policy *p, uint32_t at)
{
    assert(at < p->item_count && p->items[at].in);
    unlink_item(p, at);
    p->items[at].in = false;
}
