/* The frame parser.  Beyond what a sanitizer sees, this holds: a frame that parses encodes to the
 * very bytes it came from, so there is one way to say a thing; and every shorter piece of it asks
 * for more, so a frame is the same however it is cut. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/endpoint/frame.h"
#include "rpc/rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

static void check_frame(const uint8_t *p, size_t header, const struct rpc_frame *frame)
{
    uint8_t again[RPC_FRAME_HEADER_MAX];
    struct rpc_frame unused;
    require(header <= RPC_FRAME_HEADER_MAX && frame->kind > 0 && frame->kind < RPC_FRAME_KINDS);
    require(frame->stream < RPC_STREAMS && frame->len <= RPC_CHUNK_BYTES);
    require(frame->total == 0 || frame->total > frame->len);
    require(rpc_frame_encode(frame, again) == header && memcmp(again, p, header) == 0);
    for (size_t n = 0; n < header; n++)
        require(rpc_frame_parse(p, n, &unused) == 0);
    int error = rpc_error_from_wire(frame->method);
    require(error < 0 && rpc_error_from_wire(rpc_error_to_wire(error)) == error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    while (size > 0) {
        struct rpc_frame frame;
        int header = rpc_frame_parse(data, size, &frame);
        if (header <= 0)
            return 0;
        require((size_t)header <= size);
        check_frame(data, (size_t)header, &frame);
        size_t skip = (size_t)header + frame.len;
        if (skip > size)
            return 0;
        data += skip;
        size -= skip;
    }
    return 0;
}
