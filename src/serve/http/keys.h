/* serve/http/keys.h - API keys: who may ask, and what each has under way.
 *
 * Trust: the file is the user's; a client's key is compared in constant time.
 * Threads: find from any; counts are the front's, under its lock.  Lifetime: load/fini. */
#ifndef HAWSER_SERVE_HTTP_KEYS_H
#define HAWSER_SERVE_HTTP_KEYS_H

#include "base/attr.h"
#include "rpc/transport/addr.h"

#include <stdint.h>

enum {
    HTTP_KEYS_MAX = 4096,
    HTTP_KEY_CHARS_MIN = 16, /* below this, guessing is thinkable */
    HTTP_KEY_CHARS_MAX = 256,
    HTTP_KEY_FILE_BYTES_MAX = 1 << 20
};

struct http_siblings;

struct http_key {
    const char *text;
    uint32_t running;   /* requests */
    uint64_t tokens;    /* of their prompts */
    uint32_t texts;     /* at workers */
    uint64_t positions; /* of KV that they take there */
    /* Of the front's queue. */
    struct http_siblings *waiting, **waiting_end; /* requests with texts that wait */
    struct http_key *next;
    uint64_t served; /* when it was last given a worker: a number of the front's */
    uint64_t stuck;  /* the last pass in which no worker could take a text of it */
};

struct http_keys {
    char *file; /* its bytes; keys point into them */
    struct http_key *items;
    uint32_t count; /* 0: no key is asked for */
};

/* One key a line; blank lines and those that begin with # are skipped.  0, or a negative errno
 * with cause and remedy in why. */
int http_keys_load(struct http_keys *keys, const char *path, char why[RPC_WHY_CHARS]) MUST_CHECK;
void http_keys_fini(struct http_keys *keys);

/* The key of an Authorization header ("Bearer KEY") or else of x-api-key (KEY), as OpenAI's and
 * Anthropic's clients send it; NULL: that header was not sent.  NULL: none of ours. */
struct http_key *http_keys_find(struct http_keys *keys, const char *authorization,
                                const char *plain);

#endif
