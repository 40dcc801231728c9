/* llm/client/connection.h - a connection to one worker, used by many threads: texts are generated
 * beside each other, and tokens arrive as the worker samples them.
 *
 * A thread of the connection reads and calls the callbacks, one at a time and without a lock, so a
 * callback may start and cancel; it must not block for long: while it does, nobody reads, and in
 * the end the worker cancels the texts of a connection that is not read (-ENOBUFS).  When the
 * connection ends, each text that runs gets on_end with the error; open another connection then.
 * The time to find out is that of the heartbeat (rpc_config.heartbeat_ns).
 *
 * Trust: the worker is a peer; a push or answer that breaks the rules ends the connection with
 * -EPROTO.  Error texts have no control characters.
 * Threads: any, in any function but close.  describe, header and drain wait for the worker: not
 * from a callback.
 * Lifetime: open/close. */
#ifndef HAWSER_LLM_CLIENT_CONNECTION_H
#define HAWSER_LLM_CLIENT_CONNECTION_H

#include "llm/model/why.h"
#include "llm/worker/inspect.h"
#include "rpc/client.h"

struct llm_connection;

/* Connects.  config may be NULL: the defaults.  0, or a negative errno, and why (LLM_WHY_CHARS). */
int llm_connection_open(const struct rpc_addr *addr, const struct rpc_net_options *net,
                        const struct rpc_config *config, struct llm_connection **out,
                        char *why) MUST_CHECK;
/* Says goodbye.  Texts that run get on_end with -ECANCELED before this returns.  No other thread
 * may be inside; not from a callback. */
void llm_connection_close(struct llm_connection *conn);

/* 0 while the connection lives, else the error that ended it, and why (may be NULL). */
int llm_connection_status(struct llm_connection *conn, char *why);
/* Bytes and messages of the connection so far. */
struct llm_connection_traffic {
    uint64_t sent, received;
    uint64_t messages_sent, messages_received;
};
void llm_connection_traffic(const struct llm_connection *conn, struct llm_connection_traffic *out);

struct llm_connection_ops {
    /* Tokens of one text, in order; valid during the call.  NULL: nothing. */
    void (*on_tokens)(void *user, const struct llm_generated *tokens, uint32_t count);
    /* The text's last callback, exactly once.  status 0: end says how the text ended, and is valid
     * during the call.  Else end is NULL and why is a sentence:
     *   -ENOENT    no such model            -EMSGSIZE  longer than the context or a limit
     *   -EOPNOTSUPP the model has no embeddings, or no vocabulary for a grammar
     *   -EINVAL    a token or an option     -EBUSY     too many requests wait
     *   -EAGAIN    the worker drains        -ENOSPC    KV memory can never hold it
     *   -ENOBUFS   this side does not read  -ENOSYS    the server has no model
     * or what ended the connection (rpc/rpc.h), or the worker's error. */
    void (*on_end)(void *user, int status, const struct llm_generate_end *end, const char *why);
};

/* Begins a text; returns when the request is written or queued.  The request is copied, ops and
 * user must live until on_end.  *id_out (may be NULL) is set before any callback.  0; the error
 * that ended the connection, -EINVAL, -ENOMEM, and why (may be NULL): then no callback comes. */
int llm_connection_start(struct llm_connection *conn, const struct llm_generate *request,
                         const struct llm_connection_ops *ops, void *user, uint64_t *id_out,
                         char *why) MUST_CHECK;
/* Asks the worker to end the text within a step; on_end then comes with LLM_END_CANCELLED, or with
 * the end that was on its way.  Fine for a text that has ended. */
void llm_connection_cancel(struct llm_connection *conn, uint64_t id);

/* What the worker serves and how busy it is: one small exchange.  timeout_ns 0: 30 s.  0, or a
 * negative errno and why. */
int llm_connection_describe(struct llm_connection *conn, uint64_t timeout_ns,
                            struct llm_served *out, char *why) MUST_CHECK;
/* Where its KV is, for people.  The worker answers between two steps.  As describe. */
int llm_connection_inspect(struct llm_connection *conn, uint64_t timeout_ns,
                           struct llm_inspection *out, char *why) MUST_CHECK;
/* Downloads the part of a served GGUF file before the tensors' data; llm_file_parse_header
 * (llm/model/file.h) takes it.  model as in a request.  *bytes is the caller's to free, aligned as
 * malloc does.  -ENOENT: no such model; -EOPNOTSUPP: not a GGUF file. */
int llm_connection_header(struct llm_connection *conn, const char *model, uint8_t **bytes,
                          uint64_t *size, char *why) MUST_CHECK;
/* The worker takes no new text and ends those that run with LLM_END_DRAINED, but for those that
 * stay; undo: takes texts again.  *given (may be NULL): texts that it ends. */
int llm_connection_drain(struct llm_connection *conn, bool undo, uint32_t *given,
                         char *why) MUST_CHECK;

#endif
