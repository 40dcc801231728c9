/* rpc/methods.h - method numbers of the services that every hawser server offers.
 *
 * 1 to 255 are these; the layers above (Vulkan, pages, the KV store, LLM) each take their own range
 * of 256 in their own header.  A number, once released, keeps its meaning. */
#ifndef HAWSER_RPC_METHODS_H
#define HAWSER_RPC_METHODS_H

enum rpc_method {
    /* Call, any payload, empty answer.  `hawser info`, scripts that wait for a server, and the
     * end of an upload: streams are in order, so its answer says that all before it arrived. */
    RPC_METHOD_PING = 1,
    /* Call, answered with its own payload.  `hawser info` and `bench-rpc`: round trips. */
    RPC_METHOD_ECHO = 2,
    /* Post, dropped on arrival.  `hawser info` and `bench-rpc`: bandwidth to the server. */
    RPC_METHOD_SINK = 3,
    /* Call with a u32, answered with that many zero bytes, at most RPC_SOURCE_MAX.  `hawser info`:
     * bandwidth from the server. */
    RPC_METHOD_SOURCE = 4,
    /* Call without payload, answered as serve/server_info.h says.  `hawser info`. */
    RPC_METHOD_INFO = 5,
    /* Call, the first of a connection, payload as rpc/resume/resume.h says: this connection takes
     * the place of one that was cut. */
    RPC_METHOD_RESUME = 6,
    /* Call without payload, answered as serve/tenants.h says: of all tenants to who has the
     * server's own token, else of the caller's alone.  `hawser top`. */
    RPC_METHOD_USAGE = 7
};

enum { RPC_SOURCE_MAX = 1 << 20 }; /* enough for full speed; the zeros are one static buffer */

#endif
