/* page/broadcast/processes.h - worker processes: the workers of a group as children of this
 * process, for benchmarks and tests.
 *
 * Threads: start and stop from one thread; the children end when that thread ends.  Start before
 * other threads and before any GPU driver is opened, because the children are forked.
 * Lifetime: start/stop. */
#ifndef HAWSER_PAGE_BROADCAST_PROCESSES_H
#define HAWSER_PAGE_BROADCAST_PROCESSES_H

#include "page/worker.h"

#include <sys/types.h>

struct page_processes;

/* `config` is that of every worker but for the rank; rank r uses device + r.  Returns when all of
 * them listen.  0, or a negative errno and why, with the rank. */
int page_processes_start(const struct page_worker_config *config, uint32_t ranks,
                         struct page_processes **out, struct page_error *why) MUST_CHECK;
/* Asks them to end, kills them after some seconds, and removes their files. */
void page_processes_stop(struct page_processes *c);

pid_t page_processes_pid(const struct page_processes *c, uint32_t rank);

#endif
