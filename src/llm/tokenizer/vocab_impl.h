/* llm/tokenizer/vocab_impl.h - the vocabulary as its own files see it.
 *
 * Private to src/llm: vocab.c reads metadata, finds special tokens in a text and gives what lies
 * between to the kind's encoder (vocab_spm.c, vocab_bpe.c); vocab_llama2c.c reads the other format.
 *
 * Threads, lifetime: as llm/tokenizer/vocab.h. */
#ifndef HAWSER_LLM_TOKENIZER_VOCAB_IMPL_H
#define HAWSER_LLM_TOKENIZER_VOCAB_IMPL_H

#include "base/arena.h"
#include "llm/tokenizer/merge.h"
#include "llm/tokenizer/piece_map.h"
#include "llm/tokenizer/pretok.h"
#include "llm/tokenizer/vocab.h"

enum {
    LLM_MERGES_MAX = 2 * LLM_VOCAB_MAX, /* some tokens have several merges */
};

enum llm_vocab_kind { LLM_VOCAB_SPM, LLM_VOCAB_BPE };

/* The numbers are GGUF's. */
enum llm_token_type {
    LLM_TOKEN_UNDEFINED,
    LLM_TOKEN_NORMAL,
    LLM_TOKEN_UNKNOWN,
    LLM_TOKEN_CONTROL,
    LLM_TOKEN_USER_DEFINED,
    LLM_TOKEN_UNUSED,
    LLM_TOKEN_BYTE,
    LLM_TOKEN_TYPES,
};

struct llm_token {
    struct gguf_string text;  /* as in the file */
    struct gguf_string piece; /* as people read it */
    float score;
    uint8_t type;
    bool ends;
    bool takes_space; /* blanks of a text that follow its name belong to it */
};

struct llm_merge_rule {
    uint32_t left, right; /* left UINT32_MAX: an empty bucket */
    uint32_t rank, token;
};

struct llm_vocab {
    enum llm_vocab_kind kind;
    uint32_t count;
    struct llm_token *tokens;
    struct llm_piece_map map;
    struct hw_arena arena;     /* pieces, and texts where there is no file to point into */
    int32_t bos, eos, unknown; /* -1: none */
    int32_t last;              /* eos where a text ends with it; -1: it does not */
    bool adds_bos;
    int32_t byte_tokens[256]; /* -1: none */
    uint32_t *specials;       /* control and user-defined tokens, sorted by text */
    uint32_t special_count;

    /* SentencePiece */
    const char *space; /* how its texts spell a blank */
    bool adds_space;
    size_t text_bytes_max; /* of any token: longer pairs are not looked up */

    /* byte-level BPE */
    const struct llm_pretok *pretok;
    struct llm_merge_rule *rules; /* open addressing */
    uint32_t rule_mask;
};

/* Receives tokens: counts all, keeps as many as there is room for. */
struct llm_sink {
    uint32_t *tokens;
    size_t room;
    int64_t count;
};

static inline void llm_sink_put(struct llm_sink *sink, uint32_t token)
{
    if ((uint64_t)sink->count < sink->room)
        sink->tokens[sink->count] = token;
    sink->count++;
}

/* For a byte without a piece: its byte token, else the unknown token, else nothing. */
void llm_vocab_put_byte(const struct llm_vocab *vocab, uint8_t byte, struct llm_sink *sink);

/* A vocabulary from metadata alone; limit: tokens that the model has rows for.  Errors as
 * llm_vocab_create. */
int llm_vocab_create_gguf(const struct gguf *gguf, uint32_t limit, struct llm_vocab **out,
                          char *why) MUST_CHECK;

/* From llama2.c's tokenizer.bin, which holds count tokens.  -ENOENT and the like, -EPROTO, -ENOMEM.
 */
int llm_vocab_create_llama2c(const char *path, uint32_t count, struct llm_vocab **out,
                             char *why) MUST_CHECK;
int llm_vocab_parse_llama2c(const void *bytes, size_t size, uint32_t count, struct llm_vocab **out,
                            char *why) MUST_CHECK;

/* An empty one for count tokens, whose texts, scores and types the caller fills in before the
 * kind's finish.  NULL when out of memory. */
struct llm_vocab *llm_vocab_alloc(enum llm_vocab_kind kind, uint32_t count) MUST_CHECK;

/* Builds what both kinds need from texts and types.  0, -EPROTO, -ENOMEM. */
int llm_vocab_index(struct llm_vocab *vocab, char *why) MUST_CHECK;

/* Pieces and what encoding needs.  0, -EPROTO, -EOPNOTSUPP, -ENOMEM. */
int llm_vocab_finish_spm(struct llm_vocab *vocab, char *why) MUST_CHECK;
int llm_vocab_finish_bpe(struct llm_vocab *vocab, const struct gguf *gguf, char *why) MUST_CHECK;

/* A text without special tokens, at the beginning or after one.  0, -ENOMEM. */
int llm_vocab_encode_spm(const struct llm_vocab *vocab, const char *text, size_t bytes,
                         struct llm_merger *merger, struct llm_sink *sink) MUST_CHECK;
int llm_vocab_encode_bpe(const struct llm_vocab *vocab, const char *text, size_t bytes,
                         struct llm_merger *merger, struct llm_sink *sink) MUST_CHECK;

#endif
