#include "cli/service_llm.h"

#include <stdio.h>

const char *const service_llm_backends[] = {"cpu", "vulkan", "reference", NULL};

enum cli_exit service_llm_open(struct service_llm *s, const struct service_llm_options *o)
{
    char why[LLM_WHY_CHARS];
    if (!o->model)
        return CLI_DONE;
    if (llm_file_open(o->model, &s->file, why))
        return cli_fail(CLI_FAILED, "serve: %s", why);
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
    if (llm_worker_create(&options, &s->worker, why))
        return cli_fail(CLI_FAILED, "serve: %s: %s", o->model, why);
    printf("model: %s (%s)\n", o->model, llm_arch_name(llm_file_config(s->file)->arch));
    return CLI_DONE;
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

bool service_llm_handle(struct service_llm *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    return s->worker && llm_worker_handle(s->worker, ep, msg);
}

void service_llm_closed(struct service_llm *s, struct rpc_ep *ep, int status)
{
    if (s->worker)
        llm_worker_closed(s->worker, ep, status);
}
