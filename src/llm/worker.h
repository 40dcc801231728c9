/* llm/worker.h - the remote worker: runs models for the clients of a server.
 *
 * A service over the endpoints of one server: the server's thread hands it messages and carries its
 * answers; a thread of its own computes, so that a long prefill never keeps the server from
 * answering heartbeats.  Requests of all clients stand in one queue and take turns: a turn is one
 * step of a decode or one batch of a prompt, so a long request delays nobody by more than that.
 *
 * A sequence is named by a handle: 128 random bits, never used twice.  Whoever knows the handle may
 * use the sequence.  When a client has vanished its sequences wait for the grace time, or until
 * their memory is needed: a client that comes back goes on with its handles; then they are freed.
 *
 * Trust: clients are peers: every body is checked, every handle looked up, everything that a client
 * can make the worker hold is bounded by the options below.  Uploaded weights meet llm/file.h's
 * checks.
 * Threads: all calls from the server's thread.
 * Lifetime: create/destroy.  Destroy after the server, whose last closed() calls come here; the
 * event descriptor stays open until then.  The worker uses the endpoints' user pointers. */
#ifndef HAWSER_LLM_WORKER_H
#define HAWSER_LLM_WORKER_H

#include "llm/engine.h"
#include "llm/message.h"
#include "rpc/rpc.h"

enum {
    LLM_WORKER_REQUESTS_MAX = 64, /* of one client, waiting or running */
    LLM_WORKER_TURN_ROWS = 512,   /* of a prompt in one turn: one batch of the engine */
    LLM_WORKER_MODELS_MAX = 16,   /* loaded at a time; each holds an engine with its threads */
};

struct llm_worker_options {
    const struct llm_file *file; /* served; NULL: clients bring their weights */
    struct llm_engine_options engine;
    uint64_t grace_ns;
    uint64_t upload_bytes; /* that all clients together may have here: weights and KV */
    uint32_t sequences;    /* of one client; 0: LLM_SEQUENCES_MAX */
    uint32_t tokens;       /* of one request; 0: WIRE_TOKENS_MAX */
};

struct llm_worker;

/* 0; what llm_engine_create says of the served file; -ENOMEM, or the errno of a thread or
 * descriptor.  why holds LLM_WHY_CHARS. */
int llm_worker_create(const struct llm_worker_options *options, struct llm_worker **out,
                      char *why) MUST_CHECK;
void llm_worker_destroy(struct llm_worker *worker);

/* True when the message is the worker's: it is released here, now or when it is answered.  False:
 * not one of our methods; nothing was done. */
bool llm_worker_handle(struct llm_worker *worker, struct rpc_ep *ep, struct rpc_msg *msg);
/* The endpoint is about to go; fine for one that never sent us anything.  status as the server
 * tells it: after -ESHUTDOWN, a goodbye, the client's sequences are freed without a grace time. */
void llm_worker_closed(struct llm_worker *worker, struct rpc_ep *ep, int status);

/* Readable when answers are ready: then call deliver (rpc_server_watch). */
int llm_worker_event_fd(const struct llm_worker *worker);
void llm_worker_deliver(void *worker);

#endif
