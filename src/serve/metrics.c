#include "serve/metrics.h"

#include "serve/http/listen.h"
#include "serve/http/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct metrics {
    struct MHD_Daemon *daemon;
};

static enum MHD_Result say(struct MHD_Connection *c, unsigned status, const char *text)
{
    struct MHD_Response *response = http_response("text/plain", strdup(text), strlen(text));
    if (response && status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, "Allow", "GET, HEAD");
    return http_respond(c, status, response);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_len, void **state)
{
    (void)user, (void)version, (void)body, (void)state;
    if (*body_len > 0)
        return MHD_NO;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    if (http_is_page(url))
        return http_respond(c, MHD_HTTP_OK, http_page(url, NULL, NULL));
    return say(c, MHD_HTTP_NOT_FOUND, "try /, /metrics or /json\n");
}

int metrics_start(const struct rpc_addr *addr, struct metrics **out, uint16_t *port_out,
                  char why[RPC_WHY_CHARS])
{
    struct metrics *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    struct http_listen options = {.what = "metrics",
                                  .addr = addr,
                                  .handle = on_request,
                                  .connections = METRICS_CLIENTS_MAX,
                                  .timeout_s = METRICS_TIMEOUT_SECONDS};
    int rc = http_listen(&options, &m->daemon, port_out, why);
    if (rc) {
        free(m);
        return rc;
    }
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
