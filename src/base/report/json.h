/* base/report/json.h - streaming JSON writer.
 *
 * Values go out as they are named; commas and escapes are the writer's business.  Wrong nesting (a
 * key in an array, a value in an object without a key, an end that does not match) is our own
 * mistake and is caught by assertions.  A failed write is remembered and told by hw_json_finish.
 *
 * Trust: strings may hold anything; invalid UTF-8 becomes U+FFFD.  Threads: one at a time.
 * Lifetime: the struct and the stream are the caller's. */
#ifndef HAWSER_BASE_REPORT_JSON_H
#define HAWSER_BASE_REPORT_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/attr.h"

enum { HW_JSON_DEPTH_MAX = 32 }; /* our reports nest 4 deep; a bit for each level in one word */

struct hw_json {
    FILE *out;
    uint32_t in_object; /* bit d: level d is an object */
    uint32_t has_items; /* bit d: level d has an item already */
    uint8_t depth;
    bool have_key;
    bool done; /* the one top-level value is complete */
    int error; /* negative errno, sticky */
};

void hw_json_begin(struct hw_json *json, FILE *out);
/* Ends the line and flushes.  The document must be complete.  0 or the first negative errno. */
int hw_json_finish(struct hw_json *json) MUST_CHECK;

void hw_json_object_begin(struct hw_json *json);
void hw_json_object_end(struct hw_json *json);
void hw_json_array_begin(struct hw_json *json);
void hw_json_array_end(struct hw_json *json);
void hw_json_key(struct hw_json *json, const char *key);
/* A key, and the begin of its value. */
void hw_json_object_at(struct hw_json *json, const char *key);
void hw_json_array_at(struct hw_json *json, const char *key);

void hw_json_string(struct hw_json *json, const char *text); /* NULL is null */
void hw_json_string_n(struct hw_json *json, const char *text, size_t len);
void hw_json_u64(struct hw_json *json, uint64_t value);
void hw_json_double(struct hw_json *json, double value); /* NaN and infinities are null */
void hw_json_bool(struct hw_json *json, bool value);
void hw_json_null(struct hw_json *json);

/* A key and its value. */
void hw_json_put_string(struct hw_json *json, const char *key, const char *text);
void hw_json_put_u64(struct hw_json *json, const char *key, uint64_t value);
void hw_json_put_double(struct hw_json *json, const char *key, double value);
void hw_json_put_bool(struct hw_json *json, const char *key, bool value);

#endif
