/* page/broadcast/processes.h - the workers of a group as child processes, for benchmarks and tests.
 *
 * Threads: start and stop from one thread, which must outlive the processes: the children end when
 * it does.  Start before other threads and before any GPU driver is opened: children are forked.
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
/* Ends them in order, by force after some seconds, and removes what they left. */
void page_processes_stop(struct page_processes *c);

pid_t page_processes_pid(const struct page_processes *c, uint32_t rank);

#endif
