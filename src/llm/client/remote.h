/* llm/client/remote.h - a client's connection to an LLM worker, with a byte account.
 *
 * Trust: whoever decodes a worker's answer checks it; the text of an error is shown with control
 * characters replaced.
 * Threads: one at a time.  Lifetime: open/close. */
#ifndef HAWSER_LLM_CLIENT_REMOTE_H
#define HAWSER_LLM_CLIENT_REMOTE_H

#include "llm/model/file.h"
#include "llm/worker/message.h"
#include "rpc/client.h"

/* rpc_config.spin_ns while waiting for a token: a step of a large model over a short link. */
#define LLM_REMOTE_PATIENCE_NS (UINT64_C(10) * 1000000)

struct llm_remote;

/* Connects.  timeout_ns bounds every later call.  0, or a negative errno, and why (LLM_WHY_CHARS).
 */
int llm_remote_open(const struct rpc_addr *addr, const struct rpc_net_options *net,
                    const struct rpc_client_options *options, uint64_t timeout_ns,
                    struct llm_remote **out, char *why) MUST_CHECK;
void llm_remote_close(struct llm_remote *remote);

/* One call.  The answer's bytes are counted as `received`, those of an error as control.  *answer
 * stays valid until the next call.  0; the worker's error with its text in why; or what ended the
 * connection. */
int llm_remote_call(struct llm_remote *remote, const struct llm_request *request,
                    enum llm_class received, struct wire_dec *answer, char *why) MUST_CHECK;

/* The same of any method, with these bytes, which are not counted by class. */
int llm_remote_exchange(struct llm_remote *remote, uint32_t method, const struct iovec *iov,
                        int iov_count, struct wire_dec *answer, char *why) MUST_CHECK;
/* For messages that are no calls; stays the remote's. */
struct rpc_client *llm_remote_client(const struct llm_remote *remote);
void llm_remote_set_timeout(struct llm_remote *remote, uint64_t timeout_ns);
/* 0 while the connection lives, else what ended it. */
int llm_remote_status(const struct llm_remote *remote);

/* Sends bytes in pieces; returns when they are written. */
int llm_remote_upload(struct llm_remote *remote, enum llm_upload kind, const void *bytes,
                      uint64_t size, char *why) MUST_CHECK;
/* Downloads the cache that a stateless forward left: exactly size bytes, else -EPROTO. */
int llm_remote_fetch_kv(struct llm_remote *remote, uint8_t *dst, uint64_t size,
                        char *why) MUST_CHECK;
/* Downloads the file that the worker serves.  take gets the pieces in order; a negative errno from
 * it ends the download.  The bytes are not checked: open the result with llm/model/file.h. */
int llm_remote_fetch_file(struct llm_remote *remote,
                          int (*take)(void *user, const void *bytes, size_t size), void *user,
                          char *why) MUST_CHECK;
/* Makes the worker use this file for this connection.  blind: uploads it always; else only when the
 * worker does not have it. */
int llm_remote_use_file(struct llm_remote *remote, const struct llm_file *file, bool blind,
                        char *why) MUST_CHECK;
/* Measures bytes a second from the worker to the client; 0 when too fast to measure. */
int llm_remote_link_rate(struct llm_remote *remote, uint64_t *rate, char *why) MUST_CHECK;
int llm_remote_metrics(struct llm_remote *remote, uint64_t values[LLM_METRICS],
                       char *why) MUST_CHECK;
/* The worker's byte accounts: of this connection, and of its KV store for this connection's
 * sequences (sent: stored). */
struct llm_counters {
    struct llm_byte_account link, store;
};
int llm_remote_counters(struct llm_remote *remote, struct llm_counters *out, char *why) MUST_CHECK;

/* Evicts layers of a sequence to the worker's KV store.  *missing: how many are missing then. */
int llm_remote_evict(struct llm_remote *remote, const uint8_t handle[LLM_HANDLE_BYTES],
                     const struct llm_layers *layers, uint32_t *missing, char *why) MUST_CHECK;
/* fetch_missing_kv_layers: rows from..length of these layers, from the device or the store.  take
 * gets the layers in order, each as llm_seq_read_kv gives it; a negative errno from it ends the
 * fetch. row_bytes: of one row of one layer.  *length: rows of the sequence. */
typedef int llm_remote_take(void *user, uint32_t layer, const void *rows, uint64_t bytes);
int llm_remote_fetch_layers(struct llm_remote *remote, const uint8_t handle[LLM_HANDLE_BYTES],
                            const struct llm_layers *layers, uint32_t from, uint64_t row_bytes,
                            llm_remote_take *take, void *user, uint32_t *length,
                            char *why) MUST_CHECK;
/* How evicted KV comes back, for sequences that this connection begins later. */
int llm_remote_set_recovery(struct llm_remote *remote, struct llm_eviction_policy policy,
                            char *why) MUST_CHECK;
/* Continues a sequence that another connection began, at this worker or at another one with the
 * same store.  Its id on this connection, and its length. */
int llm_remote_resume(struct llm_remote *remote, const uint8_t handle[LLM_HANDLE_BYTES],
                      uint64_t *id, uint32_t *length, char *why) MUST_CHECK;

/* Counts the rest as control: the classes now add up to the connection's counters. */
const struct llm_byte_account *llm_remote_account(struct llm_remote *remote);
const struct rpc_stats *llm_remote_stats(const struct llm_remote *remote);
uint64_t llm_remote_rpc_ns(const struct llm_remote *remote); /* in calls and uploads */

#endif
