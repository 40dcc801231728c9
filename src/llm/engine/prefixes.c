#include "llm/engine/prefixes.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    BUCKETS = 1 << 14, /* a chain has two of them where KV has two million positions */
    ALIKE_LOOKS = 64,  /* texts after one beginning that are compared: of more, few differ in what
                        * they have in common with the next */
};

struct llm_prefix {
    struct llm_prefix *before; /* has this one as a child */
    struct llm_prefix *next;   /* in the bucket, where it has a page's tokens */
    struct llm_prefix *older, *newer;
    struct llm_prefix *children;      /* the one used last first */
    struct llm_prefix *sibling, **to; /* in that list */
    uint32_t bucket;
    uint32_t refs;
    uint32_t count; /* of tokens */
    uint32_t tokens[LLM_KV_POSITIONS];
    uint32_t pages[]; /* of each layer */
};

struct llm_prefixes {
    struct llm_kv_cache *cache;
    uint32_t layers;
    struct llm_prefix *oldest, *newest;
    struct llm_prefix *children; /* of no tokens */
    struct llm_prefix *buckets[BUCKETS];
};

/* ---- order of use ---- */

static void unlink_use(struct llm_prefixes *p, struct llm_prefix *x)
{
    *x->to = x->sibling;
    if (x->sibling)
        x->sibling->to = x->to;
    *(x->older ? &x->older->newer : &p->oldest) = x->newer;
    *(x->newer ? &x->newer->older : &p->newest) = x->older;
}

static void link_newest(struct llm_prefixes *p, struct llm_prefix *x)
{
    x->newer = NULL;
    x->older = p->newest;
    *(x->older ? &x->older->newer : &p->oldest) = x;
    p->newest = x;
    x->to = x->before ? &x->before->children : &p->children;
    x->sibling = *x->to;
    if (x->sibling)
        x->sibling->to = &x->sibling;
    *x->to = x;
}

/* The prefix, then those before it: what is shorter is newer, and stays longer. */
static void use(struct llm_prefixes *p, struct llm_prefix *x)
{
    for (; x; x = x->before) {
        unlink_use(p, x);
        link_newest(p, x);
    }
}

/* ---- dropping ---- */

static bool has_idle_pages(const struct llm_prefixes *p, const struct llm_prefix *x)
{
    for (uint32_t l = 0; l < p->layers; l++) {
        if (llm_kv_cache_is_idle(p->cache, x->pages[l]))
            return true;
    }
    return false;
}

static void drop(struct llm_prefixes *p, struct llm_prefix *x)
{
    struct llm_prefix **link = &p->buckets[x->bucket];
    assert(x->refs == 0 && !x->children);
    while (x->count == LLM_KV_POSITIONS && *link != x)
        link = &(*link)->next;
    if (*link == x)
        *link = x->next;
    unlink_use(p, x);
    for (uint32_t l = 0; l < p->layers; l++)
        llm_kv_cache_release(p->cache, x->pages[l]);
    free(x);
}

static bool reclaim(void *user)
{
    struct llm_prefixes *p = user;
    for (struct llm_prefix *x = p->oldest; x; x = x->newer) {
        if (x->refs > 0 || x->children || !has_idle_pages(p, x))
            continue;
        drop(p, x);
        return true;
    }
    return false;
}

/* ---- life ---- */

int llm_prefixes_create(struct llm_kv_cache *cache, uint32_t layers, struct llm_prefixes **out)
{
    struct llm_prefixes *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->cache = cache;
    p->layers = layers;
    llm_kv_cache_set_reclaim(cache, reclaim, p);
    *out = p;
    return 0;
}

void llm_prefixes_destroy(struct llm_prefixes *p)
{
    if (!p)
        return;
    llm_kv_cache_set_reclaim(p->cache, NULL, NULL);
    while (p->oldest) {
        struct llm_prefix *x = p->oldest;
        while (x->children)
            x = x->newer;
        drop(p, x);
    }
    free(p);
}

/* ---- tokens ---- */

static uint32_t bucket_of(const struct llm_prefix *before, const uint32_t *tokens)
{
    return (uint32_t)(XXH3_64bits_withSeed(tokens, LLM_KV_POSITIONS * sizeof *tokens,
                                           (uintptr_t)before) %
                      BUCKETS);
}

struct llm_prefix *llm_prefixes_find(struct llm_prefixes *p, struct llm_prefix *before,
                                     const uint32_t *tokens)
{
    struct llm_prefix *x = p->buckets[bucket_of(before, tokens)];
    while (x && (x->before != before || memcmp(x->tokens, tokens, sizeof x->tokens) != 0))
        x = x->next;
    use(p, x);
    return x;
}

static struct llm_prefix *make(struct llm_prefixes *p, struct llm_prefix *before,
                               const uint32_t *tokens, uint32_t count,
                               const struct llm_pages *const *pages, uint32_t index)
{
    struct llm_prefix *x = calloc(1, sizeof *x + p->layers * sizeof x->pages[0]);
    if (!x)
        return NULL;
    x->before = before;
    x->count = count;
    memcpy(x->tokens, tokens, count * sizeof *tokens);
    for (uint32_t l = 0; l < p->layers; l++) {
        x->pages[l] = pages[l]->ids[index];
        llm_kv_cache_hold(p->cache, x->pages[l]);
    }
    if (count == LLM_KV_POSITIONS) {
        x->bucket = bucket_of(before, tokens);
        x->next = p->buckets[x->bucket];
        p->buckets[x->bucket] = x;
    }
    link_newest(p, x);
    use(p, before);
    return x;
}

struct llm_prefix *llm_prefixes_add(struct llm_prefixes *p, struct llm_prefix *before,
                                    const uint32_t *tokens, const struct llm_pages *const *pages,
                                    uint32_t index)
{
    struct llm_prefix *x = llm_prefixes_find(p, before, tokens);
    return x ? x : make(p, before, tokens, LLM_KV_POSITIONS, pages, index);
}

/* ---- tokens of a part of a page ---- */

static uint32_t alike(const struct llm_prefix *x, const uint32_t *tokens, uint32_t count)
{
    uint32_t n = 0, most = count < x->count ? count : x->count;
    while (n < most && x->tokens[n] == tokens[n])
        n++;
    return n;
}

struct llm_prefix *llm_prefixes_alike(struct llm_prefixes *p, struct llm_prefix *before,
                                      const uint32_t *tokens, uint32_t count, uint32_t *rows)
{
    struct llm_prefix *x = before ? before->children : p->children, *best = NULL;
    *rows = 0;
    for (unsigned i = 0; x && i < ALIKE_LOOKS && *rows < count; x = x->sibling, i++) {
        uint32_t n = alike(x, tokens, count);
        if (n > *rows) {
            *rows = n;
            best = x;
        }
    }
    use(p, best);
    return best;
}

void llm_prefixes_add_end(struct llm_prefixes *p, struct llm_prefix *before, const uint32_t *tokens,
                          uint32_t count, const struct llm_pages *const *pages, uint32_t index)
{
    uint32_t rows;
    assert(count < LLM_KV_POSITIONS);
    if (!llm_prefixes_alike(p, before, tokens, count, &rows) || rows < count)
        (void)make(p, before, tokens, count, pages, index);
}

uint32_t llm_prefix_page(const struct llm_prefix *prefix, uint32_t layer)
{
    return prefix->pages[layer];
}

void llm_prefix_ref(struct llm_prefix *prefix)
{
    if (prefix)
        prefix->refs++;
}

void llm_prefix_unref(struct llm_prefix *prefix)
{
    assert(!prefix || prefix->refs > 0);
    if (prefix)
        prefix->refs--;
}
