/* bench/llm/store_line.h - a KV store behind a link of so many bits a second, each way: for
 * measuring.
 *
 * What a worker gives to its store and gets from it is held as long as the link would have taken,
 * behind what is under way already.
 *
 * Threads: over before the first store is opened; the ops as llm/evict/shadow.h says.
 * Lifetime: the ops returned are a value.  There is one link in a process: stores share it, and the
 * last call sets what is behind it. */
#ifndef HAWSER_BENCH_LLM_STORE_LINE_H
#define HAWSER_BENCH_LLM_STORE_LINE_H

#include "llm/evict/shadow.h"

/* bits_s 0: as many as come.  The store stays; it is static. */
struct llm_shadow_ops store_line_over(const struct llm_shadow_ops *store, uint64_t bits_s);

#endif
