#include "serve/http/front.h"

#include "base/log.h"
#include "base/wait.h"
#include "command/connect.h"
#include "serve/http/impl.h"
#include "serve/http/listen.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define AT(field) offsetof(struct http_options, field)
const struct cmd_option http_table[] = {
    {"http", 0, CMD_STRING, AT(http),
     "answer OpenAI's and Anthropic's clients over HTTP at host:port; beyond this host it needs "
     "--cert, --key and "
     "--api-key-file, or --insecure",
     "ADDR"},
    {"api-key-file", 0, CMD_STRING, AT(api_key_file),
     "HTTP clients must send one of these keys, a line each (mode 0600)", "FILE"},
    {"max-requests", 0, CMD_U64, AT(max_requests),
     "HTTP requests for a text at a time; the next is answered 429", "N", "256", 1, 65536},
    {"max-requests-per-key", 0, CMD_U64, AT(max_requests_per_key), "the same for each API key", "N",
     "64", 1, 65536},
    {"max-tokens-per-key", 0, CMD_U64, AT(max_tokens_per_key),
     "tokens of the prompts that an API key has under way; over it, 429, and 400 where one request "
     "is over it alone [default: no limit]",
     "N", NULL, 0, UINT32_MAX},
    {"share-per-key", 0, CMD_U64, AT(share_per_key),
     "of the workers' places and KV that texts of one API key may take; its others wait [default: "
     "75 where there are several keys, else 100]",
     "PERCENT", NULL, 1, 100},
    {"worker-wait", 0, CMD_DURATION, AT(wait_ns),
     "how long a text waits for a worker that can compute it, then fails", "TIME", "30s", HW_MS,
     3600 * HW_SEC},
    {"client-timeout", 0, CMD_DURATION, AT(client_ns),
     "close connections of HTTP clients that take longer to send a request, or to read an answer "
     "that is complete; a second more for each 16 KiB",
     "TIME", "120s", HW_SEC, 3600 * HW_SEC},
    {"stop-timeout", 0, CMD_DURATION, AT(stop_ns),
     "after SIGINT, SIGTERM or SIGHUP, let HTTP requests under way go on for so long, and refuse "
     "new ones; a second signal ends at once",
     "TIME", "10s", 0, 3600 * HW_SEC},
    {"cors", 0, CMD_LIST, AT(cors),
     "let pages of this origin ask over HTTP and read the answers, scheme://host[:port], or '*' "
     "for "
     "all pages [default: none but the server's own]",
     "ORIGIN"},
    {NULL},
};

enum {
    PEM_BYTES_MAX = 1 << 20,
    CLIENT_BYTES_PER_S = 16 << 10, /* less is a client that only pretends */
    FEW_CONNECTIONS = 16,          /* left: from then on the longest idle one gives way */
    THREADS_MAX = 4,               /* of HTTP: they parse, tokenize and write; workers compute */
    SPARE_CONNECTIONS = 1024, /* beside those with a request: idle ones of browsers and pools */
    SPARE_FILES = 64,         /* beside connections: workers, threads' own, the model's */
    EVENTS_MAX = 64,
    TICK_MS = 50 /* while a text waits for a worker */
};

void http_lock(struct http_front *f)
{
    pthread_mutex_lock(&f->lock);
}

void http_unlock(struct http_front *f)
{
    while (f->actions) {
        struct http_attempt *a = f->actions;
        f->actions = a->action_next;
        if (!f->actions)
            f->actions_end = &f->actions;
        http_attempt_act(a);
    }
    pthread_mutex_unlock(&f->lock);
}

/* ---- connections of clients ---- */

/* Those that take too long are closed.  So is, when few are left, the one that has been waited for
 * the longest: nobody takes the connections of others by sending a byte now and then. */

static void hang_up(const struct http_client *client)
{
    (void)shutdown(client->fd, SHUT_RDWR); /* libmicrohttpd sees its end */
}

static void make_room(struct http_front *f)
{
    struct http_client *client, *oldest = NULL;
    if (f->client_count + FEW_CONNECTIONS <= f->limits.max_requests + SPARE_CONNECTIONS)
        return;
    LIST_FOREACH (client, &f->clients, link) {
        if (client->due != HW_NEVER && client->due && (!oldest || client->since < oldest->since))
            oldest = client;
    }
    if (!oldest)
        return;
    hang_up(oldest);
    oldest->due = 0; /* it is going */
}

static void close_late(struct http_front *f, uint64_t now)
{
    struct http_client *client;
    pthread_mutex_lock(&f->clients_lock);
    LIST_FOREACH (client, &f->clients, link) {
        if (client->due < now)
            hang_up(client);
    }
    pthread_mutex_unlock(&f->clients_lock);
}

static void on_connection(void *user, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_front *f = user;
    struct http_client *client = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        hw_wake_soon(); /* the daemon's own thread, which nobody else starts */
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = client = info ? calloc(1, sizeof(*client)) : NULL;
        if (!client)
            return; /* it is only not watched */
        client->fd = (int)info->connect_fd;
        client->since = hw_now_ns();
        client->due = client->since + f->limits.client_ns;
        pthread_mutex_lock(&f->clients_lock);
        make_room(f);
        LIST_INSERT_HEAD(&f->clients, client, link);
        f->client_count++;
    } else if (client) {
        pthread_mutex_lock(&f->clients_lock);
        LIST_REMOVE(client, link);
        f->client_count--;
        free(client);
    } else {
        return;
    }
    pthread_mutex_unlock(&f->clients_lock);
}

static void set_due(struct http_front *f, struct MHD_Connection *c, bool busy, bool anew,
                    uint64_t bytes)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_client *client = info ? info->socket_context : NULL;
    if (!client)
        return;
    pthread_mutex_lock(&f->clients_lock);
    if (anew)
        client->since = hw_now_ns();
    if (client->due)
        client->due =
            busy ? HW_NEVER
                 : client->since + f->limits.client_ns + bytes * HW_SEC / CLIENT_BYTES_PER_S;
    pthread_mutex_unlock(&f->clients_lock);
}

void http_client_expect(struct http_front *f, struct MHD_Connection *c, bool anew, uint64_t bytes)
{
    set_due(f, c, false, anew, bytes);
}

void http_client_busy(struct http_front *f, struct MHD_Connection *c)
{
    set_due(f, c, true, true, 0);
}

static bool take(struct http_front *f, uint64_t *held, uint64_t most, size_t bytes)
{
    pthread_mutex_lock(&f->clients_lock);
    bool fits = bytes <= most - *held;
    if (fits)
        *held += bytes;
    pthread_mutex_unlock(&f->clients_lock);
    return fits;
}

static void give(struct http_front *f, uint64_t *held, size_t bytes)
{
    pthread_mutex_lock(&f->clients_lock);
    *held -= bytes;
    pthread_mutex_unlock(&f->clients_lock);
}

bool http_bodies_take(struct http_front *f, size_t bytes)
{
    return take(f, &f->body_bytes, HTTP_BODIES_BYTES_MAX, bytes);
}

void http_bodies_give(struct http_front *f, size_t bytes)
{
    give(f, &f->body_bytes, bytes);
}

bool http_parsed_take(struct http_front *f, size_t bytes)
{
    return take(f, &f->parsed_bytes, HTTP_PARSED_BYTES_MAX, bytes);
}

void http_parsed_give(struct http_front *f, size_t bytes)
{
    give(f, &f->parsed_bytes, bytes);
}

/* ---- the thread that watches clients and the clock ---- */

static bool look_after(struct http_front *f, const struct epoll_event *events, int count,
                       int *timeout_ms)
{
    http_lock(f);
    for (int i = 0; i < count; i++) {
        if (events[i].data.u64)
            http_exchange_gone(f, events[i].data.u64);
    }
    http_queue_assign(f);
    uint64_t due = http_sequences_expire(f, hw_now_ns());
    *timeout_ms = due == HW_NEVER ? 1000 : TICK_MS;
    bool stopping = f->stopping;
    http_unlock(f);
    close_late(f, hw_now_ns());
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

/* ---- checks ---- */

/* A name that is not known is told before anybody is asked for a certificate. */
static enum cmd_exit read_address(struct http_front *f)
{
    const struct http_front_options *o = &f->options;
    const char *host_end = strrchr(o->at, ']');
    enum cmd_exit code = cmd_listen_read(o->command, "--http", o->at, &f->addr);
    if (code != CMD_DONE)
        return code;
    if (f->addr.scheme != RPC_SCHEME_TCP)
        return cmd_fail(CMD_USAGE, "%s: --http: '%s' is not host:port", o->command, o->at);
    if (!strchr(host_end ? host_end : o->at, ':'))
        f->addr.port = HTTP_DEFAULT_PORT;
    return CMD_DONE;
}

static enum cmd_exit check(struct http_front *f)
{
    const struct http_front_options *o = &f->options;
    char text[RPC_ADDR_HOST_CHARS + 16];
    rpc_addr_format(&f->addr, text, sizeof(text));
    if (rpc_addr_is_local(&f->addr) || (o->cert && f->keys.count > 0))
        return CMD_DONE;
    if (!o->insecure)
        return cmd_fail(CMD_REFUSED,
                        "%s: --http: %s is not on this host: give --cert, --key and "
                        "--api-key-file, or --insecure to answer everybody without TLS or key",
                        o->command, text);
    return CMD_DONE;
}

static void warn_if_open(const struct http_front *f)
{
    char text[RPC_ADDR_HOST_CHARS + 16];
    rpc_addr_format(&f->addr, text, sizeof(text));
    if (!rpc_addr_is_local(&f->addr) && !(f->cert && f->keys.count > 0))
        cmd_warn("--insecure: http://%s is open to whoever reaches it", text);
    if (http_cors_is_open(&f->limits) && !f->keys.count)
        cmd_warn("--cors '*' without --api-key-file: every page that a browser here shows can use "
                 "the models");
}

/* libmicrohttpd stops accepting without a word when there are none left. */
static void warn_if_few_files(const struct http_front *f)
{
    struct rlimit files;
    unsigned needed = (unsigned)f->limits.max_requests + SPARE_CONNECTIONS + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < needed)
        cmd_warn("%s: at most %llu files may be open, too few for --max-requests %llu: raise the "
                 "limit to "
                 "%u with ulimit -n, or LimitNOFILE= in its unit",
                 f->options.command, (unsigned long long)files.rlim_cur,
                 (unsigned long long)f->limits.max_requests, needed);
}

static enum cmd_exit load(struct http_front *f)
{
    const struct http_front_options *o = &f->options;
    char why[RPC_WHY_CHARS] = "out of memory";
    size_t len;
    if (f->limits.api_key_file && http_keys_load(&f->keys, f->limits.api_key_file, why))
        return cmd_fail(CMD_FAILED, "%s: %s", o->command, why);
    if (!o->cert)
        return CMD_DONE;
    if (rpc_security_read("--cert", o->cert, false, PEM_BYTES_MAX, &f->cert, &len, why) ||
        rpc_security_read("--key", o->key, true, PEM_BYTES_MAX, &f->key, &len, why))
        return cmd_fail(CMD_FAILED, "%s: %s", o->command, why);
    return CMD_DONE;
}

static enum cmd_exit prepare(struct http_front *f, const struct http_front_options *options)
{
    f->options = *options;
    f->limits = *options->limits;
    enum cmd_exit code = read_address(f);
    if (code == CMD_DONE)
        code = http_cors_check(options->command, &f->limits);
    if (code == CMD_DONE)
        code = load(f);
    return code == CMD_DONE ? check(f) : code;
}

static void forget_files(struct http_front *f)
{
    http_keys_fini(&f->keys);
    free(f->cert);
    free(f->key);
}

enum cmd_exit http_front_check(const struct http_front_options *options)
{
    struct http_front f = {0};
    enum cmd_exit code = prepare(&f, options);
    forget_files(&f);
    return code;
}

/* ---- starting and stopping ---- */

static void set_worker(struct http_front *f, size_t index, const struct rpc_addr *addr,
                       const char *name)
{
    struct http_worker *w = &f->workers[index];
    w->front = f;
    w->index = (uint32_t)index;
    w->addr = *addr;
    if (name)
        snprintf(w->name, sizeof(w->name), "%s", name);
    else
        rpc_addr_format(addr, w->name, sizeof(w->name));
}

static bool is_same(const struct rpc_addr *a, const struct rpc_addr *b)
{
    return a->scheme == b->scheme && strcmp(a->host, b->host) == 0 && a->port == b->port &&
           strcmp(a->path, b->path) == 0;
}

static struct http_worker *find_worker(struct http_front *f, const struct rpc_addr *addr)
{
    for (size_t i = 0; i < f->worker_count; i++) {
        if (is_same(&f->workers[i].addr, addr))
            return &f->workers[i];
    }
    return NULL;
}

/* A worker that was not there before takes the place of one that left, or a new one. */
static void add_worker(struct http_front *f, const struct rpc_addr *addr)
{
    size_t i = 0;
    while (i < f->worker_count &&
           !(f->workers[i].left && f->workers[i].state == HTTP_WORKER_DOWN && !f->workers[i].texts))
        i++;
    if (i == HTTP_WORKERS_MAX) {
        hw_warn(HW_CAT_NET, "more than %d workers: the others are not asked", HTTP_WORKERS_MAX);
        return;
    }
    set_worker(f, i, addr, NULL);
    f->workers[i].left = false;
    if (i < f->worker_count) {
        pthread_cond_signal(&f->workers[i].wake);
        return;
    }
    int rc = http_worker_start(&f->workers[i]);
    if (rc == 0)
        f->worker_count++;
    else
        hw_warn(HW_CAT_NET, "no thread for worker %s: %s", f->workers[i].name, strerror(-rc));
}

void http_front_set_workers(struct http_front *f, const struct rpc_addr *addrs, size_t count)
{
    http_lock(f);
    for (size_t i = 0; i < f->worker_count; i++) {
        bool there = false;
        for (size_t k = 0; k < count; k++)
            there = there || is_same(&f->workers[i].addr, &addrs[k]);
        f->workers[i].left = !there;
        pthread_cond_signal(&f->workers[i].wake);
    }
    for (size_t k = 0; k < count; k++) {
        if (!find_worker(f, &addrs[k]))
            add_worker(f, &addrs[k]);
    }
    http_queue_assign(f);
    http_unlock(f);
}

static int start_workers(struct http_front *f)
{
    const struct http_front_options *o = &f->options;
    f->workers = calloc(HTTP_WORKERS_MAX, sizeof(*f->workers));
    f->prefixes = calloc(HTTP_PREFIX_ENTRIES, sizeof(*f->prefixes));
    if (!f->workers || !f->prefixes)
        return -ENOMEM;
    for (size_t i = 0; i < o->worker_count; i++)
        set_worker(f, i, &o->workers[i].addr, o->workers[i].name);
    /* A thread sees all workers, so all are there before the first. */
    pthread_mutex_lock(&f->lock);
    int rc = 0;
    size_t started = 0;
    for (; rc == 0 && started < o->worker_count; started++)
        rc = http_worker_start(&f->workers[started]);
    f->worker_count = rc ? started - 1 : started;
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static enum cmd_exit start_listener(struct http_front *f, char **url_out)
{
    struct http_front_options *o = &f->options;
    char why[RPC_WHY_CHARS], text[RPC_ADDR_HOST_CHARS + 16];
    unsigned cores = hw_cores();
    struct http_listen listen = {
        .what = "--http",
        .addr = &f->addr,
        .handle = http_exchange_handle,
        .completed = http_exchange_completed,
        .connection = on_connection,
        .user = f,
        .connections = (unsigned)f->limits.max_requests + SPARE_CONNECTIONS,
        .timeout_s = (unsigned)(f->limits.client_ns / HW_SEC),
        .threads = cores < THREADS_MAX ? cores : THREADS_MAX,
        .cert = f->cert,
        .key = f->key,
    };
    uint16_t port;
    if (http_listen(&listen, &f->daemon, &port, why))
        return cmd_fail(CMD_FAILED, "%s: %s", o->command, why);
    struct rpc_addr bound = f->addr;
    bound.port = port;
    rpc_addr_format(&bound, text, sizeof(text));
    if (asprintf(url_out, "%s://%s", f->cert ? "https" : "http", text) < 0)
        *url_out = NULL;
    return *url_out ? CMD_DONE : cmd_fail(CMD_FAILED, "%s: out of memory", o->command);
}

static enum cmd_exit start(struct http_front *f, char **url_out)
{
    warn_if_open(f);
    warn_if_few_files(f);
    int rc = start_workers(f);
    if (rc == 0)
        rc = start_watch(f);
    if (rc)
        return cmd_fail(CMD_FAILED, "%s: %s", f->options.command, hw_strerror(rc));
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
    f->started_ns = hw_now_ns();
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->clients_lock, NULL);
    pthread_cond_init(&f->tried, NULL);
    pthread_cond_init(&f->ended, NULL);
    *url_out = NULL;
    enum cmd_exit code = prepare(f, options);
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
    uint64_t until = hw_after(f->limits.stop_ns);
    http_lock(f);
    f->finishing = true;
    if (f->exchanges && f->limits.stop_ns) {
        printf("finishing %u request%s, for at most %g s; a second signal ends at once\n",
               f->running, f->running == 1 ? "" : "s", (double)f->limits.stop_ns / 1e9);
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
    for (size_t i = 0; i < f->worker_count; i++)
        http_worker_stop(&f->workers[i]);
    assert(!f->waiting && !f->actions && !f->exchanges && LIST_EMPTY(&f->clients) &&
           !f->body_bytes && !f->parsed_bytes);
    for (size_t i = 0; i < f->model_count; i++)
        http_model_destroy(f->models[i]);
    if (f->watch >= 0)
        close(f->watch);
    if (f->wake >= 0)
        close(f->wake);
    pthread_cond_destroy(&f->ended);
    pthread_cond_destroy(&f->tried);
    pthread_mutex_destroy(&f->clients_lock);
    pthread_mutex_destroy(&f->lock);
    forget_files(f);
    free(f->prefixes);
    free(f->workers);
    free(f);
}
