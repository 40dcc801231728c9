/* llm/model/synth.h - model files of any shape with random weights, to measure bytes and time
 * without a download.
 *
 * The same shape, type and seed give the same bytes on every machine.  Weights are about normal,
 * with a deviation of 1 / sqrt(row length), which keeps activations near 1 through all layers;
 * norms are near 1, biases near 0.  The vocabulary is byte-level BPE: all 256 bytes, one token that
 * ends a text, and made-up words, so that any prompt tokenizes and text can be read.
 *
 * Threads: any.  Lifetime: nothing is held between calls. */
#ifndef HAWSER_LLM_MODEL_SYNTH_H
#define HAWSER_LLM_MODEL_SYNTH_H

#include "base/attr.h"
#include "llm/model/shape.h"

enum { LLM_SYNTH_VOCAB_MIN = 257 }; /* the bytes, and the end */

/* How angles are stretched by config.rope_scale; config.rope_original is what they are stretched
 * from.  The last two are tensors of factors. */
enum llm_synth_rope {
    LLM_SYNTH_ROPE_NONE,
    LLM_SYNTH_ROPE_LINEAR,
    LLM_SYNTH_ROPE_YARN,
    LLM_SYNTH_ROPE_LLAMA3,
    LLM_SYNTH_ROPE_LONGROPE,
};

struct llm_synth {
    struct llm_config config; /* llm_synth_like or llm_synth_complete set what follows from arch */
    enum llm_synth_rope rope; /* -EINVAL for an architecture that knows no such tensors */
    enum llm_dtype dtype;     /* of the matrices; norms, biases and positions are F32 */
    uint64_t seed;
    void (*progress)(void *user, uint64_t done, uint64_t total); /* bytes of weights; or NULL */
    void *user;
};

/* The shape of a published model: "6b" of gptj, "7b" of llama.  false: not known for that arch. */
bool llm_synth_like(enum llm_arch arch, const char *like, struct llm_config *out);
/* The i-th name that it knows for arch; NULL past the end. */
const char *llm_synth_like_name(enum llm_arch arch, uint32_t i);

/* Sets what the architecture fixes, and derives fields that are 0: kv_heads, head_dim, ffn,
 * context, vocab, rope_dims, bases. */
void llm_synth_complete(struct llm_config *config);

/* As if the model had been made for the factor-th part of its context at first.  Llama 3's way and
 * longrope's are factors in tensors, which the seed makes. */
void llm_synth_stretch(struct llm_synth *synth, enum llm_synth_rope rope, uint32_t factor);

/* Bytes of the weights, padding included: the file is that and at most a few MB of vocabulary. */
uint64_t llm_synth_bytes(const struct llm_synth *synth);

/* The file appears whole or not at all.  0; -EINVAL (a shape that no file may have, or rows that
 * are no whole number of blocks: why says which); -ENOSPC (why says how much is needed and free);
 * -ENOMEM, -EIO and the errors of open and rename.  On an error nothing is left behind. */
int llm_synth_write(const struct llm_synth *synth, const char *path, char *why) MUST_CHECK;

#endif
