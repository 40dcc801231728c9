/* Served models share KV memory.
 *
 * Each served model is a user of one limit (page/limit.h), which processes may share.  Before steps
 * the worker tells what its models use and want, and asks the policy (page/share.h) how much each
 * may have.  A model that holds more gives back, in this order: empty slabs, prefixes that no
 * sequence has, KV that a store takes, the rows of its texts, the youngest first.  The target is at
 * least what the oldest request needs, so that text gives way only where its pages are spread over
 * too many slabs; computed again, it has them in few. */
#include "base/clock.h"
#include "llm/worker/impl.h"
#include "page/limit.h"
#include "page/share.h"

#include <assert.h>

static_assert((int)PAGE_SHARE_MODELS_MAX == (int)PAGE_LIMIT_USERS, "a share for each line");

/* How often a worker looks without need: for a limit that was changed and for needs of other
 * processes. */
#define REVIEW_NS (20 * HW_MS)
#define IDLE_REVIEW_NS (100 * HW_MS)
#define STALL_NS (5 * HW_MS)
/* A request that is not a text waits so long for memory of other models. */
#define WAIT_NS HW_SEC
/* So long is what was held the limit when the device refused more.  Then it is tried again: what
 * else has its memory, another process for example, is not heard of. */
#define REFUSED_NS (5 * HW_SEC)

/* ---- what models need ---- */

/* Pages of all that the job has and will need next. */
static uint64_t pages_needed(const struct llm_job *job, const struct llm_model *m)
{
    if (llm_job_is_text(job))
        return llm_text_pages(job);
    uint64_t length = job->seq ? llm_seq_length(job->seq->seq) : 0;
    uint64_t rows = llm_job_decodes(job) ? 1 : job->request.token_count - job->done;
    uint64_t context = llm_engine_context(m->engine), end = length + rows;
    return llm_engine_pages_for(m->engine, (uint32_t)(end < context ? end : context));
}

static uint64_t pages_there(const struct llm_job *job, const struct llm_model *m)
{
    return job->seq ? llm_engine_pages_for(m->engine, llm_seq_length(job->seq->seq)) : 0;
}

/* The running job that came first, NULL: none. */
static struct llm_job *oldest_job(const struct llm_worker *w, const struct llm_model *m)
{
    struct llm_job *first = NULL;
    for (struct llm_job *job = w->running.first; job; job = job->next) {
        if (llm_job_model(w, job) == m && (!first || job->came_ns < first->came_ns))
            first = job;
    }
    return first;
}

void llm_kv_share_tell(struct llm_worker *w, struct llm_model *m)
{
    uint64_t wanted = 0, now = page_host_ns();
    uint32_t used, all;
    if (!m->limit)
        return;
    llm_engine_kv_pages(m->engine, &used, &all);
    for (struct llm_job *job = w->running.first; job; job = job->next) {
        if (llm_job_model(w, job) != m)
            continue;
        job->came_ns = job->came_ns ? job->came_ns : now;
        uint64_t needed = pages_needed(job, m), there = pages_there(job, m);
        wanted += needed > there ? needed - there : 0;
        if (llm_job_is_text(job)) /* the next one may only begin beside a page more for each */
            wanted += llm_engine_config(m->engine)->layers;
        m->busy_ns = now;
    }
    const struct llm_job *oldest = oldest_job(w, m);
    struct page_limit_state state = {.used_bytes = llm_engine_kv_bytes(m->engine, used),
                                     .busy_ns = m->busy_ns,
                                     .is_aside = m->is_aside};
    state.wanted_bytes = llm_engine_kv_bytes(m->engine, used + wanted) - state.used_bytes;
    if (oldest) {
        state.oldest_bytes = llm_engine_kv_bytes(m->engine, pages_needed(oldest, m));
        state.oldest_ns = oldest->came_ns;
    }
    page_limit_note_state(m->limit, &state);
}

/* ---- what they may have ---- */

static uint64_t since(uint64_t then, uint64_t now)
{
    return then < now ? now - then : 0;
}

/* A worker of a tensor-parallel group tells nothing: it needs what it holds. */
static struct page_share share_of(const struct page_limit_user *u, uint64_t now)
{
    bool is_model = u->name[0] != '\0';
    uint64_t held = u->charged_bytes;
    return (struct page_share){.priority = u->priority,
                               .min_bytes = u->min_bytes,
                               .held_bytes = held,
                               .used_bytes = is_model ? u->state.used_bytes : held,
                               .wanted_bytes = u->state.wanted_bytes,
                               .oldest_bytes = u->state.oldest_bytes,
                               .oldest_ns = since(u->state.oldest_ns, now),
                               .idle_ns = is_model ? since(u->state.busy_ns, now) : 0};
}

static struct llm_model *model_at(const struct llm_worker *w, uint32_t line)
{
    for (uint32_t i = 0; i < w->served_count; i++) {
        if (w->served[i]->limit && page_limit_line(w->served[i]->limit) == line)
            return w->served[i];
    }
    return NULL;
}

/* ---- giving back ---- */

static void give_back(struct llm_worker *w, struct llm_model *m, uint64_t target)
{
    uint64_t before = page_limit_charged(m->limit);
    if (before <= target)
        return;
    llm_engine_kv_trim(m->engine);
    while (page_limit_charged(m->limit) > target &&
           (llm_engine_kv_drop(m->engine) || llm_kv_make_room(w, m) || llm_texts_give_way(w, m)))
        ;
    uint64_t after = page_limit_charged(m->limit);
    hw_counter_bump(&w->counts[LLM_COUNT_KV_GIVEN], before > after ? before - after : 0);
}

static uint64_t limit_now(const struct llm_worker *w, const struct page_limit *limit, uint64_t now)
{
    uint64_t bytes = page_limit_get(limit);
    bool is_refused = w->refused_bytes && now - w->refused_ns < REFUSED_NS;
    return is_refused && (bytes == 0 || w->refused_bytes < bytes) ? w->refused_bytes : bytes;
}

static void share(struct llm_worker *w, struct page_limit *limit, uint64_t now)
{
    struct page_limit_user users[PAGE_LIMIT_USERS];
    struct page_share shares[PAGE_LIMIT_USERS];
    uint64_t targets[PAGE_LIMIT_USERS];
    size_t count = page_limit_users(limit, users);
    for (size_t i = 0; i < count; i++)
        shares[i] = share_of(&users[i], now);
    page_share_targets(shares, count, limit_now(w, limit, now), targets);
    for (size_t i = 0; i < count; i++) {
        struct llm_model *m = model_at(w, users[i].line);
        if (!m)
            continue;
        page_limit_set_own(m->limit, targets[i] ? targets[i] : 1);
        give_back(w, m, targets[i]);
    }
}

static void answer_trim(struct llm_model *m)
{
    uint32_t trims = page_limit_trims(m->limit);
    if (trims == m->trims)
        return;
    llm_engine_kv_trim(m->engine);
    page_limit_note_trims(m->limit, trims);
    m->trims = trims;
}

/* ---- for the worker ---- */

void llm_kv_share_review(struct llm_worker *w)
{
    struct page_limit *limit = NULL;
    if (!w->shares)
        return;
    uint64_t now = page_host_ns();
    bool waits = w->is_short || w->is_stalled || !w->running.first;
    for (const struct llm_job *job = w->running.first; job && !waits; job = job->next)
        waits = llm_text_waits(job);
    if (!waits && now - w->reviewed_ns < REVIEW_NS)
        return;
    w->is_short = false;
    w->reviewed_ns = now;
    for (uint32_t i = 0; i < w->served_count; i++) {
        if (!w->served[i]->limit)
            continue;
        limit = w->served[i]->limit;
        answer_trim(w->served[i]);
        llm_kv_share_tell(w, w->served[i]);
    }
    share(w, limit, now);
}

uint64_t llm_kv_share_due(const struct llm_worker *w)
{
    uint64_t held = 0;
    if (w->is_stalled)
        return hw_now_ns() + STALL_NS;
    for (uint32_t i = 0; i < w->served_count; i++)
        held += w->served[i]->limit ? page_limit_charged(w->served[i]->limit) : 0;
    return held ? hw_now_ns() + IDLE_REVIEW_NS : HW_NEVER;
}

bool llm_kv_share_holds(const struct llm_model *m, uint64_t pages)
{
    if (pages > llm_engine_kv_most(m->engine))
        return false;
    uint64_t limit = m->limit ? page_limit_get(m->limit) : 0;
    limit = m->budget > limit && limit ? m->budget : limit; /* one that was lowered may be raised */
    return limit == 0 || llm_engine_kv_bytes(m->engine, pages) <= limit;
}

bool llm_kv_share_waits(struct llm_worker *w, struct llm_job *job)
{
    struct llm_model *m = job->seq->model;
    uint64_t now = page_host_ns();
    if (!m->limit || !llm_kv_share_holds(m, pages_needed(job, m)))
        return false;
    w->is_short = true;
    job->short_ns = job->short_ns ? job->short_ns : now;
    return llm_job_is_text(job) || now - job->short_ns < WAIT_NS;
}

/* Sequences without a request are left out: nobody knows when they end. */
bool llm_kv_share_refused(struct llm_worker *w, const struct llm_job *job)
{
    struct page_limit *limit = job->seq->model->limit;
    struct page_limit_user users[PAGE_LIMIT_USERS];
    const struct llm_sequence *other = w->sequences;
    while (other && (other == job->seq || !other->job || llm_seq_length(other->seq) == 0))
        other = other->next;
    if (!other || !limit)
        return false;
    w->refused_ns = page_host_ns();
    w->refused_bytes = 0;
    for (size_t i = page_limit_users(limit, users); i-- > 0;)
        w->refused_bytes += users[i].charged_bytes;
    w->is_short = true;
    return true;
}

/* True: it holds less than before. */
static bool give_kept(struct llm_model *m)
{
    uint64_t before = page_limit_charged(m->limit);
    do
        llm_engine_kv_trim(m->engine);
    while (page_limit_charged(m->limit) >= before && llm_engine_kv_drop(m->engine));
    return page_limit_charged(m->limit) < before;
}

bool llm_kv_share_give_kept(struct llm_worker *w, uint32_t device)
{
    bool tried[LLM_SERVED_MODELS_MAX] = {false};
    for (;;) {
        uint32_t next = w->served_count;
        for (uint32_t i = 0; i < w->served_count; i++) {
            if (!tried[i] && w->served[i]->limit && w->served[i]->device == device &&
                (next == w->served_count || w->served[i]->busy_ns < w->served[next]->busy_ns))
                next = i;
        }
        if (next == w->served_count)
            return false;
        tried[next] = true;
        if (give_kept(w->served[next]))
            return true;
    }
}
