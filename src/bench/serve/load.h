/* bench/serve/load.h - one text asked for by one client, over HTTP or straight from a worker.
 *
 * Trust: the servers are the benchmark's own, or a peer that the user names.
 * Threads: one request a thread.  Lifetime: values. */
#ifndef HAWSER_BENCH_SERVE_LOAD_H
#define HAWSER_BENCH_SERVE_LOAD_H

#include "base/attr.h"
#include "llm/client/connection.h"

#include <semaphore.h>
#include <stdint.h>

enum { BENCH_LOAD_WHY = 256 };

/* What one request took. */
struct bench_load_figures {
    uint64_t first_ns; /* from sending it to the first token */
    uint64_t total_ns;
    uint32_t tokens;
};

/* Where an HTTP server is. */
struct bench_load_peer {
    char host[128], port[8];
};

/* "http://host:port".  0 or -EINVAL. */
int bench_load_parse(const char *url, struct bench_load_peer *out) MUST_CHECK;

/* A socket that is connected, or a negative errno and why. */
int bench_load_connect(const struct bench_load_peer *peer, char why[BENCH_LOAD_WHY]) MUST_CHECK;
/* POSTs body to /v1/completions, a request that streams with usage.  The connection can be used
 * again.  `begun`, which may be NULL, is posted once: at the first token, or when none comes.
 * 0, or a negative errno and why. */
int bench_load_http(int fd, const char *body, sem_t *begun, struct bench_load_figures *out,
                    char why[BENCH_LOAD_WHY]) MUST_CHECK;

/* The same text from a worker. */
int bench_load_engine(struct llm_connection *conn, const struct llm_generate *request, sem_t *begun,
                      struct bench_load_figures *out, char why[BENCH_LOAD_WHY]) MUST_CHECK;

#endif
