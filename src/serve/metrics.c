#include "serve/metrics.h"

#include "base/counter.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct metrics {
    struct MHD_Daemon *daemon;
};

static const struct page {
    const char *path;
    const char *type;
    enum hw_counters_format format;
} pages[] = {
    {"/", "text/plain; charset=utf-8", HW_COUNTERS_TEXT},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", HW_COUNTERS_PROMETHEUS},
    {"/json", "application/json", HW_COUNTERS_JSON},
};

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type,
                              char *text, size_t len)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", type);
    enum MHD_Result result = MHD_queue_response(c, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_short(struct MHD_Connection *c, unsigned status, const char *text)
{
    char *copy = strdup(text);
    return copy ? answer(c, status, "text/plain", copy, strlen(copy)) : MHD_NO;
}

static enum MHD_Result answer_page(struct MHD_Connection *c, const struct page *page)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    int rc = out ? hw_counters_print(out, page->format) : -ENOMEM;
    if (out && fclose(out))
        rc = -ENOMEM;
    if (rc) {
        free(text);
        return answer_short(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    }
    return answer(c, MHD_HTTP_OK, page->type, text, len);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_len, void **state)
{
    (void)user, (void)version, (void)body, (void)state;
    if (*body_len > 0)
        return MHD_NO;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return answer_short(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
        if (strcmp(url, pages[i].path) == 0)
            return answer_page(c, &pages[i]);
    }
    return answer_short(c, MHD_HTTP_NOT_FOUND, "try /, /metrics or /json\n");
}

static int resolve(const struct rpc_addr *addr, struct addrinfo **out, char why[RPC_WHY_CHARS])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    char port[8];
    snprintf(port, sizeof(port), "%u", addr->port);
    int error = getaddrinfo(addr->host[0] ? addr->host : NULL, port, &hints, out);
    if (error == 0)
        return 0;
    snprintf(why, RPC_WHY_CHARS, "metrics: %.150s: %s", addr->host, gai_strerror(error));
    return -EINVAL;
}

int metrics_start(const struct rpc_addr *addr, struct metrics **out, uint16_t *port_out,
                  char why[RPC_WHY_CHARS])
{
    struct addrinfo *found;
    int rc = resolve(addr, &found, why);
    if (rc)
        return rc;
    struct metrics *m = calloc(1, sizeof(*m));
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD;
    if (found->ai_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    errno = 0;
    if (m)
        m->daemon = MHD_start_daemon(
            flags, addr->port, NULL, NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR, found->ai_addr,
            MHD_OPTION_CONNECTION_LIMIT, (unsigned)METRICS_CLIENTS_MAX,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)METRICS_TIMEOUT_SECONDS, MHD_OPTION_END);
    rc = errno ? -errno : -EADDRNOTAVAIL;
    freeaddrinfo(found);
    if (!m || !m->daemon) {
        snprintf(why, RPC_WHY_CHARS, "metrics: cannot listen on %.150s:%u: %s", addr->host,
                 addr->port, strerror(-rc));
        free(m);
        return rc;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(m->daemon, MHD_DAEMON_INFO_BIND_PORT);
    *port_out = info ? info->port : addr->port;
    *out = m;
    return 0;
}

void metrics_stop(struct metrics *m)
{
    if (!m)
        return;
    MHD_stop_daemon(m->daemon);
    free(m);
}
