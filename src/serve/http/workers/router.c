/* A prompt goes to the worker that had its longest known prefix, unless that one has much more to
 * do than the idlest; else to the idlest.  A text that lost several workers waits some seconds for
 * the one that was up for the longest time.  One that drains gets back what nobody else can
 * complete. */
#include "serve/http/impl.h"

#include <string.h>
#include <xxhash.h>

/* What it has to do: our texts, and those of others as it told last. */
static uint32_t load_of(const struct http_worker *w)
{
    return w->texts + w->others;
}

/* Positions that it takes at most: so a text that goes on elsewhere ends where it would have. */
static uint32_t need_of(const struct http_sequence *s)
{
    return s->request.embed ? s->prompt_count : s->prompt_count + s->most;
}

/* It could compute the text, whether or not it is up. */
static bool suits(const struct http_worker *w, const struct http_sequence *s)
{
    int model = http_worker_model(w, s->model);
    /* A text that has begun goes on with the same tokens only under the same arithmetic. */
    return model >= 0 && !(s->refused >> w->index & 1) &&
           need_of(s) <= w->served.models[model].context &&
           (!s->arithmetic[0] || strcmp(s->arithmetic, w->served.models[model].arithmetic) == 0);
}

static bool is_open(const struct http_worker *w)
{
    return http_worker_takes_texts(w) && !w->left && !http_worker_is_doubted(w);
}

static bool serves(const struct http_worker *w, const struct http_sequence *s)
{
    return is_open(w) && suits(w, s);
}

/* It has left, or is about to: nothing waits for it to come back. */
static bool is_leaving(const struct http_worker *w)
{
    return w->left || (w->state == HTTP_WORKER_UP && w->served.draining);
}

static bool has_room(const struct http_worker *w, uint64_t now)
{
    return w->texts < HTTP_WORKER_TEXTS_MAX && now >= w->busy_until;
}

static bool may_take(const struct http_worker *w, const struct http_sequence *s, uint64_t now)
{
    return has_room(w, now) && serves(w, s);
}

/* The worker that was not lost for the longest time.  Where workers come and go, the idlest is one
 * that has just come back. */
static struct http_worker *steadiest(struct http_front *f, const struct http_sequence *s)
{
    struct http_worker *steady = NULL;
    for (size_t i = 0; i < f->worker_count; i++) {
        struct http_worker *w = &f->workers[i];
        if (serves(w, s) && (!steady || w->up_ns < steady->up_ns))
            steady = w;
    }
    return steady;
}

/* Hashes of the prompt's first 1, 2, ... blocks; how many. */
static size_t prefix_hashes(const struct http_sequence *s, uint64_t hashes[HTTP_PREFIX_BLOCKS_MAX])
{
    uint64_t hash = XXH3_64bits(s->model->hash, sizeof(s->model->hash));
    size_t count = 0;
    for (; count < HTTP_PREFIX_BLOCKS_MAX && (count + 1) * HTTP_PREFIX_TOKENS <= s->prompt_count;
         count++) {
        hash = XXH3_64bits_withSeed(s->tokens + count * HTTP_PREFIX_TOKENS,
                                    HTTP_PREFIX_TOKENS * sizeof(uint32_t), hash);
        hashes[count] = hash;
    }
    return count;
}

static struct http_prefix *entry_of(struct http_front *f, uint64_t hash)
{
    return &f->prefixes[hash % HTTP_PREFIX_ENTRIES];
}

void http_route_note(struct http_front *f, const struct http_sequence *s,
                     const struct http_worker *w)
{
    uint64_t hashes[HTTP_PREFIX_BLOCKS_MAX];
    size_t count = prefix_hashes(s, hashes);
    for (size_t i = 0; i < count; i++)
        *entry_of(f, hashes[i]) = (struct http_prefix){.hash = hashes[i], .worker = w->index + 1};
}

/* The worker with the longest prefix that may take it; NULL: none. */
static struct http_worker *by_prefix(struct http_front *f, const struct http_sequence *s,
                                     uint64_t now)
{
    uint64_t hashes[HTTP_PREFIX_BLOCKS_MAX];
    for (size_t i = prefix_hashes(s, hashes); i > 0; i--) {
        const struct http_prefix *entry = entry_of(f, hashes[i - 1]);
        if (entry->worker && entry->hash == hashes[i - 1] &&
            may_take(&f->workers[entry->worker - 1], s, now))
            return &f->workers[entry->worker - 1];
    }
    return NULL;
}

bool http_route_full(const struct http_front *f, const struct http_sequence *s)
{
    uint64_t now = hw_now_ns();
    for (size_t i = 0; i < f->worker_count; i++) {
        const struct http_worker *w = &f->workers[i];
        if (has_room(w, now) && is_open(w) && http_worker_model(w, s->model) >= 0)
            return false;
    }
    return true;
}

bool http_route_refuse(struct http_front *f, struct http_sequence *s, const struct http_worker *w)
{
    _Static_assert(HTTP_WORKERS_MAX <= 64, "a bit for each worker");
    s->refused |= UINT64_C(1) << w->index;
    for (size_t i = 0; i < f->worker_count; i++) {
        if (!is_leaving(&f->workers[i]) && suits(&f->workers[i], s))
            return true;
    }
    return false;
}

uint64_t http_route_took(const struct http_front *f, const struct http_sequence *s)
{
    uint64_t last = 0;
    for (size_t i = 0; i < f->worker_count; i++) {
        const struct http_worker *w = &f->workers[i];
        if (w->took_ns > last && suits(w, s))
            last = w->took_ns;
    }
    return last;
}

/* A worker that drains completes a text that has begun where no other one can compute it.  One that
 * could and has no room just now is waited for. */
static struct http_worker *drained(struct http_front *f, const struct http_sequence *s,
                                   uint64_t now)
{
    struct http_worker *found = NULL;
    if (s->token_count == s->prompt_count)
        return NULL;
    for (size_t i = 0; i < f->worker_count; i++) {
        struct http_worker *w = &f->workers[i];
        if (serves(w, s))
            return NULL;
        if (w->state == HTTP_WORKER_UP && w->served.draining && !w->served.incomplete &&
            !http_worker_is_doubted(w) && has_room(w, now) && suits(w, s))
            found = w;
    }
    return found;
}

struct http_worker *http_route(struct http_front *f, const struct http_sequence *s)
{
    struct http_worker *least = NULL;
    uint64_t now = hw_now_ns();
    if (s->losses >= HTTP_LOSSES_STEADY && now < s->waits_ns + HTTP_STEADY_NS) {
        struct http_worker *steady = steadiest(f, s);
        return steady && has_room(steady, now) ? steady : NULL; /* it waits for that one */
    }
    for (size_t i = 0; i < f->worker_count; i++) {
        struct http_worker *w = &f->workers[i];
        if (may_take(w, s, now) && (!least || load_of(w) < load_of(least)))
            least = w;
    }
    if (!least)
        return drained(f, s, now);
    if (f->worker_count == 1)
        return least;
    struct http_worker *knows = by_prefix(f, s, now);
    return knows && load_of(knows) <= load_of(least) + HTTP_IMBALANCE_MAX ? knows : least;
}
