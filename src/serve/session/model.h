/* serve/session/model.h - the process of a client's own model: a worker for that client alone.
 *
 * It is a hawser-session like that of a Vulkan client (serve/session/process.h).  The client stays
 * the server's: this process gets its requests over a socket, and the model as a descriptor
 * (llm/worker/session/link.h).
 *
 * Trust: the model is hostile; what the server asks is a client's and is checked as such.
 * Threads: the process's first.  Lifetime: until the server closes the socket, or
 * ends it (sessions_model_end). */
#ifndef HAWSER_SERVE_SESSION_MODEL_H
#define HAWSER_SERVE_SESSION_MODEL_H

#include "llm/worker/worker.h"

/* A plain structure: both processes are the same program. */
struct session_model {
    struct llm_worker_options options; /* without its pointers */
    char backend[16];
    bool has_shadow;       /* it may evict KV to its own memory */
    uint64_t memory_bytes; /* that it may allocate, and as much each of KV and of caches to
                              download; 0: nine tenths of the machine's */
};

/* Takes the descriptors: its figures (LLM_COUNTS) and the socket.  The exit status. */
int session_model_run(const struct session_model *model, const int fds[2], const char *peer);

#endif
