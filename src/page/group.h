/* page/group.h - the scheduler's side: sends a batch to all workers and gives one verdict.
 *
 * A batch succeeds at all workers, or the workers that executed it undo it; the verdict then names
 * the rank that failed and the reason.  When a worker does not answer in time, the scheduler rolls
 * the others back and cancels the batch at that worker as soon as it listens again; until then the
 * group refuses every batch.  Opening a group resets its workers: nothing is mapped.
 *
 * Trust: workers may die, hang or answer anything; none of it harms the others.
 * Threads: any; one batch at a time (a lock).  Lifetime: open/close. */
#ifndef HAWSER_PAGE_GROUP_H
#define HAWSER_PAGE_GROUP_H

#include "page/broadcast/broadcast.h"

#define PAGE_TIMEOUT_DEFAULT_NS (UINT64_C(5) * 1000 * 1000 * 1000) /* a full GPU takes 0.1 s */
#define PAGE_TIMEOUT_MAX_NS (UINT64_C(3600) * 1000 * 1000 * 1000)  /* an hour */

struct page_group_config {
    const char *base;      /* runtime folder; NULL: the environment's */
    const char *group;     /* name */
    const char *scheduler; /* our name, for the message to a second scheduler */
    uint32_t ranks;
    uint64_t timeout_ns;               /* 0: the default; a rollback has at least the default */
    const struct page_strategy *map;   /* NULL: shm */
    const struct page_strategy *unmap; /* NULL: the same as map */
};

enum { PAGE_NO_RANK = -1 };

/* Where the time of a batch went, averaged over the ranks; the four add up to the whole. */
struct page_times {
    double total_ns;
    double driver_ns;  /* in the backend */
    double worker_ns;  /* in the worker, without the driver */
    double transit_ns; /* until the worker began, and from the last answer to us */
    double wait_ns;    /* from a worker's answer to that of the slowest rank */
};

struct page_verdict {
    struct page_error why;   /* rc 0 and "" when it succeeded; the text begins with the rank */
    int rank;                /* that failed; PAGE_NO_RANK: the batch was not sent, or succeeded */
    enum page_code code;     /* of the first id to blame; PAGE_SKIPPED when no id is */
    uint32_t id;             /* that id */
    struct page_times times; /* of a batch that succeeded */
};

struct page_group;

/* 0; -EBUSY (has a scheduler: named), -ENOENT, -ECONNREFUSED (a rank is not there), -EPROTO (ranks
 * that do not agree on their pages), or another negative errno, and why. */
int page_group_open(const struct page_group_config *config, struct page_group **out,
                    struct page_error *why) MUST_CHECK;
void page_group_close(struct page_group *g);

const struct page_info *page_group_info(const struct page_group *g); /* of rank 0 */
const struct page_geometry *page_group_geometry(const struct page_group *g);

/* Other strategies from now on; what was opened before stays open until close. */
int page_group_use(struct page_group *g, const struct page_strategy *map,
                   const struct page_strategy *unmap, struct page_error *why) MUST_CHECK;

/* The verdict's rc.  -ERANGE before anything is sent; -EHOSTDOWN while a rank is in doubt; else
 * what the failing rank answered. */
int page_group_map(struct page_group *g, const uint32_t *ids, size_t count,
                   struct page_verdict *verdict) MUST_CHECK;
int page_group_unmap(struct page_group *g, const uint32_t *ids, size_t count,
                     struct page_verdict *verdict) MUST_CHECK;

#endif
