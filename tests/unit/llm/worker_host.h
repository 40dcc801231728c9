/* worker_host.h - a worker behind a server in a thread of the test's process.
 *
 * Included by one file of a program.  Lifetime: host_start/host_stop; clients leave before. */
#ifndef HAWSER_TESTS_UNIT_LLM_WORKER_HOST_H
#define HAWSER_TESTS_UNIT_LLM_WORKER_HOST_H

#include "llm/worker/remote.h"
#include "llm/worker/worker.h"
#include "rpc/server.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct host {
    struct rpc_server *server;
    struct llm_worker *worker;
    struct rpc_addr addr;
    pthread_t thread;
};

static void host_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct host *h = user;
    if (!llm_worker_handle(h->worker, ep, msg)) {
        (void)rpc_reply(ep, msg, -ENOSYS, &(struct rpc_send){0});
        rpc_release(ep, msg);
    }
}

static void host_closed(void *user, struct rpc_ep *ep, int status)
{
    llm_worker_closed(((struct host *)user)->worker, ep, status);
}

static void host_sleeps(void *user, bool begins)
{
    llm_worker_server_sleeps(((struct host *)user)->worker, begins);
}

static const struct rpc_server_ops host_ops = {
    .message = host_message, .closed = host_closed, .sleeps = host_sleeps};

static void *host_serve(void *user)
{
    rpc_server_run(((struct host *)user)->server);
    return NULL;
}

/* At a socket of this name. */
static void host_start_at(struct host *h, const struct llm_worker_options *options,
                          const char *path)
{
    struct rpc_server_options server = {.ops = &host_ops, .user = h};
    char text[80], why[RPC_WHY_CHARS + LLM_WHY_CHARS] = "";
    *h = (struct host){0};
    snprintf(text, sizeof text, "unix:%s", path);
    assert_int_equal(rpc_addr_parse(text, &h->addr, why), 0);
    if (llm_worker_create(options, &h->worker, why))
        fail_msg("%s", why);
    assert_int_equal(rpc_server_create(&server, &h->server), 0);
    assert_int_equal(
        rpc_server_watch(h->server, llm_worker_event_fd(h->worker), llm_worker_deliver, h->worker),
        0);
    assert_int_equal(
        rpc_server_listen(h->server, &h->addr, &(struct rpc_net_options){0}, NULL, why), 0);
    assert_int_equal(pthread_create(&h->thread, NULL, host_serve, h), 0);
}

static void host_start(struct host *h, const struct llm_worker_options *options)
{
    char folder[] = "/tmp/hawser-host-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    host_start_at(h, options, path);
}

static void host_stop(struct host *h)
{
    rpc_server_stop(h->server);
    pthread_join(h->thread, NULL);
    rpc_server_destroy(h->server);
    llm_worker_destroy(h->worker);
    char folder[RPC_ADDR_PATH_CHARS];
    snprintf(folder, sizeof folder, "%s", h->addr.path);
    *strrchr(folder, '/') = '\0';
    rmdir(folder);
}

/* A client; every wait of it ends within a minute. */
static struct llm_remote *host_join(struct host *h)
{
    struct llm_remote *remote;
    char why[LLM_WHY_CHARS] = "";
    struct rpc_client_options options = {0};
    if (llm_remote_open(&h->addr, &(struct rpc_net_options){0}, &options, UINT64_C(60) * 1000000000,
                        &remote, why))
        fail_msg("%s", why);
    return remote;
}

#endif
