/* The engine's thread: requests that are answered at once, and admission to the steps. */
#include "base/clock.h"
#include "llm/model/why.h"
#include "llm/worker/impl.h"
#include "llm/worker/inspect.h"
#include "llm/worker/session/link.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int find_weights(struct llm_worker *w, struct llm_job *job)
{
    if (w->options.takes_files) /* the worker that asks has found them */
        return llm_loader_start(w, job);
    struct llm_model *m = llm_model_find(w, job->request.hash, job->request.total);
    if (m) {
        hw_counter_bump(&w->counts[LLM_COUNT_UPLOADS_FOUND], 1);
        llm_client_choose(w, job->client, m);
        llm_job_put(w, job, LLM_HOME_HERE);
    } else if ((job->load.kept = llm_kept_take(w, job->request.hash, job->request.total))) {
        llm_job_put(w, job, LLM_HOME_OUTSIDE);
        return 0;
    }
    wire_put_u8(&job->answer, m != NULL);
    return 0;
}

void llm_job_put(struct llm_worker *w, struct llm_job *job, enum llm_home home)
{
    job->home = home;
    job->client->is_outside = home == LLM_HOME_OUTSIDE;
    w->moves |= w->options.outside != NULL;
}

static int release(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s;
    int rc = llm_sequence_by_handle(w, job, &s);
    if (rc == 0)
        rc = llm_sequence_is_free(s, job);
    if (rc)
        return rc;
    llm_sequence_free(w, s);
    return 0;
}

static int reset(struct llm_worker *w, struct llm_job *job)
{
    for (const struct llm_sequence *s = w->sequences; s; s = s->next) {
        if (s->owner == job->client && s->job)
            return llm_why(job->why, -EBUSY, "a request of this client is under way");
    }
    for (struct llm_sequence *s = w->sequences, *next; s; s = next) {
        next = s->next;
        if (s->owner == job->client)
            llm_sequence_free(w, s);
    }
    llm_client_choose(w, job->client, NULL);
    llm_job_put(w, job, LLM_HOME_HERE);
    return 0;
}

/* What the processes of clients counted. */
static uint64_t counted_outside(const struct llm_worker *w, enum llm_worker_count which)
{
    uint64_t total, own = hw_counter_load(&w->counts[which]);
    if (!w->options.outside || hw_counters_total(llm_worker_count_defs[which].name, &total))
        return 0;
    return total > own ? total - own : 0;
}

static uint64_t counted(const struct llm_worker *w, enum llm_worker_count which)
{
    return hw_counter_load(&w->counts[which]) + counted_outside(w, which);
}

static int metrics(struct llm_worker *w, struct llm_job *job)
{
    const struct llm_client *c = job->client;
    uint64_t orphans = 0;
    for (const struct llm_sequence *s = w->sequences; s; s = s->next)
        orphans += !s->owner;
    const uint64_t values[LLM_METRICS] = {
        [LLM_METRIC_KERNEL_NS] = c->kernel_ns,
        [LLM_METRIC_STEP_NS] = c->step_ns,
        [LLM_METRIC_SERDES_NS] = atomic_load_explicit(&c->serdes_ns, memory_order_relaxed),
        [LLM_METRIC_STEPS] = c->steps,
        [LLM_METRIC_TOKENS] = c->tokens,
        [LLM_METRIC_OWN_SEQUENCES] = c->sequences,
        [LLM_METRIC_SEQUENCES] = w->sequence_count + counted_outside(w, LLM_COUNT_SEQUENCES),
        [LLM_METRIC_ORPHANS] = orphans,
        [LLM_METRIC_MODELS] = w->model_count + counted_outside(w, LLM_COUNT_MODELS),
        [LLM_METRIC_KV_EVICTED] = c->moved.figures.evicted_layers,
        [LLM_METRIC_KV_RESTORED] = c->moved.figures.restored_layers,
        [LLM_METRIC_KV_PLAIN_BYTES] = c->moved.figures.plain_bytes,
        [LLM_METRIC_KV_WAIT_NS] = c->moved.figures.wait_ns,
        [LLM_METRIC_KV_COMPUTED] = c->moved.computed_rows,
        [LLM_METRIC_KV_SHARED] = c->moved.shared_rows,
    };
    for (int i = 0; i < LLM_METRICS; i++)
        wire_put_u64(&job->answer, values[i]);
    return 0;
}

static int inspect(struct llm_worker *w, struct llm_job *job)
{
    struct llm_inspection *i = calloc(1, sizeof *i);
    if (!i)
        return llm_why(job->why, -ENOMEM, "no memory for an inspection");
    i->uploads = counted(w, LLM_COUNT_UPLOADS);
    i->uploads_found = counted(w, LLM_COUNT_UPLOADS_FOUND);
    i->map_count = w->served_count;
    for (uint32_t k = 0; k < w->served_count; k++) {
        const struct llm_model *m = w->served[k];
        uint32_t layers = llm_engine_config(m->engine)->layers;
        llm_kv_map_init(&i->maps[k], layers, llm_engine_context(m->engine));
        for (const struct llm_sequence *s = w->sequences; s; s = s->next) {
            if (s->model != m)
                continue;
            i->maps[k].sequences++;
            for (uint32_t l = 0; l < layers; l++)
                llm_kv_map_add(&i->maps[k], l, llm_seq_layer_rows(s->seq, l),
                               llm_seq_length(s->seq));
        }
    }
    llm_inspection_put(&job->answer, i);
    free(i);
    return 0;
}

/* The client is gone.  After a goodbye its sequences are freed; else they are kept for the grace
 * time. */
static void farewell(struct llm_worker *w, struct llm_client *c)
{
    bool goodbye = c->farewell.status == -ESHUTDOWN;
    uint64_t due_ns = hw_now_ns() + (goodbye ? 0 : w->options.grace_ns);
    for (struct llm_sequence *s = w->sequences; s; s = s->next) {
        if (s->owner != c)
            continue;
        s->owner = NULL;
        s->due_ns = due_ns;
    }
    c->sequences = 0;
    llm_client_choose(w, c, NULL);
}

int llm_worker_respond(struct llm_worker *w, struct llm_job *job)
{
    if (atomic_load_explicit(&job->client->gone, memory_order_relaxed))
        return -ECANCELED;
    switch (job->request.method) {
    case LLM_METHOD_FIND_WEIGHTS:
        return find_weights(w, job);
    case LLM_METHOD_STATELESS:
    case LLM_METHOD_LOAD_WEIGHTS:
        return llm_loader_start(w, job);
    case LLM_METHOD_RELEASE:
        return release(w, job);
    case LLM_METHOD_RESET:
        return reset(w, job);
    case LLM_METHOD_METRICS:
        return metrics(w, job);
    case LLM_METHOD_INSPECT:
        return inspect(w, job);
    default:
        return llm_kv_request(w, job);
    }
}

/* Requests that arrived earlier take a step before a later request is answered, which so sees their
 * effects; those of a client whose upload is being loaded wait for that. */
void llm_worker_admit(struct llm_worker *w)
{
    bool joined = false;
    while (w->arrived.first) {
        struct llm_job *job = w->arrived.first;
        bool steps = job != &job->client->farewell && llm_job_steps(job);
        if (joined && !steps)
            return;
        (void)llm_jobs_take(&w->arrived);
        if (job->client->loads && !job->load.phase) {
            llm_jobs_append(&w->held, job);
            continue;
        }
        if (job != &job->client->farewell && job->client->is_outside &&
            llm_link_carries(job->request.method)) {
            llm_job_put(w, job, LLM_HOME_OUTSIDE);
            llm_jobs_append(&w->done, job);
            continue;
        }
        if (steps && llm_job_is_text(job)) {
            job->status = llm_text_check(w, job);
            if (job->status) {
                llm_jobs_append(&w->done, job);
                continue;
            }
        }
        if (steps) {
            joined = true;
            llm_jobs_append(&w->running, job);
            continue;
        }
        if (job == &job->client->farewell) {
            farewell(w, job->client);
            llm_jobs_append(&w->done, job);
            continue;
        }
        int rc = job->load.phase ? llm_loader_returned(w, job) : llm_worker_respond(w, job);
        if (rc == -EINPROGRESS) /* it is the loader's by now, which may have set its status */
            continue;
        job->status = rc;
        llm_jobs_append(rc == -EAGAIN ? &w->running : &w->done, job);
    }
}

void llm_worker_unload(struct llm_worker *w)
{
    while (w->sequences)
        llm_sequence_free(w, w->sequences);
    for (struct llm_client *c = w->clients; c; c = c->next)
        llm_client_choose(w, c, NULL);
    for (uint32_t i = 0; i < w->served_count; i++)
        llm_model_unref(w, w->served[i]);
    assert(!w->models);
    llm_model_notes_end(w);
}
