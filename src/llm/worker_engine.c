/* The worker's own thread: models, sequences, and one turn of a job after the other. */
#include "base/clock.h"
#include "base/log.h"
#include "llm/why.h"
#include "llm/worker_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

struct llm_model {
    struct llm_model *next;
    uint32_t refs; /* clients that chose it, sequences, and one for the served */
    struct llm_blob blob;
    struct llm_file *own; /* of an upload */
    const struct llm_file *file;
    struct llm_engine *engine;
    float *logits;
    bool hashed;
    uint8_t hash[LLM_HASH_BYTES];
};

struct llm_sequence {
    struct llm_sequence *next;
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t slot;
    struct llm_client *owner; /* NULL: its client is gone */
    uint64_t due_ns;          /* then: when its grace is over */
    bool busy;                /* a job is at it */
    struct llm_model *model;
    struct llm_seq *seq;
    struct llm_wish wish;
    struct llm_sampler *sampler; /* of a wish for tokens */
    uint32_t last;               /* the token sampled, not yet computed */
    struct llm_packer packer;
};

static uint32_t vocab_of(const struct llm_model *m)
{
    return llm_engine_config(m->engine)->vocab;
}

/* ---- models ---- */

static void model_free(struct llm_worker *w, struct llm_model *m)
{
    llm_engine_destroy(m->engine);
    llm_file_close(m->own);
    llm_blob_free(w, &m->blob);
    free(m->logits);
    free(m);
}

/* Of the served file, or of an upload, which it takes on success. */
static int model_create(struct llm_worker *w, struct llm_blob *upload, struct llm_model **out,
                        char *why)
{
    struct llm_model *m = calloc(1, sizeof *m);
    if (!m)
        return llm_why(why, -ENOMEM, "no memory for a model");
    int rc = upload ? llm_file_parse(upload->data, upload->bytes, &m->own, why) : 0;
    m->file = upload ? m->own : w->options.file;
    if (rc == 0)
        rc = llm_engine_create(m->file, &w->options.engine, &m->engine, why);
    if (rc == 0) {
        m->logits = malloc(vocab_of(m) * sizeof *m->logits);
        rc = m->logits ? 0 : llm_why(why, -ENOMEM, "no memory for logits");
    }
    if (rc) {
        model_free(w, m);
        return rc;
    }
    if (upload) {
        m->blob = *upload;
        *upload = (struct llm_blob){0};
    }
    *out = m;
    return 0;
}

static void model_unref(struct llm_worker *w, struct llm_model *m)
{
    if (!m || --m->refs > 0)
        return;
    struct llm_model **to = &w->models;
    while (*to != m)
        to = &(*to)->next;
    *to = m->next;
    w->model_count--;
    model_free(w, m);
}

static void model_list(struct llm_worker *w, struct llm_model *m)
{
    m->next = w->models;
    w->models = m;
    w->model_count++;
}

int llm_worker_load_served(struct llm_worker *w, char *why)
{
    int rc = model_create(w, NULL, &w->served, why);
    if (rc == 0) {
        w->served->refs = 1;
        model_list(w, w->served);
    }
    return rc;
}

static void hash_bytes(const void *bytes, uint64_t size, uint8_t out[LLM_HASH_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
    memcpy(out, canonical.digest, LLM_HASH_BYTES);
}

static struct llm_model *model_find(struct llm_worker *w, const uint8_t hash[LLM_HASH_BYTES],
                                    uint64_t size)
{
    for (struct llm_model *m = w->models; m; m = m->next) {
        uint64_t bytes;
        const void *data = llm_file_bytes(m->file, &bytes);
        if (bytes != size)
            continue;
        if (!m->hashed)
            hash_bytes(data, bytes, m->hash);
        m->hashed = true;
        if (memcmp(m->hash, hash, LLM_HASH_BYTES) == 0)
            return m;
    }
    return NULL;
}

static void client_choose(struct llm_worker *w, struct llm_client *c, struct llm_model *m)
{
    if (m)
        m->refs++;
    model_unref(w, c->model);
    c->model = m;
}

/* ---- sequences ---- */

static void sequence_free(struct llm_worker *w, struct llm_sequence *s)
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
    llm_seq_destroy(s->seq);
    llm_sampler_destroy(s->sampler);
    llm_packer_fini(&s->packer);
    model_unref(w, s->model);
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
        rc = llm_sampler_create(&s->wish.sampling, vocab_of(s->model), &s->sampler);
    return rc;
}

static int sequence_create(struct llm_worker *w, struct llm_client *c, const struct llm_request *r,
                           struct llm_sequence **out, char *why)
{
    struct llm_model *m = c->model ? c->model : w->served;
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
    if (rc) {
        sequence_free(w, s);
        return llm_why(why, rc, "no sequence: %s",
                       rc == -EINVAL ? "bad sampling options" : strerror(-rc));
    }
    s->owner = c;
    s->slot = c->slots++;
    c->sequences++;
    s->next = w->sequences;
    w->sequences = s;
    w->sequence_count++;
    *out = s;
    return 0;
}

/* A sequence whose client is gone becomes the caller's. */
static int find_handle(struct llm_worker *w, struct llm_job *job, struct llm_sequence **out)
{
    struct llm_client *c = job->client;
    const uint8_t *handle = job->request.handle;
    struct llm_sequence *s = w->sequences;
    while (s && memcmp(s->handle, handle, LLM_HANDLE_BYTES) != 0)
        s = s->next;
    if (!s) {
        char text[LLM_HANDLE_CHARS];
        llm_handle_format(handle, text);
        return llm_why(job->why, -ENOENT,
                       "no sequence has the handle %s; it was released, or its client was gone for "
                       "longer than the grace time",
                       text);
    }
    if (!s->owner) {
        s->owner = c;
        s->slot = c->slots++;
        c->sequences++;
    }
    *out = s;
    return 0;
}

static int find_slot(struct llm_worker *w, struct llm_job *job, struct llm_sequence **out)
{
    struct llm_sequence *s = w->sequences;
    while (s && (s->owner != job->client || s->slot != job->request.slot))
        s = s->next;
    if (!s)
        return llm_why(job->why, -ENOENT, "this connection has no sequence in slot %llu",
                       (unsigned long long)job->request.slot);
    *out = s;
    return 0;
}

uint64_t llm_worker_expire(struct llm_worker *w, uint64_t now_ns)
{
    uint64_t due_ns = HW_NEVER;
    for (struct llm_sequence *s = w->sequences, *next; s; s = next) {
        next = s->next;
        if (s->owner || s->busy)
            continue;
        if (s->due_ns <= now_ns) {
            hw_info(HW_CAT_LLM, "a sequence of %u positions is freed: its client is gone",
                    llm_seq_length(s->seq));
            sequence_free(w, s);
        } else if (s->due_ns < due_ns) {
            due_ns = s->due_ns;
        }
    }
    return due_ns;
}

void llm_worker_unload(struct llm_worker *w)
{
    while (w->sequences)
        sequence_free(w, w->sequences);
    for (struct llm_client *c = w->clients; c; c = c->next)
        client_choose(w, c, NULL);
    model_unref(w, w->served);
    assert(!w->models);
}

/* ---- steps ---- */

/* When memory is short, the sequence that waits for nobody the longest makes room. */
static bool free_an_orphan(struct llm_worker *w, const struct llm_model *m)
{
    struct llm_sequence *oldest = NULL;
    for (struct llm_sequence *s = w->sequences; s; s = s->next) {
        if (!s->owner && !s->busy && s->model == m && (!oldest || s->due_ns < oldest->due_ns))
            oldest = s;
    }
    if (oldest)
        sequence_free(w, oldest);
    return oldest != NULL;
}

static int step(struct llm_worker *w, struct llm_client *c, struct llm_model *m,
                const struct llm_row *rows, uint32_t count, char *why)
{
    uint64_t began = hw_now_ns();
    int rc;
    do
        rc = llm_engine_step(m->engine, rows, count, m->logits, why);
    while (rc == -ENOSPC && free_an_orphan(w, m));
    c->step_ns += hw_now_ns() - began;
    c->kernel_ns += llm_engine_kernel_ns(m->engine);
    c->steps++;
    c->tokens += rc ? 0 : count;
    return rc;
}

/* The next rows of a prompt; logits of the last one of all. */
static int step_prompt(struct llm_worker *w, struct llm_client *c, struct llm_model *m,
                       struct llm_seq *seq, const struct llm_request *r, uint32_t *done, char *why)
{
    uint32_t left = r->token_count - *done;
    uint32_t count = left < LLM_WORKER_TURN_ROWS ? left : LLM_WORKER_TURN_ROWS;
    struct llm_row rows[LLM_WORKER_TURN_ROWS];
    for (uint32_t i = 0; i < count; i++)
        rows[i] = (struct llm_row){
            .seq = seq, .token = r->tokens[*done + i], .logits = *done + i + 1 == r->token_count};
    int rc = step(w, c, m, rows, count, why);
    if (rc == 0)
        *done += count;
    return rc;
}

static void put_logits(struct wire_enc *e, const struct llm_model *m)
{
    for (uint32_t i = 0; i < vocab_of(m); i++)
        wire_put_f32(e, m->logits[i]);
}

/* What a step yields, as its sequence's wish says; of a wish for tokens, one more token. */
static int put_result(struct llm_job *job)
{
    struct llm_sequence *s = job->seq;
    uint64_t began = hw_now_ns();
    int rc = 0;
    if (s->wish.kind == LLM_WISH_TOKENS) {
        s->last = llm_sampler_next(s->sampler, s->model->logits);
        wire_put_varint(&job->answer, s->last);
    } else if (s->wish.kind) {
        rc = llm_result_put(&s->packer, &s->wish, s->model->logits, vocab_of(s->model),
                            &job->answer);
    } else {
        put_logits(&job->answer, s->model);
    }
    atomic_fetch_add_explicit(&job->client->serdes_ns, hw_now_ns() - began, memory_order_relaxed);
    if (rc == 0)
        rc = wire_enc_error(&job->answer);
    return rc ? llm_why(job->why, rc, "no memory for an answer") : 0;
}

/* ---- prompts ---- */

static int check_prompt(const struct llm_worker *w, const struct llm_job *job,
                        const struct llm_engine *engine, char *why)
{
    uint32_t count = job->request.token_count;
    uint64_t end = (uint64_t)job->request.positions + count;
    if (count > w->options.tokens)
        return llm_why(why, -EMSGSIZE, "%u tokens in a request; this worker takes %u", count,
                       w->options.tokens);
    if (end > llm_engine_context(engine))
        return llm_why(why, -ERANGE, "a prompt that ends at position %llu; the context has %u",
                       (unsigned long long)end, llm_engine_context(engine));
    return 0;
}

static int begin_prefill(struct llm_worker *w, struct llm_job *job)
{
    int rc = sequence_create(w, job->client, &job->request, &job->seq, job->why);
    if (rc)
        return rc;
    job->seq->busy = true;
    return check_prompt(w, job, job->seq->model->engine, job->why);
}

static int end_prefill(struct llm_job *job)
{
    struct llm_sequence *s = job->seq;
    wire_put_bytes(&job->answer, s->handle, sizeof s->handle);
    if (job->request.method == LLM_METHOD_PREFILL_SEMANTIC)
        wire_put_varint(&job->answer, s->slot);
    return put_result(job);
}

static bool turn_prefill(struct llm_worker *w, struct llm_job *job)
{
    int rc = job->seq ? 0 : begin_prefill(w, job);
    if (rc == 0)
        rc = step_prompt(w, job->client, job->seq->model, job->seq->seq, &job->request, &job->done,
                         job->why);
    if (rc == 0 && job->done < job->request.token_count)
        return true;
    if (rc == 0)
        rc = end_prefill(job);
    if (job->seq) {
        job->seq->busy = false;
        if (rc)
            sequence_free(w, job->seq);
    }
    job->status = rc;
    return false;
}

/* ---- decoding ---- */

static int begin_decode(struct llm_worker *w, struct llm_job *job)
{
    bool by_handle = job->request.method == LLM_METHOD_DECODE_HANDLE;
    struct llm_sequence *s;
    int rc = by_handle ? find_handle(w, job, &s) : find_slot(w, job, &s);
    if (rc)
        return rc;
    if (s->busy)
        return llm_why(job->why, -EBUSY, "another request is at this sequence");
    if (by_handle != (s->wish.kind == 0))
        return llm_why(
            job->why, -EINVAL, "%s: the sequence was begun by %s",
            llm_method_name(job->request.method),
            llm_method_name(by_handle ? LLM_METHOD_PREFILL_SEMANTIC : LLM_METHOD_PREFILL_HANDLE));
    uint32_t most = w->options.tokens < LLM_GENERATE_MAX ? w->options.tokens : LLM_GENERATE_MAX;
    if (s->wish.kind == LLM_WISH_TOKENS && (job->request.value == 0 || job->request.value > most))
        return llm_why(job->why, -EMSGSIZE, "%u tokens asked for; 1 to %u a request",
                       job->request.value, most);
    s->busy = true;
    job->seq = s;
    return 0;
}

static int step_decode(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s = job->seq;
    bool samples = s->wish.kind == LLM_WISH_TOKENS;
    struct llm_row row = {
        .seq = s->seq, .token = samples ? s->last : job->request.value, .logits = true};
    int rc = step(w, job->client, s->model, &row, 1, job->why);
    if (rc && job->done > 0) {
        job->done = job->request.value; /* what there is, is the answer; the next request fails */
        return 0;
    }
    if (rc)
        return rc;
    job->done++;
    return put_result(job);
}

static bool turn_decode(struct llm_worker *w, struct llm_job *job)
{
    int rc = job->seq ? 0 : begin_decode(w, job);
    if (rc == 0)
        rc = step_decode(w, job);
    if (rc == 0 && job->seq->wish.kind == LLM_WISH_TOKENS && job->done < job->request.value)
        return true;
    if (job->seq)
        job->seq->busy = false;
    job->status = rc;
    return false;
}

/* ---- without state ---- */

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
    int rc = 0;
    for (uint32_t l = 0; l < layers && rc == 0 && positions; l++)
        rc = llm_seq_write_kv(seq, l, 0, positions, job->kv.data + l * bytes);
    if (rc == 0)
        rc = llm_seq_set_length(seq, positions);
    return rc ? llm_why(job->why, rc, "the cache cannot be restored: %s", strerror(-rc)) : 0;
}

/* The cache takes the place of the one that came. */
static int read_cache(struct llm_worker *w, struct llm_job *job, struct llm_engine *engine,
                      struct llm_seq *seq)
{
    uint32_t positions = llm_seq_length(seq), layers = llm_engine_config(engine)->layers;
    uint64_t bytes = positions * llm_kv_row_bytes(engine);
    llm_blob_free(w, &job->kv);
    int rc = llm_blob_make(w, &job->kv, cache_bytes(engine, positions));
    for (uint32_t l = 0; l < layers && rc == 0; l++)
        rc = llm_seq_read_kv(seq, l, 0, positions, job->kv.data + l * bytes);
    if (rc == -EDQUOT)
        return llm_why(job->why, -ENOSPC, "a cache of %u positions is past what this worker holds",
                       positions);
    return rc ? llm_why(job->why, rc, "the cache cannot be read: %s", strerror(-rc)) : 0;
}

static void add_serdes(struct llm_client *c, uint64_t since_ns)
{
    atomic_fetch_add_explicit(&c->serdes_ns, hw_now_ns() - since_ns, memory_order_relaxed);
}

static int forward(struct llm_worker *w, struct llm_job *job, struct llm_model *m,
                   struct llm_seq *seq)
{
    struct llm_client *c = job->client;
    uint32_t done = 0;
    uint64_t began = hw_now_ns();
    int rc = check_prompt(w, job, m->engine, job->why);
    if (rc == 0)
        rc = write_cache(job, m->engine, seq);
    add_serdes(c, began);
    while (rc == 0 && done < job->request.token_count)
        rc = step_prompt(w, c, m, seq, &job->request, &done, job->why);
    if (rc)
        return rc;
    began = hw_now_ns();
    put_logits(&job->answer, m);
    rc = read_cache(w, job, m->engine, seq);
    add_serdes(c, began);
    return rc;
}

static int stateless(struct llm_worker *w, struct llm_job *job)
{
    struct llm_model *m;
    struct llm_seq *seq;
    if (!job->weights.bytes || job->weights.filled != job->weights.bytes)
        return llm_why(job->why, -EINVAL, "%llu of %llu bytes of weights came before this call",
                       (unsigned long long)job->weights.filled,
                       (unsigned long long)job->weights.bytes);
    uint64_t began = hw_now_ns();
    int rc = model_create(w, &job->weights, &m, job->why);
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
    model_free(w, m);
    return rc;
}

/* ---- the rest ---- */

static int find_weights(struct llm_worker *w, struct llm_job *job)
{
    struct llm_model *m = model_find(w, job->request.hash, job->request.total);
    if (m)
        client_choose(w, job->client, m);
    wire_put_u8(&job->answer, m != NULL);
    return 0;
}

static int load_weights(struct llm_worker *w, struct llm_job *job)
{
    uint8_t hash[LLM_HASH_BYTES];
    if (!job->weights.bytes || job->weights.filled != job->weights.bytes)
        return llm_why(job->why, -EINVAL, "%llu of %llu bytes of weights came before this call",
                       (unsigned long long)job->weights.filled,
                       (unsigned long long)job->weights.bytes);
    uint64_t began = hw_now_ns();
    hash_bytes(job->weights.data, job->weights.bytes, hash);
    struct llm_model *m = model_find(w, hash, job->weights.bytes);
    if (!m && w->model_count == LLM_WORKER_MODELS_MAX)
        return llm_why(job->why, -ENOSPC, "%d models are loaded, the limit", LLM_WORKER_MODELS_MAX);
    if (!m) {
        int rc = model_create(w, &job->weights, &m, job->why);
        if (rc)
            return rc;
        memcpy(m->hash, hash, sizeof hash);
        m->hashed = true;
        model_list(w, m);
    }
    client_choose(w, job->client, m);
    add_serdes(job->client, began);
    return 0;
}

static int release(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s;
    int rc = find_handle(w, job, &s);
    if (rc)
        return rc;
    if (s->busy)
        return llm_why(job->why, -EBUSY, "another request is at this sequence");
    sequence_free(w, s);
    return 0;
}

static int reset(struct llm_worker *w, struct llm_job *job)
{
    for (const struct llm_sequence *s = w->sequences; s; s = s->next) {
        if (s->owner == job->client && s->busy)
            return llm_why(job->why, -EBUSY, "a request of this client is under way");
    }
    for (struct llm_sequence *s = w->sequences, *next; s; s = next) {
        next = s->next;
        if (s->owner == job->client)
            sequence_free(w, s);
    }
    client_choose(w, job->client, NULL);
    return 0;
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
        [LLM_METRIC_SEQUENCES] = w->sequence_count,
        [LLM_METRIC_ORPHANS] = orphans,
        [LLM_METRIC_MODELS] = w->model_count,
    };
    for (int i = 0; i < LLM_METRICS; i++)
        wire_put_u64(&job->answer, values[i]);
    return 0;
}

/* The client's end.  After a goodbye its sequences go; else they wait for it, or for the end of
 * their grace. */
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
    client_choose(w, c, NULL);
}

/* Nobody waits for the answer: a prompt that is half computed is of use to nobody either. */
static void abandon(struct llm_worker *w, struct llm_job *job)
{
    bool prefills = job->request.method == LLM_METHOD_PREFILL_HANDLE ||
                    job->request.method == LLM_METHOD_PREFILL_SEMANTIC;
    if (job->seq)
        job->seq->busy = false;
    if (job->seq && prefills)
        sequence_free(w, job->seq);
    job->status = -ECANCELED;
}

bool llm_worker_turn(struct llm_worker *w, struct llm_job *job)
{
    if (job == &job->client->farewell) {
        farewell(w, job->client);
        return false;
    }
    if (atomic_load_explicit(&job->client->gone, memory_order_relaxed)) {
        abandon(w, job);
        return false;
    }
    switch (job->request.method) {
    case LLM_METHOD_PREFILL_HANDLE:
    case LLM_METHOD_PREFILL_SEMANTIC:
        return turn_prefill(w, job);
    case LLM_METHOD_DECODE_HANDLE:
    case LLM_METHOD_DECODE_SEMANTIC:
        return turn_decode(w, job);
    case LLM_METHOD_STATELESS:
        job->status = stateless(w, job);
        break;
    case LLM_METHOD_FIND_WEIGHTS:
        job->status = find_weights(w, job);
        break;
    case LLM_METHOD_LOAD_WEIGHTS:
        job->status = load_weights(w, job);
        break;
    case LLM_METHOD_RELEASE:
        job->status = release(w, job);
        break;
    case LLM_METHOD_RESET:
        job->status = reset(w, job);
        break;
    default:
        assert(job->request.method == LLM_METHOD_METRICS);
        job->status = metrics(w, job);
    }
    return false;
}
