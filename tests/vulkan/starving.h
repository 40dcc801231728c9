/* starving.h - what the starved program and the library in its session share, in a file's memory.
 *
 * Threads: any.  Lifetime: the file's. */
#ifndef HAWSER_TESTS_VULKAN_STARVING_H
#define HAWSER_TESTS_VULKAN_STARVING_H

#include <stdatomic.h>
#include <stdbool.h>

#define STARVING_FILE "VKT_STARVING" /* the variable that names it */

struct starving {
    _Atomic long left; /* allocations until one fails; below 0: it has failed, or none shall */
    _Atomic bool failed;
    _Atomic bool for_good; /* those after it fail, too */
};

/* Whether the next allocation fails. */
static inline bool starving_next(struct starving *s)
{
    if (atomic_load(&s->left) < 0)
        return false;
    long before = atomic_fetch_sub(&s->left, 1);
    if (before != 0)
        return false;
    atomic_store(&s->failed, true);
    if (atomic_load(&s->for_good))
        atomic_store(&s->left, 0);
    return true;
}

#endif
