/* llm/cpu/pool.h - threads that share the pieces of one job after another.
 *
 * A job is `count` pieces; whoever is awake takes the next one, the caller first of all.  A thread
 * that is late or has no core finds nothing left and is waited for by nobody, so a busy machine
 * costs the share of one thread and not the whole.  Which thread does a piece is left to chance:
 * pieces must not depend on it.
 *
 * A thread without work spins, then sleeps (base/wait.h): the next job of a step is microseconds
 * away.
 *
 * Threads: run from one thread at a time.  Lifetime: create/destroy. */
#ifndef HAWSER_LLM_CPU_POOL_H
#define HAWSER_LLM_CPU_POOL_H

#include "base/attr.h"

#include <stdint.h>

struct llm_pool;

/* Does piece `piece`; `thread` is below the pool's threads and nobody else's meanwhile. */
typedef void llm_pool_work(void *user, uint32_t piece, unsigned thread);

/* threads: with the caller's own, at most LLM_THREADS_MAX; 0: the cores there are, if not more.  0,
 * -EINVAL, -ENOMEM, or the errno of a thread that could not be started. */
int llm_pool_create(unsigned threads, struct llm_pool **out) MUST_CHECK;
void llm_pool_destroy(struct llm_pool *pool);

unsigned llm_pool_threads(const struct llm_pool *pool);

/* Returns when all pieces are done. */
void llm_pool_run(struct llm_pool *pool, uint32_t count, llm_pool_work *work, void *user);

#endif
