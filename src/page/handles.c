#include "page/handles.h"

#include "base/clock.h"
#include "page/reserve.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RELEASES_AT_ONCE = 64 }; /* handles that leave the cache under one hold of the lock */

/* How often an idle reserve thread looks whether the limit was lowered or a trim was asked for. */
static const uint64_t reserve_period_ns = 100 * HW_MS;

struct page_handles {
    struct page_handles_config config;
    pthread_mutex_t ahead; /* held while the reserve thread makes handles; taken before `lock` */
    pthread_mutex_t lock;  /* guards all below but the reserve thread */
    page_handle *kept;     /* a stack */
    uint32_t count, capacity;
    uint32_t trims_seen;
    bool starved; /* the reserve thread pauses until a take or a give: it failed, or had to trim */
    struct page_handles_stats stats;
    struct page_reserve reserve;
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

/* How many handles may be cached now. */
static uint32_t high_now(const struct page_handles *p)
{
    return limit_is_exceeded(p) ? 0 : p->config.high;
}

/* Puts handles into the cache.  Returns how many did not fit under `most`. */
static size_t keep(struct page_handles *p, const page_handle *handles, size_t count, uint32_t most)
{
    pthread_mutex_lock(&p->lock);
    size_t room = most > p->count ? most - p->count : 0;
    size_t kept = count < room ? count : room;
    assert(p->count + kept <= p->capacity);
    memcpy(p->kept + p->count, handles, kept * sizeof *handles);
    p->count += (uint32_t)kept;
    p->starved = false;
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
    p->starved |= asked; /* else the reserve thread would fill it again at once */
    pthread_mutex_unlock(&p->lock);
    return asked;
}

/* Empties the cache when a process is short of memory or the limit was lowered.  True then. */
static bool yield_reserve(struct page_handles *p)
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
    page_limit_ask_trim(p->config.limit);
    (void)trim_was_asked(p);
}

/* ---- the reserve thread ---- */

static bool make_one_ahead(struct page_handles *p)
{
    page_handle handle;
    struct page_error why;
    pthread_mutex_lock(&p->ahead);
    bool made = make_one(p, &handle, &why) == 0;
    if (made) {
        pthread_mutex_lock(&p->lock);
        p->stats.made_ahead++;
        pthread_mutex_unlock(&p->lock);
        if (keep(p, &handle, 1, p->config.high))
            release(p, &handle, 1);
    }
    pthread_mutex_unlock(&p->ahead);
    return made;
}

static bool make_ahead(struct page_handles *p)
{
    pthread_mutex_lock(&p->lock);
    bool wanted = p->count < p->config.low && !p->starved;
    pthread_mutex_unlock(&p->lock);
    if (!wanted || limit_is_exceeded(p))
        return false;
    for (uint32_t i = 0; i < p->config.step; i++) {
        if (make_one_ahead(p))
            continue;
        pthread_mutex_lock(&p->lock);
        p->starved = true; /* the next take reports the error; no caller asked for this handle */
        pthread_mutex_unlock(&p->lock);
        return false;
    }
    return true;
}

/* Releases cached handles above `high`, as many as fit one step.  Returns how many. */
static size_t release_surplus(struct page_handles *p, uint32_t high)
{
    page_handle some[RELEASES_AT_ONCE] = {0};
    pthread_mutex_lock(&p->ahead);
    size_t n = take_kept(p, some, RELEASES_AT_ONCE, high);
    release(p, some, n);
    pthread_mutex_unlock(&p->ahead);
    return n;
}

static bool reserve_step(void *user)
{
    struct page_handles *p = user;
    size_t n = release_surplus(p, trim_was_asked(p) ? 0 : high_now(p));
    return n == RELEASES_AT_ONCE || make_ahead(p);
}

/* ---- the calls ---- */

int page_handles_create(const struct page_handles_config *config, struct page_handles **out,
                        struct page_error *why)
{
    if (config->low > config->high || (config->reserve_thread && config->step == 0))
        return page_fail(why, -EINVAL, 0,
                         "a reserve of %u to %u handles in steps of %u: the first must not be above"
                         " the second, and a step is at least 1",
                         config->low, config->high, config->step);
    struct page_handles *p = calloc(1, sizeof *p);
    /* With a reserve thread a give puts all handles into the cache; the thread releases some. */
    uint32_t capacity = config->high + (config->reserve_thread ? PAGE_BATCH_MAX : 0);
    page_handle *kept = calloc(capacity ? capacity : 1, sizeof *kept);
    if (!p || !kept) {
        free(p);
        free(kept);
        return page_fail(why, -ENOMEM, 0, "out of memory");
    }
    p->config = *config;
    p->kept = kept;
    p->capacity = capacity;
    p->trims_seen = config->limit ? page_limit_trims(config->limit) : 0;
    pthread_mutex_init(&p->ahead, NULL);
    pthread_mutex_init(&p->lock, NULL);
    int rc = 0;
    if (config->reserve_thread)
        rc = page_reserve_start(&p->reserve, reserve_step, p, reserve_period_ns);
    if (rc) {
        page_handles_destroy(p);
        return page_fail(why, rc, 0, "cannot start the reserve's thread: %s", strerror(-rc));
    }
    *out = p;
    return 0;
}

void page_handles_destroy(struct page_handles *p)
{
    if (!p)
        return;
    page_reserve_stop(&p->reserve);
    (void)page_handles_trim(p, 0);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->ahead);
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

/* For a full device: takes what the reserve thread has made, and keeps it from making more while
 * this thread tries again.  Returns how many handles came from the cache. */
static size_t take_from_reserve(struct page_handles *p, page_handle *handles, size_t count,
                                size_t *have, struct page_error *why, int *rc)
{
    pthread_mutex_lock(&p->ahead);
    size_t kept = take_kept(p, handles + *have, count - *have, 0);
    *have += kept;
    *rc = make_rest(p, handles, count, have, why);
    pthread_mutex_unlock(&p->ahead);
    return kept;
}

int page_handles_take(struct page_handles *p, page_handle *handles, size_t count, size_t *made,
                      struct page_error *why)
{
    (void)yield_reserve(p);
    size_t kept = take_kept(p, handles, count, 0), have = kept;
    int rc = make_rest(p, handles, count, &have, why);
    if (is_shortage(rc) && p->config.reserve_thread)
        kept += take_from_reserve(p, handles, count, &have, why, &rc);
    if (rc) {
        *made = have;
        page_handles_give(p, handles, have);
        if (is_shortage(rc))
            ask_others(p);
        return rc;
    }
    pthread_mutex_lock(&p->lock);
    p->stats.reused += kept;
    p->starved = false;
    bool low = p->count < p->config.low;
    pthread_mutex_unlock(&p->lock);
    if (low)
        page_reserve_wake(&p->reserve);
    return 0;
}

void page_handles_give(struct page_handles *p, const page_handle *handles, size_t count)
{
    uint32_t most = yield_reserve(p) ? 0 : p->config.reserve_thread ? p->capacity : p->config.high;
    size_t over = keep(p, handles, count, most);
    release(p, handles + (count - over), over);
    if (p->config.reserve_thread)
        page_reserve_wake(&p->reserve);
}

void page_handles_stats(struct page_handles *p, struct page_handles_stats *out)
{
    pthread_mutex_lock(&p->lock);
    *out = p->stats;
    out->kept = p->count;
    pthread_mutex_unlock(&p->lock);
}
