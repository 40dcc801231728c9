/* What the workers serve, by name. */
#include "base/wait.h"
#include "serve/http/impl.h"

#include <string.h>

uint32_t http_model_context(const struct http_front *f, const struct http_model *m)
{
    uint32_t known = 0, open = 0;
    for (size_t i = 0; i < f->worker_count; i++) {
        const struct http_worker *w = &f->workers[i];
        int model = http_worker_model(w, m);
        uint32_t context = model >= 0 ? w->served.models[model].context : 0;
        known = context > known ? context : known;
        if (context > open && http_worker_takes_texts(w) && !w->left)
            open = context;
    }
    return open ? open : known ? known : m->context;
}

bool http_model_is_up(const struct http_front *f, const struct http_model *m)
{
    for (size_t i = 0; i < f->worker_count; i++) {
        if (f->workers[i].state == HTTP_WORKER_UP && http_worker_model(&f->workers[i], m) >= 0)
            return true;
    }
    return false;
}

/* Of two with one name, the one that can answer. */
static struct http_model *by_name(struct http_front *f, const char *name)
{
    struct http_model *found = NULL;
    for (size_t i = 0; i < f->model_count; i++) {
        struct http_model *m = f->models[i];
        if (strcmp(m->name, name) == 0 && (!found || http_model_is_up(f, m)))
            found = m;
    }
    return found;
}

static bool all_tried(const struct http_front *f)
{
    for (size_t i = 0; i < f->worker_count; i++) {
        if (!f->workers[i].tried)
            return false;
    }
    return true;
}

void http_models_wait(struct http_front *f, const char *name)
{
    while (!(name && by_name(f, name)) && !all_tried(f) && !f->stopping &&
           hw_cond_wait(&f->tried, &f->lock, f->started_ns + HTTP_FIRST_NS))
        ;
}

/* Of all models; NULL: they have several. */
static const char *only_name(const struct http_front *f)
{
    const char *first = f->models[0]->name;
    for (size_t i = 1; i < f->model_count; i++) {
        if (strcmp(f->models[i]->name, first) != 0)
            return NULL;
    }
    return first;
}

struct http_model *http_model_find(struct http_front *f, const char *name, struct http_error *why)
{
    if (name && !name[0])
        name = NULL;
    http_models_wait(f, name);
    if (f->model_count == 0) {
        (void)http_error_set(why, 503, NULL, NULL, "no worker has answered yet");
        return NULL;
    }
    const char *only = only_name(f);
    if (!name && !only) {
        (void)http_error_set(why, 400, "model", NULL,
                             "'model' must be given: there are several; GET /v1/models lists them");
        return NULL;
    }
    name = name ? name : only;
    struct http_model *m = by_name(f, name);
    if (!m && only)
        (void)http_error_set(why, 404, "model", "model_not_found",
                             "there is no model '%.120s'; '%.120s' is served", name, only);
    else if (!m)
        (void)http_error_set(why, 404, "model", "model_not_found",
                             "there is no model '%.120s'; GET /v1/models lists those that are "
                             "served",
                             name);
    return m;
}
