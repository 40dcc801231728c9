#include "serve/service_llm.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>

const char *const service_llm_backends[] = {"cpu", "vulkan", "reference", NULL};

static const struct llm_shadow_ops *host_store = &llm_shadow_memory;

void service_llm_set_host_store(const struct llm_shadow_ops *store)
{
    host_store = store;
}

/* The given option that needs a shadow store; NULL: none. */
static const char *needs_shadow(const struct service_llm_options *o)
{
    return o->evict ? "--evict" : o->share_prefixes ? "--share-prefixes" : NULL;
}

/* --shadow, and what goes with it. */
static enum cmd_exit read_shadow(struct service_llm *s, const struct service_llm_options *o,
                                 struct llm_worker_options *out)
{
    static const char kvd[] = "kvd:";
    const char *needs = needs_shadow(o);
    if (!o->shadow && needs)
        return cmd_fail(CMD_USAGE, "serve: %s needs a store for evicted KV: --shadow host", needs);
    if (!o->shadow)
        return CMD_DONE;
    out->shadow = (struct llm_shadow_config){.bytes = o->shadow_bytes, .tenant = o->tenant};
    if (strcmp(o->shadow, "host") == 0)
        out->shadow_ops = host_store;
    else if (strncmp(o->shadow, kvd, sizeof kvd - 1) == 0 && o->shadow[sizeof kvd - 1])
        out->shadow_ops = &llm_shadow_kvd;
    else
        return cmd_fail(CMD_USAGE, "serve: --shadow %s: host, or kvd: and a daemon's socket",
                        o->shadow);
    if (out->shadow_ops == &llm_shadow_kvd)
        out->shadow.socket = o->shadow + sizeof kvd - 1;
    uint32_t layers = llm_file_config(s->file)->layers;
    if (o->evict && llm_evict_rule_parse(o->evict, layers, &out->evict))
        return cmd_fail(
            CMD_USAGE,
            "serve: --evict %s: all, layers such as 0,2-4, or a share such as 25%%, then "
            "@ and a number of tokens; the model has layers 0 to %u",
            o->evict, layers - 1);
    out->share_prefixes = o->share_prefixes;
    return CMD_DONE;
}

enum cmd_exit service_llm_open(struct service_llm *s, const struct service_llm_options *o)
{
    char why[LLM_WHY_CHARS];
    const char *needs = o->shadow ? "--shadow" : needs_shadow(o);
    if (!o->model && needs)
        return cmd_fail(CMD_USAGE, "serve: %s is about a model's KV cache: --model FILE", needs);
    if (!o->model)
        return CMD_DONE;
    if (llm_file_open(o->model, &s->file, why))
        return cmd_fail(CMD_FAILED, "serve: %s", why);
    struct llm_worker_options options = {
        .file = s->file,
        .engine = {.backend = service_llm_backends[o->backend],
                   .threads = (unsigned)o->threads,
                   .context = (uint32_t)o->context,
                   .kv_bytes = o->kv_bytes},
        .grace_ns = o->grace_ns,
        .upload_bytes = o->upload_bytes,
        .sequences = (uint32_t)o->sequences,
        .tokens = (uint32_t)o->tokens,
    };
    enum cmd_exit code = read_shadow(s, o, &options);
    if (code != CMD_DONE)
        return code;
    bool lends = true; /* an off switch, for comparison; a malformed value is warned about */
    (void)hw_env_bool("HAWSER_LLM_LEND", true, &lends);
    options.no_lend = !lends;
    if (llm_worker_create(&options, &s->worker, why))
        return cmd_fail(CMD_FAILED, "serve: %s: %s", o->model, why);
    printf("model: %s (%s)\n", o->model, llm_arch_name(llm_file_config(s->file)->arch));
    return CMD_DONE;
}

int service_llm_attach(struct service_llm *s, struct rpc_server *server)
{
    if (!s->worker)
        return 0;
    return rpc_server_watch(server, llm_worker_event_fd(s->worker), llm_worker_deliver, s->worker);
}

void service_llm_close(struct service_llm *s)
{
    llm_worker_destroy(s->worker);
    llm_file_close(s->file);
    *s = (struct service_llm){0};
}

bool service_llm_serves(const struct service_llm *s)
{
    return s->worker != NULL;
}

bool service_llm_handle(struct service_llm *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    return s->worker && llm_worker_handle(s->worker, ep, msg);
}

void service_llm_sleeps(struct service_llm *s, bool begins)
{
    if (s->worker)
        llm_worker_server_sleeps(s->worker, begins);
}

void service_llm_closed(struct service_llm *s, struct rpc_ep *ep, int status)
{
    if (s->worker)
        llm_worker_closed(s->worker, ep, status);
}
