/* llm/convert/sentencepiece.h - private to src/llm: tokenizer.model, a SentencePiece model.
 *
 * The file is a protocol buffer: field 1, repeated, a piece {1: text, 2: score, 3: type}; field 2
 * how it was trained {3: the algorithm, 24: blanks end a piece, 40, 41, 42: ids of the unknown, the
 * first and the last token}; field 3 how texts are made ready {2: a table of characters, 3: a blank
 * before the text, 4: one blank for several, 5: blanks become U+2581}.
 *
 * Trust: the bytes are hostile.  Nothing is allocated beyond some times their size.
 * Threads: any.  Lifetime: parse, then fini; it keeps nothing of the bytes. */
#ifndef HAWSER_LLM_CONVERT_SENTENCEPIECE_H
#define HAWSER_LLM_CONVERT_SENTENCEPIECE_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LLM_SP_UNIGRAM = 1, LLM_SP_BPE = 2 }; /* of TrainerSpec.model_type */

struct llm_sp_piece {
    const char *text; /* ends with 0, which it does not contain; not empty */
    float score;      /* finite */
    uint8_t type;     /* 1 to 6, as GGUF numbers them */
};

struct llm_sp {
    struct llm_sp_piece *pieces;
    uint32_t count;
    char *texts;
    uint32_t algorithm;
    int32_t unknown, bos, eos; /* -1: none */
    bool adds_space, joins_blanks, has_table, has_plain_blanks, blanks_at_end;
};

/* 0; -EPROTO: damaged, why says where; -ENOMEM. */
int llm_sp_parse(struct llm_sp *sp, const void *bytes, size_t size, char *why) MUST_CHECK;
void llm_sp_fini(struct llm_sp *sp);

#endif
