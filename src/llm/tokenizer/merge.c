#include "llm/tokenizer/merge.h"

#include "base/grow.h"

#include <errno.h>
#include <stdlib.h>

/* A pair that could be joined when it was added; stale once either part has grown. */
struct llm_candidate {
    double cost;
    uint32_t left, right;
    uint32_t bytes; /* of both then */
    uint32_t token;
};

void llm_merger_fini(struct llm_merger *m)
{
    free(m->symbols);
    free(m->heap);
    *m = (struct llm_merger){0};
}

void llm_merger_clear(struct llm_merger *m)
{
    m->count = m->heap_count = 0;
}

int llm_merger_add(struct llm_merger *m, uint32_t start, uint32_t bytes, int32_t token)
{
    if (!hw_grow(&m->symbols, &m->room, (size_t)m->count + 1, sizeof(*m->symbols)))
        return -ENOMEM;
    uint32_t previous = m->count ? m->count - 1 : UINT32_MAX;
    if (m->count)
        m->symbols[previous].next = m->count;
    m->symbols[m->count++] = (struct llm_symbol){
        .start = start, .bytes = bytes, .token = token, .previous = previous, .next = UINT32_MAX};
    return 0;
}

static bool goes_before(const struct llm_candidate *a, const struct llm_candidate *b)
{
    return a->cost < b->cost || (a->cost == b->cost && a->left < b->left);
}

static int push(struct llm_merger *m, struct llm_candidate candidate)
{
    if (!hw_grow(&m->heap, &m->heap_room, (size_t)m->heap_count + 1, sizeof(*m->heap)))
        return -ENOMEM;
    uint32_t at = m->heap_count++;
    while (at > 0 && goes_before(&candidate, &m->heap[(at - 1) / 2])) {
        m->heap[at] = m->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    m->heap[at] = candidate;
    return 0;
}

static struct llm_candidate pop(struct llm_merger *m)
{
    struct llm_candidate best = m->heap[0], moved = m->heap[--m->heap_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < m->heap_count; child = 2 * at + 1) {
        if (child + 1 < m->heap_count && goes_before(&m->heap[child + 1], &m->heap[child]))
            child++;
        if (!goes_before(&m->heap[child], &moved))
            break;
        m->heap[at] = m->heap[child];
        at = child;
    }
    if (m->heap_count > 0)
        m->heap[at] = moved;
    return best;
}

static int consider(struct llm_merger *m, uint32_t left, uint32_t right, llm_merge_find find,
                    const void *user)
{
    if (left == UINT32_MAX || right == UINT32_MAX)
        return 0;
    const struct llm_symbol *a = &m->symbols[left], *b = &m->symbols[right];
    struct llm_join join;
    if (!find(user, a, b, &join))
        return 0;
    return push(m, (struct llm_candidate){.cost = join.cost,
                                          .left = left,
                                          .right = right,
                                          .bytes = a->bytes + b->bytes,
                                          .token = join.token});
}

static bool is_stale(const struct llm_merger *m, const struct llm_candidate *c)
{
    const struct llm_symbol *left = &m->symbols[c->left], *right = &m->symbols[c->right];
    return left->bytes == 0 || right->bytes == 0 || left->bytes + right->bytes != c->bytes;
}

static void join_pair(struct llm_merger *m, const struct llm_candidate *c)
{
    struct llm_symbol *left = &m->symbols[c->left], *right = &m->symbols[c->right];
    left->bytes += right->bytes;
    left->token = (int32_t)c->token;
    left->next = right->next;
    if (right->next != UINT32_MAX)
        m->symbols[right->next].previous = c->left;
    right->bytes = 0;
}

int llm_merger_run(struct llm_merger *m, llm_merge_find find, const void *user)
{
    int err = 0;
    for (uint32_t i = 1; i < m->count && !err; i++)
        err = consider(m, i - 1, i, find, user);
    while (m->heap_count > 0 && !err) {
        struct llm_candidate best = pop(m);
        if (is_stale(m, &best))
            continue;
        join_pair(m, &best);
        const struct llm_symbol *joined = &m->symbols[best.left];
        err = consider(m, joined->previous, best.left, find, user);
        if (!err)
            err = consider(m, best.left, m->symbols[best.left].next, find, user);
    }
    return err;
}
