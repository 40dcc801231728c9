#include "serve/metrics.h"

#include "command/connect.h"
#include "serve/http/listen.h"
#include "serve/http/pages.h"

#include <stdio.h>
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

enum cmd_exit metrics_check(const char *command, const char *text, bool insecure,
                            struct rpc_addr *out)
{
    if (!text)
        return CMD_DONE;
    enum cmd_exit code = cmd_listen_read(command, "--metrics", text, out);
    if (code != CMD_DONE)
        return code;
    if (out->scheme != RPC_SCHEME_TCP)
        return cmd_fail(CMD_USAGE, "%s: --metrics: '%s' is not host:port", command, text);
    if (!rpc_addr_is_local(out) && !insecure)
        return cmd_fail(CMD_REFUSED,
                        "%s: --metrics: %s is not on this host and the page has no password; "
                        "use 127.0.0.1, or --insecure to show it to everybody",
                        command, text);
    return CMD_DONE;
}

enum cmd_exit metrics_start(const char *command, const struct rpc_addr *addr, struct metrics **out)
{
    char why[RPC_WHY_CHARS], text[RPC_ADDR_HOST_CHARS + 16];
    struct rpc_addr bound = *addr;
    struct metrics *m = calloc(1, sizeof(*m));
    if (!m)
        return cmd_fail(CMD_FAILED, "out of memory");
    struct http_listen options = {.what = "--metrics",
                                  .addr = addr,
                                  .handle = on_request,
                                  .connections = METRICS_CLIENTS_MAX,
                                  .timeout_s = METRICS_TIMEOUT_SECONDS};
    if (http_listen(&options, &m->daemon, &bound.port, why)) {
        free(m);
        return cmd_fail(CMD_FAILED, "%s: %s", command, why);
    }
    rpc_addr_format(&bound, text, sizeof(text));
    printf("metrics on http://%s/\n", text);
    *out = m;
    return CMD_DONE;
}

void metrics_stop(struct metrics *m)
{
    if (!m)
        return;
    MHD_stop_daemon(m->daemon);
    free(m);
}
