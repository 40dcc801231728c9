/* Models: the served one, and those that clients uploaded, each with its engine. */
#include "llm/model/why.h"
#include "llm/worker/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

uint32_t llm_model_vocab(const struct llm_model *m)
{
    return llm_engine_config(m->engine)->vocab;
}

void llm_model_free(struct llm_worker *w, struct llm_model *m)
{
    llm_evictor_destroy(m->evictor);
    llm_engine_destroy(m->engine);
    llm_file_close(m->own);
    llm_blob_free(w, &m->blob);
    free(m->logits);
    free(m);
}

int llm_model_create(struct llm_worker *w, struct llm_blob *upload, struct llm_model **out,
                     char *why)
{
    struct llm_model *m = calloc(1, sizeof *m);
    if (!m)
        return llm_why(why, -ENOMEM, "no memory for a model");
    int rc = upload ? llm_file_parse(upload->data, upload->bytes, &m->own, why) : 0;
    m->file = upload ? m->own : w->options.file;
    m->mixed_rows = LLM_WORKER_MIXED_MIN;
    m->mixed_steps = LLM_WORKER_LOOK_AGAIN;
    if (rc == 0)
        rc = llm_engine_create(m->file, &w->options.engine, &m->engine, why);
    if (rc == 0) {
        m->logits_rows = 1;
        m->logits = malloc(llm_model_vocab(m) * sizeof *m->logits);
        rc = m->logits ? 0 : llm_why(why, -ENOMEM, "no memory for logits");
    }
    if (rc) {
        llm_model_free(w, m);
        return rc;
    }
    if (upload) {
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
    llm_model_free(w, m);
}

void llm_model_list(struct llm_worker *w, struct llm_model *m)
{
    m->next = w->models;
    w->models = m;
    w->model_count++;
}

int llm_worker_load_served(struct llm_worker *w, char *why)
{
    int rc = llm_model_create(w, NULL, &w->served, why);
    if (rc)
        return rc;
    w->served->refs = 1;
    llm_model_list(w, w->served);
    return llm_model_warm(w, w->served, why);
}

void llm_model_hash(const void *bytes, uint64_t size, uint8_t out[LLM_HASH_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
    memcpy(out, canonical.digest, LLM_HASH_BYTES);
}

const uint8_t *llm_model_own_hash(struct llm_model *m)
{
    uint64_t bytes;
    const void *data = llm_file_bytes(m->file, &bytes);
    if (!m->hashed)
        llm_model_hash(data, bytes, m->hash);
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

void llm_client_choose(struct llm_worker *w, struct llm_client *c, struct llm_model *m)
{
    if (m)
        m->refs++;
    llm_model_unref(w, c->model);
    c->model = m;
}
