#include "serve/http/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct page {
    const char *path;
    const char *type;
    enum hw_counters_format format;
} pages[] = {
    {"/", "text/plain; charset=utf-8", HW_COUNTERS_TEXT},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", HW_COUNTERS_PROMETHEUS},
    {"/json", "application/json", HW_COUNTERS_JSON},
};

enum MHD_Result http_respond(struct MHD_Connection *c, unsigned status, const char *allow,
                             const char *type, char *text, size_t len)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", type);
    if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(response, "Retry-After", "1");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, "Allow", allow);
    enum MHD_Result result = MHD_queue_response(c, status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result http_respond_text(struct MHD_Connection *c, unsigned status, const char *text)
{
    char *copy = strdup(text);
    return copy ? http_respond(c, status, HTTP_PAGE_METHODS, "text/plain", copy, strlen(copy))
                : MHD_NO;
}

static enum MHD_Result answer(struct MHD_Connection *c, const struct page *page,
                              http_pages_more *more, void *user)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (out && more)
        more(user, page->format, out);
    int rc = out ? hw_counters_print(out, page->format) : -ENOMEM;
    if (out && fclose(out))
        rc = -ENOMEM;
    if (rc) {
        free(text);
        return http_respond_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    }
    return http_respond(c, MHD_HTTP_OK, HTTP_PAGE_METHODS, page->type, text, len);
}

bool http_page_answer(struct MHD_Connection *c, const char *url, http_pages_more *more, void *user,
                      enum MHD_Result *result)
{
    for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
        if (strcmp(url, pages[i].path) == 0) {
            *result = answer(c, &pages[i], more, user);
            return true;
        }
    }
    return false;
}
