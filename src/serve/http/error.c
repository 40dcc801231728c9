#include "serve/http/error.h"

#include "serve/http/answer/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int http_error_set(struct http_error *e, unsigned status, const char *param, const char *code,
                   const char *fmt, ...)
{
    va_list args;
    *e = (struct http_error){.status = status, .code = code};
    if (param)
        snprintf(e->param, sizeof(e->param), "%s", param);
    va_start(args, fmt);
    vsnprintf(e->message, sizeof(e->message), fmt, args);
    va_end(args);
    return -1;
}

/* OpenAI's word for a status, or Anthropic's. */
static const char *type_of(unsigned status, bool anthropic)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 404:
        return anthropic ? "not_found_error" : "invalid_request_error";
    case 413:
        return anthropic ? "request_too_large" : "invalid_request_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return anthropic ? "overloaded_error" : "server_error";
    default:
        return status < 500 ? "invalid_request_error" : anthropic ? "api_error" : "server_error";
    }
}

static json_t *clean(const char *text)
{
    size_t len;
    char *valid = http_text_clean(text, strlen(text), &len);
    json_t *string = valid ? json_stringn(valid, len) : NULL;
    free(valid);
    return string;
}

json_t *http_error_message(const struct http_error *e)
{
    return clean(e->message);
}

json_t *http_error_json(const struct http_error *e, bool anthropic)
{
    const char *type = type_of(e->status, anthropic);
    if (anthropic)
        return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message",
                         clean(e->message));
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message", clean(e->message), "type",
                     type, "param", e->param[0] ? clean(e->param) : json_null(), "code", e->code);
}
