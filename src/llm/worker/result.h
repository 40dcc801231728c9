/* llm/worker/result.h - logits to what the consumer wished for, and back to something to sample
 * from.
 *
 * Whether zstd pays is decided by measurement: encoding is timed, decoding is taken to cost as
 * much, and the block is packed when that and the smaller transfer take less time than the plain
 * transfer over the link at hand.  A link that nobody measured gets plain blocks.  Every
 * LLM_PACK_AGAIN blocks the codec is tried again, since logits change.
 *
 * Trust: llm_result_get takes a peer's bytes.  Threads: one at a time for a packer.
 * Lifetime: init/fini; the struct is the caller's. */
#ifndef HAWSER_LLM_WORKER_RESULT_H
#define HAWSER_LLM_WORKER_RESULT_H

#include "llm/worker/message.h"
#include "wire/codec.h"

enum { LLM_PACK_AGAIN = 64 }; /* under 2% of the blocks, also where packing costs twice */

struct llm_packer {
    struct wire_codec_ctx *codec;
    double ratio;       /* packed bytes / plain bytes, of the last trial */
    double ns_per_byte; /* of encoding */
    uint32_t blocks;
};

/* 0 or -ENOMEM. */
int llm_packer_init(struct llm_packer *packer) MUST_CHECK;
void llm_packer_fini(struct llm_packer *packer);

/* True when packing takes less time than it saves; link_rate in bytes a second, 0: not known. */
bool llm_packing_pays(double ratio, double ns_per_byte, uint64_t link_rate);

/* Appends the result of a wish for top k or logits.  0, -ENOMEM, or the encoder's error. */
int llm_result_put(struct llm_packer *packer, const struct llm_wish *wish, const float *logits,
                   uint32_t vocab, struct wire_enc *e) MUST_CHECK;

/* Reads it to the decoder's end into logits; tokens outside a top k become minus infinity, so that
 * sampling among the k gives what it would have given among all.  0, -EPROTO, -ENOMEM. */
int llm_result_get(struct llm_packer *packer, const struct llm_wish *wish, struct wire_dec *d,
                   float *logits, uint32_t vocab) MUST_CHECK;

#endif
