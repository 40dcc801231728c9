/* llm/convert/vocab_json.h - private to src/llm: tokenizer.json, tokenizer.model and what belongs
 * to them, as GGUF metadata.
 *
 * Byte-level BPE: tokens, merges, added tokens, the pre-tokenizer by its pattern.  SentencePiece,
 * from tokenizer.model or from a tokenizer.json with byte_fallback: tokens, scores, added tokens.
 * Both: the ids that begin and end a text, the chat template.
 *
 * Trust: files are hostile; counts are bounded by the model's vocabulary.
 * Threads: any.  Lifetime: nothing is held between calls. */
#ifndef HAWSER_LLM_CONVERT_VOCAB_JSON_H
#define HAWSER_LLM_CONVERT_VOCAB_JSON_H

#include "llm/model/format/gguf_write.h"

#include <jansson.h>

/* Writes the pairs.  rows: of the model's embedding; ids that no token has get a filler.  0;
 * -ENOENT (neither tokenizer.json nor tokenizer.model), -EPROTO, -EOPNOTSUPP (why names what is not
 * computed), -ENOMEM. */
int llm_vocab_json_write(struct gguf_writer *writer, const char *folder, const json_t *config,
                         uint32_t rows, char *why) MUST_CHECK;

#endif
