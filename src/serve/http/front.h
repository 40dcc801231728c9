/* serve/http/front.h - the HTTP door: OpenAI's endpoints over workers, and the pages about them.
 *
 *   GET   /v1/models[/NAME]     POST  /v1/completions        GET  /metrics  Prometheus
 *   GET   /healthz              POST  /v1/chat/completions   GET  /json     JSON
 *   POST  /tokenize             POST  /v1/embeddings         GET  /         text, for people
 *   POST  /detokenize                                        GET  /state    JSON, for the page
 *
 * The front reaches each worker over a connection (llm/worker/connection.h), also a worker in its
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

#include <stdio.h>

enum { HTTP_DEFAULT_PORT = 8000 }; /* as vLLM's */

/* What the user gave for a door. */
struct http_options {
    const char *http; /* NULL: no door */
    const char *api_key_file;
    uint64_t max_requests, max_requests_per_key;
    uint64_t max_tokens_per_key; /* 0: no limit */
    uint64_t share_per_key;      /* percent; 0: the default */
    uint64_t wait_ns;
};

/* Rows for the option table of a command whose values hold a struct http_options. */
#define HTTP_OPTIONS(type, member)                                                                 \
    {.name = "http",                                                                               \
     .kind = CMD_STRING,                                                                           \
     .argument = "ADDR",                                                                           \
     .offset = offsetof(type, member.http),                                                        \
     .help = "answer OpenAI's clients over HTTP at host:port; beyond this host it\n"               \
             "needs --cert, --key and --api-key-file, or --insecure"},                             \
        {.name = "api-key-file",                                                                   \
         .kind = CMD_STRING,                                                                       \
         .argument = "FILE",                                                                       \
         .offset = offsetof(type, member.api_key_file),                                            \
         .help = "HTTP clients must send one of these keys, a line each (mode 0600)"},             \
        {.name = "max-requests",                                                                   \
         .kind = CMD_U64,                                                                          \
         .argument = "N",                                                                          \
         .offset = offsetof(type, member.max_requests),                                            \
         .def = "256",                                                                             \
         .min = 1,                                                                                 \
         .max = 65536,                                                                             \
         .help = "HTTP requests for a text at a time; the next is answered 429"},                  \
        {.name = "max-requests-per-key",                                                           \
         .kind = CMD_U64,                                                                          \
         .argument = "N",                                                                          \
         .offset = offsetof(type, member.max_requests_per_key),                                    \
         .def = "64",                                                                              \
         .min = 1,                                                                                 \
         .max = 65536,                                                                             \
         .help = "the same for each API key"},                                                     \
        {.name = "max-tokens-per-key",                                                             \
         .kind = CMD_U64,                                                                          \
         .argument = "N",                                                                          \
         .offset = offsetof(type, member.max_tokens_per_key),                                      \
         .max = UINT32_MAX,                                                                        \
         .help = "tokens of the prompts that an API key has under way; over it, 429\n"             \
                 "[default: no limit]"},                                                           \
        {.name = "share-per-key",                                                                  \
         .kind = CMD_U64,                                                                          \
         .argument = "PERCENT",                                                                    \
         .offset = offsetof(type, member.share_per_key),                                           \
         .min = 1,                                                                                 \
         .max = 100,                                                                               \
         .help = "of the workers' places and KV that texts of one API key may take; its\n"         \
                 "others wait [default: 75 where there are several keys, else 100]"},              \
    {                                                                                              \
        .name = "worker-wait", .kind = CMD_DURATION, .argument = "TIME",                           \
        .offset = offsetof(type, member.wait_ns), .def = "30s", .min = 1000000,                    \
        .max = UINT64_C(3600) * 1000000000,                                                        \
        .help = "how long a text waits for a worker that can compute it, then fails"               \
    }

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
void http_front_stop(struct http_front *front);
/* The workers that there are from now on: new ones are asked, others get no new text.  Not beside
 * stop. */
void http_front_set_workers(struct http_front *front, const struct rpc_addr *addrs, size_t count);

#endif
