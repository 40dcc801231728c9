/* One model that workers serve.  Its header (metadata, vocabulary) comes from the first worker that
 * has it; the front needs no file. */
#include "serve/http/impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is(const struct http_model *m, const struct llm_served_model *served)
{
    return strcmp(m->name, served->name) == 0 &&
           memcmp(m->hash, served->hash, sizeof(m->hash)) == 0;
}

/* Under the lock. */
static struct http_model *find(struct http_front *f, const struct llm_served_model *served)
{
    for (size_t i = 0; i < f->model_count; i++) {
        if (is(f->models[i], served))
            return f->models[i];
    }
    return NULL;
}

/* A model without a vocabulary or a template is served as far as it goes. */
static int read_header(struct http_model *m, struct llm_connection *conn, char *why)
{
    uint64_t size;
    int rc = llm_connection_header(conn, m->name, &m->header, &size, why);
    if (rc == -EOPNOTSUPP) {
        snprintf(m->no_vocab, sizeof(m->no_vocab), "%s", why);
        return 0;
    }
    if (rc == 0)
        rc = llm_file_parse_header(m->header, size, &m->file, why);
    if (rc)
        return rc;
    if (llm_vocab_create(m->file, NULL, &m->vocab, m->no_vocab))
        m->vocab = NULL;
    if (llm_chat_create(m->file, m->vocab, true, &m->chat, m->no_chat))
        m->chat = NULL;
    return 0;
}

static struct http_model *create(struct llm_connection *conn, const struct llm_served_model *served,
                                 char *why)
{
    struct http_model *m = calloc(1, sizeof(*m));
    if (!m) {
        snprintf(why, LLM_WHY_CHARS, "out of memory");
        return NULL;
    }
    memcpy(m->name, served->name, sizeof(m->name));
    memcpy(m->arch, served->arch, sizeof(m->arch));
    memcpy(m->hash, served->hash, sizeof(m->hash));
    m->context = served->context;
    m->created = time(NULL);
    int rc = read_header(m, conn, why);
    if (rc) {
        http_model_destroy(m);
        return NULL;
    }
    return m;
}

/* Under the lock.  The model that is known now: another worker's thread may have been first. */
static struct http_model *add(struct http_front *f, struct http_model *m,
                              const struct llm_served_model *served, char *why)
{
    struct http_model *known = find(f, served);
    if (known)
        return known;
    if (f->model_count == HTTP_MODELS_MAX) {
        snprintf(why, LLM_WHY_CHARS, "workers serve more than %d models", HTTP_MODELS_MAX);
        return NULL;
    }
    int rc = http_model_stats_init(&m->stats, m->name);
    if (rc) {
        snprintf(why, LLM_WHY_CHARS, "counters: %s", strerror(-rc));
        return NULL;
    }
    f->models[f->model_count++] = m;
    return m;
}

struct http_model *http_model_get(struct http_front *f, struct llm_connection *conn,
                                  const struct llm_served_model *served, char *why)
{
    http_lock(f);
    struct http_model *known = find(f, served);
    http_unlock(f);
    if (known)
        return known;
    struct http_model *m = create(conn, served, why);
    if (!m)
        return NULL;
    http_lock(f);
    known = add(f, m, served, why);
    http_unlock(f);
    if (known != m)
        http_model_destroy(m);
    return known;
}

void http_model_destroy(struct http_model *m)
{
    if (!m)
        return;
    http_model_stats_fini(&m->stats);
    llm_chat_destroy(m->chat);
    llm_vocab_destroy(m->vocab);
    llm_file_close(m->file);
    free(m->header);
    free(m);
}
