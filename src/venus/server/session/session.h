/* venus/server/session/session.h - one client's Vulkan, in a process of its own.
 *
 * The main process answers the handshake; when a client sends VN_METHOD_OPEN, it gives the
 * connection to a process that was executed for it and runs the session until it ends
 * (serve/session/process.h).  That one loads Vulkan, so a driver that crashes or hangs takes one
 * client with it, and the kernel gives back what it held.
 *
 * Trust: the peer may send anything.  What is malformed ends the session with one line in the log.
 * Threads: vns_session_run uses the calling thread as executor and starts others; after it the
 * process exits with _exit, since they and the driver's threads still run.
 * Lifetime: one session a process. */
#ifndef HAWSER_VENUS_SERVER_SESSION_SESSION_H
#define HAWSER_VENUS_SERVER_SESSION_SESSION_H

#include <stdbool.h>

#include "rpc/rpc.h"
#include "venus/common/transfer/stripe.h"

enum {
    VNS_MAX_OBJECTS_DEFAULT = 1 << 20,   /* 100 MB of ours; programs hold tens of thousands */
    VNS_MAX_PIPELINES_DEFAULT = 1 << 16, /* games make thousands; each is a megabyte of a driver */
    VNS_MAX_PENDING_DEFAULT = 1 << 16,   /* batches; programs wait every few dozen */
};

struct vns_slice;
struct vns_upload_user;

/* A connection that takes the place of one that was cut (rpc/resume/resume.h). */
struct vns_resumption {
    struct rpc_transport *connection;
    uint32_t call;     /* to answer on it */
    uint64_t received; /* bytes that the client has */
    int stripe;        /* which one it is, without a call to answer; -1: the session's own */
};

struct vns_session_options {
    uint64_t max_memory_bytes; /* device memory of all allocations; 0: 90 % of each heap */
    uint64_t max_objects;      /* 0: the defaults above */
    uint64_t max_pipelines;
    uint64_t max_pending;            /* batches submitted and not done */
    unsigned compile_threads;        /* for pipelines; 0: as many as cores; 1: in stream order */
    bool validate;                   /* with Khronos' validation layer */
    struct vns_upload_user *uploads; /* NULL: no upload cache */
    struct vns_slice *slice;         /* NULL: the session submits whenever it wants */
    struct rpc_stats *stats; /* NULL, or where the endpoint's figures go a few times a second */
    struct rpc_transport *stripes[VN_STRIPES_MAX]; /* that OPEN's key names */
    unsigned stripe_count;
    /* Waits for the next connection with which the client resumes; false when none will come. NULL:
     * the session ends with its connection.  In a thread of its own. */
    bool (*next_resumption)(struct vns_resumption *out);
};

/* Answers `open`, a call of VN_METHOD_OPEN, and serves the connection until it ends.  Takes both.
 * The status to exit with: 0 when the client left, 1 when it broke the rules or could not be
 * served. */
int vns_session_run(struct rpc_ep *ep, struct rpc_msg *open,
                    const struct vns_session_options *options);

#endif
