/* base/grow.h - arrays that grow as things are added.
 *
 * Threads: the array's.  Lifetime: the array is the caller's, of malloc or NULL. */
#ifndef HAWSER_BASE_GROW_H
#define HAWSER_BASE_GROW_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { HW_GROW_FIRST = 16 }; /* elements; for less a list would do */

/* Room for `need` elements of `size` bytes, at least twice as many as before, so that n additions
 * cost O(n).  array: the address of the pointer, of any type.  False without memory: all is as it
 * was. */
MUST_CHECK static inline bool hw_grow(void *array, size_t *room, size_t need, size_t size)
{
    void *items;
    if (need <= *room)
        return true;
    size_t more = need / 2 < *room ? 2 * *room : need;
    more = more > HW_GROW_FIRST ? more : HW_GROW_FIRST;
    memcpy(&items, array, sizeof items); /* not by a cast: the pointer has another type */
    items = more <= SIZE_MAX / size ? realloc(items, more * size) : NULL;
    if (!items)
        return false;
    memcpy(array, &items, sizeof items);
    *room = more;
    return true;
}

#endif
