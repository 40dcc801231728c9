/* hawser gateway - OpenAI's and Anthropic's HTTP interface over any number of workers. */
#include "serve/serve.h"

#include "command/connect.h"
#include "command/interrupt.h"
#include "rpc/servers.h"
#include "serve/discovery.h"
#include "serve/http/front.h"
#include "serve/ready.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char http_default[] = "127.0.0.1:8000";

struct gateway_options {
    struct cmd_list servers;
    struct discovery_options discovery;
    struct http_options http;
    const char *cert, *key;
    bool insecure;
    uint64_t ready_fd;
    struct cmd_connect_options connect;
};

#define AT(field) offsetof(struct gateway_options, field)
static const struct cmd_option options[] = {
    {"servers", 's', CMD_LIST, AT(servers),
     "workers, separated by commas: servers that hawser serve --model started", "ADDR"},
    CMD_ETCD_OPTION(struct gateway_options, discovery.etcd,
                    "instead of --servers: workers that registered in etcd"),
    CMD_GROUP_AT(struct gateway_options, discovery, discovery_table),
    CMD_GROUP_AT(struct gateway_options, http, http_table),
    {"cert", 0, CMD_STRING, AT(cert),
     "TLS certificate for HTTP clients (PEM); hawser keygen makes one", "FILE"},
    {"key", 0, CMD_STRING, AT(key), "its private key (PEM, mode 0600)", "FILE"},
    {"insecure", 0, CMD_FLAG, AT(insecure), "answer HTTP beyond this host without TLS or API keys"},
    SERVE_READY_OPTION(struct gateway_options, ready_fd),
    CMD_GROUP_AT(struct gateway_options, connect, cmd_connect_table),
    {NULL},
};

static const struct cmd_env environment[] = {
    CMD_ENV_OF(cmd_connect_env),
    {"NOTIFY_SOCKET", "set by systemd (Type=notify): told when ready"},
    {NULL},
};

struct gateway {
    const struct gateway_options *o;
    struct rpc_security security;
    struct http_worker_address workers[CMD_LIST_MAX];
    size_t worker_count;
    struct discovery *discovery; /* NULL: none */
};

/* One worker under one address twice would seem to have twice the room. */
static bool is_known(const struct gateway *g, const struct rpc_addr *addr)
{
    char name[RPC_SERVER_CHARS], other[RPC_SERVER_CHARS];
    rpc_addr_format(addr, name, sizeof name);
    for (size_t i = 0; i < g->worker_count; i++) {
        rpc_addr_format(&g->workers[i].addr, other, sizeof other);
        if (strcmp(name, other) == 0)
            return true;
    }
    return false;
}

static enum cmd_exit add_worker(struct gateway *g, const char *text)
{
    char why[RPC_WHY_CHARS];
    if (g->worker_count == CMD_LIST_MAX)
        return cmd_fail(CMD_USAGE, "gateway: more than %d servers", CMD_LIST_MAX);
    if (rpc_addr_parse(text, &g->workers[g->worker_count].addr, why))
        return cmd_fail(CMD_USAGE, "gateway: --servers: %s", why);
    if (is_known(g, &g->workers[g->worker_count].addr))
        cmd_warn("gateway: --servers names %s twice; it is one worker", text);
    else
        g->worker_count++;
    return CMD_DONE;
}

/* --servers, else what the environment names. */
static enum cmd_exit read_workers(struct gateway *g)
{
    char buf[RPC_SERVER_CHARS], one[RPC_SERVER_CHARS];
    enum cmd_exit code = CMD_DONE;
    for (size_t i = 0; i < g->o->servers.count && code == CMD_DONE; i++)
        code = add_worker(g, g->o->servers.items[i]);
    if (g->o->servers.count && g->o->discovery.etcd.urls.count)
        return cmd_fail(CMD_USAGE, "gateway: --servers or --etcd, not both");
    bool told = g->o->servers.count || g->o->discovery.etcd.urls.count;
    const char *list = told ? NULL : rpc_servers_from_env(buf);
    while (list && code == CMD_DONE && rpc_servers_next(&list, one))
        code = add_worker(g, one);
    return code;
}

static enum cmd_exit load_security(struct gateway *g)
{
    char why[RPC_WHY_CHARS];
    const struct cmd_connect_options *c = &g->o->connect;
    struct rpc_security_files files = {.ca = c->ca,
                                       .fingerprint = c->fingerprint,
                                       .token_file = c->token_file,
                                       .makes_host_token = true};
    int rc = rpc_security_from_env(&g->security, &files, why);
    return rc ? cmd_fail(cmd_exit_for_security(rc), "gateway: %s", why) : CMD_DONE;
}

static void on_workers(void *front, const struct rpc_addr *addrs, size_t count)
{
    http_front_set_workers(front, addrs, count);
}

static enum cmd_exit start(struct gateway *g, struct http_front **front)
{
    char *url;
    struct http_front_options f = {.command = "gateway",
                                   .at = g->o->http.http ? g->o->http.http : http_default,
                                   .cert = g->o->cert,
                                   .key = g->o->key,
                                   .insecure = g->o->insecure,
                                   .limits = &g->o->http,
                                   .workers = g->workers,
                                   .worker_count = g->worker_count,
                                   .security = &g->security,
                                   .connect_ns = g->o->connect.timeout_ns};
    if (!g->o->cert != !g->o->key)
        return cmd_fail(CMD_USAGE, "gateway: --cert and --key go together");
    enum cmd_exit code = http_front_start(&f, front, &url);
    if (code != CMD_DONE)
        return code;
    if (g->o->discovery.etcd.urls.count)
        code =
            discovery_start("gateway", &g->o->discovery, NULL, on_workers, *front, &g->discovery);
    if (code == CMD_DONE)
        printf("answering on %s\n", url);
    free(url);
    return code != CMD_DONE ? code : serve_say_ready("gateway", (int)g->o->ready_fd);
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    struct gateway g = {.o = values};
    struct http_front *front = NULL;
    sigset_t signals;
    int number;
    cmd_raise_files();
    enum cmd_exit code = read_workers(&g);
    if (code == CMD_DONE)
        code = load_security(&g);
    if (code != CMD_DONE)
        return code;
    /* Blocked before there are threads: only sigwait takes them. */
    cmd_stop_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    code = start(&g, &front);
    if (code == CMD_DONE)
        sigwait(&signals, &number);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* a second one ends it at once */
    if (code == CMD_DONE)
        http_front_finish(front);
    discovery_stop(g.discovery);
    http_front_stop(front);
    rpc_security_fini(&g.security);
    return code;
}

const struct cmd_command cmd_gateway = {
    .name = "gateway",
    .summary = "answer OpenAI's and Anthropic's clients over HTTP, through workers",
    .operands = "",
    .not_operands = "workers are given with --servers ADDR",
    .description =
        "Needs no GPU and no model file.  A text whose worker dies, hangs or is drained goes on at "
        "another one, with the same tokens.  Listens on 127.0.0.1:8000 unless --http says "
        "otherwise, until SIGINT, SIGTERM or SIGHUP.  Prints one line, \"answering on ...\", when "
        "clients "
        "can connect; /healthz says when a worker is ready.",
    .options = options,
    .environment = environment,
    .examples = "hawser gateway --servers gpu1:28100,gpu2:28100\n"
                "hawser gateway --etcd http://10.0.0.9:2379\n"
                "hawser gateway --servers gpu1:28100,gpu2:28100 --ca keys/server.crt \\\n"
                "    --token-file keys/token --http 0.0.0.0:443 --cert web.crt --key web.key \\\n"
                "    --api-key-file keys/api",
    .values_size = sizeof(struct gateway_options),
    .run = run,
};
