/* base/text/gather.h - a stream whose bytes gather in memory.
 *
 * Not open_memstream: where memory is short, glibc's drops what it has no room for, and fclose
 * reports success.
 *
 * Trust: none needed.  Threads: one a stream.  Lifetime: gather/end; the text is the caller's. */
#ifndef HAWSER_BASE_TEXT_GATHER_H
#define HAWSER_BASE_TEXT_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/attr.h"

struct hw_gathered {
    char *text; /* len bytes and a NUL; free it */
    size_t len;
    size_t room; /* private, as the next */
    bool failed;
};

/* NULL: no memory.  out stays where it is until the end. */
FILE *hw_gather(struct hw_gathered *out);
/* Closes the stream, which may be NULL.  0, or -ENOMEM: not all is there, and text is NULL. */
int hw_gather_end(FILE *stream, struct hw_gathered *out) MUST_CHECK;

#endif
