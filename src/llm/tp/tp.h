/* llm/tp/tp.h - private to src/llm: tensor-parallel workers behind the interface of one backend.
 *
 * The calling process is rank 0 and computes a share itself; it starts a process for each other
 * rank (llm/tp/rank.h).  begin tells the others the batch, and each runs the same graph over its
 * share. KV pages are mapped at all ranks in one broadcast (page/group.h), so a page id means the
 * same everywhere.
 *
 * A rank that dies or fails, or that the others have waited for too long, ends the step, or
 * whatever uses the ranks, with -EOWNERDEAD.  Its share of every KV row is gone, and so all content
 * of the KV memory: kv_lost of the backend is set.  The next use starts the ranks again, with the
 * same slabs mapped.
 *
 * Trust: the ranks are this program.  Threads and lifetime: as llm/engine/backend.h. */
#ifndef HAWSER_LLM_TP_TP_H
#define HAWSER_LLM_TP_TP_H

#include "llm/engine/backend.h"
#include "llm/engine/engine.h"

struct llm_tp_config {
    uint32_t ranks;   /* 2 to PAGE_RANKS_MAX */
    const char *path; /* of the model's file, which each rank opens */
    const struct llm_file *file;
};

/* 0; -EINVAL or -EOPNOTSUPP for a model that so many ranks cannot share, and why. */
int llm_tp_check(const struct llm_file *file, uint32_t ranks, char *why) MUST_CHECK;

/* Opens the backend as rank 0 and starts the others.  config->threads are each rank's; 0: the cores
 * divided by the ranks, if not above LLM_THREADS_MAX.  0; errors of llm_tp_check and of open, and
 * why. */
int llm_tp_open(const struct llm_backend_ops *ops, const struct llm_backend_config *config,
                const struct llm_tp_config *tp, struct llm_backend **out, char *why) MUST_CHECK;

/* What the ranks exchange for one row of one layer, whatever their number. */
struct llm_tp_cost {
    uint32_t gathers;
    uint64_t values; /* of all gathers, binary32 */
};
struct llm_tp_cost llm_tp_layer_cost(const struct llm_config *c);

/* Of rank 0's backend, wherever the others are; zeros for one that computes everything. */
void llm_tp_stats(const struct llm_backend *b, struct llm_tp_stats *out);

#endif
