/* bench/llm/rig.h - an LLM worker behind a server in this process, for benchmarks.
 *
 * Trust: ours.  Threads: one for the server, and the worker's own; calls from one thread.
 * Lifetime: start/stop; remotes are closed before stop. */
#ifndef HAWSER_BENCH_LLM_RIG_H
#define HAWSER_BENCH_LLM_RIG_H

#include "llm/client/remote.h"
#include "llm/worker/worker.h"
#include "rpc/server.h"

#include <pthread.h>

struct bench_rig {
    struct rpc_server *server;
    struct llm_worker *worker;
    pthread_t thread;
    bool serves;
    struct rpc_addr addr;
};

/* For so many clients, on a free port of loopback.  0, or a negative errno and why (LLM_WHY_CHARS);
 * then stop has nothing to do. */
int bench_rig_start(const struct llm_worker_options *worker, uint32_t clients,
                    struct bench_rig *rig, char *why) MUST_CHECK;
/* 0, or as llm_remote_open. */
int bench_rig_connect(const struct bench_rig *rig, struct llm_remote **out, char *why) MUST_CHECK;
/* Harmless on zeros. */
void bench_rig_stop(struct bench_rig *rig);

#endif
