/* llm/worker/result.h - logits to what the consumer wished for, and back to logits to sample from.
 *
 * A worker packs logits where llm/evict/packing.h says that it pays on the client's link.  It tries
 * the codec again every LLM_PACK_AGAIN blocks, since logits change.
 *
 * Trust: llm_result_get takes a peer's bytes.  Threads: one at a time for a packer.
 * Lifetime: init/fini; the struct is the caller's. */
#ifndef HAWSER_LLM_WORKER_RESULT_H
#define HAWSER_LLM_WORKER_RESULT_H

#include "llm/evict/packing.h"
#include "llm/worker/message.h"
#include "wire/codec.h"

struct llm_packer {
    struct wire_codec_ctx *codec;
    double ratio;       /* packed bytes / plain bytes, of the last trial */
    double ns_per_byte; /* of encoding */
    uint32_t blocks;
};

/* 0 or -ENOMEM. */
int llm_packer_init(struct llm_packer *packer) MUST_CHECK;
void llm_packer_fini(struct llm_packer *packer);

/* Appends the result of a wish for top k or logits.  0, -ENOMEM, or the encoder's error. */
int llm_result_put(struct llm_packer *packer, const struct llm_wish *wish, const float *logits,
                   uint32_t vocab, struct wire_enc *e) MUST_CHECK;

/* Reads a result to the decoder's end into logits.  Tokens outside the top k become minus infinity,
 * so that sampling from the k equals sampling from all.  0, -EPROTO, -ENOMEM. */
int llm_result_get(struct llm_packer *packer, const struct llm_wish *wish, struct wire_dec *d,
                   float *logits, uint32_t vocab) MUST_CHECK;

#endif
