#include "serve/http/pages.h"

#include "base/text/gather.h"

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

struct MHD_Response *http_response(const char *type, char *text, size_t len)
{
    struct MHD_Response *response =
        text ? MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (response)
        MHD_add_response_header(response, "Content-Type", type);
    else
        free(text);
    return response;
}

enum MHD_Result http_respond(struct MHD_Connection *c, unsigned status,
                             struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(response, "Retry-After", "1");
    enum MHD_Result result = MHD_queue_response(c, status, response);
    MHD_destroy_response(response);
    return result;
}

static const struct page *find(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
        if (strcmp(path, pages[i].path) == 0)
            return &pages[i];
    }
    return NULL;
}

bool http_is_page(const char *path)
{
    return find(path) != NULL;
}

struct MHD_Response *http_page(const char *path, http_pages_more *more, void *user)
{
    const struct page *page = find(path);
    struct hw_gathered text;
    FILE *out = hw_gather(&text);
    if (out && more)
        more(user, page->format, out);
    int rc = out ? hw_counters_print(out, page->format) : -ENOMEM;
    if (hw_gather_end(out, &text) == 0 && rc) {
        free(text.text);
        text.text = NULL;
    }
    return http_response(page->type, text.text, text.len);
}
