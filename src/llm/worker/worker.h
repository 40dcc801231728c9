/* llm/worker/worker.h - the remote worker: runs models for the clients of a server.
 *
 * A service over the endpoints of one server: the server's thread hands it messages and carries its
 * answers; a thread of its own computes, so that a long prefill never keeps the server from
 * answering heartbeats.  Requests of all clients are computed together: a step has one row of each
 * sequence that decodes, and some rows of prompts.  Requests join before any step and leave after
 * any; what a request yields is the same bits alone and beside others.
 *
 * A sequence is named by a handle: 128 random bits, never used twice.  Whoever knows the handle may
 * use the sequence.  When a client has vanished its sequences wait for the grace time, or until
 * their memory is needed: a client that comes back goes on with its handles; then they are freed.
 *
 * Trust: clients are peers: every body is checked, every handle looked up, everything that a client
 * can make the worker hold is bounded by the options below.  Uploaded weights meet
 * llm/model/file.h's checks. Threads: all calls from the server's thread.  While that sleeps, and
 * says so, the worker's thread answers on the endpoints itself. Lifetime: create/destroy.  Destroy
 * after the server, whose last closed() calls come here; the event descriptor stays open until
 * then.  The worker uses the endpoints' user pointers. */
#ifndef HAWSER_LLM_WORKER_WORKER_H
#define HAWSER_LLM_WORKER_WORKER_H

#include "llm/engine/engine.h"
#include "llm/evict/shadow.h"
#include "llm/worker/message.h"
#include "rpc/rpc.h"

enum {
    LLM_WORKER_REQUESTS_MAX = 64, /* of one client, waiting or running */
    LLM_WORKER_BATCH_MAX = 64,    /* sequences in a step: their logits are 32 MiB of a large
                                   * vocabulary, and weights are reused enough; more take turns */
    LLM_WORKER_PROMPT_ROWS = 512, /* of prompts in a step in which nobody decodes: one batch of the
                                   * engine, so no newcomer waits for more than that */
    LLM_WORKER_MIXED_MIN = 16,    /* the same where somebody decodes: fewer would read all weights
                                   * for too little */
    LLM_WORKER_MIXED_MAX = 448,   /* and at most: with the decoding, one batch of the engine */
    LLM_WORKER_STRETCH = 2,       /* between them, as many as make a step that decodes take so many
                                   * times as long: half the time is for prompts, half is not */
    LLM_WORKER_LOOK_AGAIN = 16,   /* steps after which one goes without prompts, to time it */
    LLM_WORKER_GATHER = 8,        /* a step waits for clients just answered, for this part of the
                                   * last step's time: what it costs when they do not come */
    LLM_WORKER_SPIN_CORES = 4,    /* a client, the server, this thread, and one for the others */
    LLM_WORKER_MODELS_MAX = 16,   /* loaded at a time; each holds an engine with its threads */
};

/* Somebody decoded so lately that the next request may be on the way: a round trip over an ocean.
 */
#define LLM_WORKER_RECENT_NS (UINT64_C(250) * 1000000)

/* Where there are cores to spare, how long the worker's thread looks for the next request before it
 * sleeps: a round trip within a building, and never longer than the last step took. */
#define LLM_WORKER_SPIN_NS (UINT64_C(1) * 1000000)

struct llm_worker_options {
    const struct llm_file *file; /* served; NULL: clients bring their weights */
    struct llm_engine_options engine;
    uint64_t grace_ns;
    uint64_t upload_bytes; /* that all clients together may have here: weights and KV */
    uint32_t sequences;    /* of one client; 0: LLM_SEQUENCES_MAX */
    uint32_t tokens;       /* of one request; 0: WIRE_TOKENS_MAX */
    uint32_t batch;        /* sequences in a step; 0: LLM_WORKER_BATCH_MAX; 1: one at a time */
    uint32_t mixed_rows;   /* of prompts in a step that decodes, at most LLM_WORKER_MIXED_MAX;
                            * 0: found by timing */
    bool no_gather;        /* a step starts with who is there */
    bool no_lend;          /* answers always go by the server's thread */
    /* KV that moves out of the engine's memory (llm/worker/kv_eviction.h). */
    const struct llm_shadow_ops *shadow_ops; /* NULL: nothing moves out */
    struct llm_shadow_config shadow;
    struct llm_evict_rule evict; /* of every sequence */
    bool share_prefixes;         /* prompts are stored for others as soon as they are computed */
    bool untimed; /* a model that is loaded is not timed: layers that are missing before the first
                   * prompt are fetched, whatever that takes */
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
/* The server's thread is about to sleep, or is awake again (rpc_server_ops.sleeps); the latter
 * waits for an answer that is being written.  A server that never calls it carries all answers
 * itself. */
void llm_worker_server_sleeps(struct llm_worker *worker, bool begins);

#endif
