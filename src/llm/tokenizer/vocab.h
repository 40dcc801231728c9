/* llm/tokenizer/vocab.h - text to tokens and back, with the vocabulary that a model file holds.
 *
 * Two kinds: SentencePiece ("llama": scores, byte fallback, a leading space) and byte-level BPE
 * ("gpt2": merges, a pre-tokenizer chosen by tokenizer.ggml.pre).
 *
 * Trust: the metadata is hostile (duplicate pieces, merges without a token or in cycles, ids past
 * the end): checked at creation or bounded in use.  Text is any bytes; those that are not UTF-8
 * become byte tokens. Threads: any once created.  Lifetime: create/destroy; lives within its file.
 */
#ifndef HAWSER_LLM_TOKENIZER_VOCAB_H
#define HAWSER_LLM_TOKENIZER_VOCAB_H

#include "llm/model/file.h"

enum {
    LLM_PIECE_BYTES_MAX = 1024, /* of one token; published ones reach 512 */
    /* Of one call: a million tokens, more than any context.  Joining takes about 100 bytes of
     * memory for each byte of text. */
    LLM_TEXT_BYTES_MAX = 8 << 20,
};

struct llm_vocab;

/* tokenizer_path: tokenizer.bin beside a llama2.c model; NULL otherwise.
 * 0; -ENOENT (the file holds no vocabulary); -EPROTO; -EOPNOTSUPP (why names the tokenizer);
 * -ENOMEM. */
int llm_vocab_create(const struct llm_file *file, const char *tokenizer_path,
                     struct llm_vocab **out, char *why) MUST_CHECK;
void llm_vocab_destroy(struct llm_vocab *vocab);

uint32_t llm_vocab_size(const struct llm_vocab *vocab);
/* What it is, for people: "SentencePiece", "byte-level BPE (gpt-2)". */
void llm_vocab_describe(const struct llm_vocab *vocab, char text[LLM_NAME_CHARS]);
/* -1: there is none. */
int32_t llm_vocab_bos(const struct llm_vocab *vocab);
bool llm_vocab_adds_bos(const struct llm_vocab *vocab); /* what the file asks for */
/* The token that the file asks for after a text, such as before its last row becomes an embedding;
 * -1: none. */
int32_t llm_vocab_last(const struct llm_vocab *vocab);
bool llm_vocab_ends(const struct llm_vocab *vocab, uint32_t token); /* eos, eot and their like */

/* Text to tokens; names of control tokens in the text become those tokens.  Returns how many tokens
 * there are, of which at most room were written; -EMSGSIZE, -ENOMEM. */
int64_t llm_vocab_encode(const struct llm_vocab *vocab, const char *text, size_t bytes,
                         uint32_t *tokens, size_t room);

/* The bytes of one token as text; control tokens yield none.  *bytes at most LLM_PIECE_BYTES_MAX.
 * first: it begins a text, so SentencePiece's leading space is dropped. */
const char *llm_vocab_piece(const struct llm_vocab *vocab, uint32_t token, bool first,
                            size_t *bytes);
/* The same within a text, but a control token whose name is in one of `texts`, of which some may be
 * NULL, has its name as its text. */
const char *llm_vocab_mark(const struct llm_vocab *vocab, uint32_t token, const char *const *texts,
                           size_t count, size_t *bytes);

#endif
