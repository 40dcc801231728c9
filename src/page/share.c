#include "page/share.h"

#include <assert.h>
#include <stdbool.h>

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t need_of(const struct page_share *m)
{
    uint64_t need = m->used_bytes + m->wanted_bytes;
    if (need < m->used_bytes)
        need = UINT64_MAX;
    return m->idle_ns >= PAGE_SHARE_IDLE_NS ? 0 : need;
}

/* Returns what is left of the limit. */
static uint64_t set_aside(const struct page_share *models, size_t count, uint64_t limit,
                          uint64_t *targets)
{
    uint64_t rest = limit;
    for (size_t i = 0; i < count; i++) {
        targets[i] = models[i].min_bytes;
        if (models[i].min_bytes <= rest) {
            rest -= models[i].min_bytes;
            continue;
        }
        for (size_t k = 0; k < count; k++)
            targets[k] = 0;
        return limit;
    }
    return rest;
}

/* The oldest request of the highest priority whose model was not looked at yet; count: there is
 * none. */
static size_t oldest(const struct page_share *models, size_t count, const bool *seen)
{
    size_t first = count;
    for (size_t i = 0; i < count; i++) {
        const struct page_share *m = &models[i], *f = &models[first < count ? first : i];
        bool before =
            m->priority != f->priority ? m->priority > f->priority : m->oldest_ns > f->oldest_ns;
        if (!seen[i] && m->oldest_bytes && (first == count || before))
            first = i;
    }
    return first;
}

static uint64_t let_one_run(const struct page_share *models, size_t count, uint64_t rest,
                            uint64_t *targets)
{
    bool seen[PAGE_SHARE_MODELS_MAX] = {false};
    for (size_t i; (i = oldest(models, count, seen)) < count;) {
        uint64_t need = models[i].oldest_bytes;
        uint64_t more = need > targets[i] ? need - targets[i] : 0;
        seen[i] = true;
        if (more > rest)
            continue;
        targets[i] += more;
        rest -= more;
    }
    return rest;
}

/* What a model needs on top of what it is given so far. */
static uint64_t lacks(const struct page_share *models, size_t i, const uint64_t *targets)
{
    uint64_t need = need_of(&models[i]);
    return need > targets[i] ? need - targets[i] : 0;
}

/* Equal parts of what is left to all of the highest priority whose needs are not met, until they
 * are or nothing is left.  Each round meets a need or leaves less than a byte for each. */
static uint64_t meet_needs(const struct page_share *models, size_t count, uint64_t rest,
                           uint64_t *targets)
{
    for (;;) {
        size_t unmet = 0;
        uint32_t priority = 0;
        for (size_t i = 0; i < count; i++) {
            if (lacks(models, i, targets) && models[i].priority > priority)
                priority = models[i].priority;
        }
        for (size_t i = 0; i < count; i++)
            unmet += models[i].priority == priority && lacks(models, i, targets);
        uint64_t part = unmet ? rest / unmet : 0;
        if (part == 0)
            return rest;
        for (size_t i = 0; i < count; i++) {
            uint64_t more = models[i].priority == priority ? lacks(models, i, targets) : 0;
            targets[i] += least(more, part);
            rest -= least(more, part);
        }
    }
}

/* What a model keeps that was busy lately. */
static uint64_t holds(const struct page_share *m)
{
    return m->idle_ns >= PAGE_SHARE_IDLE_NS ? 0 : m->held_bytes;
}

/* What a model would keep: what it needs, and what it holds that no request uses. */
static uint64_t keeps(const struct page_share *m)
{
    uint64_t need = need_of(m), used = need ? least(m->used_bytes, m->held_bytes) : 0;
    uint64_t kept = m->held_bytes - used;
    return need + kept < need ? UINT64_MAX : need + kept;
}

static uint64_t leave(const struct page_share *models, size_t count, uint64_t rest,
                      uint64_t *targets, uint64_t (*wish)(const struct page_share *m))
{
    while (rest > 0) {
        size_t next = count;
        for (size_t i = 0; i < count; i++) {
            if (wish(&models[i]) > targets[i] &&
                (next == count || models[i].idle_ns < models[next].idle_ns))
                next = i;
        }
        if (next == count)
            break;
        uint64_t more = least(wish(&models[next]) - targets[next], rest);
        targets[next] += more;
        rest -= more;
    }
    return rest;
}

void page_share_targets(const struct page_share *models, size_t count, uint64_t limit,
                        uint64_t *targets)
{
    assert(count <= PAGE_SHARE_MODELS_MAX);
    uint64_t rest = set_aside(models, count, limit ? limit : UINT64_MAX, targets);
    rest = let_one_run(models, count, rest, targets);
    rest = meet_needs(models, count, rest, targets);
    rest = leave(models, count, rest, targets, holds);
    rest = leave(models, count, rest, targets, keeps);
    for (size_t i = 0; i < count; i++)
        targets[i] += rest;
}
