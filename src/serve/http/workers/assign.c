/* Gives texts that wait to workers.  The next text is that of the key with the fewest texts at
 * workers, of equals that which was served longest ago: many requests of one key do not hold up one
 * of another.
 *
 * Where there are several keys, the texts of one may take only a share of the places and of the KV
 * memory that workers have; the rest is there when another key comes.  A text that has begun goes
 * on also beyond that share: its client reads it. */
#include "serve/http/impl.h"

#include "llm/engine/backend.h"

enum { SHARE_DEFAULT = 75, SHARE_ALL = 100 }; /* percent */

/* ---- shares ---- */

static uint64_t share_of(const struct http_front *f)
{
    uint64_t given = f->config.limits.share_per_key;
    return given ? given : f->config.keys.count > 1 ? SHARE_DEFAULT : SHARE_ALL;
}

/* Texts and positions of KV that workers have room for. */
static void count_room(const struct http_front *f, const struct http_model *m, uint64_t *texts,
                       uint64_t *positions)
{
    uint32_t layers = m->file ? llm_file_config(m->file)->layers : 1;
    *texts = *positions = 0;
    for (size_t i = 0; i < f->worker_count; i++) {
        const struct http_worker *w = &f->workers[i];
        int model = w->state == HTTP_WORKER_UP ? http_worker_model(w, m) : -1;
        if (model < 0)
            continue;
        *texts += HTTP_WORKER_TEXTS_MAX;
        *positions += w->served.models[model].kv_pages / layers * LLM_KV_POSITIONS;
    }
}

/* A key without a text at a worker always may. */
static bool has_share(const struct http_front *f, const struct http_sequence *s)
{
    const struct http_key *key = s->key;
    uint64_t share = share_of(f), texts, positions;
    if (share >= SHARE_ALL || key->texts == 0)
        return true;
    count_room(f, s->model, &texts, &positions);
    return key->texts < texts * share / SHARE_ALL &&
           (positions == 0 || /* a worker tells it after its first step */
            key->positions + s->token_count <= positions * share / SHARE_ALL);
}

/* ---- whose turn it is ---- */

/* The first text of a request that a worker can take now, and the worker.  After a new text that
 * finds no place come only new ones, so the walk ends. */
static struct http_sequence *next_of_siblings(struct http_front *f, struct http_siblings *b,
                                              struct http_worker **w)
{
    for (struct http_sequence *s = b->waiting; s; s = s->next) {
        f->looks++;
        http_sequence_forgive(s);
        bool begun = s->token_count > s->prompt_count;
        bool any = !begun && s->losses < HTTP_LOSSES_STEADY; /* worker will do */
        bool full = any && s->model->full == f->walks;
        if (!begun)
            s->arithmetic[0] = '\0'; /* nothing was generated: any arithmetic will do */
        bool share = !full && (begun || has_share(f, s));
        *w = share ? http_route(f, s) : NULL;
        if (*w)
            return s;
        if (any && (!share || http_route_full(f, s))) /* else it needs more context than others */
            s->model->full = f->walks;
        if (!s->attempts)
            return NULL;
    }
    return NULL;
}

/* The same of all requests of the key. */
static struct http_sequence *next_of(struct http_front *f, struct http_key *key,
                                     struct http_worker **w)
{
    f->walks++;
    for (struct http_siblings *b = key->waiting; b; b = b->next) {
        struct http_sequence *s = next_of_siblings(f, b, w);
        if (s)
            return s;
    }
    return NULL;
}

static bool goes_before(const struct http_key *a, const struct http_key *b)
{
    return !b || a->texts < b->texts || (a->texts == b->texts && a->served < b->served);
}

/* The key that comes next, of those that `pass` has not found stuck. */
static struct http_key *next_key(struct http_front *f, uint64_t pass)
{
    struct http_key *next = NULL;
    for (struct http_key *key = f->waiting; key; key = key->next) {
        if (key->stuck != pass && goes_before(key, next))
            next = key;
    }
    return next;
}

void http_assign(struct http_front *f)
{
    uint64_t pass = ++f->passes;
    struct http_key *key;
    while ((key = next_key(f, pass)) != NULL) {
        struct http_worker *w;
        struct http_sequence *s = next_of(f, key, &w);
        if (!s || http_sequence_assign(s, w))
            key->stuck = pass;
        else
            key->served = ++f->served;
    }
}

void http_assign_waiting(struct http_front *f, struct http_action *a)
{
    a->queued = false;
    http_assign(f);
}
