/* bench/vulkan/server.h - a GPU server of its own for bench-vulkan: "hawser serve" in a child
 * process.
 *
 * Trust: ours.  Threads: one; start forks.  Lifetime: start/stop. */
#ifndef HAWSER_BENCH_VULKAN_SERVER_H
#define HAWSER_BENCH_VULKAN_SERVER_H

#include "base/attr.h"

#include <stdint.h>
#include <sys/types.h>

enum { BENCH_SERVE_WHY = 256 };

struct bench_serve {
    pid_t pid; /* 0: not running */
    uint16_t port;
};

/* Listens on a free port of 127.0.0.1 and on the Unix socket `path`, with this environment's
 * drivers.  0 once it is ready, or a negative errno with the cause in why. */
int bench_serve_start(const char *path, struct bench_serve *out,
                      char why[BENCH_SERVE_WHY]) MUST_CHECK;
/* Harmless when not running. */
void bench_serve_stop(struct bench_serve *serve);

#endif
