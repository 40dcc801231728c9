/* bench/llm/moves.h - what it costs to evict KV and to bring it back, for bench-llm: layers that
 * come back, prompts whose KV is in the store, sequences that go on at another worker.
 *
 * Workers and a KV daemon run in this process; a simulated link limits the rate between them, each
 * way by itself.
 *
 * Trust: ours.  Threads: those of the workers and the daemon; one run at a time in a process, since
 * the link is the process's.  Lifetime: one call. */
#ifndef HAWSER_BENCH_LLM_MOVES_H
#define HAWSER_BENCH_LLM_MOVES_H

#include "base/report/bench.h"
#include "llm/engine/engine.h"

enum { BENCH_MOVES_REPEATS_MAX = 99 };

struct bench_moves {
    const struct llm_file *file;
    struct llm_engine_options engine; /* context and kv_bytes are set here */
    const char *link;                 /* what the rows call it */
    uint64_t bits_s;                  /* of the link, each way; 0: no limit */
    uint32_t prefill, decode;         /* tokens of a sequence */
    uint32_t repeats;                 /* figures are medians of so many */
};

/* Adds the rows of one link to bench.  0, or a negative errno and why (LLM_WHY_CHARS). */
int bench_moves_run(const struct bench_moves *options, struct hw_bench *bench,
                    char *why) MUST_CHECK;

#endif
