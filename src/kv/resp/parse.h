/* kv/resp/parse.h - requests of Redis' protocol (RESP2 and 3): an array of strings, or a line.
 *
 * Trust: the bytes may be anything; lengths are checked before they are used.
 * Threads: any (no state).  Lifetime: arguments point into the bytes. */
#ifndef HAWSER_KV_RESP_PARSE_H
#define HAWSER_KV_RESP_PARSE_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RESP_ARGS_MAX = 4096,   /* of one request: an MSET of 2,000 */
    RESP_LINE_MAX = 4 << 10 /* a request that is a line, or the head of an argument */
};

struct resp_arg {
    const char *data;
    size_t len;
};

struct resp_request {
    struct resp_arg args[RESP_ARGS_MAX];
    uint32_t count; /* 0: an empty line, to be ignored */
    /* Of an array that is not complete: how many there will be, and the first that is not there
     * yet, with the length that it will have; data NULL: that is not known yet. */
    uint32_t total;
    struct resp_arg cut;
};

/* An argument whose bytes are somewhere else: `at` is where they would begin in the data. */
struct resp_apart {
    size_t at;
    struct resp_arg arg;
};

/* How many bytes the request has; 0: it is not complete yet, *need is set to how many bytes there
 * must be at least before another look; -EPROTO with a sentence in *why, -EMSGSIZE past `max`.
 * `apart` may be NULL; its bytes count for `max` alone. */
ptrdiff_t resp_parse(const char *data, size_t len, size_t max, const struct resp_apart *apart,
                     struct resp_request *out, size_t *need, const char **why) MUST_CHECK;

/* A whole decimal number; false: something else, or too large. */
bool resp_number(const struct resp_arg *arg, int64_t *out);

#endif
