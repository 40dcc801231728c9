/* cli/sessions.h - Vulkan clients of the server, each in a process of its own.
 *
 * Trust: as venus/server/session.h; what a session's process does, the server's never notices.
 * Threads: the server's one.  SIGCHLD is blocked from create on, in threads made later too.
 * Lifetime: create/destroy; destroy ends the processes that are left. */
#ifndef HAWSER_CLI_SESSIONS_H
#define HAWSER_CLI_SESSIONS_H

#include "rpc/server.h"
#include "venus/server/session.h"

struct sessions;

/* ended(user) is called for each session whose process is gone.  0 or a negative errno; *out is set
 * only on 0.  The server outlives what is made here. */
int sessions_create(struct rpc_server *rpc, const struct vn_session_options *options,
                    void (*ended)(void *user), void *user, struct sessions **out) MUST_CHECK;
void sessions_destroy(struct sessions *sessions);

/* From the server's message callback, for a call of VN_METHOD_OPEN: forks a process that goes on
 * with the connection, or answers why it cannot.  Does not release the message. */
void sessions_open(struct sessions *sessions, struct rpc_ep *ep, struct rpc_msg *open);

#endif
