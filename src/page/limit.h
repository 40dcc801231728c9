/* page/limit.h - the memory limit that the processes of a group share, changeable while they run.
 *
 * A file in the group's folder, mapped by all:
 *
 *   head       magic, version, limit, trim requests      anybody writes, each value by itself
 *   lines      a user each: its process, what it holds and wants  one writer, the user
 *
 * A user is a tensor-parallel worker or a served model; a process may have several.
 *
 * The sum is not stored but added up from the lines of living processes, so a process that is
 * killed leaves nothing to repair.  To charge, a process adds to its own line, then adds up all
 * lines, and takes the charge back when the sum is above the limit.  Both steps are sequentially
 * consistent: of two processes that charge at once, at least one sees the other.  The limit is
 * never exceeded; at worst both are refused and try again.
 *
 * A user's minimum is set aside for it: to the others it counts as charged.  Minimums that add up
 * to more than the limit count for nothing.
 *
 * Trust: processes of the same user; a value that makes no sense can refuse a charge, not harm.
 * Threads: any, for all but open, claim and close.  Lifetime: open/close. */
#ifndef HAWSER_PAGE_LIMIT_H
#define HAWSER_PAGE_LIMIT_H

#include "page/page.h"

#include <sys/types.h>

enum {
    PAGE_LIMIT_USERS = 127,    /* 64 workers of two groups' worth; the file is 24 KiB */
    PAGE_LIMIT_NAME_CHARS = 64 /* a model's name, or its beginning, and a NUL */
};

struct page_limit;

/* What a served model tells the others of its group. */
struct page_limit_state {
    uint64_t used_bytes;   /* of what it holds: needed by sequences */
    uint64_t wanted_bytes; /* what requests that wait would take on top */
    uint64_t oldest_bytes; /* of both: what its oldest request needs; 0 without one */
    uint64_t oldest_ns;    /* page_host_ns when that came */
    uint64_t busy_ns;      /* page_host_ns when it last had a request */
    bool is_aside;         /* its weights are, until the next request */
};

struct page_limit_user {
    pid_t pid;
    uint32_t rank;
    char name[PAGE_LIMIT_NAME_CHARS]; /* of a served model; "": a worker */
    uint32_t line;
    uint64_t charged_bytes; /* mapped, and held in reserve */
    uint64_t mapped_bytes;
    uint64_t min_bytes;
    uint32_t priority;
    struct page_limit_state state;
    uint32_t trims; /* requests that it has answered */
};

/* Makes the file when it is missing; path NULL: memory of this process, without a file.
 * 0, -EPROTO (another version's file), or a negative errno. */
int page_limit_open(const char *path, struct page_limit **out, struct page_error *why) MUST_CHECK;
/* Another user of the same limit in this process. */
int page_limit_open_same(const struct page_limit *l, struct page_limit **out,
                         struct page_error *why) MUST_CHECK;
/* Gives up what is charged. */
void page_limit_close(struct page_limit *l);

/* Takes a line for this process, before it charges.  0, -EUSERS, or the negative errno of looking
 * at /proc. */
int page_limit_claim(struct page_limit *l, uint32_t rank, struct page_error *why) MUST_CHECK;
/* The line is that of a served model, with this minimum and priority.  After claim. */
void page_limit_name(struct page_limit *l, const char *name, uint64_t min_bytes, uint32_t priority);

/* 0, or -ENOSPC with a sentence that has the figures. */
int page_limit_charge(struct page_limit *l, uint64_t bytes, struct page_error *why) MUST_CHECK;
void page_limit_refund(struct page_limit *l, uint64_t bytes);
uint64_t page_limit_charged(const struct page_limit *l); /* by this user */
uint32_t page_limit_line(const struct page_limit *l);    /* of this user */
/* For page_limit_users.  What is mapped becomes so much more, or less: several pools may have one
 * user. */
void page_limit_add_mapped(struct page_limit *l, int64_t bytes);
void page_limit_note_state(struct page_limit *l, const struct page_limit_state *state);

/* This user's own limit, below that of all; 0: none.  It says what the others need. */
void page_limit_set_own(struct page_limit *l, uint64_t bytes);
uint64_t page_limit_own(const struct page_limit *l);

/* How high the limit may be raised: models reserve addresses when they are loaded.  0: as one
 * likes. */
uint64_t page_limit_most(const struct page_limit *l);
/* Sets the most, above 0, and the limit, unless a server of the group has set the most before. */
void page_limit_begin(struct page_limit *l, uint64_t bytes, uint64_t most);

/* 0: no limit. */
void page_limit_set(struct page_limit *l, uint64_t bytes);
uint64_t page_limit_get(const struct page_limit *l);
/* Bytes that the living users hold above the limit, after it was lowered. */
uint64_t page_limit_excess(const struct page_limit *l);

/* Asks every process of the group to empty its reserve.  They compare the number of requests, which
 * with this one is returned. */
uint32_t page_limit_ask_trim(struct page_limit *l);
uint32_t page_limit_trims(const struct page_limit *l);
/* This user has answered so many of them. */
void page_limit_note_trims(struct page_limit *l, uint32_t trims);

/* The living users by rank; returns how many.  Clears the lines of dead processes. */
size_t page_limit_users(struct page_limit *l, struct page_limit_user users[PAGE_LIMIT_USERS]);

#endif
