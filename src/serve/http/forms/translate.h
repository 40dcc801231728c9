/* serve/http/forms/translate.h - other APIs' requests as a chat's: what their translations share.
 *
 * Functions that answer a bool answer false after a refusal, which they have written to the error.
 *
 * Trust: JSON of any shape.  Threads: any.  Lifetime: none. */
#ifndef HAWSER_SERVE_HTTP_FORMS_TRANSLATE_H
#define HAWSER_SERVE_HTTP_FORMS_TRANSLATE_H

#include "serve/http/error.h"

#include <stdbool.h>

bool http_refuse(struct http_error *why, const char *field, const char *expected);
bool http_no_memory(struct http_error *why);

/* NULL: missing or null. */
json_t *http_field(const json_t *object, const char *name);
/* "": no string. */
const char *http_word(const json_t *object, const char *name);

/* Takes the value; NULL: no memory. */
bool http_put(json_t *object, const char *name, json_t *value, struct http_error *why);
bool http_append(json_t *list, json_t *value, struct http_error *why);

/* What `of` makes of each item; NULL: it is no list, or `of` answered NULL. */
json_t *http_each(const json_t *list, json_t *(*of)(json_t *item));
/* A chat's part of text; NULL: the member is no string. */
json_t *http_text_part(json_t *from, const char *member);
/* A chat's content of a string, or of parts, each by `of` (NULL: of type "text"); NULL: it is
 * neither. */
json_t *http_texts(json_t *content, json_t *(*of)(json_t *part));

/* A chat's request with the fields that all forms have under the same name; NULL: no memory. */
json_t *http_chat_begin(const json_t *asked, struct http_error *why);
/* To the calls of an assistant's message; takes the arguments. */
bool http_chat_call(json_t *message, json_t *id, json_t *name, json_t *arguments,
                    struct http_error *why);
/* format: {"type": ..., "schema": ...}; NULL: none. */
bool http_chat_format(json_t *chat, json_t *format, struct http_error *why);

#endif
