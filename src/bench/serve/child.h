/* bench/serve/child.h - a command of this program as a process of the benchmark's own.
 *
 * Threads: one at a time.  Lifetime: start/stop; it does not outlive the benchmark. */
#ifndef HAWSER_BENCH_SERVE_CHILD_H
#define HAWSER_BENCH_SERVE_CHILD_H

#include "command/command.h"

#include <sys/types.h>

struct bench_child {
    pid_t pid;
    bool group;    /* it leads one */
    char url[128]; /* where it answers HTTP; "": nowhere */
};

/* Waits for the line that begins with `last`.  CMD_DONE, or the exit status after a message. */
enum cmd_exit bench_child_start(struct bench_child *c, const char *const *argv, const char *last);

/* A peer's server, which a shell starts from `command` with $MODEL and $PORT; it answers at c->url
 * once it is ready.  What it prints goes nowhere. */
enum cmd_exit bench_child_start_peer(struct bench_child *c, const char *command, const char *model);

void bench_child_stop(struct bench_child *c); /* fine for zeros */

#endif
