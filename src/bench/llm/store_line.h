/* bench/llm/store_line.h - a KV store behind a simulated link, for measurements.
 *
 * Each transfer between a worker and its store waits as long as the link would take, after the
 * transfers before it; each request waits for a round trip, beside others.
 *
 * Threads: over before the first store is opened; the ops as llm/evict/shadow.h says.
 * Lifetime: the ops returned are a value.  There is one link in a process: stores share it, and the
 * last call sets what is behind it. */
#ifndef HAWSER_BENCH_LLM_STORE_LINE_H
#define HAWSER_BENCH_LLM_STORE_LINE_H

#include "bench/rpc/delay.h"
#include "llm/evict/shadow.h"

/* store must be static. */
struct llm_shadow_ops store_line_over(const struct llm_shadow_ops *store, struct bench_line link);

#endif
