/* Answers of a hostile web server.  Whether it comes in one piece or byte by byte, the same answer
 * has the same status, the same body and the same end. */
#include "fuzz.h"
#include "kv/cluster/http.h"

#include <string.h>

/* A hash of the body, so that long ones cost no memory. */
struct body {
    size_t len;
    uint64_t hash;
};

static int take(void *user, const void *data, size_t len)
{
    struct body *b = user;
    const uint8_t *bytes = data;
    require(len > 0);
    for (size_t i = 0; i < len; i++)
        b->hash = (b->hash ^ bytes[i]) * UINT64_C(1099511628211);
    b->len += len;
    return 0;
}

static int feed(struct kv_http *h, struct body *b, const uint8_t *data, size_t size, size_t piece)
{
    int rc = 0;
    *b = (struct body){.hash = 1};
    kv_http_init(h, take, b);
    for (size_t at = 0; at < size && rc == 0; at += piece)
        rc = kv_http_feed(h, data + at, size - at < piece ? size - at : piece);
    return rc ? rc : kv_http_end(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_http whole, pieces;
    struct body a, b;
    int rc = feed(&whole, &a, data, size, size ? size : 1);
    require(rc == feed(&pieces, &b, data, size, 1));
    require(whole.status == pieces.status && a.len == b.len && a.hash == b.hash);
    require(a.len <= size);
    if (rc == 0)
        require(kv_http_done(&whole) && whole.status >= 200 && whole.status <= 599);
    return 0;
}
