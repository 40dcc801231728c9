#include "serve/http/front.h"

#include "base/log.h"
#include "base/wait.h"
#include "serve/http/impl.h"
#include "serve/http/listen.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    THREADS_MAX = 4, /* of HTTP: they parse, tokenize and write; workers compute */
    EVENTS_MAX = 64,
    TICK_MS = 50 /* while a text waits for a worker */
};

/* ---- the thread that watches clients and the clock ---- */

static bool look_after(struct http_front *f, const struct epoll_event *events, int count,
                       int *timeout_ms)
{
    http_lock(f);
    for (int i = 0; i < count; i++) {
        if (events[i].data.u64)
            http_exchange_gone(f, events[i].data.u64);
    }
    http_assign(f);
    uint64_t due = http_sequences_expire(f, hw_now_ns());
    *timeout_ms = due == HW_NEVER ? 1000 : TICK_MS;
    bool stopping = f->stopping;
    http_unlock(f);
    http_clients_close_late(&f->clients, hw_now_ns());
    return !stopping;
}

static void *watch_main(void *user)
{
    struct http_front *f = user;
    struct epoll_event events[EVENTS_MAX];
    int count = 0, timeout_ms = 0;
    while (look_after(f, events, count, &timeout_ms)) {
        count = epoll_wait(f->watch, events, EVENTS_MAX, timeout_ms);
        if (count < 0)
            count = 0;
    }
    return NULL;
}

static int start_watch(struct http_front *f)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0};
    f->watch = epoll_create1(EPOLL_CLOEXEC);
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->watch < 0 || f->wake < 0 || epoll_ctl(f->watch, EPOLL_CTL_ADD, f->wake, &event))
        return -errno;
    int rc = -pthread_create(&f->watcher, NULL, watch_main, f);
    f->watcher_runs = rc == 0;
    return rc;
}

/* ---- starting and stopping ---- */

static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_front *f = user;
    http_clients_notify(&f->clients, connection, context, code);
}

static enum cmd_exit start_listener(struct http_front *f, char **url_out)
{
    struct http_front_options *o = &f->config.options;
    char why[RPC_WHY_CHARS], text[RPC_ADDR_HOST_CHARS + 16];
    unsigned cores = hw_cores();
    struct http_listen listen = {
        .what = "--http",
        .addr = &f->config.addr,
        .handle = http_exchange_handle,
        .completed = http_exchange_completed,
        .connection = on_connection,
        .user = f,
        .connections = f->clients.most,
        .timeout_s = (unsigned)(f->config.limits.client_ns / HW_SEC),
        .threads = cores < THREADS_MAX ? cores : THREADS_MAX,
        .cert = f->config.cert,
        .key = f->config.key,
    };
    uint16_t port;
    if (http_listen(&listen, &f->daemon, &port, why))
        return cmd_fail(CMD_FAILED, "%s: %s", o->command, why);
    struct rpc_addr bound = f->config.addr;
    bound.port = port;
    rpc_addr_format(&bound, text, sizeof(text));
    if (asprintf(url_out, "%s://%s", f->config.cert ? "https" : "http", text) < 0)
        *url_out = NULL;
    return *url_out ? CMD_DONE : cmd_fail(CMD_FAILED, "%s: out of memory", o->command);
}

static enum cmd_exit start(struct http_front *f, char **url_out)
{
    http_config_warn(&f->config);
    f->clients.most = http_config_connections(&f->config);
    f->clients.wait_ns = f->config.limits.client_ns;
    int rc = http_workers_start(f);
    if (rc == 0)
        rc = start_watch(f);
    if (rc)
        return cmd_fail(CMD_FAILED, "%s: %s", f->config.options.command, hw_strerror(rc));
    return start_listener(f, url_out);
}

enum cmd_exit http_front_start(const struct http_front_options *options, struct http_front **out,
                               char **url_out)
{
    struct http_front *f = calloc(1, sizeof(*f));
    if (!f)
        return cmd_fail(CMD_FAILED, "%s: out of memory", options->command);
    f->watch = f->wake = -1;
    f->actions_end = &f->actions;
    f->assign.act = http_assign_waiting;
    f->bodies.most = HTTP_BODIES_BYTES_MAX;
    f->parsed.most = HTTP_PARSED_BYTES_MAX;
    f->started_ns = hw_now_ns();
    pthread_mutex_init(&f->lock, NULL);
    http_clients_init(&f->clients);
    pthread_cond_init(&f->tried, NULL);
    pthread_cond_init(&f->ended, NULL);
    *url_out = NULL;
    enum cmd_exit code = http_config_read(&f->config, options);
    if (code == CMD_DONE)
        code = start(f, url_out);
    if (code != CMD_DONE) {
        http_front_stop(f);
        free(*url_out);
        return code;
    }
    *out = f;
    return CMD_DONE;
}

void http_front_finish(struct http_front *f)
{
    uint64_t until = hw_after(f->config.limits.stop_ns);
    http_lock(f);
    f->finishing = true;
    if (f->exchanges && f->config.limits.stop_ns) {
        printf("finishing %u request%s, for at most %g s; a second signal ends at once\n",
               f->running, f->running == 1 ? "" : "s", (double)f->config.limits.stop_ns / 1e9);
        (void)fflush(stdout);
    }
    while (f->exchanges && hw_cond_wait(&f->ended, &f->lock, until))
        ;
    http_unlock(f);
}

void http_front_stop(struct http_front *f)
{
    if (!f)
        return;
    http_lock(f);
    f->stopping = true;
    pthread_cond_broadcast(&f->tried);
    http_exchanges_end(f);
    http_unlock(f);
    if (f->daemon)
        MHD_stop_daemon(f->daemon); /* ends every exchange */
    if (f->watcher_runs) {
        (void)eventfd_write(f->wake, 1);
        pthread_join(f->watcher, NULL);
    }
    http_workers_stop(f);
    assert(!f->waiting && !f->actions && !f->exchanges && !f->bodies.held && !f->parsed.held);
    for (size_t i = 0; i < f->model_count; i++)
        http_model_destroy(f->models[i]);
    if (f->watch >= 0)
        close(f->watch);
    if (f->wake >= 0)
        close(f->wake);
    pthread_cond_destroy(&f->ended);
    pthread_cond_destroy(&f->tried);
    http_clients_fini(&f->clients);
    pthread_mutex_destroy(&f->lock);
    http_config_fini(&f->config);
    free(f);
}
