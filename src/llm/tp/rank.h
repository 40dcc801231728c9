/* llm/tp/rank.h - a tensor-parallel worker but the first: a process of its own, which rank 0
 * starts.
 *
 * The process is this program with LLM_TP_COMMAND and its rank as arguments.  It has the socket of
 * base/process/child.h, whose end tells that rank 0 is gone, and the shared memory as HW_CHILD_FD.
 *
 * Trust: rank 0 is its parent.  Threads: the caller's, and those it makes. */
#ifndef HAWSER_LLM_TP_RANK_H
#define HAWSER_LLM_TP_RANK_H

#include <stdbool.h>

#define LLM_TP_COMMAND "tp-worker"

/* Whether the arguments of the process are those of a rank: then return llm_tp_rank_main's. */
bool llm_tp_is_rank(int argc, char **argv);
/* Serves rank 0 until that is gone or a failure.  The process' exit status. */
int llm_tp_rank_main(char **argv);

#endif
