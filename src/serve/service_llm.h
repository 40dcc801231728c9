/* serve/service_llm.h - the LLM worker of `hawser serve --model`: its options, its model, its life.
 *
 * Trust: as llm/worker/worker.h.  Threads: the server's.
 * Lifetime: open/close.  Close after the server is destroyed. */
#ifndef HAWSER_SERVE_SERVICE_LLM_H
#define HAWSER_SERVE_SERVICE_LLM_H

#include "command/command.h"
#include "llm/stage/pipeline.h"
#include "llm/stage/shares.h"
#include "llm/stage/stage.h"
#include "llm/worker/worker.h"
#include "page/member.h"
#include "rpc/server.h"
#include "serve/session/model.h"

struct service_llm_options {
    struct cmd_list models;     /* [NAME=]FILE each */
    struct cmd_list priorities; /* NAME=N each */
    int backend, math;
    uint64_t threads, tp, context, kv_bytes, kv_min_bytes, grace_ns, idle_weights_ns, upload_bytes,
        sequences, tokens;
    const char *layers, *tp_peers, *kv_group, *shadow, *shadow_ca, *shadow_login, *evict;
    uint64_t shadow_bytes, tenant, share;
    bool share_prefixes, downloads, tp_share;
};

/* The options of a struct service_llm_options. */
extern const struct cmd_option service_llm_table[];

struct service_llm {
    struct llm_file *files[LLM_SERVED_MODELS_MAX];
    char names[LLM_SERVED_MODELS_MAX][LLM_SERVED_NAME_CHARS];
    uint32_t count;
    struct page_member kv_group;
    struct page_trace *trace;     /* of the first model; NULL: none */
    struct rpc_security security; /* towards servers with parts of the model */
    struct llm_pipeline_config pipeline;
    struct llm_shares_config shares;
    struct session_model session; /* how models that clients upload are computed */
    struct llm_worker *worker;    /* NULL: no model was asked for, or a part of one */
    struct llm_stage *stage;      /* of those; NULL: none */
};

/* Puts something before the store of --shadow in this process: an experiment a slow link.  What it
 * answers must outlive the service. */
typedef const struct llm_shadow_ops *service_llm_store_fn(const struct llm_shadow_ops *store);
void service_llm_wrap_store(service_llm_store_fn *wrap);

/* Loads the models and starts the worker, or does nothing without a model.  Models are computed by
 * so many GPUs in turn; 0: all by the first.  `outside` starts processes for models that clients
 * upload.  CMD_DONE, or the exit status after a message. */
enum cmd_exit service_llm_open(struct service_llm *s, const struct service_llm_options *options,
                               uint32_t gpus, const struct llm_worker_outside *outside);
/* Makes the server carry the worker's answers.  0 or a negative errno. */
int service_llm_attach(struct service_llm *s, struct rpc_server *server) MUST_CHECK;
void service_llm_close(struct service_llm *s);

/* True when there is a worker; false also for a server with a part of a model. */
bool service_llm_serves(const struct service_llm *s);

/* True when the message was the worker's, which then releases it. */
bool service_llm_handle(struct service_llm *s, struct rpc_ep *ep, struct rpc_msg *msg);
void service_llm_closed(struct service_llm *s, struct rpc_ep *ep, int status);
/* As rpc_server_ops says. */
void service_llm_sleeps(struct service_llm *s, bool begins);
void service_llm_swept(struct service_llm *s);

#endif
