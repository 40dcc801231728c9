/* Sequences, by handle or id, until they are released or their grace time is over. */
#include "base/clock.h"
#include "base/log.h"
#include "llm/model/why.h"
#include "llm/worker/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void llm_sequence_free(struct llm_worker *w, struct llm_sequence *s)
{
    struct llm_sequence **to = &w->sequences;
    while (*to && *to != s)
        to = &(*to)->next;
    if (*to) {
        *to = s->next;
        w->sequence_count--;
        if (s->owner)
            s->owner->sequences--;
    }
    llm_sequence_kv_end(w, s);
    llm_seq_destroy(s->seq);
    llm_sampler_destroy(s->sampler);
    llm_packer_fini(&s->packer);
    llm_model_unref(w, s->model);
    free(s);
}

static int sequence_fill(struct llm_sequence *s, const struct llm_request *r)
{
    s->wish = r->wish;
    if (getrandom(s->handle, sizeof s->handle, 0) != sizeof s->handle)
        return -errno;
    int rc = llm_seq_create(s->model->engine, &s->seq);
    if (rc == 0)
        rc = llm_packer_init(&s->packer);
    if (rc == 0 && s->wish.kind == LLM_WISH_TOKENS)
        rc = llm_sampler_create(&s->wish.sampling, llm_model_vocab(s->model), &s->sampler);
    s->wish.sampling.biases = NULL; /* the request's, which may end first */
    s->wish.sampling.bias_count = 0;
    return rc;
}

int llm_sequence_create(struct llm_worker *w, struct llm_client *c, struct llm_model *model,
                        const struct llm_request *r, struct llm_sequence **out, char *why)
{
    struct llm_model *m = model ? model : llm_client_model(w, c);
    if (!m)
        return llm_why(why, -ENOENT, "this worker serves no model: load weights first");
    if (c->sequences >= w->options.sequences)
        return llm_why(why, -ENOSPC, "this client has %u sequences, its limit: release one",
                       c->sequences);
    struct llm_sequence *s = calloc(1, sizeof *s);
    if (!s)
        return llm_why(why, -ENOMEM, "no memory for a sequence");
    s->model = m;
    m->refs++;
    int rc = sequence_fill(s, r);
    /* An embedding needs all its rows' states: no row can come from the store. */
    if (rc == 0 && !r->generate.embed)
        rc = llm_sequence_kv_begin(w, c, s, r);
    if (rc) {
        llm_sequence_free(w, s);
        return llm_why(why, rc, "no sequence: %s",
                       rc == -EINVAL ? "bad sampling options" : strerror(-rc));
    }
    s->owner = c;
    s->id = c->ids_given++;
    c->sequences++;
    s->next = w->sequences;
    w->sequences = s;
    w->sequence_count++;
    *out = s;
    return 0;
}

int llm_sequence_by_handle(struct llm_worker *w, struct llm_job *job, struct llm_sequence **out)
{
    struct llm_client *c = job->client;
    const uint8_t *handle = job->request.handle;
    struct llm_sequence *s = w->sequences;
    while (s && memcmp(s->handle, handle, LLM_HANDLE_BYTES) != 0)
        s = s->next;
    int rc = s ? 0 : llm_kv_adopt(w, job, &s);
    if (rc && rc != -ENOENT)
        return rc;
    if (rc) {
        char text[LLM_HANDLE_CHARS];
        llm_handle_format(handle, text);
        return llm_why(job->why, -ENOENT,
                       "no sequence has the handle %s; it was released, or its client was gone for "
                       "longer than the grace time",
                       text);
    }
    if (!s->owner) {
        s->owner = c;
        s->id = c->ids_given++;
        c->sequences++;
    }
    *out = s;
    return 0;
}

int llm_sequence_is_free(const struct llm_sequence *s, struct llm_job *job)
{
    if (!s->job || s->job == job)
        return 0;
    return llm_job_steps(s->job) ? llm_why(job->why, -EBUSY, "another request uses this sequence")
                                 : -EAGAIN;
}

bool llm_client_may_have(const struct llm_worker *w, const struct llm_client *c,
                         const struct llm_model *m, uint64_t pages)
{
    uint64_t held = 0;
    uint32_t used, all, share = w->options.share;
    for (const struct llm_sequence *s = share ? w->sequences : NULL; s; s = s->next) {
        if (s->owner == c && s->model == m)
            held += llm_engine_pages_for(m->engine, llm_seq_length(s->seq));
    }
    llm_engine_kv_pages(m->engine, &used, &all);
    return held == 0 || held + pages <= (uint64_t)all * share / 100;
}

int llm_sequence_by_id(struct llm_worker *w, struct llm_job *job, struct llm_sequence **out)
{
    struct llm_sequence *s = w->sequences;
    while (s && (s->owner != job->client || s->id != job->request.id))
        s = s->next;
    if (!s)
        return llm_why(job->why, -ENOENT, "this connection has no sequence %llu",
                       (unsigned long long)job->request.id);
    *out = s;
    return 0;
}

uint64_t llm_worker_expire(struct llm_worker *w, uint64_t now_ns)
{
    uint64_t due_ns = HW_NEVER, orphans = 0;
    for (struct llm_sequence *s = w->sequences, *next; s; s = next) {
        next = s->next;
        if (s->owner)
            continue;
        if (!s->job && s->due_ns <= now_ns) {
            hw_info(HW_CAT_LLM, "a sequence of %u positions is freed: its client is gone",
                    llm_seq_length(s->seq));
            llm_sequence_free(w, s);
            continue;
        }
        orphans++;
        if (!s->job && s->due_ns < due_ns)
            due_ns = s->due_ns;
    }
    hw_counter_store(&w->counts[LLM_COUNT_SEQUENCES], w->sequence_count);
    hw_counter_store(&w->counts[LLM_COUNT_ORPHANS], orphans);
    hw_counter_store(&w->counts[LLM_COUNT_MODELS], w->model_count);
    return due_ns;
}

bool llm_worker_free_orphan(struct llm_worker *w, const struct llm_model *m)
{
    struct llm_sequence *oldest = NULL;
    for (struct llm_sequence *s = w->sequences; s; s = s->next) {
        if (!s->owner && !s->job && s->model == m && (!oldest || s->due_ns < oldest->due_ns))
            oldest = s;
    }
    if (oldest)
        llm_sequence_free(w, oldest);
    return oldest != NULL;
}
