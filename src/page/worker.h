/* page/worker.h - one tensor-parallel worker: its tensors, and the socket it listens on.
 *
 * A worker executes one operation at a time.  Commands come over copyrpc or a command board, from
 * the scheduler that sent the last reset; seq must grow, so no command is executed twice.  The last
 * batch can be cancelled, and a cancelled batch that arrives late is refused.  A scheduler that got
 * no answer can therefore always bring its workers back to one state.
 *
 * Trust: clients are processes of the same user (the folder is private), their bytes are not
 * trusted.
 * Threads: create, run and destroy from one, stop from any or a signal handler; the worker makes a
 * thread for each command board.
 * Lifetime: create/destroy. */
#ifndef HAWSER_PAGE_WORKER_H
#define HAWSER_PAGE_WORKER_H

#include "page/message.h"
#include "page/tensors.h"

struct page_worker_config {
    const char *base;  /* runtime folder; NULL: the environment's */
    const char *group; /* name */
    uint32_t rank;
    struct page_tensors_config tensors; /* its limit is set for you */
    /* Called with each command after it was decoded and before it is executed, on the thread that
     * executes it: for tests of what happens to a worker then. */
    void (*before)(void *user, const struct page_command *command);
    void *before_user;
};

enum { PAGE_BOARDS_MAX = 4 }; /* command boards, a thread each; a scheduler has one */

struct page_worker;

/* Joins the group, makes the tensors and listens.  0, or a negative errno and why. */
int page_worker_create(const struct page_worker_config *config, struct page_worker **out,
                       struct page_error *why) MUST_CHECK;
/* Serves until stopped. */
void page_worker_run(struct page_worker *w);
void page_worker_stop(struct page_worker *w);
void page_worker_destroy(struct page_worker *w);

/* Executes a command and encodes the answer.  For every transport, and for tests without one. */
void page_worker_execute(struct page_worker *w, const void *command, size_t len,
                         struct page_answer *answer);

#endif
