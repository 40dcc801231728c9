#include "bench/llm/rig.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define CALL_TIMEOUT (UINT64_C(3600) * HW_SEC) /* a prompt on a slow machine; not a hang */

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct bench_rig *r = user;
    if (!llm_worker_handle(r->worker, ep, msg))
        rpc_release(ep, msg);
}

static void on_closed(void *user, struct rpc_ep *ep, int status)
{
    struct bench_rig *r = user;
    llm_worker_closed(r->worker, ep, status);
}

static const struct rpc_server_ops server_ops = {.message = on_message, .closed = on_closed};

static void *serve(void *user)
{
    struct bench_rig *r = user;
    rpc_server_run(r->server);
    return NULL;
}

static int listen_and_serve(struct bench_rig *r, char *why)
{
    char cause[RPC_WHY_CHARS] = "";
    const char *bound;
    struct rpc_net_options net = {0};
    int rc = rpc_addr_parse("127.0.0.1:0", &r->addr, cause);
    if (rc == 0)
        rc = rpc_server_listen(r->server, &r->addr, &net, &bound, cause);
    if (rc == 0)
        rc = rpc_addr_parse(bound, &r->addr, cause);
    if (rc) {
        snprintf(why, LLM_WHY_CHARS, "%s", cause);
        return rc;
    }
    rc = -pthread_create(&r->thread, NULL, serve, r);
    r->serves = rc == 0;
    return rc;
}

int bench_rig_start(const struct llm_worker_options *worker, uint32_t clients,
                    struct bench_rig *rig, char *why)
{
    struct rpc_server_options server = {.ops = &server_ops, .user = rig, .max_clients = clients};
    *rig = (struct bench_rig){0};
    why[0] = '\0';
    int rc = llm_worker_create(worker, &rig->worker, why);
    if (rc == 0)
        rc = rpc_server_create(&server, &rig->server);
    if (rc == 0)
        rc = rpc_server_watch(rig->server, llm_worker_event_fd(rig->worker), llm_worker_deliver,
                              rig->worker);
    if (rc == 0)
        rc = listen_and_serve(rig, why);
    if (rc) {
        bench_rig_stop(rig);
        if (!why[0])
            snprintf(why, LLM_WHY_CHARS, "%s", strerror(-rc));
    }
    return rc;
}

int bench_rig_connect(const struct bench_rig *rig, struct llm_remote **out, char *why)
{
    struct rpc_net_options net = {0};
    return llm_remote_open(&rig->addr, &net, &(struct rpc_client_options){0}, CALL_TIMEOUT, out,
                           why);
}

void bench_rig_stop(struct bench_rig *r)
{
    if (r->serves) {
        rpc_server_stop(r->server);
        pthread_join(r->thread, NULL);
    }
    if (r->server)
        rpc_server_destroy(r->server);
    llm_worker_destroy(r->worker);
    *r = (struct bench_rig){0};
}
