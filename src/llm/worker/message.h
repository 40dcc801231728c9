/* llm/worker/message.h - the messages between a client and the LLM worker, as bytes.
 *
 * A message is the payload of a copyrpc call or post.  Integers are little-endian; "varint" is
 * wire/enc.h's.  A handle is 16 random bytes.  "tokens" are varints up to the end of the message,
 * without a count: one to three bytes each.
 *
 *   method                  request                                    answer
 *   upload (post)           kind u8, total u64, offset u64, bytes      -
 *   find weights            hash u8 x 16, size u64                     found u8
 *   load weights            -                                          -
 *   download weights        offset u64, length u32                     total u64, bytes
 *   stateless forward       positions u32, tokens                      logits
 *   download KV             offset u64, length u32                     total u64, bytes
 *   prefill with handle     tokens                                     handle, logits
 *   decode with handle      handle, token varint                       logits
 *   prefill semantic        wish, tokens                               handle, id varint, result
 *   decode step semantic    id varint, value varint                    result
 *   release                 handle                                     -
 *   reset                   -                                          -
 *   metrics                 -                                          u64 x LLM_METRICS
 *   get network counters    -                                          u64 x 2 x LLM_CLASSES, then
 *                                                                      the same of the KV store
 *   probe                   bytes u32                                  that many zeros
 *   evict KV layers         handle, layers                             layers missing now u32
 *   fetch missing KV layers handle, from u32, layers                   rows u32, layers, blocks
 *   set recovery            recovery u8, packing u8                    -
 *   resume                  handle                                     id varint, rows u32
 *   describe models         -                                          worker
 *   download header         model string, offset u64, length u32       total u64, bytes
 *   generate                generate                                   end, after its last token
 *   cancel (post)           id varint                                  -
 *   drain                   undo u8 (0, 1)                             texts given back u32
 *   tokens (push)           tokens of texts of this connection         -
 *
 * llm/worker/generate.h has worker, generate, end and the pushed tokens.  A client gives each
 * generate an id that no other one of the connection has while it runs.
 *
 *   logits   f32 x vocabulary
 *   layers   bytes u8, then so many: layer i is bit i % 8 of byte i / 8; the last is not 0
 *   blocks   for each of the layers, in order: rows from..rows of K, then of V, as one block of
 *            wire/codec.h.  As many layers as fit LLM_FETCH_BYTES, at least one; the client asks
 *            again for the rest
 *   wish     kind u8, then by kind
 *     1 tokens   temperature f32, top k varint, top p f32, seed u64: the worker samples
 *     2 top k    k varint
 *     3 logits   lossy u8 (0, 1), link bytes a second varint (0: not known)
 *   value    of a sequence whose wish is tokens: how many to generate; else the next token
 *   result   by the sequence's wish
 *     1 tokens   tokens, at least one
 *     2 top k    k times token varint, logit f32; largest logit first, of equals the smaller token
 *     3 logits   one block of wire/codec.h
 *
 * An id is the connection's own short name for a handle: a decode step is 7 bytes up with its
 * framing.  Ids count up from 0 and are never used twice.
 *
 * Trust: decoders take any bytes and allocate at most for tokens that are there.
 * Threads: any.  Lifetime: values; llm_request_fini frees what a decoded one points to. */
#ifndef HAWSER_LLM_WORKER_MESSAGE_H
#define HAWSER_LLM_WORKER_MESSAGE_H

#include "llm/engine/sampler.h"
#include "llm/evict/eviction.h"
#include "llm/worker/byte_account.h"
#include "llm/worker/generate.h"
#include "wire/dec.h"
#include "wire/enc.h"

#include <stdbool.h>

/* Numbers, once released, keep their meaning. */
enum llm_method {
    LLM_METHOD_FIRST = 512, /* each layer has a range of 256 methods */
    LLM_METHOD_UPLOAD = LLM_METHOD_FIRST,
    LLM_METHOD_FIND_WEIGHTS,
    LLM_METHOD_LOAD_WEIGHTS,     /* load_weights_remote: uses what was uploaded */
    LLM_METHOD_DOWNLOAD_WEIGHTS, /* download_weights_remote, a piece */
    LLM_METHOD_STATELESS,        /* run_stateless_forward_remote: with what was uploaded */
    LLM_METHOD_DOWNLOAD_KV,      /* what the stateless forward left, a piece */
    LLM_METHOD_PREFILL_HANDLE,   /* run_prefill_with_handle */
    LLM_METHOD_DECODE_HANDLE,    /* run_decode_with_handle */
    LLM_METHOD_PREFILL_SEMANTIC, /* run_prefill_semantic */
    LLM_METHOD_DECODE_SEMANTIC,  /* run_decode_step_semantic */
    LLM_METHOD_RELEASE,
    LLM_METHOD_RESET,
    LLM_METHOD_METRICS,
    LLM_METHOD_NETWORK_COUNTERS, /* get_network_counters */
    LLM_METHOD_PROBE,
    LLM_METHOD_EVICT_KV,     /* evict_kv_layers: to the worker's store */
    LLM_METHOD_FETCH_KV,     /* fetch_missing_kv_layers: from the device or the store */
    LLM_METHOD_SET_RECOVERY, /* of sequences that this connection begins later */
    LLM_METHOD_RESUME,       /* resume_sequence: of another connection or worker */
    LLM_METHOD_DESCRIBE,     /* describe_models */
    LLM_METHOD_HEADER,       /* download_header, a piece */
    LLM_METHOD_GENERATE,
    LLM_METHOD_CANCEL,
    LLM_METHOD_DRAIN,
    LLM_METHOD_TOKENS, /* pushed by the worker */
    LLM_METHOD_INSPECT,
    LLM_METHOD_LAST = LLM_METHOD_INSPECT,
    LLM_METHOD_END = 768,
};

enum {
    LLM_HANDLE_BYTES = 16,
    LLM_HANDLE_CHARS = 37,           /* a UUID's text with its NUL */
    LLM_HASH_BYTES = 16,             /* of llm_file_hash */
    LLM_PIECE_BYTES = 1 << 20,       /* of an upload or download: a sixteenth of a window */
    LLM_PIECE_BYTES_MOST = 4 << 20,  /* accepted from a peer */
    LLM_PROBE_BYTES_MAX = 256 << 10, /* measures rates up to some GB/s, where packing never pays */
    LLM_TOP_K_MAX = 4096,            /* beyond, all logits are smaller */
    LLM_GENERATE_MAX = 65536,        /* tokens of one request; a longer text takes several */
    LLM_REQUEST_BYTES_MAX = 8 << 20, /* a million tokens of a large vocabulary, or a piece */
    LLM_FETCH_BYTES = 16 << 20,      /* of layers in one answer, not counting the first: a window */
};

enum llm_upload { LLM_UPLOAD_WEIGHTS = 1, LLM_UPLOAD_KV = 2 };
enum llm_wish_kind { LLM_WISH_TOKENS = 1, LLM_WISH_TOP_K = 2, LLM_WISH_LOGITS = 3 };

struct llm_wish {
    enum llm_wish_kind kind;
    struct llm_sampling sampling; /* tokens */
    uint32_t top_k;               /* top k */
    bool lossy;                   /* logits */
    uint64_t link_rate;
};

/* One request of any method; only the fields of its method have a meaning. */
struct llm_request {
    uint32_t method;
    uint8_t handle[LLM_HANDLE_BYTES];
    uint8_t hash[LLM_HASH_BYTES];
    enum llm_upload upload;
    uint64_t total, offset;
    uint32_t length;      /* of a piece, of a probe, or of bytes */
    const uint8_t *bytes; /* of an upload: points into the message */
    uint32_t positions;
    uint32_t *tokens; /* heap */
    uint32_t token_count;
    uint64_t id; /* of a sequence or of a text */
    uint32_t value;
    struct llm_wish wish;
    struct llm_layers layers;
    uint32_t from; /* row */
    struct llm_eviction_policy policy;
    char model[LLM_SERVED_NAME_CHARS]; /* "": the first */
    bool undo;
    struct llm_generate generate;
};

/* A worker's metrics for one client; u64 on the wire, in this order. */
enum llm_metric {
    LLM_METRIC_KERNEL_NS, /* of this connection: time on the device */
    LLM_METRIC_STEP_NS,   /* time in the engine */
    LLM_METRIC_SERDES_NS, /* time from bytes to tensors and back */
    LLM_METRIC_STEPS,
    LLM_METRIC_TOKENS,        /* rows computed */
    LLM_METRIC_OWN_SEQUENCES, /* open now */
    LLM_METRIC_SEQUENCES,     /* open now, of all clients, also of those that are gone */
    LLM_METRIC_ORPHANS,       /* of those: kept for a client that is gone */
    LLM_METRIC_MODELS,        /* loaded now */
    /* Evicted KV of this connection's sequences (llm/evict/eviction.h). */
    LLM_METRIC_KV_EVICTED,     /* layers */
    LLM_METRIC_KV_RESTORED,    /* layers */
    LLM_METRIC_KV_PLAIN_BYTES, /* of restored rows, before packing */
    LLM_METRIC_KV_WAIT_NS,     /* waiting for the store */
    LLM_METRIC_KV_COMPUTED,    /* rows computed again */
    LLM_METRIC_KV_SHARED,      /* rows of prompts found in the store */
    LLM_METRICS
};

/* "run_prefill_semantic"; "unknown method" otherwise. */
const char *llm_method_name(uint32_t method);
/* The byte account's class of a request and of its answer. */
enum llm_class llm_request_class(const struct llm_request *request);
enum llm_class llm_answer_class(uint32_t method);

void llm_request_encode(const struct llm_request *request, struct wire_enc *e);
/* 0; -EPROTO, -EMSGSIZE (a count or length past its limit), -ENOSYS (no such method), -ENOMEM.
 * *out is written only on 0. */
int llm_request_decode(uint32_t method, const void *body, size_t bytes,
                       struct llm_request *out) MUST_CHECK;
void llm_request_fini(struct llm_request *request);

/* Tokens up to the decoder's end, at most room.  The count, or -EPROTO, -EMSGSIZE. */
int64_t llm_get_tokens(struct wire_dec *d, uint32_t *tokens, size_t room);

/* Layers, a wish and a policy by themselves; reading sets the decoder's error. */
void llm_put_layers(struct wire_enc *e, const struct llm_layers *layers);
void llm_get_layers(struct wire_dec *d, struct llm_layers *layers);
void llm_put_wish(struct wire_enc *e, const struct llm_wish *wish);
void llm_get_wish(struct wire_dec *d, struct llm_wish *wish);
void llm_put_policy(struct wire_enc *e, const struct llm_eviction_policy *policy);
void llm_get_policy(struct wire_dec *d, struct llm_eviction_policy *policy);

void llm_handle_format(const uint8_t handle[LLM_HANDLE_BYTES], char text[LLM_HANDLE_CHARS]);

/* What names a model file among clients: the first half of its SHA-256.  One client's file serves
 * others that ask for the name, so nobody may be able to make another file of that name. */
void llm_file_hash(const void *bytes, uint64_t size, uint8_t out[LLM_HASH_BYTES]);

#endif
