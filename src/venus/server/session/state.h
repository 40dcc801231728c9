/* venus/server/session/state.h - what a session is made of; private to session.c, stream.c and
 * hooks.c.
 *
 * Threads: the executor's, but for channel, memories, reports and messages, which say so. */
#ifndef HAWSER_VENUS_SERVER_SESSION_STATE_H
#define HAWSER_VENUS_SERVER_SESSION_STATE_H

#include "venus/common/exec.h"
#include "venus/common/transfer/pack.h"
#include "venus/server/session/messages.h"
#include "venus/server/session/objects.h"
#include "venus/server/session/session.h"
#include "venus/server/stream/pipelines.h"
#include "venus/server/stream/recordings.h"
#include "venus/server/submit/queue.h"
#include "venus/server/upload/arrivals.h"
#include "venus/server/upload/uploads.h"

/* The command under way. */
struct vns_command {
    uint32_t id;
    struct vns_thing *recording; /* the command buffer that it is recorded into; NULL */
    struct vns_queue *queue;     /* that it submits to; NULL where it does not, or that is void */
    struct vns_device *device;   /* of its first handle */
    struct vns_device *created;  /* by vkCreateDevice */
    bool secondary;              /* the command buffers that vkAllocateCommandBuffers made */
    bool exclusive;              /* the cache that vkCreatePipelineCache made; see objects.h */
    struct vns_thing *pool;      /* the last one that it names */
    struct vns_thing *buffer;    /* the last command buffer that it names */
};

/* What a command names, in the order of its arguments. */
struct vns_names {
    struct vns_thing **things;
    size_t count, cap;
};

struct vns_session {
    struct vns_session_options options; /* with the defaults filled in */
    struct vns_channel channel;
    struct vns_instance instance;
    struct vns_objects objects;
    struct vns_memories *memories;
    struct vns_arrivals *arrivals; /* NULL: there are no stripes */
    struct vns_uploads *uploads;
    struct vns_pipelines *pipelines;
    struct vns_reports reports;
    struct vns_messages messages;
    struct vns_device *devices;
    struct hw_arena arena; /* of the command under way */
    struct vn_decoder decoder;
    struct vn_exec exec;
    struct wire_enc reply;
    struct vn_unpacker *unpacker;           /* made with the first packed message */
    uint64_t stats_before[RPC_STATS_COUNT]; /* of the endpoint, when the session began */
    struct vn_keymap classes;               /* command id to struct vn_command_info */

    struct vns_command command;
    struct vns_names named; /* by it; filled while it is decoded */
    int fd_in;              /* came with the message; -1: none, or taken */
    int fd_out;             /* to go with the answer; likewise */
    int fault;              /* set by hooks and ops: ends the session */
    bool warned_of_id;      /* that is unknown: once a session */

    bool early;                 /* EARLY came since all queues were drained */
    struct vns_queue *updating; /* has updates that are not submitted; NULL between messages */
};

/* Ends the session with this errno once the command returns; the first one counts. */
static inline void vns_session_fault(struct vns_session *s, int err)
{
    if (!s->fault)
        s->fault = err;
}

/* ---- stream.c ---- */

/* Registers ops and hooks with decoder and exec.  0 or -ENOMEM. */
int vns_stream_init(struct vns_session *s) MUST_CHECK;
/* Executes a stream of commands and operations; the last one's answer goes to reply, which may be
 * NULL.  0, or a negative errno that ends the session, with s->command saying where. */
int vns_stream_execute(struct vns_session *s, const void *data, size_t len,
                       struct wire_enc *reply) MUST_CHECK;
/* Waits for what the program was told is done, but for updates. */
void vns_session_drain(struct vns_session *s);
/* A posted command of a device failed; from any thread. */
void vns_session_push_failed(struct vns_session *s, uint64_t device, uint32_t command,
                             VkResult result);
/* Names s->command for a message. */
const char *vns_stream_where(const struct vns_session *s);

/* ---- hooks.c ---- */

extern const struct vn_hooks vns_server_hooks;

/* The queue behind a driver's handle; NULL when it is none of the client's. */
struct vns_queue *vns_session_queue(struct vns_session *s, VkQueue handle);

#endif
