#include "serve/http/listen.h"

#include "base/log.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

/* *out is freed with freeaddrinfo.  0, or -EINVAL with a sentence in why. */
static int resolve(const char *what, const struct rpc_addr *addr, struct addrinfo **out,
                   char why[RPC_WHY_CHARS])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    char port[8];
    snprintf(port, sizeof(port), "%u", addr->port);
    int error = getaddrinfo(addr->host[0] ? addr->host : NULL, port, &hints, out);
    if (error) {
        snprintf(why, RPC_WHY_CHARS, "%s: cannot resolve '%.150s': %s", what, addr->host,
                 gai_strerror(error));
        return -EINVAL;
    }
    return 0;
}

static struct MHD_Daemon *start(const struct http_listen *o, const struct addrinfo *found)
{
    /* With epoll, libmicrohttpd 0.9 does not see the end of a connection that comes with the last
     * bytes of a part of a request, and keeps the connection until it times out. */
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    /* Ended by MHD_OPTION_END; a plain listener has no other. */
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)o->cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)o->key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem more[] = {{MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)o->threads, NULL},
                                    {MHD_OPTION_END, 0, NULL}};
    if (found->ai_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    if (o->cert)
        flags |= MHD_USE_TLS;
    return MHD_start_daemon(
        flags, o->addr->port, NULL, NULL, o->handle, o->user, MHD_OPTION_SOCK_ADDR, found->ai_addr,
        MHD_OPTION_CONNECTION_LIMIT, o->connections, MHD_OPTION_CONNECTION_TIMEOUT, o->timeout_s,
        MHD_OPTION_NOTIFY_COMPLETED, o->completed, o->user, MHD_OPTION_NOTIFY_CONNECTION,
        o->connection, o->user, MHD_OPTION_ARRAY, o->cert ? tls : tls + 3, MHD_OPTION_ARRAY,
        o->threads > 1 ? more : more + 1, MHD_OPTION_END);
}

int http_listen(const struct http_listen *o, struct MHD_Daemon **out, uint16_t *port_out,
                char why[RPC_WHY_CHARS])
{
    struct addrinfo *found;
    if (o->cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        snprintf(why, RPC_WHY_CHARS, "%s: this machine's libmicrohttpd has no TLS", o->what);
        return -EOPNOTSUPP;
    }
    int rc = resolve(o->what, o->addr, &found, why);
    if (rc)
        return rc;
    errno = 0;
    struct MHD_Daemon *daemon = start(o, found);
    rc = errno ? -errno : -EADDRNOTAVAIL;
    freeaddrinfo(found);
    if (!daemon) {
        char text[RPC_ADDR_HOST_CHARS + 16];
        rpc_addr_format(o->addr, text, sizeof(text));
        snprintf(why, RPC_WHY_CHARS, "%s: cannot listen on %.100s%s: %s%s", o->what, text,
                 o->cert ? ", or its certificate does not fit its key" : "", hw_strerror(rc),
                 rpc_listen_remedy(RPC_SCHEME_TCP, rc));
        return rc;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    *port_out = info ? info->port : o->addr->port;
    *out = daemon;
    return 0;
}
