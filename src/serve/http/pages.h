/* serve/http/pages.h - the counters of this process as pages.
 *
 *   /         text, for people      /metrics  Prometheus      /json  JSON
 *
 * Trust: whoever may reach them may read; nothing can be changed through them.
 * Threads: any.  Lifetime: none. */
#ifndef HAWSER_SERVE_HTTP_PAGES_H
#define HAWSER_SERVE_HTTP_PAGES_H

#include "base/counter.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdio.h>

/* What the owner of a door adds to a page; called before the counters are printed. */
typedef void http_pages_more(void *user, enum hw_counters_format format, FILE *out);

bool http_is_page(const char *path);
/* The page as a response; NULL: no memory. */
struct MHD_Response *http_page(const char *path, http_pages_more *more, void *user);

/* A response of heap memory, which it takes, also on failure; NULL: no memory, or no text. */
struct MHD_Response *http_response(const char *type, char *text, size_t len);
/* Sends and destroys it.  Without one the connection ends. */
enum MHD_Result http_respond(struct MHD_Connection *c, unsigned status,
                             struct MHD_Response *response);

#endif
