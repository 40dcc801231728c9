/* bench/serve/child.h - processes of a benchmark's own, and commands of this program in them.
 *
 * Threads: one at a time.  Lifetime: start/stop; it does not outlive the benchmark. */
#ifndef HAWSER_BENCH_SERVE_CHILD_H
#define HAWSER_BENCH_SERVE_CHILD_H

#include "command/command.h"

#include <sys/types.h>

struct bench_child {
    pid_t pid;     /* 0: not running */
    bool group;    /* it leads one */
    uint16_t port; /* of 127.0.0.1, where it listens; 0: nowhere */
    char url[128]; /* where it answers HTTP; "": nowhere */
};

/* fork(); the child is killed when the caller's process ends. */
pid_t bench_fork(void) MUST_CHECK;
/* In a child: this program with these arguments, and `out` as its standard output. */
_Noreturn void bench_become(const char *const *argv, int out);

/* Reads from fd, which it closes, until the line that begins with `last`; keeps port and URL.  0 or
 * a negative errno. */
int bench_child_hear(struct bench_child *c, int fd, const char *last) MUST_CHECK;
/* Starts this program with these arguments and reads its output.  0, or a negative errno: then none
 * runs.
 */
int bench_child_start(struct bench_child *c, const char *const *argv, const char *last) MUST_CHECK;

/* A peer's server, which a shell starts from `command` with $MODEL and $PORT; it answers at c->url
 * once it is ready.  What it prints goes nowhere. */
enum cmd_exit bench_child_start_peer(struct bench_child *c, const char *command, const char *model);

void bench_child_stop(struct bench_child *c); /* fine for zeros */

#endif
