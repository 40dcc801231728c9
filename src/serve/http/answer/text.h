/* serve/http/answer/text.h - the text of one answer, from the bytes of its tokens.
 *
 * A token may hold a part of a character, and a stop string may span tokens.  `text` holds whole
 * characters only; bytes that are no UTF-8 become U+FFFD.  The first `shown` bytes are final: what
 * follows may yet turn out to be the beginning of a stop string.  When one is complete the text is
 * cut before it and takes no more.
 *
 * Trust: any bytes.  Threads: one at a time.  Lifetime: a value, zero at the start; fini frees. */
#ifndef HAWSER_SERVE_HTTP_ANSWER_TEXT_H
#define HAWSER_SERVE_HTTP_ANSWER_TEXT_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    HTTP_STOPS_MAX = 16,       /* OpenAI's servers take 4, others any number */
    HTTP_STOP_BYTES_MAX = 1024 /* each: bounds what is searched again with every token */
};

struct http_stops {
    struct {
        const char *bytes; /* the caller's */
        size_t len;        /* not 0 */
    } items[HTTP_STOPS_MAX];
    size_t count;
};

struct http_text {
    char *text;
    size_t len, room;
    size_t characters; /* of all that was added */
    size_t shown;
    char part[4]; /* of a character that is not complete yet */
    size_t part_len;
    bool stopped; /* by a stop string: */
    size_t stop;  /* which one */
};

/* Adds the bytes of a token; does nothing once stopped.  0 or -ENOMEM. */
int http_text_add(struct http_text *t, const struct http_stops *stops, const char *bytes,
                  size_t len) MUST_CHECK;
/* No more tokens: what was held back is shown, too.  0 or -ENOMEM. */
int http_text_end(struct http_text *t, const struct http_stops *stops) MUST_CHECK;
void http_text_fini(struct http_text *t);

/* Any bytes as UTF-8 with replacements, on the heap; NULL: no memory. */
char *http_text_clean(const char *bytes, size_t len, size_t *len_out);

#endif
