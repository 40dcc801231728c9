/* Models: those that are served, and those that clients uploaded, each with its engine. */
#include "base/clock.h"
#include "llm/model/why.h"
#include "llm/tokenizer/vocab.h"
#include "llm/worker/impl.h"
#include "page/limit.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t llm_model_vocab(const struct llm_model *m)
{
    return llm_engine_config(m->engine)->vocab;
}

static const double sequence_edges[] = {1, 2, 4, 8, 16, 32, 64};
static const double row_edges[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
static const double byte_edges[] = {1 << 12, 1 << 14, 1 << 16, 1 << 18,   1 << 20,
                                    1 << 22, 1 << 24, 1 << 26, 1LL << 28, 1LL << 30};
static const double second_edges[] = {0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60};
static_assert(LLM_WORKER_BATCH_MAX == 64 && LLM_WORKER_STEP_ROWS == 1024,
              "the largest step has an edge");

static const struct hw_buckets_def note_defs[LLM_NOTES] = {
    [LLM_NOTE_SEQUENCES] = {"llm_batch_sequences", NULL, "sequences in a step",
                            HW_EDGES(sequence_edges), 1},
    [LLM_NOTE_ROWS] = {"llm_batch_rows", "vllm:iteration_tokens_total", "rows (tokens) of a step",
                       HW_EDGES(row_edges), 1},
    [LLM_NOTE_STORED] = {"llm_kv_stored_bytes", "vllm:kv_offload_store_size",
                         "KV of a sequence that reached the store between two steps",
                         HW_EDGES(byte_edges), 1},
    [LLM_NOTE_FETCHED] = {"llm_kv_fetched_bytes", "vllm:kv_offload_load_size",
                          "KV of a sequence that came from the store for one restore",
                          HW_EDGES(byte_edges), 1},
    [LLM_NOTE_WAITED] = {"llm_text_wait_seconds", NULL,
                         "from when a worker has a text until there is KV memory for it to begin",
                         HW_EDGES(second_edges), 1e-9},
    [LLM_NOTE_RETURNED] = {"llm_weights_return_seconds", NULL,
                           "from a request until weights that were put aside were back",
                           HW_EDGES(second_edges), 1e-9},
};

static void begin_notes(struct hw_buckets notes[LLM_NOTES], const char *model)
{
    for (int i = 0; i < LLM_NOTES; i++)
        hw_buckets_register(&notes[i], &note_defs[i], model);
}

void llm_model_notes_end(struct llm_worker *w)
{
    for (size_t m = 0; m < ARRAY_LEN(w->notes); m++) {
        for (int i = 0; i < LLM_NOTES; i++)
            hw_buckets_unregister(&w->notes[m][i]);
    }
}

void llm_model_free(struct llm_worker *w, struct llm_model *m)
{
    llm_evictor_destroy(m->evictor);
    llm_engine_destroy(m->engine);
    llm_file_close(m->own);
    llm_blob_free(w, &m->blob);
    free(m->logits);
    free(m->states);
    llm_pieces_destroy(m->pieces);
    llm_vocab_destroy(m->vocab);
    free(m);
}

int llm_model_create(struct llm_worker *w, struct llm_blob *upload,
                     const struct llm_worker_model *served, struct llm_model **out, char *why)
{
    struct llm_engine_options options = w->options.engine;
    struct llm_model *m = calloc(1, sizeof *m);
    if (!m)
        return llm_why(why, -ENOMEM, "no memory for a model");
    int rc = upload ? llm_blob_map(upload, false) : 0;
    if (rc)
        llm_why_set(why, "no memory for a model: %s", strerror(-rc));
    if (rc == 0 && upload)
        rc = llm_file_parse(upload->data, upload->bytes, &m->own, why);
    m->file = upload ? m->own : served->file;
    if (served && served->kv_bytes)
        options.kv_bytes = served->kv_bytes;
    m->limit = served ? served->kv_limit : NULL;
    if (m->limit) {
        m->budget = page_limit_get(m->limit);
        m->trims = page_limit_trims(m->limit);
    }
    options.kv_limit = m->limit;
    options.kv_trace = served ? served->kv_trace : NULL;
    options.device = m->device = served ? served->device : 0;
    options.path = served ? served->path : NULL;
    if (!options.path) /* other processes cannot open an upload */
        options.tp = 0;
    if (!served) {
        options.pipeline = NULL;
        options.shares = NULL;
    }
    options.keep_prefixes = !w->options.no_prefixes;
    m->notes = w->notes[0];
    m->mixed_rows = LLM_WORKER_MIXED_MIN;
    m->mixed_steps = LLM_WORKER_LOOK_AGAIN;
    if (rc == 0)
        rc = llm_engine_create(m->file, &options, &m->engine, why);
    if (rc == 0) {
        m->pooling = llm_pooling_of(m->file);
        m->logits_rows = 1;
        m->logits = malloc(llm_model_vocab(m) * sizeof *m->logits);
        rc = m->logits ? 0 : llm_why(why, -ENOMEM, "no memory for logits");
    }
    if (rc) {
        llm_model_free(w, m);
        return rc;
    }
    if (upload) {
        llm_blob_keep(upload);
        m->blob = *upload;
        *upload = (struct llm_blob){0};
    }
    *out = m;
    return 0;
}

int llm_model_warm(struct llm_worker *w, struct llm_model *m, char *why)
{
    int rc = llm_engine_warm(m->engine, why);
    return rc ? rc : llm_kv_time(w, m, why);
}

void llm_model_unref(struct llm_worker *w, struct llm_model *m)
{
    if (!m || --m->refs > 0)
        return;
    struct llm_model **to = &w->models;
    while (*to != m)
        to = &(*to)->next;
    *to = m->next;
    w->model_count--;
    llm_loader_free(w, m);
}

void llm_model_list(struct llm_worker *w, struct llm_model *m)
{
    m->next = w->models;
    w->models = m;
    w->model_count++;
}

static int load(struct llm_worker *w, const struct llm_worker_model *served, char *why)
{
    struct llm_model *m;
    const char *own = llm_file_name(served->file);
    int rc;
    do
        rc = llm_model_create(w, NULL, served, &m, why);
    while (rc == -ENOMEM && llm_weights_make_room(w, served->device, NULL));
    if (rc)
        return rc;
    m->refs = 1;
    m->name = served->name ? served->name : *own ? own : "model";
    llm_engine_arithmetic(m->engine, m->arithmetic);
    llm_model_list(w, m);
    w->served[w->served_count++] = m;
    m->notes = w->notes[w->served_count];
    begin_notes(m->notes, m->name);
    w->shares |= m->limit != NULL;
    (void)llm_model_own_hash(m); /* now: the server's thread tells it */
    rc = llm_vocab_create(m->file, NULL, &m->vocab, why);
    if (rc == -ENOMEM)
        return rc;
    if (m->vocab && llm_pieces_create(m->vocab, &m->pieces)) /* now: it takes a while */
        return llm_why(why, -ENOMEM, "no memory for a vocabulary");
    do
        rc = llm_model_warm(w, m, why);
    while (rc == -ENOMEM && llm_weights_make_room(w, m->device, m));
    m->asked_ns = hw_now_ns();
    if (m->limit)
        llm_engine_kv_trim(m->engine); /* models that are loaded later may need what it held */
    return rc;
}

int llm_worker_load_served(struct llm_worker *w, char *why)
{
    const struct llm_worker_options *o = &w->options;
    struct llm_worker_model only = {.file = o->file};
    begin_notes(w->notes[0], "(uploaded)");
    if (o->file)
        return load(w, &only, why);
    if (o->model_count > LLM_SERVED_MODELS_MAX)
        return llm_why(why, -E2BIG, "%u models; a worker serves %d at most", o->model_count,
                       LLM_SERVED_MODELS_MAX);
    int rc = 0;
    for (uint32_t i = 0; i < o->model_count && rc == 0; i++)
        rc = load(w, &o->models[i], why);
    return rc;
}

struct llm_model *llm_model_named(const struct llm_worker *w, const char *name, char *why)
{
    char all[LLM_WHY_CHARS / 2] = "";
    size_t len = 0;
    if (w->served_count && (!name || !*name))
        return w->served[0];
    for (uint32_t i = 0; i < w->served_count; i++) {
        if (strcmp(w->served[i]->name, name) == 0)
            return w->served[i];
        if (len < sizeof all)
            len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "",
                                    w->served[i]->name);
    }
    if (w->served_count)
        llm_why_set(why, "there is no model '%.64s'; this worker serves %s", name, all);
    else
        llm_why_set(why, "this worker serves no model: start it with --model FILE");
    return NULL;
}

const uint8_t *llm_model_own_hash(struct llm_model *m)
{
    uint64_t bytes;
    const void *data = llm_file_bytes(m->file, &bytes);
    if (!m->hashed)
        llm_file_hash(data, bytes, m->hash);
    m->hashed = true;
    return m->hash;
}

struct llm_model *llm_model_find(struct llm_worker *w, const uint8_t hash[LLM_HASH_BYTES],
                                 uint64_t size)
{
    for (struct llm_model *m = w->models; m; m = m->next) {
        uint64_t bytes;
        (void)llm_file_bytes(m->file, &bytes);
        if (bytes == size && memcmp(llm_model_own_hash(m), hash, LLM_HASH_BYTES) == 0)
            return m;
    }
    return NULL;
}

struct llm_model *llm_client_model(const struct llm_worker *w, const struct llm_client *c)
{
    return c->model ? c->model : w->served[0];
}

struct llm_model *llm_job_model(const struct llm_worker *w, const struct llm_job *job)
{
    return job->seq               ? job->seq->model
           : llm_job_is_text(job) ? job->text.model
                                  : llm_client_model(w, job->client);
}

void llm_client_choose(struct llm_worker *w, struct llm_client *c, struct llm_model *m)
{
    if (m)
        m->refs++;
    llm_model_unref(w, c->model);
    c->model = m;
}
