/* serve/http/front.h - the HTTP door: OpenAI's endpoints over workers, and the pages about them.
 *
 *   GET   /v1/models[/NAME]     POST  /v1/completions        GET  /metrics  Prometheus
 *   GET   /healthz              POST  /v1/chat/completions   GET  /json     JSON
 *   POST  /tokenize             POST  /v1/embeddings         GET  /         text, for people
 *   POST  /detokenize           POST  /v1/responses          GET  /state    JSON, for the page
 *                               POST  /v1/messages[/count_tokens], which are Anthropic's
 *
 * The front reaches each worker over a connection (llm/client/connection.h), also a worker in its
 * own process.  A text that a worker loses goes on at another one with the same tokens.
 *
 * Trust: HTTP clients may send anything; bodies, requests and texts are bounded.  Workers are
 * trusted with the text, not with memory.
 * Threads: start makes its own: some for HTTP, one for each worker, one that watches clients.
 * Lifetime: start/stop. */
#ifndef HAWSER_SERVE_HTTP_FRONT_H
#define HAWSER_SERVE_HTTP_FRONT_H

#include "command/command.h"
#include "rpc/security/security.h"

enum { HTTP_DEFAULT_PORT = 8000 }; /* as vLLM's */

/* What the user gave for a door. */
struct http_options {
    const char *http; /* NULL: no door */
    const char *api_key_file;
    uint64_t max_requests, max_requests_per_key;
    uint64_t max_tokens_per_key; /* 0: no limit */
    uint64_t share_per_key;      /* percent; 0: the default */
    uint64_t wait_ns;
    uint64_t client_ns;   /* for a request to come, or an answer to be read */
    uint64_t stop_ns;     /* for requests under way when it stops */
    struct cmd_list cors; /* origins of pages that may ask */
};

/* The options of a struct http_options. */
extern const struct cmd_option http_table[];

/* A worker: where it is and how to reach it. */
struct http_worker_address {
    struct rpc_addr addr;
    const char *name; /* as people know it; NULL: the address */
};

struct http_front_options {
    const char *command;    /* for messages: "serve", "gateway" */
    const char *at;         /* host:port, or host for port HTTP_DEFAULT_PORT */
    const char *cert, *key; /* PEM files; NULL: plain */
    bool insecure;
    const struct http_options *limits;
    const struct http_worker_address *workers;
    size_t worker_count;
    bool alone; /* the worker is this process: where it drains, no other takes its texts */
    const struct rpc_security *security; /* for workers; must outlive the front */
    uint64_t connect_ns;                 /* to a worker; 0: 5 s */
};

struct http_front;

/* Whether address, files and trust allow a start, before anything is loaded for it.  The workers
 * are not looked at.  CMD_DONE, or the exit status after a message. */
enum cmd_exit http_front_check(const struct http_front_options *options) MUST_CHECK;

/* CMD_DONE, or the exit status after a message.  *url_out (malloc'd): where it listens. */
enum cmd_exit http_front_start(const struct http_front_options *options, struct http_front **out,
                               char **url_out) MUST_CHECK;
/* Refuses new requests for texts, and waits for those under way, at most as long as the limits
 * say. */
void http_front_finish(struct http_front *front);
void http_front_stop(struct http_front *front);
/* The workers that there are from now on: new ones are asked, others get no new text.  Not beside
 * stop. */
void http_front_set_workers(struct http_front *front, const struct rpc_addr *addrs, size_t count);

#endif
