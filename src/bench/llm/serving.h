/* bench/llm/serving.h - an LLM worker in this process and clients that decode, for bench-llm.
 *
 * Each client has a connection of its own and asks for its next token when it has the last one.
 * One client is the baseline of all other counts.
 *
 * Trust: ours.  Threads: one for the server, one for each client.  Lifetime: one call. */
#ifndef HAWSER_BENCH_LLM_SERVING_H
#define HAWSER_BENCH_LLM_SERVING_H

#include "base/report/bench.h"
#include "llm/engine/engine.h"

enum { BENCH_SERVING_CLIENTS_MAX = 256 }; /* connections of a server, by default */

struct bench_serving {
    const struct llm_file *file;
    struct llm_engine_options engine; /* context and kv_bytes are set here */
    const uint32_t *clients;          /* how many at a time, one row each */
    size_t client_counts;
    uint32_t prefill, decode; /* tokens of a client */
    uint32_t repeats;
    uint32_t batch; /* as the worker's options */
    bool no_gather;
};

/* Adds rows to bench.  0, or a negative errno and why (LLM_WHY_CHARS). */
int bench_serving_run(const struct bench_serving *options, struct hw_bench *bench,
                      char *why) MUST_CHECK;

#endif
