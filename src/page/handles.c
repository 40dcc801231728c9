#include "page/handles.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RELEASES_AT_ONCE = 64 }; /* handles that leave the cache under one hold of the lock */

struct page_handles {
    struct page_handles_config config;
    pthread_mutex_t lock; /* guards all below */
    page_handle *kept;    /* a stack, of config.high at most */
    uint32_t count;
    uint32_t trims_seen;
    struct page_handles_stats stats;
};

static int make_one(struct page_handles *p, page_handle *out, struct page_error *why)
{
    struct page_backend *b = p->config.backend;
    int rc = p->config.limit ? page_limit_charge(p->config.limit, p->config.piece_bytes, why) : 0;
    if (rc)
        return rc;
    rc = b->ops->create(b, out, why);
    if (rc && p->config.limit)
        page_limit_refund(p->config.limit, p->config.piece_bytes);
    if (rc == 0) {
        pthread_mutex_lock(&p->lock);
        p->stats.created++;
        pthread_mutex_unlock(&p->lock);
    }
    return rc;
}

static void release(struct page_handles *p, const page_handle *handles, size_t count)
{
    struct page_backend *b = p->config.backend;
    for (size_t i = 0; i < count; i++)
        b->ops->release(b, handles[i]);
    if (p->config.limit)
        page_limit_refund(p->config.limit, count * p->config.piece_bytes);
    pthread_mutex_lock(&p->lock);
    p->stats.released += count;
    pthread_mutex_unlock(&p->lock);
}

static bool limit_is_exceeded(const struct page_handles *p)
{
    return p->config.limit && page_limit_excess(p->config.limit) > 0;
}

/* Puts handles into the cache.  Returns how many did not fit under `most`. */
static size_t keep(struct page_handles *p, const page_handle *handles, size_t count, uint32_t most)
{
    pthread_mutex_lock(&p->lock);
    size_t room = most > p->count ? most - p->count : 0;
    size_t kept = count < room ? count : room;
    assert(p->count + kept <= p->config.high);
    memcpy(p->kept + p->count, handles, kept * sizeof *handles);
    p->count += (uint32_t)kept;
    pthread_mutex_unlock(&p->lock);
    return count - kept;
}

/* Takes up to `most` handles out of the cache, but leaves `keep` there. */
static size_t take_kept(struct page_handles *p, page_handle *out, size_t most, uint32_t keep)
{
    pthread_mutex_lock(&p->lock);
    size_t there = p->count > keep ? p->count - keep : 0;
    size_t n = there < most ? there : most;
    p->count -= (uint32_t)n;
    memcpy(out, p->kept + p->count, n * sizeof *out);
    pthread_mutex_unlock(&p->lock);
    return n;
}

size_t page_handles_trim(struct page_handles *p, uint32_t keep_count)
{
    page_handle some[RELEASES_AT_ONCE];
    size_t released = 0, n;
    while ((n = take_kept(p, some, RELEASES_AT_ONCE, keep_count)) > 0) {
        release(p, some, n);
        released += n;
    }
    return released;
}

static bool trim_was_asked(struct page_handles *p)
{
    if (!p->config.limit)
        return false;
    uint32_t trims = page_limit_trims(p->config.limit);
    pthread_mutex_lock(&p->lock);
    bool asked = trims != p->trims_seen;
    p->trims_seen = trims;
    pthread_mutex_unlock(&p->lock);
    return asked;
}

/* Empties the cache when a process is short of memory or the limit was lowered.  True then. */
static bool yield_cache(struct page_handles *p)
{
    bool short_of = trim_was_asked(p) || limit_is_exceeded(p);
    if (short_of)
        (void)page_handles_trim(p, 0);
    return short_of;
}

/* Asks the other processes of the group to empty their caches, at their next take or give. */
static void ask_others(struct page_handles *p)
{
    if (!p->config.limit)
        return;
    (void)page_limit_ask_trim(p->config.limit);
    (void)trim_was_asked(p);
}

/* ---- the calls ---- */

int page_handles_create(const struct page_handles_config *config, struct page_handles **out,
                        struct page_error *why)
{
    struct page_handles *p = calloc(1, sizeof *p);
    page_handle *kept = calloc(config->high ? config->high : 1, sizeof *kept);
    if (!p || !kept) {
        free(p);
        free(kept);
        return page_fail(why, -ENOMEM, 0, "out of memory");
    }
    p->config = *config;
    p->kept = kept;
    p->trims_seen = config->limit ? page_limit_trims(config->limit) : 0;
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return 0;
}

void page_handles_destroy(struct page_handles *p)
{
    if (!p)
        return;
    (void)page_handles_trim(p, 0);
    pthread_mutex_destroy(&p->lock);
    free(p->kept);
    free(p);
}

static bool is_shortage(int rc)
{
    return rc == -ENOMEM || rc == -ENOSPC;
}

/* Makes handles until *have is `count`. */
static int make_rest(struct page_handles *p, page_handle *handles, size_t count, size_t *have,
                     struct page_error *why)
{
    int rc = 0;
    while (*have < count && (rc = make_one(p, &handles[*have], why)) == 0)
        ++*have;
    return rc;
}

int page_handles_take(struct page_handles *p, page_handle *handles, size_t count, size_t *made,
                      struct page_error *why)
{
    (void)yield_cache(p);
    size_t kept = take_kept(p, handles, count, 0), have = kept;
    int rc = make_rest(p, handles, count, &have, why);
    if (rc) {
        *made = have;
        page_handles_give(p, handles, have);
        if (is_shortage(rc))
            ask_others(p);
        return rc;
    }
    pthread_mutex_lock(&p->lock);
    p->stats.reused += kept;
    pthread_mutex_unlock(&p->lock);
    return 0;
}

void page_handles_give(struct page_handles *p, const page_handle *handles, size_t count)
{
    size_t over = keep(p, handles, count, yield_cache(p) ? 0 : p->config.high);
    release(p, handles + (count - over), over);
}

void page_handles_stats(struct page_handles *p, struct page_handles_stats *out)
{
    pthread_mutex_lock(&p->lock);
    *out = p->stats;
    out->kept = p->count;
    pthread_mutex_unlock(&p->lock);
}
