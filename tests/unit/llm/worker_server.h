/* worker_server.h - a worker behind a server in a thread of the test's process.
 *
 * Included by one file of a program.  Lifetime: server_start/server_stop; clients leave before. */
#ifndef HAWSER_TESTS_UNIT_LLM_WORKER_SERVER_H
#define HAWSER_TESTS_UNIT_LLM_WORKER_SERVER_H

#include "llm/client/remote.h"
#include "llm/worker/worker.h"
#include "rpc/server.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct worker_server {
    struct rpc_server *server;
    struct llm_worker *worker;
    struct rpc_addr addr;
    pthread_t thread;
};

static void server_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct worker_server *s = user;
    if (!llm_worker_handle(s->worker, ep, msg)) {
        (void)rpc_reply(ep, msg, -ENOSYS, &(struct rpc_send){0});
        rpc_release(ep, msg);
    }
}

static void server_closed(void *user, struct rpc_ep *ep, int status)
{
    llm_worker_closed(((struct worker_server *)user)->worker, ep, status);
}

static void server_sleeps(void *user, bool begins)
{
    llm_worker_server_sleeps(((struct worker_server *)user)->worker, begins);
}

static void server_swept(void *user)
{
    llm_worker_swept(((struct worker_server *)user)->worker);
}

static const struct rpc_server_ops server_ops = {.message = server_message,
                                                 .closed = server_closed,
                                                 .sleeps = server_sleeps,
                                                 .swept = server_swept};

static void *server_serve(void *user)
{
    rpc_server_run(((struct worker_server *)user)->server);
    return NULL;
}

/* At a socket of this name. */
static void server_start_at(struct worker_server *s, const struct llm_worker_options *options,
                            const char *path)
{
    struct rpc_server_options server = {.ops = &server_ops, .user = s};
    char text[80], why[RPC_WHY_CHARS + LLM_WHY_CHARS] = "";
    *s = (struct worker_server){0};
    snprintf(text, sizeof text, "unix:%s", path);
    assert_int_equal(rpc_addr_parse(text, &s->addr, why), 0);
    if (llm_worker_create(options, &s->worker, why))
        fail_msg("%s", why);
    assert_int_equal(rpc_server_create(&server, &s->server), 0);
    assert_int_equal(
        rpc_server_watch(s->server, llm_worker_event_fd(s->worker), llm_worker_deliver, s->worker),
        0);
    if (options->outside)
        assert_int_equal(rpc_server_watch(s->server, llm_worker_links_fd(s->worker),
                                          llm_worker_links, s->worker),
                         0);
    assert_int_equal(
        rpc_server_listen(s->server, &s->addr, &(struct rpc_net_options){0}, NULL, why), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, server_serve, s), 0);
}

static void server_start(struct worker_server *s, const struct llm_worker_options *options)
{
    char folder[] = "/tmp/hawser-worker-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    server_start_at(s, options, path);
}

static void server_stop(struct worker_server *s)
{
    rpc_server_stop(s->server);
    pthread_join(s->thread, NULL);
    rpc_server_destroy(s->server);
    llm_worker_destroy(s->worker);
    char folder[RPC_ADDR_PATH_CHARS];
    snprintf(folder, sizeof folder, "%s", s->addr.path);
    *strrchr(folder, '/') = '\0';
    rmdir(folder);
}

/* A client; every wait of it ends within a minute. */
static __attribute__((unused)) struct llm_remote *server_join(struct worker_server *s)
{
    struct llm_remote *remote;
    char why[LLM_WHY_CHARS] = "";
    struct rpc_client_options options = {0};
    if (llm_remote_open(&s->addr, &(struct rpc_net_options){0}, &options, UINT64_C(60) * 1000000000,
                        &remote, why))
        fail_msg("%s", why);
    return remote;
}

#endif
