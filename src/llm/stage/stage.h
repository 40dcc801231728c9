/* llm/stage/stage.h - a server that computes a part of a model for a front elsewhere: one stage,
 * which is some layers (llm/stage/pipeline.h), or a share of every layer (llm/stage/shares.h).
 *
 * A service over the endpoints of one server, as llm/worker/worker.h.  It has the weights of its
 * part and, while a front is connected, KV memory for them; it knows no sequences.  The server's
 * thread hands it messages and carries its answers; a thread of its own computes.  Which share it
 * has, the front says; the weights are read then, and kept.
 *
 * Trust: the front is a peer.  Every message is checked: a page that is not mapped is never used.
 * Threads: all calls from the server's thread.  While that sleeps, and has said so, the stage's
 * thread sends.
 * Lifetime: create/destroy.  Destroy after the server, whose last closed() calls come here. */
#ifndef HAWSER_LLM_STAGE_STAGE_H
#define HAWSER_LLM_STAGE_STAGE_H

#include "llm/engine/stages.h"
#include "rpc/rpc.h"

struct llm_stage_options {
    const struct llm_file *file; /* outlives the stage */
    const char *backend;
    struct llm_backend_config config;
    struct llm_stage_layers layers; /* of the file's; end 0: a share of all */
    uint64_t kv_bytes;              /* that a front may map at most; 0: as it says */
};

struct llm_stage;

/* 0; as the backend's open and llm_graph_create; the errno of a thread or descriptor; and why. */
int llm_stage_create(const struct llm_stage_options *options, struct llm_stage **out,
                     char *why) MUST_CHECK;
void llm_stage_destroy(struct llm_stage *stage);

/* True when the message is the stage's, which releases it.  False: not one of its methods. */
bool llm_stage_handle(struct llm_stage *stage, struct rpc_ep *ep, struct rpc_msg *msg);
/* The endpoint is about to close; fine for one that never sent anything. */
void llm_stage_closed(struct llm_stage *stage, struct rpc_ep *ep);

/* Readable when answers are ready: then call deliver (rpc_server_watch). */
int llm_stage_event_fd(const struct llm_stage *stage);
void llm_stage_deliver(void *stage);
/* As rpc_server_ops says; not calling it costs time alone. */
void llm_stage_server_sleeps(struct llm_stage *stage, bool begins);

#endif
