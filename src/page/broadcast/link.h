/* page/broadcast/link.h - one connection from a scheduler to a worker: one call at a time, with a
 * time limit.
 *
 * Trust: the worker may be dead, stuck or wrong; each is an error with a sentence.
 * Threads: one at a time.  Lifetime: open/close; an answer that is awaited outlives the wait. */
#ifndef HAWSER_PAGE_BROADCAST_LINK_H
#define HAWSER_PAGE_BROADCAST_LINK_H

#include "page/message.h"

struct page_link;

/* Connects; the handshake goes on with the first call.  0, -ECONNREFUSED or -ENOENT (no worker is
 * there), or another negative errno, and why. */
int page_link_open(const char *path, uint64_t timeout_ns, struct page_link **out,
                   struct page_error *why) MUST_CHECK;
void page_link_close(struct page_link *l);

/* Starts a command.  0, or a negative errno: then the answer has it too. */
int page_link_send(struct page_link *l, const struct page_command *c, struct page_answer *answer);
/* Reads what has arrived and writes what is pending.  True when the call has ended: its answer is
 * filled, with an error such as -ECONNRESET in outcome.why when none came. */
bool page_link_turn(struct page_link *l);
/* Turns until the call has ended or until_ns (page_host_ns); then it ends with -ETIMEDOUT. */
void page_link_wait(struct page_link *l, uint64_t until_ns);
/* Ends the call with rc and its sentence. */
void page_link_give_up(struct page_link *l, int rc);
/* A sentence for the error that a call to a worker ended with. */
const char *page_link_meaning(int rc);

/* What to wait for: the descriptor, and whether bytes wait to be sent. */
int page_link_fd(const struct page_link *l);
bool page_link_wants_to_send(const struct page_link *l);

/* Blocking calls of the other methods. */
int page_link_info(struct page_link *l, uint64_t until_ns, struct page_info *out,
                   struct page_error *why) MUST_CHECK;
int page_link_give_board(struct page_link *l, uint64_t until_ns, int board_fd,
                         struct page_error *why) MUST_CHECK;
int page_link_trim(struct page_link *l, uint64_t until_ns, uint64_t *bytes_out,
                   struct page_error *why) MUST_CHECK;

#endif
