/* Pages of other origins in a browser (the Fetch standard's CORS): which of them may read answers.
 *
 * None, unless the user names them.  An answer to a page that may not read it has no such header,
 * and the browser keeps it back; that a page asks at all, nobody can prevent but with keys.  A key
 * goes in a header, never in a cookie, so credentials in the browser's sense are not allowed. */
#include "serve/http/impl.h"

#include "base/log.h"

#include <ctype.h>
#include <stdatomic.h>
#include <string.h>

static const char every_page[] = "*";

static bool is_origin(const char *text)
{
    const char *host = strstr(text, "://");
    for (const char *c = text; *c; c++) {
        if (!isgraph((unsigned char)*c) || strchr("\"'\\,", *c))
            return false;
    }
    return strcmp(text, every_page) == 0 || strcmp(text, "null") == 0 ||
           (isalpha((unsigned char)text[0]) && host && host[3] && !strpbrk(host + 3, "/?#@*"));
}

enum cmd_exit http_cors_check(const char *command, const struct http_options *o)
{
    for (size_t i = 0; i < o->cors.count; i++) {
        if (!is_origin(o->cors.items[i]))
            return cmd_fail(CMD_USAGE,
                            "%s: --cors: '%s' is no origin: give scheme://host[:port] as a browser "
                            "sends it, without a path, or '*' for every page",
                            command, o->cors.items[i]);
    }
    return CMD_DONE;
}

bool http_cors_is_open(const struct http_options *o)
{
    for (size_t i = 0; i < o->cors.count; i++) {
        if (strcmp(o->cors.items[i], every_page) == 0)
            return true;
    }
    return false;
}

static const char *header(const struct http_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

/* What the header says that lets the page read the answer; NULL: it may not. */
static const char *allowed_origin(const struct http_exchange *x)
{
    const struct http_options *o = &x->front->config.limits;
    const char *origin = header(x, MHD_HTTP_HEADER_ORIGIN);
    if (http_cors_is_open(o))
        return every_page;
    for (size_t i = 0; i < o->cors.count && origin; i++) {
        if (strcasecmp(o->cors.items[i], origin) == 0)
            return origin;
    }
    return NULL;
}

/* Once, since whoever reaches the port can ask: the browser tells its user nothing of --cors. */
static void tell_refused(const char *origin)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (is_origin(origin) && strcmp(origin, every_page) != 0 && !atomic_flag_test_and_set(&told))
        hw_warn(HW_CAT_NET, "a page of %.200s may not read answers; --cors %.200s lets it", origin,
                origin);
}

void http_cors_add(const struct http_exchange *x, struct MHD_Response *response)
{
    const char *origin = allowed_origin(x), *asked = header(x, "Access-Control-Request-Headers");
    const char *page = header(x, MHD_HTTP_HEADER_ORIGIN);
    if (x->front->config.limits.cors.count && !http_cors_is_open(&x->front->config.limits))
        MHD_add_response_header(response, "Vary", "Origin");
    if (!origin && x->preflight && page)
        tell_refused(page);
    if (!origin)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "Retry-After");
    if (!x->preflight)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Methods", x->allow);
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    if (asked && asked[0]) /* by name: "*" would leave Authorization out */
        MHD_add_response_header(response, "Access-Control-Allow-Headers", asked);
}
