/* llm/worker/session/link.h - the link of a client to the process that computes its own model.
 *
 * A worker that is given `outside` parses no model that a client sent.  It stores the bytes, seals
 * them, and gives them to a process of that client (`hawser-session`), with every later request
 * about that model, byte by byte; answers go back the same way.  In that process another worker
 * does the rest, with nobody else's bytes in its memory.
 *
 * Private to src/llm/worker.
 *
 * Trust: the process has parsed a hostile file and may answer anything: an answer is the client's
 * own, and is passed on as it is, within the endpoint's limits.
 * Threads: the server's; never the engine's, also not while the endpoints are lent.
 * Lifetime: a client's, from the first such request to a model that is served, or to the end of
 * either. */
#ifndef HAWSER_LLM_WORKER_SESSION_LINK_H
#define HAWSER_LLM_WORKER_SESSION_LINK_H

#include "llm/worker/impl.h"

/* Whether requests of this method are about the client's model, wherever it is. */
bool llm_link_carries(uint32_t method);
/* Whether such a request may go now: nothing that the engine's thread has may change its place. */
bool llm_link_is_direct(const struct llm_worker *w, const struct llm_client *c, uint32_t method);

/* The job's request goes to the client's process, with what it uploaded; starts the process where
 * the request brings a model.  Takes the message. */
void llm_link_forward_job(struct llm_worker *w, struct llm_job *job);
/* The same of a request without a job; weights (NULL: it brings none) and kv are taken. */
void llm_link_forward(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg,
                      struct llm_blob *weights, struct llm_blob *kv);
/* Ends the process; requests that it has not answered are answered with an error, or released once
 * the client is gone. */
void llm_link_close(struct llm_worker *w, struct llm_client *c);

#endif
