#include "cli/survey.h"

#include "base/clock.h"
#include "command/measure.h"
#include "rpc/methods.h"
#include "wire/le.h"

#include <errno.h>
#include <stdlib.h>

enum {
    STREAM_CHUNK = RPC_SOURCE_MAX,
    STREAM_DEPTH = 8, /* requests in flight: 8 MiB cover 10 Gbit/s at 6 ms */
    RTT_BATCH = 100   /* round trips between two looks at the clock */
};

struct survey *survey_create(void)
{
    struct survey *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->data = calloc(1, STREAM_CHUNK);
    if (s->data && hw_hist_init(&s->rtt) == 0)
        return s;
    free(s->data);
    free(s);
    return NULL;
}

void survey_destroy(struct survey *s)
{
    cmd_link_close(&s->link);
    hw_hist_fini(&s->rtt);
    free(s->data);
    free(s);
}

static int ask(struct survey *s)
{
    uint8_t *buf = malloc(SERVER_INFO_BYTES_MAX);
    size_t len = 0;
    int rc = buf ? measure_call(s->link.ep, RPC_METHOD_INFO, buf, SERVER_INFO_BYTES_MAX, &len,
                                s->link.timeout_ns)
                 : -ENOMEM;
    if (rc == 0 && len > SERVER_INFO_BYTES_MAX)
        rc = -EMSGSIZE;
    if (rc == 0)
        rc = server_info_decode(buf, len, &s->server);
    free(buf);
    return rc;
}

/* A server without a model does not know the method. */
int survey_models(struct cmd_link *link, struct llm_served *out)
{
    uint8_t buf[sizeof *out];
    struct wire_dec d;
    size_t len = 0;
    int rc = measure_call(link->ep, LLM_METHOD_DESCRIBE, buf, sizeof buf, &len, link->timeout_ns);
    *out = (struct llm_served){0};
    if (rc == -ENOSYS)
        return 0;
    if (rc == 0 && len > sizeof buf)
        rc = -EMSGSIZE;
    if (rc)
        return rc;
    wire_dec_init(&d, buf, len);
    llm_served_get(&d, out);
    llm_served_make_printable(out);
    return wire_dec_end(&d);
}

int survey_usage(struct cmd_link *link, struct server_usage *out)
{
    uint8_t buf[SERVER_USAGE_BYTES_MAX];
    size_t len = 0;
    int rc = measure_call(link->ep, RPC_METHOD_USAGE, buf, sizeof buf, &len, link->timeout_ns);
    if (rc == 0 && len > sizeof buf)
        rc = -EMSGSIZE;
    return rc ? rc : server_usage_decode(buf, len, out);
}

int survey_ask(struct survey *s)
{
    int rc = ask(s);
    return rc ? rc : survey_models(&s->link, &s->served);
}

int survey_rtt(struct survey *s, uint64_t duration_ns)
{
    static const uint8_t payload[64];
    struct measure_calls m = {.method = RPC_METHOD_ECHO,
                              .payload = payload,
                              .payload_len = sizeof(payload),
                              .expect_len = sizeof(payload),
                              .depth = 1,
                              .count = 1,
                              .timeout_ns = s->link.timeout_ns};
    uint64_t elapsed, end = hw_now_ns() + duration_ns;
    int rc = measure_calls(s->link.ep, &m, &elapsed); /* the first one warms both ends up */
    m.hist = &s->rtt;
    m.count = rc || elapsed > duration_ns / RTT_BATCH ? 1 : RTT_BATCH;
    while (rc == 0 && hw_now_ns() < end)
        rc = measure_calls(s->link.ep, &m, &elapsed);
    return rc;
}

/* Doubles the amount until it takes long enough: a slow line is not made to carry much. */
int survey_up(struct survey *s, uint64_t duration_ns)
{
    for (uint64_t count = 1;; count *= 2) {
        uint64_t elapsed = 1;
        int rc = measure_upload(s->link.ep, s->data, STREAM_CHUNK, count, s->link.timeout_ns, NULL,
                                &elapsed);
        if (rc)
            return rc;
        s->up_bytes_s = (double)count * STREAM_CHUNK * 1e9 / (double)elapsed;
        if (elapsed >= duration_ns / 2)
            return 0;
    }
}

int survey_down(struct survey *s, uint64_t duration_ns)
{
    uint8_t request[4];
    wire_store32(request, STREAM_CHUNK);
    struct measure_calls m = {.method = RPC_METHOD_SOURCE,
                              .payload = request,
                              .payload_len = sizeof(request),
                              .expect_len = STREAM_CHUNK,
                              .depth = STREAM_DEPTH,
                              .timeout_ns = s->link.timeout_ns};
    for (m.count = 1;; m.count *= 2) {
        uint64_t elapsed = 1;
        int rc = measure_calls(s->link.ep, &m, &elapsed);
        if (rc)
            return rc;
        s->down_bytes_s = (double)m.count * STREAM_CHUNK * 1e9 / (double)elapsed;
        if (elapsed >= duration_ns / 2)
            return 0;
    }
}
