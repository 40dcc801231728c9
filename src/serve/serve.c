/* hawser serve - the server: listens, answers, and says how it is doing. */
#include "serve/serve.h"

#include "base/clock.h"
#include "base/counter.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/wait.h"
#include "command/connect.h"
#include "command/drivers.h"
#include "command/interrupt.h"
#include "page/runtime.h"
#include "rpc/methods.h"
#include "rpc/server.h"
#include "serve/discovery.h"
#include "serve/http/front.h"
#include "serve/metrics.h"
#include "serve/ready.h"
#include "serve/server_info.h"
#include "serve/service_basic.h"
#include "serve/service_llm.h"
#include "serve/session/sandbox.h"
#include "serve/session/sessions.h"
#include "serve/tenants.h"
#include "venus/common/protocol.h"
#include "venus/server/slice/schedule.h"
#include "venus/server/upload/share.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct serve_options {
    struct cmd_list listen, devices;
    const char *cert, *key, *token_file, *tenants;
    bool insecure, software, no_devices;
    uint64_t max_clients, window_bytes, max_calls, heartbeat_ns, resume_window_ns;
    uint64_t time_slice_ns, weight, max_memory_bytes, max_objects, max_pipelines, max_pending;
    uint64_t upload_cache_bytes, compile_threads;
    const char *upload_cache_dir, *session_user;
    bool validate;
    const char *metrics;
    uint64_t ready_fd, master_port;
    struct service_llm_options llm;
    struct http_options http;
    struct discovery_options discovery;
    const char *advertise;
};

#define AT(field) offsetof(struct serve_options, field)
static const struct cmd_option options[] = {
    {"listen", 'l', CMD_LIST, AT(listen),
     "where to listen: host:port, [::1]:port, unix:/path, shm:/path, ucx:host:port; port 0 takes a "
     "free one",
     "ADDR", "127.0.0.1:28100"},
    {"master_port", 0, CMD_U64, AT(master_port), "listen on 127.0.0.1:PORT instead of --listen",
     "PORT", NULL, 1, 65535},
    CMD_GROUP_AT(struct serve_options, llm, service_llm_table),
    CMD_GROUP_AT(struct serve_options, http, http_table),
    CMD_ETCD_OPTION(struct serve_options, discovery.etcd, "let gateways find this worker in etcd"),
    CMD_GROUP_AT(struct serve_options, discovery, discovery_table),
    {"advertise", 0, CMD_STRING, AT(advertise),
     "with --etcd: where gateways reach this worker [default: the first of --listen]", "ADDR"},
    {"cert", 0, CMD_STRING, AT(cert), "TLS certificate (PEM); hawser keygen makes one", "FILE"},
    {"key", 0, CMD_STRING, AT(key), "its private key (PEM, mode 0600)", "FILE"},
    {"token-file", 0, CMD_STRING, AT(token_file),
     "clients must prove that they know this token (mode 0600) [default: this user's on this host, "
     "for TCP on loopback]",
     "FILE"},
    {"tenants", 0, CMD_STRING, AT(tenants),
     "further tokens, in lines NAME TOKEN [weight=N] [max-memory=SIZE] (mode 0600): who comes with "
     "one has that share of a GPU's time and that limit",
     "FILE"},
    {"insecure", 0, CMD_FLAG, AT(insecure),
     "listen without TLS or token, also beyond this host: whoever reaches the address may use the "
     "server and read its traffic"},
    {"software", 0, CMD_FLAG, AT(software),
     "use a software Vulkan driver, found or laid out by find-vulkan"},
    {"device", 0, CMD_LIST, AT(devices),
     "offer these GPUs only, and compute models on them in turn: by the number that serve prints, "
     "or a part of the name [default: all; models on the first]",
     "WHICH"},
    {"no-devices", 0, CMD_FLAG, AT(no_devices), "do not look for Vulkan devices: starts at once"},
    {"max-clients", 0, CMD_U64, AT(max_clients), "connections at a time; the next is refused", "N",
     "256", 1, 65536},
    {"window", 0, CMD_SIZE, AT(window_bytes), "what one client can make the server hold", "SIZE",
     "16MiB", RPC_WINDOW_MIN, RPC_WINDOW_MAX},
    {"max-calls", 0, CMD_U64, AT(max_calls), "calls that one client may have in flight", "N",
     "4096", 1, RPC_CALLS_MAX},
    {"heartbeat", 0, CMD_DURATION, AT(heartbeat_ns),
     "a client whose host is silent for so long is gone: it is down, or cut off; a client that is "
     "only stopped keeps its connection",
     "TIME", "60s", 100 * HW_MS, 3600 * HW_SEC},
    {"resume-window", 0, CMD_DURATION, AT(resume_window_ns),
     "how long a client's work waits for it after its network was cut, with its GPU memory; 5 s at "
     "most where its host reset the connection; 0: it ends at once",
     "TIME", "60s", 0, 24 * 3600 * HW_SEC},
    {"time-slice", 0, CMD_DURATION, AT(time_slice_ns),
     "where several Vulkan clients keep a GPU busy, one of them submits for so long at a time "
     "[default: 10ms with --tenants; else the GPU's driver shares it alone]",
     "TIME", NULL, HW_MS, HW_SEC},
    {"weight", 0, CMD_U64, AT(weight),
     "share of a GPU's time of the clients that are no tenant's, together, beside the tenants, who "
     "have 1 each or what --tenants says",
     "N", "1", 1, VNS_SLICE_WEIGHT_MAX},
    {"max-memory", 0, CMD_SIZE, AT(max_memory_bytes),
     "GPU memory of one Vulkan client; over it, allocations fail [default: 90 % of each heap, so "
     "that another can start]; main memory that a client's own model may take beside its weights "
     "[default: 90 % of this machine's]",
     "SIZE", NULL, 1 << 20, INT64_MAX},
    {"max-objects", 0, CMD_U64, AT(max_objects),
     "Vulkan objects of one client; over it, its session ends", "N", "1048576", 16, 1 << 30},
    {"max-pipelines", 0, CMD_U64, AT(max_pipelines), "the same for pipelines", "N", "65536", 1,
     1 << 30},
    {"max-pending", 0, CMD_U64, AT(max_pending), "the same for batches submitted and not done", "N",
     "65536", 1, 1 << 30},
    {"compile-threads", 0, CMD_U64, AT(compile_threads),
     "that compile pipelines of one Vulkan client; 1: none beside the rest [default: as many as "
     "there are cores]",
     "N", NULL, 0, 256},
    {"upload-cache", 0, CMD_SIZE, AT(upload_cache_bytes),
     "large uploads of Vulkan clients to remember, so that they are not sent again; shared by all "
     "clients; at most half of what is free where they are kept; 0: none",
     "SIZE", "64GiB", 0, INT64_MAX},
    {"upload-cache-dir", 0, CMD_STRING, AT(upload_cache_dir),
     "keep them in this folder, also when the server ends [default: in memory]", "DIR"},
    {"session-user", 0, CMD_STRING, AT(session_user),
     "run the processes of Vulkan clients, and of models that clients send, as this user; the "
     "server must be root [default: the server's user]",
     "NAME"},
    {"validate", 0, CMD_FLAG, AT(validate),
     "run Khronos' validation layer on what clients do; its messages go to the log and to the "
     "clients"},
    {"metrics", 0, CMD_STRING, AT(metrics),
     "serve counters over HTTP at host:port: / as text, /metrics for Prometheus, /json; beyond "
     "this host only with --insecure",
     "ADDR"},
    SERVE_READY_OPTION(struct serve_options, ready_fd),
    {NULL},
};

/* Of tenants.  Equal clients are shared better by the driver (docs/design/gpu-sharing.md). */
static const uint64_t slice_usual_ns = 10 * HW_MS;

static const struct cmd_env environment[] = {
    {"VENUS_SOCKET_BUFFER_BYTES", "kernel buffer of a TCP socket, each way [default: 4MiB]"},
    {"VENUS_TRACE_NET", "1: a summary of the traffic every 100 messages"},
    {"VK_DRIVER_FILES", "Vulkan drivers to use instead of the system's"},
    {"HAWSER_FIND_VULKAN", "where find-vulkan is, for --software"},
    {"HAWSER_VISIBLE_DEVICES", "UUIDs of the GPUs to use; --device sets it [default: all]"},
    {"HAWSER_SANDBOX", "of sessions: deny, watch, log or off [default: by the driver]"},
    {"NOTIFY_SOCKET", "set by systemd (Type=notify): told when ready"},
    {NULL},
};

/* ---- what the server counts beside its connections ---- */

enum { COUNT_CLIENTS, COUNT_OPENED, COUNT_COUNT };

static const struct hw_counter_def count_defs[COUNT_COUNT] = {
    {"server_clients", "connections of clients now, stripes included", "", HW_GAUGE},
    {"server_connections", "clients accepted since the start", "", HW_COUNTER},
};

struct server {
    const struct serve_options *o;
    struct rpc_addr addrs[CMD_LIST_MAX];
    size_t addr_count;
    struct rpc_security security;
    struct tenants *tenants;
    struct sandbox_user session_user;
    char session_home[PATH_MAX];
    struct server_info info;
    struct service_basic service;
    struct service_llm llm;
    struct llm_worker_outside outside;
    struct rpc_server *rpc;
    struct vns_upload_store *upload_store;
    struct vns_upload_share *uploads;
    struct sessions *sessions;
    struct rpc_addr metrics_addr;
    struct metrics *metrics;
    struct http_front *front;
    struct discovery *discovery; /* NULL: none */
    _Atomic uint64_t counts[COUNT_COUNT];
    struct hw_counter_set count_set;
};

/* ---- clients ---- */

static int on_opened(void *user, struct rpc_ep *ep)
{
    struct server *s = user;
    hw_counter_bump(&s->counts[COUNT_CLIENTS], 1);
    hw_counter_bump(&s->counts[COUNT_OPENED], 1);
    hw_info(HW_CAT_NET, "client %s (%s) connected", rpc_ep_peer(ep), rpc_ep_peer_name(ep));
    return 0;
}

static void answer_usage(struct server *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct server_usage usage;
    struct wire_enc enc;
    sessions_usage(s->sessions, rpc_ep_tenant(ep), &usage);
    wire_enc_init(&enc, SERVER_USAGE_BYTES_MAX);
    server_usage_encode(&usage, &enc);
    struct iovec iov = {.iov_base = (void *)wire_enc_data(&enc), .iov_len = wire_enc_len(&enc)};
    struct rpc_send send = {.stream = msg->stream, .iov = &iov, .iov_count = 1};
    int status = wire_enc_error(&enc);
    (void)!rpc_reply(ep, msg, status, status ? NULL : &send); /* an end is the loop's to find */
    wire_enc_fini(&enc);
}

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct server *s = user;
    if (service_llm_handle(&s->llm, ep, msg)) {
        rpc_server_offer_resume(s->rpc, ep);
        return;
    }
    if (msg->kind == RPC_CALL && msg->method == VN_METHOD_DOOR) {
        sessions_door(s->sessions, ep, msg);
        return;
    }
    if (msg->kind == RPC_CALL && msg->method == VN_METHOD_OPEN)
        sessions_open(s->sessions, ep, msg);
    else if (msg->kind == RPC_CALL && msg->method == VN_METHOD_STRIPE)
        sessions_stripe(s->sessions, ep, msg);
    else if (msg->kind == RPC_CALL && msg->method == RPC_METHOD_RESUME)
        sessions_resume(s->sessions, ep, msg);
    else if (msg->kind == RPC_CALL && msg->method == RPC_METHOD_USAGE)
        answer_usage(s, ep, msg);
    else /* a connection that ended meanwhile is the loop's to clear away */
        (void)service_basic_handle(&s->service, ep, msg);
    rpc_release(ep, msg);
}

static bool on_resumes(void *user, const struct rpc_msg *msg)
{
    (void)user;
    return sessions_is_stripe_again(msg);
}

static void on_closed(void *user, struct rpc_ep *ep, int status)
{
    struct server *s = user;
    if (s->sessions)
        sessions_closed(s->sessions, ep);
    service_llm_closed(&s->llm, ep, status);
    hw_counter_bump(&s->counts[COUNT_CLIENTS], UINT64_MAX);
    hw_info(HW_CAT_NET, "client %s left: %s", rpc_ep_peer(ep), strerror(-status));
}

static void on_leaves(void *user, struct rpc_ep *ep)
{
    struct server *s = user;
    service_llm_closed(&s->llm, ep, -ESHUTDOWN);
}

static void on_ended(void *user)
{
    struct server *s = user;
    hw_counter_bump(&s->counts[COUNT_CLIENTS], UINT64_MAX);
}

static void on_began(void *user)
{
    struct server *s = user;
    hw_counter_bump(&s->counts[COUNT_CLIENTS], 1);
}

static const struct sessions_ops sessions_ops = {
    .leaves = on_leaves, .ended = on_ended, .began = on_began};

static void on_sleeps(void *user, bool begins)
{
    struct server *s = user;
    service_llm_sleeps(&s->llm, begins);
}

static void on_swept(void *user)
{
    struct server *s = user;
    service_llm_swept(&s->llm);
}

static const struct rpc_server_ops server_ops = {.opened = on_opened,
                                                 .message = on_message,
                                                 .resumes = on_resumes,
                                                 .closed = on_closed,
                                                 .sleeps = on_sleeps,
                                                 .swept = on_swept};

/* ---- checks before anything is started ---- */

static enum cmd_exit check_address(struct server *s, const char *text, struct rpc_addr *addr)
{
    char why[RPC_WHY_CHARS];
    enum cmd_exit code = cmd_listen_read("serve", "--listen", text, addr);
    if (code != CMD_DONE)
        return code;
    if (rpc_security_check_listen(&s->security, addr, s->o->insecure, why))
        return cmd_fail(CMD_REFUSED, "serve: %s", why);
    if (s->o->insecure && rpc_security_check_listen(&s->security, addr, false, why))
        cmd_warn("--insecure: whoever reaches %s may use this server: it has no %s", text,
                 s->security.tls         ? "token"
                 : s->security.token_len ? "TLS"
                                         : "TLS and no token");
    return CMD_DONE;
}

/* Every user of this host reaches its TCP ports, so those want a token, too. */
static enum cmd_exit ensure_token(struct server *s)
{
    char why[RPC_WHY_CHARS];
    bool tcp = false;
    for (size_t i = 0; i < s->addr_count; i++)
        tcp |= s->addrs[i].scheme == RPC_SCHEME_TCP || s->addrs[i].scheme == RPC_SCHEME_UCX;
    if (!tcp || s->o->insecure || s->security.token_len > 0)
        return CMD_DONE;
    if (rpc_security_make_host_token(&s->security, why))
        return cmd_fail(CMD_FAILED, "serve: %s", why);
    return CMD_DONE;
}

static enum cmd_exit check_session_user(struct server *s)
{
    const char *name = s->o->session_user;
    if (!name)
        return CMD_DONE;
    int rc = sandbox_user_find(name, &s->session_user, s->session_home);
    if (rc)
        return cmd_fail(CMD_USAGE, "serve: --session-user: %s: %s", name,
                        rc == -ENOENT ? "no such user here" : "it is in too many groups");
    if (geteuid() != 0)
        return cmd_fail(CMD_REFUSED,
                        "serve: --session-user: only root may start processes of another user; "
                        "start the server as root, or leave the option out");
    return CMD_DONE;
}

static struct http_front_options front_options(const struct server *s)
{
    return (struct http_front_options){.command = "serve",
                                       .at = s->o->http.http,
                                       .cert = s->o->cert,
                                       .key = s->o->key,
                                       .insecure = s->o->insecure,
                                       .limits = &s->o->http,
                                       .security = &s->security};
}

/* A model takes minutes to load: what would be refused behind it is refused first. */
static enum cmd_exit check_pages(struct server *s)
{
    struct http_front_options front = front_options(s);
    enum cmd_exit code = metrics_check("serve", s->o->metrics, s->o->insecure, &s->metrics_addr);
    if (code == CMD_DONE && !front.at && s->o->http.api_key_file)
        return cmd_fail(CMD_USAGE, "serve: --api-key-file is for HTTP: give --http, too");
    return code == CMD_DONE && front.at ? http_front_check(&front) : code;
}

/* With tenants alone the server has a token that nobody knows but its own HTTP front. */
static enum cmd_exit load_tenants(struct server *s)
{
    char why[RPC_WHY_CHARS], token[RPC_TOKEN_TEXT_CHARS];
    if (tenants_load(s->o->tenants, (uint32_t)s->o->weight, &s->tenants, why))
        return cmd_fail(CMD_FAILED, "serve: %s", why);
    s->security.tenants = s->tenants->tokens;
    s->security.tenant_count = s->tenants->count - 1;
    if (s->security.tenant_count == 0 || s->security.token_len > 0)
        return CMD_DONE;
    if (rpc_token_random(token))
        return cmd_fail(CMD_FAILED, "serve: --tenants: the system gives no random numbers");
    s->security.token_len = strcspn(token, "\n");
    memcpy(s->security.token, token, s->security.token_len);
    explicit_bzero(token, sizeof(token));
    return CMD_DONE;
}

static enum cmd_exit check_all(struct server *s)
{
    char why[RPC_WHY_CHARS];
    struct rpc_security_files files = {
        .certificate = s->o->cert, .key = s->o->key, .token_file = s->o->token_file};
    if (!s->o->cert != !s->o->key)
        return cmd_fail(CMD_USAGE, "serve: --cert and --key go together");
    if (s->o->software && s->o->no_devices)
        return cmd_fail(CMD_USAGE, "serve: --software or --no-devices, not both");
    enum cmd_exit code = check_session_user(s);
    if (code != CMD_DONE)
        return code;
    if (rpc_security_load(&s->security, &files, true, why))
        return cmd_fail(CMD_FAILED, "serve: %s", why);
    code = load_tenants(s);
    if (code == CMD_DONE)
        code = check_pages(s);
    if (code != CMD_DONE)
        return code;
    if (s->o->master_port) {
        char text[32];
        snprintf(text, sizeof(text), "127.0.0.1:%u", (unsigned)s->o->master_port);
        s->addr_count = 1;
        code = check_address(s, text, &s->addrs[0]);
        return code == CMD_DONE ? ensure_token(s) : code;
    }
    for (; s->addr_count < s->o->listen.count; s->addr_count++) {
        size_t i = s->addr_count;
        code = check_address(s, s->o->listen.items[i], &s->addrs[i]);
        if (code != CMD_DONE)
            return code;
    }
    return ensure_token(s);
}

/* ---- starting ---- */

static int start_rpc(struct server *s)
{
    const struct serve_options *o = s->o;
    struct rpc_server_options rpc_options = {
        .ops = &server_ops,
        .user = s,
        .config = {.security = &s->security,
                   .capabilities = VN_PROTOCOL,
                   .window_bytes = (uint32_t)o->window_bytes,
                   .max_calls = (uint32_t)o->max_calls,
                   .heartbeat_ns = o->heartbeat_ns,
                   .takes_fds = true, /* of memory that programs share */
                   .tolerates_silence = true,
                   .spin_ns = VN_SPIN_NS},
        .max_clients = (uint32_t)o->max_clients,
        .resume_window_ns = o->resume_window_ns,
    };
    return rpc_server_create(&rpc_options, &s->rpc);
}

/* Where there is no memory for files the server does without, unless a folder was asked for. */
static enum cmd_exit start_uploads(struct server *s)
{
    char why[VNS_UPLOAD_STORE_WHY];
    const char *dir = s->o->upload_cache_dir;
    uint64_t bytes = s->o->upload_cache_bytes;
    if (!bytes)
        return CMD_DONE;
    if (vns_upload_store_create(dir, bytes, &s->upload_store, why) == 0) {
        int rc = vns_upload_share_create(s->upload_store, &s->uploads);
        return rc ? cmd_fail(CMD_FAILED, "serve: %s", hw_strerror(rc)) : CMD_DONE;
    }
    if (dir)
        return cmd_fail(CMD_FAILED, "serve: --upload-cache-dir: %s", why);
    cmd_warn("no upload cache: %s; --upload-cache-dir names a folder for it", why);
    return CMD_DONE;
}

/* A driver that the list of calls was not tried with must not fail for want of one. */
static enum sandbox_mode sandbox_for(const struct serve_devices *devices)
{
    bool known = true;
    for (uint32_t i = 0; i < devices->count; i++)
        known = known && sandbox_knows_driver(devices->items[i].driver);
    return known ? SANDBOX_DENY : SANDBOX_WATCH;
}

static int start_sessions(struct server *s)
{
    const struct serve_options *o = s->o;
    struct vns_session_options session = {.max_memory_bytes = o->max_memory_bytes,
                                          .max_objects = o->max_objects,
                                          .max_pipelines = o->max_pipelines,
                                          .max_pending = o->max_pending,
                                          .compile_threads = (unsigned)o->compile_threads,
                                          .validate = o->validate};
    uint64_t slice_ns = o->time_slice_ns ? o->time_slice_ns : o->tenants ? slice_usual_ns : 0;
    return sessions_create(s->rpc, &session, s->uploads, o->resume_window_ns, slice_ns, s->tenants,
                           sandbox_for(&s->info.devices), &s->session_user, s->session_home,
                           &sessions_ops, s, &s->sessions);
}

static int start_model(void *user, const struct rpc_ep *client, uint64_t *process)
{
    struct server *s = user;
    return sessions_model(s->sessions, client, &s->llm.session, process);
}

static void stop_model(void *user, uint64_t process, bool broken)
{
    struct server *s = user;
    if (s->sessions) /* else they have ended already */
        sessions_model_end(s->sessions, process, broken);
}

static enum cmd_exit listen_all(struct server *s, const char *bound[CMD_LIST_MAX])
{
    char why[RPC_WHY_CHARS];
    struct rpc_net_options net = {.security = &s->security};
    for (size_t i = 0; i < s->addr_count; i++) {
        if (rpc_server_listen(s->rpc, &s->addrs[i], &net, &bound[i], why))
            return cmd_fail(CMD_FAILED, "serve: %s", why);
    }
    return CMD_DONE;
}

/* The front is a client of this server like any other, over a socket that only we can reach. */
static enum cmd_exit listen_for_front(struct server *s, struct rpc_addr *addr)
{
    char why[RPC_WHY_CHARS], folder[PAGE_PATH_CHARS];
    struct page_error problem;
    struct rpc_net_options net = {.security = &s->security};
    *addr = (struct rpc_addr){.scheme = RPC_SCHEME_UNIX};
    if (page_runtime_base(NULL, folder, &problem))
        return cmd_fail(CMD_FAILED, "serve: --http: %s", problem.text);
    if (snprintf(addr->path, sizeof(addr->path), "%s/http-%d.sock", folder, (int)getpid()) >=
        (int)sizeof(addr->path))
        return cmd_fail(CMD_FAILED,
                        "serve: --http: %s is too long for a socket in it: set HAWSER_RUNTIME_DIR "
                        "to a shorter path",
                        folder);
    if (rpc_server_listen(s->rpc, addr, &net, NULL, why))
        return cmd_fail(CMD_FAILED, "serve: --http: %s", why);
    return CMD_DONE;
}

static enum cmd_exit start_front(struct server *s)
{
    char *url;
    struct http_worker_address worker = {.name = "this server"};
    struct http_front_options front = front_options(s);
    front.workers = &worker;
    front.worker_count = 1;
    front.alone = true;
    if (!front.at)
        return CMD_DONE;
    if (!service_llm_serves(&s->llm))
        return cmd_fail(CMD_USAGE, "serve: --http answers with a %s",
                        s->llm.stage ? "whole model: ask the front of this part"
                                     : "model: give --model FILE");
    enum cmd_exit code = listen_for_front(s, &worker.addr);
    if (code == CMD_DONE)
        code = http_front_start(&front, &s->front, &url);
    if (code != CMD_DONE)
        return code;
    printf("answering on %s\n", url);
    free(url);
    return CMD_DONE;
}

static enum cmd_exit start_discovery(struct server *s, const char *bound)
{
    if (s->o->discovery.etcd.urls.count == 0)
        return CMD_DONE;
    if (!service_llm_serves(&s->llm))
        return cmd_fail(CMD_USAGE, "serve: --etcd is for gateways: give --model FILE");
    return discovery_start("serve", &s->o->discovery, s->o->advertise ? s->o->advertise : bound,
                           NULL, NULL, &s->discovery);
}

static void stop_front(struct server *s)
{
    discovery_stop(s->discovery);
    s->discovery = NULL;
    http_front_stop(s->front);
    s->front = NULL;
}

static enum cmd_exit say_ready(const struct server *s, const char *const *bound)
{
    for (size_t i = 0; i < s->addr_count; i++)
        printf("%s%s", i ? ", " : "listening on ", bound[i]);
    printf("\n");
    return serve_say_ready("serve", (int)s->o->ready_fd);
}

static void print_devices(const struct serve_devices *devices, bool looked)
{
    if (devices->count == 0)
        printf("no Vulkan device: %s%s\n", devices->note,
               looked ? "; --software offers one that computes on the CPU" : "");
    for (uint32_t i = 0; i < devices->count; i++)
        printf("device %u: %s (%s)\n", devices->items[i].index, devices->items[i].name,
               serve_device_type_name(devices->items[i].type));
}

/* ---- running ---- */

static struct rpc_server *stoppable; /* for the signal handler; set before it is installed */

static void on_signal(int number)
{
    (void)number;
    rpc_server_stop(stoppable);
}

static void catch_signals(struct rpc_server *rpc)
{
    stoppable = rpc;
    cmd_on_stop(on_signal);
}

static void *finish_main(void *arg)
{
    struct server *s = arg;
    http_front_finish(s->front);
    rpc_server_stop(s->rpc);
    return NULL;
}

/* Texts under way need the server's loop. */
static void finish_texts(struct server *s)
{
    pthread_t thread;
    discovery_stop(s->discovery);
    s->discovery = NULL;
    if (!s->front || hw_thread_start(&thread, finish_main, s))
        return;
    rpc_server_run(s->rpc);
    pthread_join(thread, NULL);
}

static enum cmd_exit serve(struct server *s)
{
    const char *bound[CMD_LIST_MAX];
    s->count_set =
        (struct hw_counter_set){.defs = count_defs, .values = s->counts, .count = COUNT_COUNT};
    s->outside = (struct llm_worker_outside){.start = start_model, .stop = stop_model, .user = s};
    enum cmd_exit code = start_uploads(s);
    if (code != CMD_DONE)
        return code;
    int rc = service_basic_init(&s->service, &s->info);
    if (rc == 0)
        rc = hw_counter_set_register(&s->count_set);
    if (rc == 0)
        rc = start_rpc(s);
    if (rc == 0)
        rc =
            start_sessions(s); /* before any thread: one that does not block SIGCHLD would get it */
    if (rc)
        return cmd_fail(CMD_FAILED, "serve: %s", hw_strerror(rc));
    code = service_llm_open(&s->llm, &s->o->llm, (uint32_t)s->o->devices.count, &s->outside);
    rc = code == CMD_DONE ? service_llm_attach(&s->llm, s->rpc) : 0;
    if (rc)
        return cmd_fail(CMD_FAILED, "serve: %s", hw_strerror(rc));
    if (code == CMD_DONE)
        code = listen_all(s, bound);
    if (code == CMD_DONE && s->o->metrics)
        code = metrics_start("serve", &s->metrics_addr, &s->metrics);
    if (code == CMD_DONE)
        code = start_front(s);
    if (code == CMD_DONE)
        code = start_discovery(s, bound[0]);
    if (code != CMD_DONE)
        return code;
    catch_signals(s->rpc);
    code = say_ready(s, bound);
    if (code == CMD_DONE) {
        hw_wake_soon();
        rpc_server_run(s->rpc);
        finish_texts(s);
    }
    return code;
}

static enum cmd_exit prepare_and_serve(struct server *s)
{
    enum cmd_exit code = check_all(s);
    if (code == CMD_DONE && s->o->software)
        code = cmd_software();
    if (code != CMD_DONE)
        return code;
    if (!cmd_leave_out_manifest())
        return cmd_fail(CMD_FAILED, "serve: cannot set VK_LOADER_DRIVERS_DISABLE: it is too long");
    server_info_self(&s->info);
    if (s->o->no_devices)
        snprintf(s->info.devices.note, SERVE_DEVICE_TEXT,
                 "the server was told not to look (--no-devices)");
    else
        serve_devices_find(&s->info.devices);
    char why[SERVE_DEVICE_TEXT];
    const struct cmd_list *wanted = &s->o->devices;
    if (wanted->count && serve_devices_choose(&s->info.devices, wanted->items, wanted->count, why))
        return cmd_fail(CMD_USAGE, "serve: --device: %s", why);
    print_devices(&s->info.devices, !s->o->no_devices);
    code = serve(s);
    cmd_on_stop(SIG_DFL);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    struct server *s = calloc(1, sizeof(*s));
    if (!s)
        return cmd_fail(CMD_FAILED, "out of memory");
    s->o = values;
    cmd_raise_files();
    enum cmd_exit code = prepare_and_serve(s);
    stop_front(s);
    sessions_destroy(s->sessions);
    s->sessions = NULL;
    vns_upload_share_destroy(s->uploads);
    vns_upload_store_destroy(s->upload_store);
    metrics_stop(s->metrics);
    if (s->rpc)
        rpc_server_destroy(s->rpc);
    service_llm_close(&s->llm);
    hw_counter_set_unregister(&s->count_set);
    service_basic_fini(&s->service);
    rpc_security_fini(&s->security);
    tenants_free(s->tenants);
    free(s);
    return code;
}

const struct cmd_command cmd_serve = {
    .name = "serve",
    .summary = "offer this machine's GPUs, or models, to clients",
    .operands = "",
    .not_operands = "a model is given with --model FILE",
    .description =
        "Listens and serves until SIGINT, SIGTERM or SIGHUP, then removes its sockets.  An address "
        "beyond this host needs --cert, --key and --token-file, which hawser keygen makes.  Prints "
        "one "
        "line, \"listening on ...\", when clients can connect.",
    .options = options,
    .environment = environment,
    .examples = "hawser serve\n"
                "hawser serve --model model.gguf --master_port 29501\n"
                "hawser serve --model model.gguf --http 127.0.0.1:8000\n"
                "hawser serve --listen unix:/run/hawser.sock,shm:/run/hawser-shm.sock\n"
                "hawser serve --listen 0.0.0.0:28100 --cert keys/server.crt \\\n"
                "    --key keys/server.key --token-file keys/token --metrics 127.0.0.1:9100",
    .values_size = sizeof(struct serve_options),
    .run = run,
};
