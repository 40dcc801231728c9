/* serve/session/process.h - the process of a session: this program, executed anew.  A session is a
 * Vulkan client, or a model that a client uploaded.
 *
 * It begins with a socket to the server and nothing else, so it has no key, no token and no byte of
 * another client in its memory.  Over that socket it gets one order: the connection with what was
 * received of it, the connections of its stripes, and its limits; later, connections that take the
 * place of one that was cut.  Where a connection cannot be handed over, it gets a door to open in
 * its place, and says over the socket where that is
 * (docs/decisions/0012-ucx-sessions.md).
 *
 * Trust: the order is the server's.  Threads: start and give on the server's one.
 * Lifetime: a process ends with its session, with the server, or when its socket closes before an
 * order came. */
#ifndef HAWSER_SERVE_SESSION_PROCESS_H
#define HAWSER_SERVE_SESSION_PROCESS_H

#include <signal.h>

#include "rpc/handover.h"
#include "rpc/resume/resume.h"
#include "serve/session/model.h"
#include "serve/session/sandbox.h"
#include "venus/server/session/session.h"
#include "venus/server/slice/slice.h"
#include "venus/server/upload/share.h"

/* The first argument of the program, in place of a command. */
#define SESSION_PROCESS_COMMAND "--session-process"

enum {
    /* The order itself, the figures, the board and the socket of time slices, the socket to the
     * upload cache, then the connections. */
    SESSION_FDS_MAX = 5 + RPC_TRANSPORT_FDS * (1 + VN_STRIPES_MAX),
};

/* A plain structure: both processes are the same program. */
struct session_order {
    struct rpc_config config;           /* without its pointers */
    struct vns_session_options options; /* the same */
    struct sandbox_user user;           /* to become, where one is given */
    enum sandbox_mode sandbox;          /* unless the environment says otherwise */
    uint32_t slice_id;                  /* 0: it has no time slices */
    bool has_uploads;
    uint64_t uploads_limit;
    unsigned connections;              /* the session's own, then its stripes */
    int fd_counts[1 + VN_STRIPES_MAX]; /* of each */
    struct rpc_handover own;           /* for the first */
    uint64_t resume_window_ns;         /* 0: it ends with its connection */
    struct rpc_resume_key key;
    char door[RPC_PEER_NAME_CHARS]; /* an address of this host: the session opens a door there, and
                                       the key's secret admits its client; "": it has connections */
    struct rpc_transport_state stripes[VN_STRIPES_MAX];
    bool is_model; /* of a client's model, not of Vulkan: it has only user, sandbox and peer, too */
    struct session_model model;
};

/* A connection that takes the place of the session's own, or of a stripe; the same. */
struct session_resumption {
    struct rpc_transport_state transport;
    int stripe; /* -1: the session's own, with a call to answer */
    uint32_t call;
    uint64_t received;
};

/* Executes a process that waits for its order, with these signals blocked.  Its socket, and *pid;
 * or a negative errno. */
int session_process_start(char *const *environment, const sigset_t *mask, pid_t *pid) MUST_CHECK;

/* Gives it the order; the descriptors stay the caller's: the figures (rpc_stats), the board and the
 * socket of time slices where it has them, the upload cache's socket where there is one, then those
 * of the connections; of a model: as session_model_run.  0 or a negative errno. */
int session_process_give(int socket, const struct session_order *order, const int *fds,
                         int fd_count) MUST_CHECK;

/* Gives a session the connection with which its client resumes; the descriptors stay the caller's.
 * 0, -EAGAIN when it has not taken earlier ones, or a negative errno. */
int session_process_resume(int socket, const struct session_resumption *resumption, const int *fds,
                           int fd_count) MUST_CHECK;

/* The port of a session's door, from the socket, which is readable; or a negative errno: it has
 * none, and its process logs why. */
int session_process_door(int socket) MUST_CHECK;

/* main, in that process. */
int session_process_main(void);

#endif
