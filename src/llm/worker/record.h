/* llm/worker/record.h - what a worker must know of a sequence to continue it, as bytes for the KV
 * store.
 *
 *   magic u32, model hash u8 x 16, recovery u8, packing u8,
 *   wishes u8: 0, or 1 and a wish of llm/worker/message.h,
 *   prompt u32 (its tokens), last u32, tokens up to the end: those that were computed
 *
 * `last` is the token that was sampled and not yet computed, where the worker samples.  A sampler
 * draws one number for each token, so the lengths tell its state.
 *
 * Trust: decoding takes a store's bytes.  Threads: any.
 * Lifetime: values; llm_record_fini frees the tokens of a decoded one. */
#ifndef HAWSER_LLM_WORKER_RECORD_H
#define HAWSER_LLM_WORKER_RECORD_H

#include "llm/worker/message.h"

struct llm_record {
    uint8_t hash[LLM_HASH_BYTES]; /* of the model file */
    struct llm_eviction_policy policy;
    struct llm_wish wish; /* kind 0: none */
    uint32_t prompt, last;
    const uint32_t *tokens;
    uint32_t token_count;
    uint32_t *own; /* what fini frees */
};

void llm_record_encode(const struct llm_record *record, struct wire_enc *e);
/* 0, -EPROTO, -ENOMEM.  *out is written only on 0. */
int llm_record_decode(const void *bytes, size_t len, struct llm_record *out) MUST_CHECK;
void llm_record_fini(struct llm_record *record);

/* The key of a sequence's record number `version`, from 0 on. */
struct kv_block_key llm_record_key(const uint8_t handle[LLM_HANDLE_BYTES], uint32_t version);

#endif
