/* Weights of served models leave the device while nobody asks for them, and come back on demand.
 *
 * A model without a request for idle_weights_ns is put aside at once, whoever uses the memory then:
 * another model, another process.  One that a request waits for returns from its file's mapping,
 * which is in memory or read again: a slice between two steps of other models, one model at a time.
 * Where the device has no memory for it, or for KV, models that compute nothing now are put aside
 * before their time, the longest idle first; then KV goes that no request uses.  Where all compute,
 * it waits; after a while texts of the others that have not begun wait for it, so that each has its
 * turn. */
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "llm/model/why.h"
#include "llm/worker/impl.h"

#include <assert.h>
#include <errno.h>

#define SLICE_NS (20 * HW_MS) /* as often as a review of KV memory */
#define TURN_NS HW_SEC
#define PATIENCE_NS (60 * HW_SEC) /* of requests whose model finds no memory */

/* Of a model that left or came back. */
static void tell(struct llm_worker *w, struct llm_model *m)
{
    uint64_t bytes = 0;
    uint32_t aside = 0;
    for (uint32_t i = 0; i < w->served_count; i++) {
        bytes += w->served[i]->aside_bytes;
        aside |= (uint32_t)w->served[i]->is_aside << i;
    }
    atomic_store_explicit(&w->aside, aside, memory_order_relaxed);
    hw_counter_store(&w->counts[LLM_COUNT_WEIGHTS_ASIDE], bytes);
    llm_kv_share_tell(w, m);
}

static bool put_aside(struct llm_worker *w, struct llm_model *m)
{
    char size[HW_FORMAT_CHARS];
    uint64_t bytes = llm_engine_weights_leave(m->engine);
    assert(!m->is_aside);
    if (bytes == 0)
        return false;
    m->is_aside = true;
    m->aside_bytes = bytes;
    tell(w, m);
    hw_info(HW_CAT_LLM, "%s: weights put aside, %s of GPU memory are free", m->name,
            hw_format_size(size, bytes));
    return true;
}

bool llm_weights_make_room(struct llm_worker *w, uint32_t device, const struct llm_model *but)
{
    struct llm_model *idle = NULL;
    for (uint32_t i = 0; i < w->served_count && w->options.idle_weights_ns; i++) {
        struct llm_model *m = w->served[i];
        bool rests = m->ran_ns == 0 || w->weighed_ns - m->ran_ns >= LLM_WORKER_RECENT_NS;
        if (m != but && m->device == device && !m->is_aside && rests &&
            (!idle || m->ran_ns < idle->ran_ns))
            idle = m;
    }
    return (idle && put_aside(w, idle)) || llm_kv_share_give_kept(w, device);
}

/* ---- a model comes back ---- */

static void returned(struct llm_worker *w, struct llm_model *m)
{
    uint64_t took = hw_now_ns() - m->return_ns;
    char time[HW_FORMAT_CHARS];
    hw_buckets_note(&m->notes[LLM_NOTE_RETURNED], took);
    hw_info(HW_CAT_LLM, "%s: weights are back after %s", m->name, hw_format_duration(time, took));
    m->is_aside = m->is_blocked = m->is_warned = false;
    m->return_ns = m->aside_bytes = 0;
    tell(w, m);
}

/* What was copied so far is given back. */
static void give_up(struct llm_model *m)
{
    (void)llm_engine_weights_leave(m->engine);
    m->is_blocked = false;
    m->return_ns = 0;
}

/* A remedy stands before a cause, which may be long and then is cut. */
static const char *verdict(int status)
{
    return status == -ESTALE ? "start the server again: "
           : status == -ENOMEM
               ? "the GPU has no memory for them now: ask again later, or serve fewer models or "
                 "with a smaller --kv-memory: "
               : "they cannot come back: ";
}

static void fail_all(struct llm_worker *w, struct llm_model *m, int status, const char *cause,
                     void (*fail)(struct llm_worker *w, struct llm_job *job, int status))
{
    struct llm_jobs jobs;
    llm_jobs_init(&jobs);
    llm_jobs_move(&w->running, &jobs);
    if (!m->is_warned) /* once, and not for each request */
        hw_warn(HW_CAT_LLM, "%s: weights cannot come back: %s", m->name, cause);
    m->is_warned = true;
    while (jobs.first) {
        struct llm_job *job = llm_jobs_take(&jobs);
        if (llm_job_model(w, job) != m) {
            llm_jobs_append(&w->running, job);
            continue;
        }
        llm_why_set(job->why, "the weights of %.64s were put aside; %s%s", m->name, verdict(status),
                    cause);
        fail(w, job, status);
    }
}

/* The file is looked at before and after: one that is shortened meanwhile ends the process. */
static int advance(struct llm_model *m, uint64_t now, char *why)
{
    int rc = llm_file_check(m->file, why) ? -ESTALE : -EAGAIN;
    while (rc == -EAGAIN && hw_now_ns() - now < SLICE_NS)
        rc = llm_engine_weights_return(m->engine, why);
    return rc == 0 && llm_file_check(m->file, why) ? -ESTALE : rc;
}

static bool others_hold_memory(const struct llm_worker *w, const struct llm_model *m)
{
    for (uint32_t i = 0; i < w->served_count; i++) {
        const struct llm_model *other = w->served[i];
        if (other != m && other->device == m->device && !other->is_aside)
            return true;
    }
    return false;
}

static void bring_back(struct llm_worker *w, struct llm_model *m, uint64_t now,
                       void (*fail)(struct llm_worker *w, struct llm_job *job, int status))
{
    char why[LLM_WHY_CHARS] = "other models hold the GPU's memory";
    m->return_ns = m->return_ns ? m->return_ns : now;
    if (m->is_blocked)
        m->is_blocked = !llm_weights_make_room(w, m->device, m);
    int rc = m->is_blocked ? -ENOMEM : advance(m, now, why);
    if (rc == 0) {
        returned(w, m);
        return;
    }
    w->returns = rc == -EAGAIN ||
                 (rc == -ENOMEM && !m->is_blocked && llm_weights_make_room(w, m->device, m));
    if (w->returns)
        return;
    bool waits = rc == -ENOMEM && others_hold_memory(w, m) && now - m->return_ns < PATIENCE_NS;
    if (!waits) {
        give_up(m);
        fail_all(w, m, rc, why, fail);
        return;
    }
    if (!m->is_blocked)
        (void)llm_engine_weights_leave(m->engine); /* nobody waits for what it has of its own */
    m->is_blocked = true;
    w->turn = now - m->return_ns >= TURN_NS ? m : NULL;
}

/* ---- for the worker ---- */

/* Which of two models that are put aside returns first; b came first or is NULL. */
static struct llm_model *sooner(struct llm_model *a, struct llm_model *b)
{
    if (!b || b->is_blocked > a->is_blocked)
        return a;
    return b->is_blocked == a->is_blocked && a->return_ns && !b->return_ns ? a : b;
}

void llm_weights_review(struct llm_worker *w,
                        void (*fail)(struct llm_worker *w, struct llm_job *job, int status))
{
    uint64_t now = hw_now_ns();
    struct llm_model *next = NULL;
    if (!w->options.idle_weights_ns)
        return;
    w->weighed_ns = now;
    w->returns = false;
    w->turn = NULL;
    for (const struct llm_job *job = w->running.first; job; job = job->next) {
        struct llm_model *m = llm_job_model(w, job);
        if (!m)
            continue;
        m->asked_ns = now;
        m->ran_ns = job->seq && !llm_text_waits(job) ? now : m->ran_ns;
        next = m->is_aside ? sooner(m, next) : next;
    }
    for (uint32_t i = 0; i < w->served_count; i++) {
        struct llm_model *m = w->served[i];
        if (m->return_ns && m->asked_ns != now)
            give_up(m);
        else if (!m->is_aside && now - m->asked_ns >= w->options.idle_weights_ns)
            (void)put_aside(w, m);
    }
    if (next)
        bring_back(w, next, now, fail);
}

uint64_t llm_weights_due(const struct llm_worker *w)
{
    uint64_t due = HW_NEVER;
    for (uint32_t i = 0; i < w->served_count && w->options.idle_weights_ns; i++) {
        const struct llm_model *m = w->served[i];
        uint64_t at = m->asked_ns + w->options.idle_weights_ns;
        due = !m->is_aside && at < due ? at : due;
    }
    return due;
}
