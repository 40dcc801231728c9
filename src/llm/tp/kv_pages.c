#include "llm/tp/kv_pages.h"

#include "llm/model/why.h"
#include "page/worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- slabs as pieces of a page backend ---- */

struct slabs {
    struct page_backend base;
    struct llm_tp_pages *pages;
    uint64_t piece_bytes;
    uint32_t ids[PAGE_BATCH_MAX];
};

static const struct page_backend_ops llm_tp_slabs;

static int slabs_open(const struct page_backend_config *config, struct page_backend **out,
                      struct page_error *why)
{
    struct slabs *s = calloc(1, sizeof *s);
    if (!s)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    s->base.ops = &llm_tp_slabs;
    s->base.facts = (struct page_facts){
        .granularity = 1, .memory_bytes = config->memory_bytes, .stray = PAGE_STRAY_FAULTS};
    snprintf(s->base.facts.device, sizeof s->base.facts.device, "a model's KV memory");
    s->pages = config->user;
    *out = &s->base;
    return 0;
}

static void slabs_close(struct page_backend *b)
{
    free(b);
}

static int slabs_reserve(struct page_backend *b, uint64_t range_bytes, uint64_t piece_bytes,
                         struct page_error *why)
{
    (void)range_bytes, (void)why;
    ((struct slabs *)b)->piece_bytes = piece_bytes;
    return 0;
}

/* The device allocates when it maps. */
static int slabs_create(struct page_backend *b, page_handle *out, struct page_error *why)
{
    (void)b, (void)why;
    *out = 1;
    return 0;
}

static void slabs_release(struct page_backend *b, page_handle handle)
{
    (void)b, (void)handle;
}

typedef int change(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why);

static int slabs_change(struct page_backend *b, const struct page_bind *binds, size_t count,
                        size_t *failed, struct page_error *why, change *to)
{
    struct slabs *s = (struct slabs *)b;
    char text[LLM_WHY_CHARS] = "";
    for (size_t i = 0; i < count; i++)
        s->ids[i] = (uint32_t)(binds[i].offset / s->piece_bytes);
    pthread_mutex_lock(&s->pages->lock);
    int rc = to(s->pages->kv, s->ids, count, text);
    pthread_mutex_unlock(&s->pages->lock);
    *failed = 0;
    return rc ? page_fail(why, rc, 0, "%.180s", text) : 0;
}

static int slabs_bind(struct page_backend *b, const struct page_bind *binds, size_t count,
                      size_t *failed, struct page_error *why)
{
    return slabs_change(b, binds, count, failed, why, ((struct slabs *)b)->pages->ops->kv_map);
}

/* Only slabs without a page in use are unmapped: their content need not come back. */
static int slabs_unbind(struct page_backend *b, const struct page_bind *binds, size_t count,
                        size_t *failed, struct page_error *why)
{
    return slabs_change(b, binds, count, failed, why, ((struct slabs *)b)->pages->ops->kv_unmap);
}

static int slabs_finish(struct page_backend *b, struct page_error *why)
{
    (void)b, (void)why; /* the lock is free between commands only */
    return 0;
}

static const struct page_backend_ops llm_tp_slabs = {
    .name = "llm",
    .open = slabs_open,
    .close = slabs_close,
    .reserve = slabs_reserve,
    .create = slabs_create,
    .release = slabs_release,
    .bind = slabs_bind,
    .unbind = slabs_unbind,
    .finish = slabs_finish,
};

/* ---- life ---- */

static void *serve(void *worker)
{
    page_worker_run(worker);
    return NULL;
}

int llm_tp_pages_start(struct llm_tp_pages *pages, const struct llm_backend_ops *ops,
                       struct llm_kv_memory *kv, const struct llm_tp_kv_create *command,
                       uint32_t rank, char *why)
{
    uint64_t slabs = command->pages / command->run, half = (command->slab_bytes + 1) / 2;
    struct page_worker_config config = {
        .group = command->group,
        .rank = rank,
        .tensors = {.backend = &llm_tp_slabs,
                    .device = {.memory_bytes = 2 * half * slabs, .user = pages},
                    .layers = 1,
                    .page_bytes = half,
                    .layout = PAGE_CONTIGUOUS,
                    .no_reuse = true}}; /* page/slabs.h has the reserve */
    struct page_error error = {0};
    *pages = (struct llm_tp_pages){.ops = ops, .kv = kv};
    pthread_mutex_init(&pages->lock, NULL);
    int rc = page_worker_create(&config, &pages->worker, &error);
    if (rc == 0) {
        rc = -pthread_create(&pages->thread, NULL, serve, pages->worker);
        if (rc) {
            page_worker_destroy(pages->worker);
            pages->worker = NULL;
            (void)page_fail(&error, rc, 0, "no thread");
        }
    }
    if (rc)
        pthread_mutex_destroy(&pages->lock);
    return rc ? llm_why(why, rc, "KV pages of rank %u: %s", rank, error.text) : 0;
}

void llm_tp_pages_stop(struct llm_tp_pages *pages)
{
    if (!pages->worker)
        return;
    page_worker_stop(pages->worker);
    pthread_join(pages->thread, NULL);
    page_worker_destroy(pages->worker);
    pthread_mutex_destroy(&pages->lock);
    pages->worker = NULL;
}
