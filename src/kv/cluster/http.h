/* kv/cluster/http.h - an incremental parser of one HTTP/1.1 answer.
 *
 * Feed it the bytes of a socket.  It passes the body to a sink as it comes, so that an endless
 * answer (a watch) is read like any other.  A body ends by Content-Length, by its last chunk, or
 * with the connection.  The parser refuses what a proxy might read differently: two lengths, a
 * length beside chunks, folded lines, lines that end in LF alone, and 1xx answers, which we never
 * ask for.
 *
 * Trust: none in the server.  The parser allocates nothing; the sink bounds the body.  Threads: one
 * at a time.  Lifetime: a value. */
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
