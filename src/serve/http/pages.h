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

#define HTTP_PAGE_METHODS "GET, HEAD"

/* What the owner of a door adds to a page; called before the counters are printed. */
typedef void http_pages_more(void *user, enum hw_counters_format format, FILE *out);

/* Queues the page; *result is libmicrohttpd's.  False: there is no page of that name. */
bool http_page_answer(struct MHD_Connection *c, const char *url, http_pages_more *more, void *user,
                      enum MHD_Result *result);

/* A response from heap memory, which it takes, also on failure.  allow: the methods that a response
 * 405 names; of a text, which is a page, GET and HEAD. */
enum MHD_Result http_respond(struct MHD_Connection *c, unsigned status, const char *allow,
                             const char *type, char *text, size_t len);
enum MHD_Result http_respond_text(struct MHD_Connection *c, unsigned status, const char *text);

#endif
