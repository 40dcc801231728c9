/* cli/survey.h - what can be learnt about a server over one connection, for info, doctor and top.
 *
 * Trust: answers are the server's; each is decoded and bounded.
 * Threads: one.  Lifetime: create/destroy; the link is opened by the caller into it. */
#ifndef HAWSER_CLI_SURVEY_H
#define HAWSER_CLI_SURVEY_H

#include "base/hist.h"
#include "command/connect.h"
#include "llm/worker/message.h"
#include "serve/server_info.h"
#include "serve/tenants.h"

struct survey {
    struct cmd_link link;
    struct server_info server;
    struct llm_served served; /* no models: it serves none */
    struct hw_hist rtt;
    double up_bytes_s, down_bytes_s; /* 0: not measured */
    uint8_t *data;                   /* what an upload sends */
};

/* NULL: no memory. */
struct survey *survey_create(void);
void survey_destroy(struct survey *survey); /* closes the link */

/* Each: 0, or a negative errno; rpc_ep_reason of the link may say more. */
int survey_ask(struct survey *survey) MUST_CHECK; /* server and served */
int survey_models(struct cmd_link *link, struct llm_served *out) MUST_CHECK;
/* -ENOSYS: an older server. */
int survey_usage(struct cmd_link *link, struct server_usage *out) MUST_CHECK;
int survey_rtt(struct survey *survey, uint64_t duration_ns) MUST_CHECK;
int survey_up(struct survey *survey, uint64_t duration_ns) MUST_CHECK;
int survey_down(struct survey *survey, uint64_t duration_ns) MUST_CHECK;

#endif
