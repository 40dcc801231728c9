/* serve/http/error.h - why a request is refused, in OpenAI's form.
 *
 *   {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
 *
 * Threads: any.  Lifetime: values. */
#ifndef HAWSER_SERVE_HTTP_ERROR_H
#define HAWSER_SERVE_HTTP_ERROR_H

#include "base/attr.h"

#include <jansson.h>
#include <stdbool.h>

enum {
    HTTP_ERROR_CHARS = 512, /* one or two sentences */
    HTTP_PARAM_CHARS = 64
};

struct http_error {
    unsigned status;              /* 0: none */
    const char *code;             /* static; NULL: null in the answer */
    char param[HTTP_PARAM_CHARS]; /* the field; "": null in the answer */
    char message[HTTP_ERROR_CHARS];
};

/* Fills *e and returns -1, so that it can stand in a return.  param may be NULL. */
int http_error_set(struct http_error *e, unsigned status, const char *param, const char *code,
                   const char *fmt, ...) PRINTF_LIKE(5, 6);

/* It may quote a client's bytes, cut anywhere: they become UTF-8.  The caller's; NULL: no memory.
 */
json_t *http_error_message(const struct http_error *e);

/* The answer's object, the caller's; NULL: no memory.  anthropic: in that form, {"type": "error",
 * "error": {"type": ..., "message": ...}}. */
json_t *http_error_json(const struct http_error *e, bool anthropic);

#endif
