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

extern const char *const service_llm_backends[]; /* NULL-terminated */

struct service_llm_options {
    struct cmd_list models; /* [NAME=]FILE each */
    int backend, math;
    uint64_t threads, tp, context, kv_bytes, kv_min_bytes, grace_ns, upload_bytes, sequences,
        tokens;
    const char *layers, *tp_peers, *kv_group, *shadow, *shadow_ca, *shadow_login, *evict;
    uint64_t shadow_bytes, tenant, share;
    bool share_prefixes, downloads, tp_share;
};

/* Rows for the option table of a command whose values hold a struct service_llm_options. */
#define SERVICE_LLM_OPTIONS(type, member)                                                          \
    {.name = "model",                                                                              \
     .kind = CMD_LIST,                                                                             \
     .argument = "[NAME=]FILE",                                                                    \
     .offset = offsetof(type, member.models),                                                      \
     .help = "also serve this model, under that name; may be repeated\n"                           \
             "[default name: general.name if it is one word, else the file's base name]"},         \
        {.name = "backend",                                                                        \
         .kind = CMD_CHOICE,                                                                       \
         .offset = offsetof(type, member.backend),                                                 \
         .choices = service_llm_backends,                                                          \
         .def = "cpu",                                                                             \
         .help = "what computes it"},                                                              \
        {.name = "math",                                                                           \
         .kind = CMD_CHOICE,                                                                       \
         .offset = offsetof(type, member.math),                                                    \
         .choices = llm_math_names,                                                                \
         .def = "exact",                                                                           \
         .help = "exact: the same tokens alone, beside others and at another worker;\n"            \
                 "fast: prompts on a GPU's matrix units (backend vulkan)"},                        \
        {.name = "threads",                                                                        \
         .kind = CMD_U64,                                                                          \
         .argument = "N",                                                                          \
         .offset = offsetof(type, member.threads),                                                 \
         .def = "0",                                                                               \
         .max = 256,                                                                               \
         .help = "of the cpu backend; 0: one for each core"},                                      \
        {.name = "tp",                                                                             \
         .kind = CMD_U64,                                                                          \
         .argument = "N",                                                                          \
         .offset = offsetof(type, member.tp),                                                      \
         .def = "1",                                                                               \
         .min = 1,                                                                                 \
         .max = PAGE_RANKS_MAX,                                                                    \
         .help = "tensor-parallel workers: N processes compute each model together, with a\n"      \
                 "share of its heads and rows each, and --threads threads [0: the cores divided\n" \
                 "by N]; with --backend vulkan each on the next GPU"},                             \
        {.name = "tp-peers",                                                                       \
         .kind = CMD_STRING,                                                                       \
         .argument = "ADDR,...",                                                                   \
         .offset = offsetof(type, member.tp_peers),                                                \
         .help = "the other workers of --tp N: N - 1 servers, each started with --tp-share and\n"  \
                 "the same file, and each with its share of the weights and KV; for one model"},   \
        {.name = "tp-share",                                                                       \
         .kind = CMD_FLAG,                                                                         \
         .offset = offsetof(type, member.tp_share),                                                \
         .help = "compute a share of the model for a server that names this one in --tp-peers"},   \
        {.name = "layers",                                                                         \
         .kind = CMD_STRING,                                                                       \
         .argument = "STAGES",                                                                     \
         .offset = offsetof(type, member.layers),                                                  \
         .help = "stages of one model's layers, each at a server: 0-15@local,16-31@HOST:PORT;\n"   \
                 "that server is started with --layers 16-31 and has only those layers' weights\n" \
                 "and KV"},                                                                        \
        {.name = "context",                                                                        \
         .kind = CMD_U64,                                                                          \
         .argument = "N",                                                                          \
         .offset = offsetof(type, member.context),                                                 \
         .def = "0",                                                                               \
         .max = LLM_CONTEXT_MAX,                                                                   \
         .help = "positions of a sequence at most; 0: as many as the model has"},                  \
        {.name = "kv-memory",                                                                      \
         .kind = CMD_SIZE,                                                                         \
         .argument = "SIZE",                                                                       \
         .offset = offsetof(type, member.kv_bytes),                                                \
         .help = "KV cache of all sequences of all models together; what one model does not\n"     \
                 "need the others use [default: 16 sequences of full context of each model, at\n"  \
                 "most a quarter of the free memory for all, at least one]"},                      \
        {.name = "kv-min",                                                                         \
         .kind = CMD_SIZE,                                                                         \
         .argument = "SIZE",                                                                       \
         .offset = offsetof(type, member.kv_min_bytes),                                            \
         .help = "of that, set aside for each model [default: one eighth of an equal share]"},     \
        {.name = "kv-group",                                                                       \
         .kind = CMD_STRING,                                                                       \
         .argument = "NAME",                                                                       \
         .offset = offsetof(type, member.kv_group),                                                \
         .help = "share KV memory with the servers of this group; the first one's --kv-memory\n"   \
                 "counts, and hawser kvctl limit changes it [default: a group of its own, named\n" \
                 "for the first model]"},                                                          \
        {.name = "grace",                                                                          \
         .kind = CMD_DURATION,                                                                     \
         .argument = "TIME",                                                                       \
         .offset = offsetof(type, member.grace_ns),                                                \
         .def = "10s",                                                                             \
         .max = UINT64_C(24) * 3600 * 1000000000,                                                  \
         .help = "how long sequences are kept for a client that vanished"},                        \
        {.name = "max-upload",                                                                     \
         .kind = CMD_SIZE,                                                                         \
         .argument = "SIZE",                                                                       \
         .offset = offsetof(type, member.upload_bytes),                                            \
         .def = "16GiB",                                                                           \
         .max = INT64_MAX,                                                                         \
         .help = "weights and KV caches that clients may send, together"},                         \
        {.name = "allow-download",                                                                 \
         .kind = CMD_FLAG,                                                                         \
         .offset = offsetof(type, member.downloads),                                               \
         .help = "let clients fetch the model's file (hawser llm --download)"},                    \
        {.name = "share-per-client",                                                               \
         .kind = CMD_U64,                                                                          \
         .argument = "PERCENT",                                                                    \
         .offset = offsetof(type, member.share),                                                   \
         .def = "100",                                                                             \
         .min = 1,                                                                                 \
         .max = 100,                                                                               \
         .help = "of --max-upload and of the KV memory, that one connection may have at a time;\n" \
                 "a gateway is one, and divides what it has by --share-per-key"},                  \
        {.name = "max-sequences",                                                                  \
         .kind = CMD_U64,                                                                          \
         .argument = "N",                                                                          \
         .offset = offsetof(type, member.sequences),                                               \
         .def = "64",                                                                              \
         .min = 1,                                                                                 \
         .max = LLM_SEQUENCES_MAX,                                                                 \
         .help = "open sequences of one client"},                                                  \
        {.name = "shadow",                                                                         \
         .kind = CMD_STRING,                                                                       \
         .argument = "WHERE",                                                                      \
         .offset = offsetof(type, member.shadow),                                                  \
         .help =                                                                                   \
             "where KV is evicted to when memory is short: host, this process's memory;\n"         \
             "kvd:SOCKET, a KV daemon with --blocks; redis://HOST:PORT,..., Redis or Valkey,\n"    \
             "a cluster or one server, or rediss:// with TLS\n"                                    \
             "[default: nowhere, clients are refused]"},                                           \
        {.name = "shadow-ca",                                                                      \
         .kind = CMD_STRING,                                                                       \
         .argument = "FILE",                                                                       \
         .offset = offsetof(type, member.shadow_ca),                                               \
         .help = "of --shadow rediss://: the CA of Redis' certificate"},                           \
        {.name = "shadow-login",                                                                   \
         .kind = CMD_STRING,                                                                       \
         .argument = "FILE",                                                                       \
         .offset = offsetof(type, member.shadow_login),                                            \
         .help = "of --shadow redis://: one line, NAME:PASSWORD or :PASSWORD; mode 0600"},         \
        {.name = "shadow-memory",                                                                  \
         .kind = CMD_SIZE,                                                                         \
         .argument = "SIZE",                                                                       \
         .offset = offsetof(type, member.shadow_bytes),                                            \
         .def = "1GiB",                                                                            \
         .max = INT64_MAX,                                                                         \
         .help = "limit of --shadow host"},                                                        \
        {.name = "tenant",                                                                         \
         .kind = CMD_U64,                                                                          \
         .argument = "N",                                                                          \
         .offset = offsetof(type, member.tenant),                                                  \
         .def = "0",                                                                               \
         .help = "of a shared --shadow: owner of the blocks; workers of one tenant share them"},   \
        {.name = "evict",                                                                          \
         .kind = CMD_STRING,                                                                       \
         .argument = "LAYERS@N",                                                                   \
         .offset = offsetof(type, member.evict),                                                   \
         .help = "evict these layers after every Nth token of a sequence, for experiments:\n"      \
                 "all, 0,2-4 or 25% (that share of them, the last ones)"},                         \
        {.name = "share-prefixes",                                                                 \
         .kind = CMD_FLAG,                                                                         \
         .offset = offsetof(type, member.share_prefixes),                                          \
         .help = "store prompts and answers when they are computed, for others that begin so"},    \
    {                                                                                              \
        .name = "max-tokens", .kind = CMD_U64, .argument = "N",                                    \
        .offset = offsetof(type, member.tokens), .def = "1048576", .min = 1,                       \
        .max = WIRE_TOKENS_MAX, .help = "tokens of one request"                                    \
    }

struct service_llm {
    struct llm_file *files[LLM_SERVED_MODELS_MAX];
    char names[LLM_SERVED_MODELS_MAX][LLM_SERVED_NAME_CHARS];
    uint32_t count;
    struct page_member kv_group;
    struct page_trace *trace;     /* of the first model; NULL: none */
    struct rpc_security security; /* towards servers with parts of the model */
    struct llm_pipeline_config pipeline;
    struct llm_shares_config shares;
    struct llm_worker *worker; /* NULL: no model was asked for, or a part of one */
    struct llm_stage *stage;   /* of those; NULL: none */
};

/* Puts something before the store of --shadow in this process: an experiment a slow link.  What it
 * answers must outlive the service. */
typedef const struct llm_shadow_ops *service_llm_store_fn(const struct llm_shadow_ops *store);
void service_llm_wrap_store(service_llm_store_fn *wrap);

/* Loads the models and starts the worker, or does nothing without a model.  in_turn: models are
 * computed by the GPUs in turn, not all by the first.  CMD_DONE, or the exit status after a
 * message.
 */
enum cmd_exit service_llm_open(struct service_llm *s, const struct service_llm_options *options,
                               bool in_turn);
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

#endif
