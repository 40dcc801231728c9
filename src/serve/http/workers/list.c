/* Which workers there are: those that the user gave, or those that are told later. */
#include "serve/http/impl.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_worker(struct http_front *f, size_t index, const struct rpc_addr *addr,
                       const char *name)
{
    struct http_worker *w = &f->workers[index];
    w->front = f;
    w->index = (uint32_t)index;
    w->addr = *addr;
    if (name)
        snprintf(w->name, sizeof(w->name), "%s", name);
    else
        rpc_addr_format(addr, w->name, sizeof(w->name));
}

static bool is_same(const struct rpc_addr *a, const struct rpc_addr *b)
{
    return a->scheme == b->scheme && strcmp(a->host, b->host) == 0 && a->port == b->port &&
           strcmp(a->path, b->path) == 0;
}

static struct http_worker *find_worker(struct http_front *f, const struct rpc_addr *addr)
{
    for (size_t i = 0; i < f->worker_count; i++) {
        if (is_same(&f->workers[i].addr, addr))
            return &f->workers[i];
    }
    return NULL;
}

/* A worker that was not there before takes the place of one that left, or a new one. */
static void add_worker(struct http_front *f, const struct rpc_addr *addr)
{
    size_t i = 0;
    while (i < f->worker_count &&
           !(f->workers[i].left && f->workers[i].state == HTTP_WORKER_DOWN && !f->workers[i].texts))
        i++;
    if (i == HTTP_WORKERS_MAX) {
        hw_warn(HW_CAT_NET, "more than %d workers: the others are not asked", HTTP_WORKERS_MAX);
        return;
    }
    set_worker(f, i, addr, NULL);
    f->workers[i].left = false;
    if (i < f->worker_count) {
        pthread_cond_signal(&f->workers[i].wake);
        return;
    }
    int rc = http_worker_start(&f->workers[i]);
    if (rc == 0)
        f->worker_count++;
    else
        hw_warn(HW_CAT_NET, "no thread for worker %s: %s", f->workers[i].name, strerror(-rc));
}

void http_front_set_workers(struct http_front *f, const struct rpc_addr *addrs, size_t count)
{
    http_lock(f);
    for (size_t i = 0; i < f->worker_count; i++) {
        bool there = false;
        for (size_t k = 0; k < count; k++)
            there = there || is_same(&f->workers[i].addr, &addrs[k]);
        f->workers[i].left = !there;
        pthread_cond_signal(&f->workers[i].wake);
    }
    for (size_t k = 0; k < count; k++) {
        if (!find_worker(f, &addrs[k]))
            add_worker(f, &addrs[k]);
    }
    http_assign(f);
    http_unlock(f);
}

int http_workers_start(struct http_front *f)
{
    const struct http_front_options *o = &f->config.options;
    f->workers = calloc(HTTP_WORKERS_MAX, sizeof(*f->workers));
    f->prefixes = calloc(HTTP_PREFIX_ENTRIES, sizeof(*f->prefixes));
    if (!f->workers || !f->prefixes)
        return -ENOMEM;
    for (size_t i = 0; i < o->worker_count; i++)
        set_worker(f, i, &o->workers[i].addr, o->workers[i].name);
    /* A thread sees all workers, so all are there before the first. */
    pthread_mutex_lock(&f->lock);
    int rc = 0;
    size_t started = 0;
    for (; rc == 0 && started < o->worker_count; started++)
        rc = http_worker_start(&f->workers[started]);
    f->worker_count = rc ? started - 1 : started;
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void http_workers_stop(struct http_front *f)
{
    for (size_t i = 0; i < f->worker_count; i++)
        http_worker_stop(&f->workers[i]);
    free(f->prefixes);
    free(f->workers);
}
