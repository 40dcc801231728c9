/* What the front knows of one worker. */
#include "serve/http/impl.h"

int http_worker_model(const struct http_worker *w, const struct http_model *m)
{
    for (uint32_t i = 0; i < w->served.model_count; i++) {
        if (w->models[i] == m)
            return (int)i;
    }
    return -1;
}

void http_worker_doubt(struct http_worker *w)
{
    w->doubts++;
    pthread_cond_signal(&w->wake);
}

void http_worker_drains(struct http_worker *w)
{
    w->served.draining = true;
    w->tells++;
    http_worker_doubt(w);
}

bool http_worker_takes_texts(const struct http_worker *w)
{
    return w->state == HTTP_WORKER_UP && !w->served.draining && !w->served.incomplete;
}

bool http_worker_is_doubted(const struct http_worker *w)
{
    return w->doubts != w->looked;
}
