/* serve/session/sessions.h - Vulkan clients of the server, and models that clients uploaded, each
 * in a process of its own.
 *
 * Trust: as venus/server/session/session.h; what a session's process does, the server's never
 * notices, and it has nothing of the server's in its memory (serve/session/process.h).
 * Threads: the server's one.  SIGCHLD is blocked from create on, in threads made later too.
 * Lifetime: create/destroy; destroy ends the processes that are left. */
#ifndef HAWSER_SERVE_SESSION_SESSIONS_H
#define HAWSER_SERVE_SESSION_SESSIONS_H

#include "rpc/server.h"
#include "serve/session/model.h"
#include "serve/session/sandbox.h"
#include "serve/tenants.h"
#include "venus/server/session/session.h"
#include "venus/server/upload/share.h"

struct sessions;

struct sessions_ops {
    /* A connection is about to be another process's. */
    void (*leaves)(void *user, struct rpc_ep *ep);
    /* One has ended there. */
    void (*ended)(void *user);
    /* A session begins whose connection will never be this process's. */
    void (*began)(void *user);
};

/* uploads: the cache that they share, or NULL.  resume_window_ns: how long a session waits for its
 * client after a cut; 0: not at all.  slice_ns: of GPU time, where several want it; 0: none.
 * tenants: whose sessions they are; outlives what is made here.  sandbox: the mode of theirs,
 * unless HAWSER_SANDBOX says otherwise.  as, home: the user of sessions, or none given, and its
 * home folder.  0 or a negative errno; *out is set only on 0.  The server outlives what is made
 * here. */
int sessions_create(struct rpc_server *rpc, const struct vns_session_options *options,
                    struct vns_upload_share *uploads, uint64_t resume_window_ns, uint64_t slice_ns,
                    const struct tenants *tenants, enum sandbox_mode sandbox,
                    const struct sandbox_user *as, const char *home, const struct sessions_ops *ops,
                    void *user, struct sessions **out) MUST_CHECK;
void sessions_destroy(struct sessions *sessions);

/* From the server's message callback, for a call of VN_METHOD_OPEN: starts a process that goes on
 * with the connection, or answers why it cannot.  Does not release the message. */
void sessions_open(struct sessions *sessions, struct rpc_ep *ep, struct rpc_msg *open);

/* The same for VN_METHOD_DOOR: starts a process that its client will come to, and answers once that
 * listens.  Takes the message. */
void sessions_door(struct sessions *sessions, struct rpc_ep *ep, struct rpc_msg *msg);

/* The same for RPC_METHOD_RESUME: the connection goes to the process of its session. */
void sessions_resume(struct sessions *sessions, struct rpc_ep *ep, struct rpc_msg *msg);

/* The same for VN_METHOD_STRIPE: the connection waits for the session that it is a stripe of. */
void sessions_stripe(struct sessions *sessions, struct rpc_ep *ep, struct rpc_msg *msg);
/* Whether the message asks for the place of a stripe that was cut. */
bool sessions_is_stripe_again(const struct rpc_msg *msg);

/* Starts a process for a model of this client, which stays the server's.  A socket to it, the
 * caller's, and its number; or a negative errno. */
int sessions_model(struct sessions *sessions, const struct rpc_ep *ep,
                   const struct session_model *model, uint64_t *number) MUST_CHECK;
/* Kills it, unless it has ended.  broken: it was to go on, so how it ends is logged. */
void sessions_model_end(struct sessions *sessions, uint64_t number, bool broken);
/* What the tenant may know: 0 all, others what is their own. */
void sessions_usage(const struct sessions *sessions, size_t tenant, struct server_usage *out);
/* A connection has ended, which may have been waiting so. */
void sessions_closed(struct sessions *sessions, const struct rpc_ep *ep);

#endif
