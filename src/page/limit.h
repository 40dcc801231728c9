/* page/limit.h - the memory limit that the processes of a group share, changeable while they run.
 *
 * A file in the group's folder, mapped by all:
 *
 *   line 0     magic, version, limit, trim requests      anybody writes, each value by itself
 *   line 1..   a user each: who, charged, mapped, rank   one writer, the user
 *
 * The sum is not stored but added up from the lines of living processes, so a process that is
 * killed leaves nothing to repair.  To charge, a process adds to its own line, then adds up all
 * lines, and takes the charge back when the sum is above the limit.  Both steps are sequentially
 * consistent: of two processes that charge at once, at least one sees the other.  The limit is
 * never exceeded; at worst both are refused and try again.
 *
 * Trust: processes of the same user; a value that makes no sense can refuse a charge, not harm.
 * Threads: any, for all but open, claim and close.  Lifetime: open/close. */
#ifndef HAWSER_PAGE_LIMIT_H
#define HAWSER_PAGE_LIMIT_H

#include "page/page.h"

#include <sys/types.h>

enum { PAGE_LIMIT_USERS = 127 }; /* 64 workers of two groups' worth; the file is 8 KiB */

struct page_limit;

struct page_limit_user {
    pid_t pid;
    uint32_t rank;
    uint64_t charged_bytes; /* mapped, and held in reserve */
    uint64_t mapped_bytes;
};

/* Makes the file when it is missing.  0, -EPROTO (another version's file), or a negative errno. */
int page_limit_open(const char *path, struct page_limit **out, struct page_error *why) MUST_CHECK;
/* Gives up what is charged. */
void page_limit_close(struct page_limit *l);

/* Takes a line for this process, before it charges.  0 or -EUSERS. */
int page_limit_claim(struct page_limit *l, uint32_t rank, struct page_error *why) MUST_CHECK;

/* 0, or -ENOSPC with a sentence that has the figures. */
int page_limit_charge(struct page_limit *l, uint64_t bytes, struct page_error *why) MUST_CHECK;
void page_limit_refund(struct page_limit *l, uint64_t bytes);
/* For page_limit_users. */
void page_limit_note_mapped(struct page_limit *l, uint64_t bytes);

/* 0: no limit. */
void page_limit_set(struct page_limit *l, uint64_t bytes);
uint64_t page_limit_get(const struct page_limit *l);
/* Bytes that the living users hold above the limit, after it was lowered. */
uint64_t page_limit_excess(const struct page_limit *l);

/* Asks every process of the group to empty its reserve.  They compare the number of requests. */
void page_limit_ask_trim(struct page_limit *l);
uint32_t page_limit_trims(const struct page_limit *l);

/* The living users by rank; returns how many.  Clears the lines of dead processes. */
size_t page_limit_users(struct page_limit *l, struct page_limit_user users[PAGE_LIMIT_USERS]);

#endif
