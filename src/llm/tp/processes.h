/* llm/tp/processes.h - private to src/llm: the processes of ranks 1 and on, as rank 0 sees them.
 *
 * Threads: one at a time.  Lifetime: start/stop; fine for zeros. */
#ifndef HAWSER_LLM_TP_PROCESSES_H
#define HAWSER_LLM_TP_PROCESSES_H

#include "base/attr.h"
#include "page/page.h"

#include <sys/types.h>

struct llm_tp_processes {
    uint32_t ranks;
    pid_t pids[PAGE_RANKS_MAX];  /* 0: none */
    int sockets[PAGE_RANKS_MAX]; /* closed at the other end when the process ends */
};

/* Executes this program for each rank (llm/tp/rank.h).  0 or a negative errno. */
int llm_tp_processes_start(struct llm_tp_processes *p, uint32_t ranks, int memory_fd) MUST_CHECK;
/* Ends them at once: what they have is rank 0's to lose. */
void llm_tp_processes_stop(struct llm_tp_processes *p);

/* A rank that has ended; 0: none. */
uint32_t llm_tp_processes_dead(const struct llm_tp_processes *p);

#endif
