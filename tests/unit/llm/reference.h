/* tests/unit/llm/reference.h - a prompt to a model of six layers, the tokens that follow it while
 * nothing moves, and requests of clients whose tokens must be those.
 *
 * Whatever goes wrong fails the test.  Threads: `reference` is written by open and generate, then
 * only read.  Lifetime: reference_open/reference_close. */
#ifndef HAWSER_TESTS_LLM_REFERENCE_H
#define HAWSER_TESTS_LLM_REFERENCE_H

#include "kv/daemon/host.h"
#include "llm/modes/mode.h"
#include "model.h"

enum {
    CONTEXT = 320,
    LAYERS = MODEL_DEEP_LAYERS,
    PROMPT = 150,
    STEPS = 8,
};

struct reference {
    struct llm_file *file;
    uint32_t prompt[PROMPT], expected[STEPS];
};

extern struct reference reference;
extern const struct llm_sampling reference_sampling;

/* Model and prompt; starts no thread, so that a test may fork after it. */
void reference_open(void);

/* The expected tokens, computed here. */
void reference_generate(void);

void reference_close(void);

/* The prompt, to be sampled by the worker. */
struct llm_request reference_request(void);

/* Sends it, and checks the first token. */
void reference_begin(struct llm_remote *remote, uint8_t handle[LLM_HANDLE_BYTES], uint64_t *id);

/* Asks for the tokens from..to, and checks them. */
void reference_go_on(struct llm_remote *remote, uint64_t id, uint32_t from, uint32_t to);

/* A KV daemon that keeps all it is sent. */
struct kv_host_options reference_daemon(const char *socket, uint64_t arena_bytes);

#endif
