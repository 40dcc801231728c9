/* serve/http/budget.h - bytes that all requests may take together.
 *
 * Threads: any.  Lifetime: none; `most` is set before use. */
#ifndef HAWSER_SERVE_HTTP_BUDGET_H
#define HAWSER_SERVE_HTTP_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_budget {
    _Atomic uint64_t held; /* relaxed: it guards nothing else */
    uint64_t most;
};

/* False: too much is taken by others. */
static inline bool http_budget_take(struct http_budget *b, size_t bytes)
{
    uint64_t held = atomic_load_explicit(&b->held, memory_order_relaxed);
    do {
        if (bytes > b->most - held)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&b->held, &held, held + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static inline void http_budget_give(struct http_budget *b, size_t bytes)
{
    (void)atomic_fetch_sub_explicit(&b->held, bytes, memory_order_relaxed);
}

#endif
