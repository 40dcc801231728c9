/* SentencePiece: characters are joined into the pieces of the highest score; a character that is no
 * piece goes out byte by byte.  Blanks are part of pieces, written as U+2581. */
#include "llm/tokenizer/vocab_impl.h"

#include "base/text/utf8.h"
#include "llm/model/why.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0x0A>" to 10; -1 for any other text. */
static int byte_of(struct gguf_string text)
{
    if (text.bytes != 6 || memcmp(text.text, "<0x", 3) != 0 || text.text[5] != '>')
        return -1;
    int high = hex_digit(text.text[3]), low = hex_digit(text.text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* The text with blanks instead of U+2581. */
static int make_piece(struct llm_vocab *vocab, struct llm_token *token)
{
    char *piece = hw_arena_alloc(&vocab->arena, token->text.bytes, 1);
    if (!piece)
        return -ENOMEM;
    size_t sign = strlen(vocab->space), written = 0;
    for (size_t at = 0; at < token->text.bytes;) {
        bool blank = token->text.bytes - at >= sign &&
                     memcmp(token->text.text + at, vocab->space, sign) == 0;
        piece[written++] = blank ? ' ' : token->text.text[at];
        at += blank ? sign : 1;
    }
    token->piece = (struct gguf_string){.text = piece, .bytes = written};
    return 0;
}

static int make_byte(struct llm_vocab *vocab, uint32_t id, int byte)
{
    char *piece = hw_arena_alloc(&vocab->arena, 1, 1);
    if (!piece)
        return -ENOMEM;
    *piece = (char)byte;
    vocab->tokens[id].piece = (struct gguf_string){.text = piece, .bytes = 1};
    if (vocab->byte_tokens[byte] < 0)
        vocab->byte_tokens[byte] = (int32_t)id;
    return 0;
}

int llm_vocab_finish_spm(struct llm_vocab *vocab, char *why)
{
    for (uint32_t id = 0; id < vocab->count; id++) {
        struct llm_token *token = &vocab->tokens[id];
        if (!isfinite(token->score))
            return llm_why(why, -EPROTO, "the score of token %u is not a finite number", id);
        int byte = token->type == LLM_TOKEN_BYTE ? byte_of(token->text) : -1;
        if (token->type == LLM_TOKEN_BYTE && byte < 0)
            return llm_why(why, -EPROTO, "token %u stands for a byte but is not named <0xNN>", id);
        if (token->text.bytes > vocab->text_bytes_max)
            vocab->text_bytes_max = token->text.bytes;
        int err = byte >= 0 ? make_byte(vocab, id, byte) : make_piece(vocab, token);
        if (err)
            return llm_why(why, err, "out of memory for the vocabulary");
    }
    return 0;
}

struct spm_text {
    const struct llm_vocab *vocab;
    const char *text;
};

static bool find_join(const void *user, const struct llm_symbol *left,
                      const struct llm_symbol *right, struct llm_join *out)
{
    const struct spm_text *t = user;
    size_t bytes = left->bytes + right->bytes;
    if (bytes > t->vocab->text_bytes_max)
        return false;
    int32_t token = llm_piece_map_find(&t->vocab->map, t->text + left->start, bytes);
    if (token < 0)
        return false;
    *out =
        (struct llm_join){.cost = -(double)t->vocab->tokens[token].score, .token = (uint32_t)token};
    return true;
}

/* The text with U+2581 for each blank, and one before it where the vocabulary asks for it. */
static char *mark_blanks(const struct llm_vocab *vocab, const char *text, size_t bytes,
                         size_t *marked_bytes)
{
    size_t sign = strlen(vocab->space), written = 0;
    char *marked = malloc((bytes + 1) * sign);
    if (!marked)
        return NULL;
    if (vocab->adds_space) {
        memcpy(marked, vocab->space, sign);
        written = sign;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] != ' ') {
            marked[written++] = text[i];
            continue;
        }
        memcpy(marked + written, vocab->space, sign);
        written += sign;
    }
    *marked_bytes = written;
    return marked;
}

static void put_symbols(const struct spm_text *t, const struct llm_merger *merger,
                        struct llm_sink *sink)
{
    for (uint32_t i = 0; i != UINT32_MAX; i = merger->symbols[i].next) {
        const struct llm_symbol *symbol = &merger->symbols[i];
        if (symbol->token >= 0) {
            llm_sink_put(sink, (uint32_t)symbol->token);
            continue;
        }
        for (uint32_t b = 0; b < symbol->bytes; b++)
            llm_vocab_put_byte(t->vocab, (uint8_t)t->text[symbol->start + b], sink);
    }
}

static int encode_marked(const struct spm_text *t, size_t bytes, struct llm_merger *merger,
                         struct llm_sink *sink)
{
    llm_merger_clear(merger);
    for (size_t at = 0, step; at < bytes; at += step) {
        uint32_t code;
        step = hw_utf8_next(t->text + at, bytes - at, &code);
        int32_t token = llm_piece_map_find(&t->vocab->map, t->text + at, step);
        if (llm_merger_add(merger, (uint32_t)at, (uint32_t)step, token))
            return -ENOMEM;
    }
    if (llm_merger_run(merger, find_join, t))
        return -ENOMEM;
    if (merger->count > 0)
        put_symbols(t, merger, sink);
    return 0;
}

int llm_vocab_encode_spm(const struct llm_vocab *vocab, const char *text, size_t bytes,
                         struct llm_merger *merger, struct llm_sink *sink)
{
    size_t marked_bytes;
    char *marked = mark_blanks(vocab, text, bytes, &marked_bytes);
    if (!marked)
        return -ENOMEM;
    const struct spm_text t = {.vocab = vocab, .text = marked};
    int err = encode_marked(&t, marked_bytes, merger, sink);
    free(marked);
    return err;
}
