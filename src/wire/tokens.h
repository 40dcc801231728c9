/* wire/tokens.h - a run of token ids: a u32 count, then one varint a token.
 *
 * Vocabularies have some hundred thousand entries, so an id takes one to three bytes and the
 * most frequent ids, which tokenizers number first, take the fewest.
 *
 * Trust: the decoder takes a peer's bytes.  Threads: any; no state. */
#ifndef HAWSER_WIRE_TOKENS_H
#define HAWSER_WIRE_TOKENS_H

#include "wire/dec.h"
#include "wire/enc.h"

/* count is at most WIRE_TOKENS_MAX, else -EMSGSIZE sticks in e. */
void wire_put_tokens(struct wire_enc *e, const uint32_t *tokens, size_t count);

/* The count alone, at most limit and WIRE_TOKENS_MAX and never more than the bytes that remain,
 * so that the caller can allocate; 0 after an error. */
uint32_t wire_get_token_count(struct wire_dec *d, uint32_t limit);

/* The count tokens that follow.  After an error the tokens not read are 0.  An id past 32 bits
 * is -EPROTO. */
void wire_get_tokens(struct wire_dec *d, uint32_t *tokens, uint32_t count);

#endif
