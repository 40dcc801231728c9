/* kv/cluster/http.h - an HTTP/1.1 answer, read as its bytes come.
 *
 * Feed it what a socket gives; the body goes on to a sink, piece by piece, so that an answer
 * without an end (a watch) can be read like any other.  Bodies by Content-Length, in chunks, or up
 * to the end of the connection.  What a proxy and we could read in two ways is refused: lengths
 * that are doubled or stand beside chunks, folded lines, lines that end in LF alone, 1xx answers
 * (we never ask for one).
 *
 * Trust: none in the server.  Memory is this struct, whatever is fed; the sink bounds the body.
 * Threads: one at a time.  Lifetime: a value. */
#ifndef HAWSER_KV_CLUSTER_HTTP_H
#define HAWSER_KV_CLUSTER_HTTP_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KV_HTTP_LINE_MAX = 1024, /* a status, header or chunk line; etcd's are below 100 */
    KV_HTTP_LINES_MAX = 64   /* headers, and trailers again; etcd sends nine */
};

/* 0, or a negative errno that ends the reading and is passed on. */
typedef int kv_http_sink_fn(void *user, const void *data, size_t len);

enum kv_http_state {
    KV_HTTP_STATUS,
    KV_HTTP_HEADERS,
    KV_HTTP_BODY, /* of `left` bytes, or until the end when `until_end` */
    KV_HTTP_CHUNK_SIZE,
    KV_HTTP_CHUNK,
    KV_HTTP_CHUNK_END,
    KV_HTTP_TRAILERS,
    KV_HTTP_DONE
};

struct kv_http {
    kv_http_sink_fn *sink;
    void *user;
    enum kv_http_state state;
    int error;       /* negative errno, sticky */
    uint16_t status; /* 200 to 599 once the state is past KV_HTTP_STATUS */
    uint16_t lines;  /* of the headers or trailers so far */
    uint16_t line_len;
    bool has_length, chunked, until_end;
    uint64_t left; /* of the body or the chunk */
    char line[KV_HTTP_LINE_MAX];
};

void kv_http_init(struct kv_http *http, kv_http_sink_fn *sink, void *user);

/* 0; -EPROTO when this is no HTTP answer or a limit is passed; the sink's error.  Bytes after the
 * end of the answer are -EPROTO too: one answer a connection. */
int kv_http_feed(struct kv_http *http, const void *data, size_t len) MUST_CHECK;
/* The connection has ended.  0 when the answer is whole, else -EPROTO. */
int kv_http_end(struct kv_http *http) MUST_CHECK;

static inline bool kv_http_done(const struct kv_http *http)
{
    return http->state == KV_HTTP_DONE;
}

#endif
