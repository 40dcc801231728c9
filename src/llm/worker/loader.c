/* What clients upload is hashed, parsed, made ready and freed here, on a thread of its own: other
 * clients' steps go on meanwhile.
 *
 * A job that needs it goes to the thread and comes back through the worker's queue, as often as it
 * has phases; the engine's thread does what concerns others, in llm_loader_returned.  Requests that
 * its client sends meanwhile wait for it. */
#include "base/clock.h"
#include "llm/model/why.h"
#include "llm/worker/impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void add_serdes(struct llm_client *c, uint64_t since_ns)
{
    atomic_fetch_add_explicit(&c->serdes_ns, hw_now_ns() - since_ns, memory_order_relaxed);
}

/* ---- stateless forward ---- */

static uint64_t cache_bytes(const struct llm_engine *engine, uint64_t positions)
{
    return positions * llm_engine_config(engine)->layers * llm_kv_row_bytes(engine);
}

static int write_cache(struct llm_job *job, struct llm_engine *engine, struct llm_seq *seq)
{
    uint32_t positions = job->request.positions, layers = llm_engine_config(engine)->layers;
    uint64_t bytes = positions * llm_kv_row_bytes(engine);
    if (job->kv.filled != cache_bytes(engine, positions))
        return llm_why(job->why, -EINVAL, "a cache of %u positions has %llu bytes; %llu came",
                       positions, (unsigned long long)cache_bytes(engine, positions),
                       (unsigned long long)job->kv.filled);
    int rc = llm_blob_map(&job->kv, false);
    for (uint32_t l = 0; l < layers && rc == 0 && positions; l++)
        rc = llm_seq_write_kv(seq, l, 0, positions, job->kv.data + l * bytes);
    if (rc == 0)
        rc = llm_seq_set_length(seq, positions);
    return rc ? llm_why(job->why, rc, "the cache cannot be restored: %s", strerror(-rc)) : 0;
}

/* The cache replaces the uploaded one. */
static int read_cache(struct llm_worker *w, struct llm_job *job, struct llm_engine *engine,
                      struct llm_seq *seq)
{
    uint32_t positions = llm_seq_length(seq), layers = llm_engine_config(engine)->layers;
    llm_blob_free(w, &job->kv);
    int rc = llm_blob_make(w, job->client, &job->kv, cache_bytes(engine, positions));
    if (rc == 0)
        rc = llm_blob_map(&job->kv, true);
    if (rc == 0)
        rc = llm_seq_read_kv(seq, 0, layers, 0, positions, job->kv.data);
    if (rc == -EDQUOT)
        return llm_why(job->why, -ENOSPC,
                       "a cache of %u positions exceeds what this worker keeps for clients",
                       positions);
    return rc ? llm_why(job->why, rc, "the cache cannot be read: %s", strerror(-rc)) : 0;
}

/* The next rows of the prompt, as many as a step has. */
static int step(struct llm_job *job, struct llm_model *m, struct llm_seq *seq, struct llm_row *rows)
{
    uint32_t left = job->request.token_count - job->done;
    uint32_t most = llm_engine_batch_rows(m->engine), count = left < most ? left : most;
    for (uint32_t i = 0; i < count; i++)
        rows[i] = (struct llm_row){
            .seq = seq, .token = job->request.tokens[job->done + i], .logits = i + 1 == left};
    uint64_t began = hw_now_ns();
    int rc = llm_engine_step(m->engine, rows, count, m->logits, job->why);
    job->load.steps++;
    job->load.step_ns += hw_now_ns() - began;
    job->load.kernel_ns += llm_engine_kernel_ns(m->engine);
    job->done += rc ? 0 : count;
    return rc;
}

static int compute(struct llm_job *job, struct llm_model *m, struct llm_seq *seq)
{
    struct llm_row *rows = calloc(llm_engine_batch_rows(m->engine), sizeof *rows);
    int rc = rows ? 0 : llm_why(job->why, -ENOMEM, "no memory for a step");
    while (rc == 0 && job->done < job->request.token_count)
        rc = step(job, m, seq, rows);
    free(rows);
    return rc;
}

static int forward(struct llm_worker *w, struct llm_job *job, struct llm_model *m,
                   struct llm_seq *seq)
{
    uint64_t began = hw_now_ns();
    int rc = llm_worker_check_prompt(w, job, m->engine);
    if (rc == 0)
        rc = write_cache(job, m->engine, seq);
    add_serdes(job->client, began);
    if (rc == 0)
        rc = compute(job, m, seq);
    if (rc)
        return rc;
    began = hw_now_ns();
    llm_worker_put_logits(&job->answer, m->logits, llm_model_vocab(m));
    rc = read_cache(w, job, m->engine, seq);
    add_serdes(job->client, began);
    return rc;
}

static int stateless(struct llm_worker *w, struct llm_job *job)
{
    struct llm_model *m;
    struct llm_seq *seq;
    uint64_t began = hw_now_ns();
    int rc = llm_model_create(w, &job->weights, NULL, &m, job->why);
    add_serdes(job->client, began);
    if (rc)
        return rc;
    rc = llm_seq_create(m->engine, &seq);
    if (rc)
        llm_why_set(job->why, "no sequence: %s", strerror(-rc));
    if (rc == 0) {
        rc = forward(w, job, m, seq);
        llm_seq_destroy(seq);
    }
    llm_model_free(w, m);
    return rc;
}

/* ---- weights that are kept ---- */

static int make_model(struct llm_worker *w, struct llm_job *job)
{
    struct llm_model *m;
    int rc = llm_model_create(w, &job->weights, NULL, &m, job->why);
    if (rc)
        return rc;
    rc = llm_model_warm(w, m, job->why);
    if (rc) {
        llm_model_free(w, m);
        return rc;
    }
    memcpy(m->hash, job->load.hash, sizeof m->hash);
    m->hashed = !w->options.takes_files;
    job->load.model = m;
    return 0;
}

/* ---- the thread ---- */

/* Of what nobody can change afterwards. */
static int hash(struct llm_job *job)
{
    int rc = llm_blob_seal(&job->weights);
    if (rc == 0)
        rc = llm_blob_map(&job->weights, false);
    if (rc)
        return llm_why(job->why, rc, "the upload cannot be read: %s", strerror(-rc));
    llm_file_hash(job->weights.data, job->weights.bytes, job->load.hash);
    llm_blob_unmap(&job->weights);
    return 0;
}

static int run(struct llm_worker *w, struct llm_job *job)
{
    uint64_t began = hw_now_ns();
    int rc = 0;
    if (atomic_load_explicit(&job->client->gone, memory_order_relaxed))
        return -ECANCELED;
    switch (job->load.phase) {
    case LLM_LOAD_HASH:
        rc = hash(job);
        break;
    case LLM_LOAD_MAKE:
        rc = make_model(w, job);
        break;
    default:
        return stateless(w, job); /* it counts its own time */
    }
    add_serdes(job->client, began);
    return rc;
}

/* Under the lock, which is given up meanwhile. */
static void work_once(struct llm_worker *w)
{
    struct llm_loader *l = &w->loader;
    struct llm_model *m = l->models;
    struct llm_job *job = m ? NULL : llm_jobs_take(&l->jobs);
    if (m)
        l->models = m->next;
    pthread_mutex_unlock(&w->lock);
    if (m)
        llm_model_free(w, m);
    else
        job->status = run(w, job);
    pthread_mutex_lock(&w->lock);
    if (job) {
        llm_jobs_append(&w->queue, job);
        w->queued++;
        pthread_cond_signal(&w->wake);
    }
}

static void *loader_main(void *user)
{
    struct llm_worker *w = user;
    struct llm_loader *l = &w->loader;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        if (l->models || (l->jobs.first && !w->stopping))
            work_once(w);
        else if (w->stopping)
            break;
        else
            pthread_cond_wait(&l->wake, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- from the engine's thread ---- */

void llm_loader_init(struct llm_worker *w)
{
    llm_jobs_init(&w->loader.jobs);
    pthread_cond_init(&w->loader.wake, NULL);
}

static int give(struct llm_worker *w, struct llm_job *job, enum llm_load_phase phase)
{
    struct llm_loader *l = &w->loader;
    if (w->options.outside && phase != LLM_LOAD_HASH)
        return llm_why(job->why, -EPERM, "this worker does not parse what clients send");
    if (!l->runs) {
        int rc = -pthread_create(&l->thread, NULL, loader_main, w);
        if (rc)
            return llm_why(job->why, rc, "no thread for an upload: %s", strerror(-rc));
        l->runs = true;
    }
    job->load.phase = phase;
    job->client->loads = true;
    pthread_mutex_lock(&w->lock);
    llm_jobs_append(&l->jobs, job);
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&w->lock);
    return -EINPROGRESS;
}

int llm_loader_start(struct llm_worker *w, struct llm_job *job)
{
    int rc = llm_blob_is_whole(&job->weights, job->why);
    if (rc)
        return rc;
    bool is_forward = job->request.method == LLM_METHOD_STATELESS;
    return give(w, job,
                is_forward               ? LLM_LOAD_RUN
                : w->options.takes_files ? LLM_LOAD_MAKE
                                         : LLM_LOAD_HASH);
}

/* The client's process makes the model, of what is kept for others meanwhile. */
static int go_outside(struct llm_worker *w, struct llm_job *job)
{
    struct llm_load *load = &job->load;
    int rc = 0;
    load->kept = llm_kept_take(w, load->hash, job->weights.bytes);
    if (!load->kept)
        rc = llm_kept_add(w, load->hash, &job->weights, &load->kept);
    if (rc)
        return llm_why(job->why, rc,
                       "%d models are loaded, the limit: wait until their clients leave",
                       LLM_WORKER_MODELS_MAX);
    llm_job_put(w, job, LLM_HOME_OUTSIDE);
    return 0;
}

static void count_upload(struct llm_worker *w, struct llm_job *job)
{
    bool found = job->request.method == LLM_METHOD_FIND_WEIGHTS;
    hw_counter_bump(&w->counts[found ? LLM_COUNT_UPLOADS_FOUND : LLM_COUNT_UPLOADS], 1);
    if (found)
        wire_put_u8(&job->answer, 1);
}

/* Looks for the model, and looks again once it is made: another client may have sent it, too. */
static int find_or_make(struct llm_worker *w, struct llm_job *job)
{
    struct llm_model *made = job->load.model;
    struct llm_model *m =
        w->options.takes_files
            ? NULL
            : llm_model_find(w, job->load.hash, made ? made->blob.bytes : job->weights.bytes);
    bool full = w->model_count == LLM_WORKER_MODELS_MAX;
    if (!m && w->options.outside)
        return go_outside(w, job);
    if (!made && !m && !full)
        return give(w, job, LLM_LOAD_MAKE);
    job->load.model = NULL;
    if (made && !m && !full)
        llm_model_list(w, m = made);
    else if (made)
        llm_loader_free(w, made);
    if (!m)
        return llm_why(job->why, -ENOSPC,
                       "%d models are loaded, the limit: wait until their clients leave",
                       LLM_WORKER_MODELS_MAX);
    count_upload(w, job);
    llm_client_choose(w, job->client, m);
    llm_job_put(w, job, LLM_HOME_HERE);
    return 0;
}

static void count_run(struct llm_worker *w, const struct llm_job *job)
{
    const struct llm_load *load = &job->load;
    struct llm_client *c = job->client;
    hw_counter_bump(&w->counts[LLM_COUNT_STEPS], load->steps);
    hw_counter_bump(&w->counts[LLM_COUNT_ROWS], job->done);
    hw_counter_bump(&w->counts[LLM_COUNT_PROMPT_ROWS], job->done);
    hw_counter_bump(&w->counts[LLM_COUNT_PARTS], load->steps);
    hw_counter_bump(&w->counts[LLM_COUNT_STEP_NS], load->step_ns);
    hw_counter_bump(&w->counts[LLM_COUNT_KERNEL_NS], load->kernel_ns);
    c->steps += load->steps;
    c->step_ns += load->step_ns;
    c->kernel_ns += load->kernel_ns;
    c->tokens += job->done;
}

int llm_loader_returned(struct llm_worker *w, struct llm_job *job)
{
    assert(job->load.phase && job->client->loads);
    job->client->loads = false;
    llm_jobs_move(&w->arrived, &w->held); /* what waited came before */
    llm_jobs_move(&w->held, &w->arrived);
    if (job->load.phase == LLM_LOAD_RUN)
        count_run(w, job);
    else if (job->status == 0)
        return find_or_make(w, job);
    return job->status;
}

void llm_loader_free(struct llm_worker *w, struct llm_model *m)
{
    struct llm_loader *l = &w->loader;
    if (!l->runs) {
        llm_model_free(w, m);
        return;
    }
    pthread_mutex_lock(&w->lock);
    m->next = l->models;
    l->models = m;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&w->lock);
}

void llm_loader_fini(struct llm_worker *w)
{
    struct llm_loader *l = &w->loader;
    if (l->runs) {
        pthread_mutex_lock(&w->lock);
        pthread_cond_signal(&l->wake);
        pthread_mutex_unlock(&w->lock);
        pthread_join(l->thread, NULL);
    }
    l->runs = false;
    pthread_cond_destroy(&l->wake);
}
