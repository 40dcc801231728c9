/* llm/worker/generate.h - what a request to generate says, and the messages of a served model.
 *
 * The encoders and decoders of llm/worker/message.h's newer methods.  The bytes:
 *
 *   generate   id varint, flags u8, model string, most varint, sampled varint, sampling,
 *              stops varint, so many tokens, tops varint, grammar string, [scored varint], tokens
 *     flags      1 end tokens of the model end the text, 2 logprobs, 4 embed: no text is wanted,
 *                but the vector of the tokens, 8 the text stays with a worker that drains,
 *                16 scored is there
 *     sampling   temperature f32, top k varint, top p f32, seed u64, min p f32, presence f32,
 *                frequency f32, repetition f32, biases varint, so many: token varint, bias f32
 *   end        reason u8, token varint, prompt varint, shared varint, generated varint; of an
 *              embedding f32 x width, up to the end of the message
 *   tokens     (pushed) groups up to the end of the message: id varint, tops varint, count varint,
 *              so many tokens.  tops is 0, or 1 + n: then each token has its logprob f32, and n
 *              times token varint, logprob f32
 *   worker     flags u8 (1 draining, 2 incomplete, 4 aside is there), running u32, waiting u32,
 *              rows u64, step u64, models varint, so many models, [aside varint: bit i is that of
 *              model i]
 *     model      name string, architecture string, arithmetic string, hash u8 x 16,
 *                vocabulary u32, context u32, header u64, KV pages u64, of these used u64
 *
 * A string is a varint and so many bytes.
 *
 * Trust: decoders take any bytes.  Threads: any.
 * Lifetime: values; what a decoded one points to is freed by its fini. */
#ifndef HAWSER_LLM_WORKER_GENERATE_H
#define HAWSER_LLM_WORKER_GENERATE_H

#include "llm/engine/sampler.h"
#include "wire/dec.h"
#include "wire/enc.h"

#include <stdbool.h>

enum {
    LLM_SERVED_NAME_CHARS = 128,        /* a model's name as clients say it, with its NUL */
    LLM_SERVED_MODELS_MAX = 16,         /* LLM_WORKER_MODELS_MAX */
    LLM_STOPS_MAX = 64,                 /* tokens that end a text, beside the model's own */
    LLM_GENERATE_GRAMMAR_MAX = 1 << 20, /* of a grammar's text */
    LLM_HEADER_BYTES_MAX = 256 << 20, /* of a file before its tensors; published ones have 12 MiB */
    LLM_SERVED_HASH_BYTES = 16,       /* LLM_HASH_BYTES */
};

/* A text to generate.  The same request, begun anew at another worker with the tokens that came so
 * far, yields the tokens that were still to come. */
struct llm_generate {
    const char *model;      /* its name; NULL or "": the first that the worker serves */
    const uint32_t *tokens; /* the prompt, and what was generated of the text so far */
    uint32_t token_count;   /* at least 1 */
    uint32_t sampled;       /* how many of them, at the end, were generated */
    uint32_t most;          /* tokens to generate now; 0: until the context is full */
    struct llm_sampling sampling;
    bool stop_at_end;      /* at an end token of the model */
    const uint32_t *stops; /* tokens that end the text, too */
    uint32_t stop_count;
    bool logprobs;       /* of each token */
    uint32_t tops;       /* with logprobs: of so many of the most probable, too */
    const char *grammar; /* GBNF; NULL or "": none */
    bool embed; /* no text, but the vector of the tokens: no field but model and stays counts */
    uint32_t scored; /* not 0: tokens from this one on are pushed with their logprobs, up to those
                      * that were generated, before others; then most 0 means none */
    bool stays;      /* no other worker can continue it: one that drains completes it, and takes it
                      * where `sampled` says that it has begun; one that is incomplete waits */
};

/* One generated token, or one that was scored. */
struct llm_generated {
    uint32_t token;
    float logprob;                 /* where the request asked for it */
    const struct llm_logprob *top; /* largest first */
    uint32_t top_count;
};

enum llm_end {
    LLM_END_STOP = 1,  /* an end token or a stop token */
    LLM_END_LENGTH,    /* as many as were asked for, or the context is full */
    LLM_END_CANCELLED, /* by the client */
    LLM_END_DRAINED,   /* the worker drains: continue at another one */
    LLM_END_EMBEDDED,  /* vector is there */
    LLM_END_INCOMPLETE /* the worker lost a server with a part of the model: as drained */
};

/* How a text ended, where the worker did not fail. */
struct llm_generate_end {
    enum llm_end reason;
    uint32_t token;     /* of LLM_END_STOP: the one that ended the text; it was not pushed */
    uint32_t prompt;    /* tokens of the request */
    uint32_t shared;    /* of those: not computed, their KV was on the device or came from the
                         * store */
    uint32_t generated; /* tokens pushed: with those that were scored */
    float *vector;      /* of LLM_END_EMBEDDED: of length 1 */
    uint32_t width;
};

/* A model as a worker describes it. */
struct llm_served_model {
    char name[LLM_SERVED_NAME_CHARS];
    char arch[32];
    char arithmetic[160]; /* workers with the same hash and the same text compute the same tokens */
    uint8_t hash[LLM_SERVED_HASH_BYTES]; /* XXH3, 128 bits, of the file */
    uint32_t vocab, context;
    uint64_t header_bytes; /* of the GGUF file, before the tensors' data; 0: no GGUF */
    uint64_t kv_pages, kv_used;
    bool is_aside; /* its weights are not on the device: the next request brings them back */
};

/* A worker as it describes itself. */
struct llm_served {
    uint64_t incarnation; /* of its process: a random number, never 0 */
    bool draining;
    bool incomplete;  /* a server that computes a part of its model is lost: it takes no step */
    uint32_t running; /* requests that have a sequence */
    uint32_t waiting; /* requests that wait for KV memory or their turn */
    uint64_t rows;    /* computed since it started */
    uint64_t step_ns; /* how long the present step has taken; 0: there is none */
    uint32_t model_count;
    struct llm_served_model models[LLM_SERVED_MODELS_MAX];
};

/* 0, -EPROTO, -EMSGSIZE, -ENOMEM.  On 0 the caller frees what *out points to with
 * llm_generate_fini; else *out is not written. */
int llm_generate_get(struct wire_dec *d, uint64_t *id, struct llm_generate *out) MUST_CHECK;
void llm_generate_put(struct wire_enc *e, uint64_t id, const struct llm_generate *g);
void llm_generate_fini(struct llm_generate *g); /* of a decoded one */

void llm_end_put(struct wire_enc *e, const struct llm_generate_end *end);
/* 0, -EPROTO, -ENOMEM.  Takes the decoder to its end.  On 0 the caller frees what *end points to
 * with llm_end_fini; else *end is not written. */
int llm_end_get(struct wire_dec *d, struct llm_generate_end *end) MUST_CHECK;
void llm_end_fini(struct llm_generate_end *end); /* of a decoded one */

/* Reading sets the decoder's error. */
uint32_t llm_get_varint32(struct wire_dec *d);
void llm_put_tokens(struct wire_enc *e, const uint32_t *tokens, uint32_t count);
void llm_served_put(struct wire_enc *e, const struct llm_served *served);
void llm_served_get(struct wire_dec *d, struct llm_served *served);
/* "up", "draining" or "incomplete". */
const char *llm_served_state(const struct llm_served *served);
/* A worker's words may reach a terminal, and JSON: control characters and what is no UTF-8 become
 * '?'. */
void llm_served_make_printable(struct llm_served *served);

/* One group of pushed tokens.  tops: 0, or 1 + as many as each token has. */
void llm_group_put(struct wire_enc *e, uint64_t id, uint32_t tops, uint32_t count);
void llm_generated_put(struct wire_enc *e, uint32_t tops, const struct llm_generated *g);

struct llm_group {
    uint64_t id;
    uint32_t tops, count;
};

/* The group's head; then count times llm_generated_get, with room for LLM_TOP_LOGPROBS_MAX. */
void llm_group_get(struct wire_dec *d, struct llm_group *group);
void llm_generated_get(struct wire_dec *d, uint32_t tops, struct llm_generated *g,
                       struct llm_logprob *top);

#endif
