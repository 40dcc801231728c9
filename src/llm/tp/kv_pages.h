/* llm/tp/kv_pages.h - private to src/llm: a rank's KV memory as a member of a page group.
 *
 * A page worker (page/worker.h) executes the group's batches on a backend's KV memory: a page id of
 * the group is a slab, the same at every rank.
 *
 * Threads: the page worker's own map and unmap; hold the lock to use the KV memory meanwhile.
 * Lifetime: start/stop; the KV memory outlives it. */
#ifndef HAWSER_LLM_TP_KV_PAGES_H
#define HAWSER_LLM_TP_KV_PAGES_H

#include "llm/engine/backend.h"
#include "llm/tp/command.h"

#include <pthread.h>

struct llm_tp_pages {
    const struct llm_backend_ops *ops;
    struct llm_kv_memory *kv;
    pthread_mutex_t lock; /* guards the KV memory */
    struct page_worker *worker;
    pthread_t thread;
};

/* 0, or a negative errno and why. */
int llm_tp_pages_start(struct llm_tp_pages *pages, const struct llm_backend_ops *ops,
                       struct llm_kv_memory *kv, const struct llm_tp_kv_create *command,
                       uint32_t rank, char *why) MUST_CHECK;
void llm_tp_pages_stop(struct llm_tp_pages *pages); /* fine for zeros */

#endif
