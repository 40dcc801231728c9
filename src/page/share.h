/* page/share.h - how much each model may have of a memory that they share: the policy, and nothing
 * else.
 *
 * From the first to the last, as far as memory reaches:
 *
 *   1. each model's minimum is set aside for it
 *   2. each model's oldest request has all that it needs or nothing, those of a higher priority
 *      first, of equals the oldest: so one request always runs to its end
 *   3. what sequences use and waiting requests want, by priority; models of one priority have equal
 *      shares, and what one does not need is divided among the others
 *   4. models that had a request lately keep what they hold: a new request takes the place of its
 *      own model's prefixes, not of another's that is about as busy
 *   5. what models hold beyond that (prefixes, reserves, sequences between two requests): those
 *      that had a request most recently keep it
 *   6. the rest is free, and each may take it
 *
 * A model that holds more than its target gives memory back; one that holds less may grow.
 *
 * Threads: any (values).  Lifetime: values. */
#ifndef HAWSER_PAGE_SHARE_H
#define HAWSER_PAGE_SHARE_H

#include <stddef.h>
#include <stdint.h>

/* Without a request for so long, a model's sequences need nothing any more: half of the second
 * within which memory has to move. */
#define PAGE_SHARE_IDLE_NS (UINT64_C(500) * 1000000)

enum { PAGE_SHARE_MODELS_MAX = 127 }; /* PAGE_LIMIT_USERS */

struct page_share {
    uint32_t priority;
    uint64_t min_bytes;
    uint64_t held_bytes;   /* charged to the limit */
    uint64_t used_bytes;   /* of those: by sequences */
    uint64_t wanted_bytes; /* on top, by requests that wait */
    uint64_t oldest_bytes; /* of used and wanted: of the oldest request, 0 without one */
    uint64_t oldest_ns;    /* for how long it has been there */
    uint64_t idle_ns;      /* since it had a request; 0: it has one */
};

/* targets[i] is what model i may hold.  limit 0: there is none.  Minimums that add up to more than
 * the limit count for nothing. */
void page_share_targets(const struct page_share *models, size_t count, uint64_t limit,
                        uint64_t *targets);

#endif
