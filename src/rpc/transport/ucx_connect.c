/* rpc/transport/ucx_connect.c - UCX set up in our process, and the two ways to a connection: dial
 * and listen.
 *
 * A dial has a context to itself; a listener shares one with all that it accepts.  Once there is
 * an endpoint, ucx.c has the connection. */
#include "rpc/transport/ucx.h"

#include "base/clock.h"
#include "base/log.h"
#include "rpc/transport/net.h"
#include "rpc/transport/ucx_internal.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

/* ---- UCX in our process ---- */

/* libucs takes over signals and decides what to print when it is loaded, so this undoes it at
 * once: later, a handler of the program's own could be lost. */
__attribute__((constructor)) static void quiet(void)
{
    static const int errors[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    if (!getenv("UCX_HANDLE_ERRORS") && !getenv("UCX_ERROR_SIGNALS")) {
        for (size_t i = 0; i < ARRAY_LEN(errors); i++)
            ucs_debug_disable_signal(errors[i]);
        ucs_global_opts_set_value("HANDLE_ERRORS", "none");
    }
    if (!getenv("UCX_DEBUG_SIGNO"))
        ucs_debug_disable_signal(SIGHUP);
    if (!getenv("UCX_LOG_LEVEL"))
        ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

int rpc_ucx_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_EXCEEDS_LIMIT:
        return -ENOMEM;
    case UCS_ERR_BUSY:
        return -EADDRINUSE;
    case UCS_ERR_INVALID_ADDR:
        return -EADDRNOTAVAIL;
    case UCS_ERR_TIMED_OUT:
        return -ETIMEDOUT;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
        return -ECONNREFUSED;
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_CANCELED:
        return -ECONNRESET;
    default:
        return -EIO;
    }
}

/* ---- addresses ---- */

static bool sockaddr_is_loopback(const struct sockaddr *sa)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
    return sa->sa_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static void sockaddr_format(const struct sockaddr *sa, const char *prefix,
                            char out[RPC_PEER_NAME_CHARS])
{
    char host[INET_ADDRSTRLEN] = "?";
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
    snprintf(out, RPC_PEER_NAME_CHARS, "%s%s:%u", prefix, host, ntohs(v4->sin_port));
}

/* IPv4 only: UCX 1.13.1 writes past its buffers when a peer comes over IPv6. */
static int resolve(const struct rpc_addr *addr, bool passive, struct addrinfo **out,
                   char why[RPC_WHY_CHARS])
{
    char port[8];
    const struct addrinfo hints = {
        .ai_family = AF_INET,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0),
    };
    snprintf(port, sizeof(port), "%u", addr->port);
    int rc = getaddrinfo(addr->host[0] ? addr->host : NULL, port, &hints, out);
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "ucx:%.100s: no IPv4 address, which UCX needs: %s", addr->host,
                 gai_strerror(rc));
        return rc == EAI_MEMORY ? -ENOMEM : -EADDRNOTAVAIL;
    }
    return 0;
}

/* ---- contexts and workers ---- */

static bool tls_names_shared_memory(void)
{
    static const char *const names[] = {"posix", "sysv", "xpmem", "mm", "sm", "shm"};
    const char *tls = getenv("UCX_TLS");
    if (!tls || *tls == '^')
        return false;
    while (*tls) {
        size_t len = strcspn(tls, ",");
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            if (len == strlen(names[i]) && !strncmp(tls, names[i], len))
                return true;
        }
        tls += len + (tls[len] == ',');
    }
    return false;
}

static void loopback_device(char name[IFNAMSIZ])
{
    struct ifaddrs *list;
    snprintf(name, IFNAMSIZ, "lo");
    if (getifaddrs(&list))
        return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (i->ifa_flags & IFF_LOOPBACK) {
            snprintf(name, IFNAMSIZ, "%s", i->ifa_name);
            break;
        }
    }
    freeifaddrs(list);
}

/* UCX listens for data on every network device, whatever address its listener has.  One that was
 * told a loopback address must not be reachable from outside. */
static ucs_status_t confine_to_loopback(ucp_config_t *config)
{
    char name[IFNAMSIZ];
    if (getenv("UCX_NET_DEVICES"))
        return UCS_OK;
    loopback_device(name);
    return ucp_config_modify(config, "NET_DEVICES", name);
}

static int context_create(const struct sockaddr *at, struct rpc_ucx_context **out)
{
    struct rpc_ucx_context *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    atomic_init(&c->refs, 1);
    c->peer_failure = !tls_names_shared_memory();

    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status == UCS_OK && sockaddr_is_loopback(at))
        status = confine_to_loopback(config);
    /* Peer-failure mode makes no use of shared memory, and a sandbox forbids what UCX would do to
     * offer it. */
    if (status == UCS_OK && !getenv("UCX_TLS"))
        status = ucp_config_modify(config, "TLS", "^sm");
    if (status == UCS_OK) {
        const ucp_params_t params = {
            .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
            .features = UCP_FEATURE_STREAM | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
            .mt_workers_shared = 1,
        };
        status = ucp_init(&params, config, &c->ucp);
    }
    if (config)
        ucp_config_release(config);
    if (status != UCS_OK) {
        free(c);
        return rpc_ucx_errno(status);
    }
    *out = c;
    return 0;
}

struct rpc_ucx_context *rpc_ucx_context_ref(struct rpc_ucx_context *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void rpc_ucx_context_unref(struct rpc_ucx_context *c)
{
    /* acq_rel: the last to leave sees all that the others did with the context. */
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    ucp_cleanup(c->ucp);
    free(c);
}

int rpc_ucx_worker_create(struct rpc_ucx_context *c, ucp_worker_h *worker_out, int *fd_out)
{
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
    };
    ucp_worker_h worker;
    int fd;
    ucs_status_t status = ucp_worker_create(c->ucp, &params, &worker);
    if (status != UCS_OK)
        return rpc_ucx_errno(status);
    status = ucp_worker_get_efd(worker, &fd);
    if (status != UCS_OK) {
        ucp_worker_destroy(worker);
        return rpc_ucx_errno(status);
    }
    *worker_out = worker;
    *fd_out = fd;
    return 0;
}

static int connection_create(struct rpc_ucx_context *context, const struct sockaddr *peer,
                             struct rpc_transport **out)
{
    int rc = rpc_ucx_conn_create(context, out);
    if (rc)
        return rc;
    (*out)->local = sockaddr_is_loopback(peer);
    sockaddr_format(peer, "", (*out)->peer);
    return 0;
}

/* ---- dial ---- */

static int dial_one(const struct addrinfo *to, uint64_t deadline, struct rpc_transport **out)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = {.addr = to->ai_addr, .addrlen = to->ai_addrlen},
    };
    struct rpc_ucx_context *context;
    struct rpc_transport *t;
    int rc = context_create(to->ai_addr, &context);
    if (rc)
        return rc;
    rc = connection_create(context, to->ai_addr, &t);
    rpc_ucx_context_unref(context);
    if (rc)
        return rc;
    rc = rpc_ucx_conn_connect(t, &params, deadline);
    if (rc) {
        rpc_ucx_conn_destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

static void explain_dial(const struct rpc_addr *addr, int rc, char why[RPC_WHY_CHARS])
{
    const char *cause = strerror(-rc);
    if (rc == -ECONNREFUSED || rc == -ECONNRESET)
        cause = "no server takes UCX connections there; start the server with a ucx: address and "
                "the same UCX_TLS at both ends";
    else if (rc == -ETIMEDOUT)
        cause = "no answer in time";
    else if (rc == -EIO)
        cause = "UCX failed; UCX_LOG_LEVEL=info shows why";
    snprintf(why, RPC_WHY_CHARS, "ucx:%.100s:%u: %s", addr->host, addr->port, cause);
}

int rpc_ucx_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                 struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    uint64_t deadline = hw_after(options->timeout_ns);
    struct addrinfo *list;
    int rc = resolve(addr, false, &list, why);
    if (rc)
        return rc;
    rc = -EADDRNOTAVAIL;
    for (const struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        rc = dial_one(ai, deadline, out);
        if (!rc || hw_now_ns() >= deadline)
            break;
    }
    freeaddrinfo(list);
    if (rc)
        explain_dial(addr, rc, why);
    return rc;
}

/* ---- listen ---- */

struct ucx_listener {
    struct rpc_listener base;
    struct rpc_ucx_context *context;
    ucp_worker_h worker;
    ucp_listener_h ucp;
    int event_fd;
    ucp_conn_request_h waiting[RPC_UCX_BACKLOG]; /* a ring */
    unsigned head, count;
};

static void on_caller(ucp_conn_request_h request, void *user)
{
    struct ucx_listener *l = user;
    if (l->count == RPC_UCX_BACKLOG) {
        ucp_listener_reject(l->ucp, request);
        return;
    }
    l->waiting[(l->head + l->count++) % RPC_UCX_BACKLOG] = request;
}

static ucp_conn_request_h next_caller(struct ucx_listener *l)
{
    assert(l->count > 0);
    ucp_conn_request_h request = l->waiting[l->head];
    l->head = (l->head + 1) % RPC_UCX_BACKLOG;
    l->count--;
    return request;
}

/* Leaves event_fd readable if somebody waits already, else so that the next caller makes it so. */
static void rearm(struct ucx_listener *l)
{
    while (!l->count && ucp_worker_arm(l->worker) == UCS_ERR_BUSY)
        ucp_worker_progress(l->worker);
    if (l->count)
        ucp_worker_signal(l->worker);
}

static int take_caller(struct ucx_listener *l, ucp_conn_request_h request,
                       struct rpc_transport **out)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
        .conn_request = request,
    };
    struct rpc_transport *t;
    ucp_conn_request_attr_t attr = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};
    int rc = rpc_ucx_errno(ucp_conn_request_query(request, &attr));
    if (!rc)
        rc = connection_create(l->context, (const struct sockaddr *)&attr.client_address, &t);
    if (rc) {
        ucp_listener_reject(l->ucp, request);
        return rc;
    }
    rc = rpc_ucx_conn_accept(t, &params);
    if (rc) {
        rpc_ucx_conn_destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

static int listener_accept(struct rpc_listener *base, struct rpc_transport **out)
{
    struct ucx_listener *l = CONTAINER_OF(base, struct ucx_listener, base);
    if (!l->count)
        ucp_worker_progress(l->worker);
    int rc = l->count ? take_caller(l, next_caller(l), out) : -EAGAIN;
    rearm(l);
    return rc;
}

static int listener_poll_fd(struct rpc_listener *base)
{
    return CONTAINER_OF(base, struct ucx_listener, base)->event_fd;
}

static void listener_destroy(struct rpc_listener *base)
{
    struct ucx_listener *l = CONTAINER_OF(base, struct ucx_listener, base);
    while (l->count)
        ucp_listener_reject(l->ucp, next_caller(l));
    if (l->ucp)
        ucp_listener_destroy(l->ucp);
    if (l->worker)
        ucp_worker_destroy(l->worker);
    if (l->context)
        rpc_ucx_context_unref(l->context);
    free(l);
}

static const struct rpc_listener_ops listener_ops = {
    .accept = listener_accept,
    .poll_fd = listener_poll_fd,
    .destroy = listener_destroy,
};

static void warn_if_exposed(const struct ucx_listener *l, const struct sockaddr *bound)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (!sockaddr_is_loopback(bound) && !atomic_flag_test_and_set(&warned))
        hw_warn(HW_CAT_NET,
                "%s: UCX has no encryption and a crafted packet can stop it: use it on trusted "
                "networks only",
                l->base.address);
}

static int listener_bind(struct ucx_listener *l, const struct addrinfo *at)
{
    const ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {.addr = at->ai_addr, .addrlen = at->ai_addrlen},
        .conn_handler = {.cb = on_caller, .arg = l},
    };
    ucs_status_t status = ucp_listener_create(l->worker, &params, &l->ucp);
    if (status != UCS_OK)
        return rpc_ucx_errno(status);
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    status = ucp_listener_query(l->ucp, &attr);
    if (status != UCS_OK)
        return rpc_ucx_errno(status);
    const struct sockaddr *bound = (const struct sockaddr *)&attr.sockaddr;
    sockaddr_format(bound, "ucx:", l->base.address);
    warn_if_exposed(l, bound);
    rearm(l);
    return 0;
}

static int listen_one(const struct addrinfo *at, struct rpc_listener **out)
{
    struct ucx_listener *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->base.ops = &listener_ops;
    int rc = context_create(at->ai_addr, &l->context);
    if (!rc)
        rc = rpc_ucx_worker_create(l->context, &l->worker, &l->event_fd);
    if (!rc)
        rc = listener_bind(l, at);
    if (rc) {
        listener_destroy(&l->base);
        return rc;
    }
    *out = &l->base;
    return 0;
}

int rpc_ucx_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                   struct rpc_listener **out, char why[RPC_WHY_CHARS])
{
    struct addrinfo *list;
    (void)options;
    int rc = resolve(addr, true, &list, why);
    if (rc)
        return rc;
    rc = -EADDRNOTAVAIL;
    for (const struct addrinfo *ai = list; ai && rc; ai = ai->ai_next)
        rc = listen_one(ai, out);
    freeaddrinfo(list);
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "ucx:%.100s:%u: cannot listen: %s", addr->host, addr->port,
                 strerror(-rc));
    return rc;
}
