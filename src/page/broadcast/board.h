/* page/broadcast/board.h - the command board: shared memory with one command, which all workers
 * watch, and a place for each answer.
 *
 *   head      ticket, ranks, length             the scheduler writes
 *   pending   ticket and how many are missing   workers count down; the last wakes the scheduler
 *   command   bytes of page/message.h           the scheduler writes
 *   place r   ticket, length, sleeps; answer    rank r writes
 *
 * The scheduler writes the command while `ticket` is odd, and publishes it by making the ticket
 * even.  A worker waits for the ticket to change (base/wait.h), copies the command, and reads the
 * ticket again; when it has changed, the worker drops its copy.  `pending` holds the low bits of
 * the ticket, so a worker that answers too late does not count down for another command.
 *
 * Trust: either side may write anything; lengths are read once and checked, bytes are copied before
 * they are decoded.  The memory is sealed, so that it cannot shrink under a reader.
 * Threads: a scheduler's side has one, a worker's side has one, but stop may come from another.
 * Lifetime: create or attach, then destroy; the mapping is shared, the struct is not. */
#ifndef HAWSER_PAGE_BROADCAST_BOARD_H
#define HAWSER_PAGE_BROADCAST_BOARD_H

#include "page/message.h"

struct page_board;

/* The scheduler's side: makes the memory.  0 or a negative errno. */
int page_board_create(uint32_t ranks, struct page_board **out) MUST_CHECK;
/* The descriptor to pass to a worker; the board owns it. */
int page_board_fd(const struct page_board *b);

/* A worker's side: maps the memory behind fd, which stays the caller's.
 * 0, -EPROTO (not such memory, or not sealed), -EINVAL (rank), or a negative errno. */
int page_board_attach(int fd, uint32_t rank, struct page_board **out) MUST_CHECK;
void page_board_destroy(struct page_board *b);

/* Publishes a command to the ranks of the mask and wakes those that sleep. */
void page_board_post(struct page_board *b, const void *command, uint32_t len, uint64_t ranks);
/* Waits until all have answered, or until_ns (page_host_ns).  0 or -ETIMEDOUT. */
int page_board_wait(struct page_board *b, uint64_t until_ns);
/* Copies the answer of a rank to the last command: its length, or -EAGAIN when there is none yet,
 * -EPROTO when it is longer than an answer can be. */
int page_board_answer(struct page_board *b, uint32_t rank, uint8_t out[PAGE_ANSWER_BYTES_MAX]);

/* The next command for this rank, copied: its length, or -ECANCELED after page_board_stop. */
int page_board_next(struct page_board *b, uint8_t out[PAGE_COMMAND_BYTES_MAX]);
/* Answers the command that page_board_next gave. */
void page_board_reply(struct page_board *b, const void *answer, uint32_t len);
/* Ends page_board_next in this process, now or when it is called. */
void page_board_stop(struct page_board *b);

#endif
