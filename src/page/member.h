/* page/member.h - a process that serves models as a member of a group: a line of the shared limit
 * for each model, where hawser kvctl finds them.
 *
 * Threads: one at a time; the limits as page/limit.h.  Lifetime: open/close, after those that use
 * the limits. */
#ifndef HAWSER_PAGE_MEMBER_H
#define HAWSER_PAGE_MEMBER_H

#include "page/limit.h"
#include "page/runtime.h"

enum { PAGE_MEMBER_MODELS_MAX = 16 };

struct page_member_config {
    const char *group;         /* one that others may be in; NULL: one of its own */
    const char *const *models; /* names; the first one names a group of its own */
    uint32_t count;
    uint64_t limit_bytes;       /* of a group in which no model is served yet */
    uint64_t most_bytes;        /* to which that may be raised; above 0 */
    uint64_t min_bytes;         /* of each model */
    const uint32_t *priorities; /* one of each model */
};

struct page_member {
    struct page_runtime runtime;
    bool is_listed; /* false: there is no folder, so that no other process sees it */
    uint32_t count;
    struct page_limit *limits[PAGE_MEMBER_MODELS_MAX]; /* in the order of the models */
};

/* A group of its own that cannot be made is memory of this process, and why says what failed; else
 * why is "".  0; errors of page_runtime_join and page_limit_open, and why. */
int page_member_open(struct page_member *m, const struct page_member_config *config,
                     struct page_error *why) MUST_CHECK;
void page_member_close(struct page_member *m); /* fine for zeros */

#endif
