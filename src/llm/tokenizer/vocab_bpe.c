/* Byte-level BPE: the text is cut into words (llm/tokenizer/pretok.h), a word into bytes, and
 * neighbours are joined in the order in which the merges stand in the file.  Texts in the file have
 * one printable character a byte (llm/model/byte_text.h). */
#include "llm/tokenizer/vocab_impl.h"

#include "base/text/utf8.h"
#include "llm/model/byte_text.h"
#include "llm/model/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A normal token's bytes; a text with other characters is taken as it is. */
static int make_piece(struct llm_vocab *vocab, struct llm_token *token)
{
    token->piece = token->text;
    if (token->type != LLM_TOKEN_NORMAL && token->type != LLM_TOKEN_UNUSED)
        return 0;
    char *piece = hw_arena_alloc(&vocab->arena, token->text.bytes, 1);
    if (!piece)
        return -ENOMEM;
    size_t written = 0;
    for (size_t at = 0; at < token->text.bytes;) {
        uint32_t code;
        at += hw_utf8_next(token->text.text + at, token->text.bytes - at, &code);
        int byte = llm_byte_of_code(code);
        if (byte < 0)
            return 0;
        piece[written++] = (char)byte;
    }
    token->piece = (struct gguf_string){.text = piece, .bytes = written};
    return 0;
}

static struct llm_merge_rule *locate_rule(const struct llm_vocab *vocab, uint32_t left,
                                          uint32_t right)
{
    const uint32_t key[] = {left, right};
    uint64_t hash = XXH3_64bits_withSeed(key, sizeof(key), vocab->map.seed);
    uint32_t bucket = (uint32_t)hash & vocab->rule_mask;
    while (vocab->rules[bucket].left != UINT32_MAX &&
           (vocab->rules[bucket].left != left || vocab->rules[bucket].right != right))
        bucket = (bucket + 1) & vocab->rule_mask;
    return &vocab->rules[bucket];
}

static int alloc_rules(struct llm_vocab *vocab, uint32_t count)
{
    uint32_t buckets = 16;
    while (buckets < 2 * count)
        buckets *= 2;
    vocab->rules = malloc((size_t)buckets * sizeof(*vocab->rules));
    if (!vocab->rules)
        return -ENOMEM;
    memset(vocab->rules, 0xff, (size_t)buckets * sizeof(*vocab->rules));
    vocab->rule_mask = buckets - 1;
    return 0;
}

/* "left right" to the two tokens and the one they make.  A merge whose parts or result are no
 * tokens can never apply and is left out.  Of equal merges the first counts. */
static int add_rule(struct llm_vocab *vocab, struct gguf_string merge, uint32_t rank, char *why)
{
    const char *gap = merge.bytes > 2 ? memchr(merge.text + 1, ' ', merge.bytes - 1) : NULL;
    if (!gap || merge.bytes > 2 * LLM_PIECE_BYTES_MAX)
        return llm_why(why, -EPROTO, "merge %u is not two pieces with a blank between", rank + 1);
    size_t left_bytes = (size_t)(gap - merge.text), right_bytes = merge.bytes - left_bytes - 1;
    char joined[2 * LLM_PIECE_BYTES_MAX];
    memcpy(joined, merge.text, left_bytes);
    memcpy(joined + left_bytes, gap + 1, right_bytes);
    int32_t left = llm_piece_map_find(&vocab->map, merge.text, left_bytes);
    int32_t right = llm_piece_map_find(&vocab->map, gap + 1, right_bytes);
    int32_t token = llm_piece_map_find(&vocab->map, joined, left_bytes + right_bytes);
    if (left < 0 || right < 0 || token < 0)
        return 0;
    struct llm_merge_rule *rule = locate_rule(vocab, (uint32_t)left, (uint32_t)right);
    if (rule->left == UINT32_MAX)
        *rule = (struct llm_merge_rule){.left = (uint32_t)left,
                                        .right = (uint32_t)right,
                                        .rank = rank,
                                        .token = (uint32_t)token};
    return 0;
}

static int read_rules(struct llm_vocab *vocab, const struct gguf *gguf, char *why)
{
    const struct gguf_pair *merges;
    int err = gguf_get_array(gguf, "tokenizer.ggml.merges", GGUF_STRING, &merges, why);
    if (err == -ENOENT)
        return llm_why(why, -EPROTO, "the metadata lacks tokenizer.ggml.merges");
    if (err)
        return err;
    if (merges->count > LLM_MERGES_MAX)
        return llm_why(why, -EPROTO, "more than %d merges", LLM_MERGES_MAX);
    if (alloc_rules(vocab, (uint32_t)merges->count))
        return llm_why(why, -ENOMEM, "out of memory for the merges");
    size_t at = 0;
    for (uint32_t rank = 0; rank < merges->count && !err; rank++)
        err = add_rule(vocab, gguf_next_string(merges, &at), rank, why);
    return err;
}

static int read_pretok(struct llm_vocab *vocab, const struct gguf *gguf, char *why)
{
    struct gguf_string name = {.text = ""};
    int err = gguf_get_string(gguf, "tokenizer.ggml.pre", &name, why);
    if (err && err != -ENOENT)
        return err;
    vocab->pretok = llm_pretok_find(name.text, name.bytes);
    if (!vocab->pretok)
        return llm_why(why, -EOPNOTSUPP, "pre-tokenizer '%.*s' is not known",
                       name.bytes < 40 ? (int)name.bytes : 40, name.text);
    return 0;
}

int llm_vocab_finish_bpe(struct llm_vocab *vocab, const struct gguf *gguf, char *why)
{
    for (uint32_t id = 0; id < vocab->count; id++) {
        if (make_piece(vocab, &vocab->tokens[id]))
            return llm_why(why, -ENOMEM, "out of memory for the vocabulary");
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[LLM_BYTE_TEXT_MAX];
        size_t bytes = llm_byte_text((uint8_t)byte, text);
        vocab->byte_tokens[byte] = llm_piece_map_find(&vocab->map, text, bytes);
    }
    int err = read_pretok(vocab, gguf, why);
    return err ? err : read_rules(vocab, gguf, why);
}

static bool find_join(const void *user, const struct llm_symbol *left,
                      const struct llm_symbol *right, struct llm_join *out)
{
    const struct llm_vocab *vocab = user;
    if (left->token < 0 || right->token < 0)
        return false;
    const struct llm_merge_rule *rule =
        locate_rule(vocab, (uint32_t)left->token, (uint32_t)right->token);
    if (rule->left == UINT32_MAX)
        return false;
    *out = (struct llm_join){.cost = rule->rank, .token = rule->token};
    return true;
}

/* The token of a whole word; -1: none. */
static int32_t find_word(const struct llm_vocab *vocab, const char *word, size_t bytes)
{
    if (bytes > LLM_PIECE_BYTES_MAX / LLM_BYTE_TEXT_MAX)
        return -1;
    char text[LLM_PIECE_BYTES_MAX];
    size_t written = 0;
    for (size_t i = 0; i < bytes; i++)
        written += llm_byte_text((uint8_t)word[i], text + written);
    return llm_piece_map_find(&vocab->map, text, written);
}

struct bpe_walk {
    const struct llm_vocab *vocab;
    struct llm_merger *merger;
    struct llm_sink *sink;
};

static int encode_word(void *user, const char *word, size_t bytes)
{
    const struct bpe_walk *walk = user;
    const struct llm_vocab *vocab = walk->vocab;
    struct llm_merger *merger = walk->merger;
    int32_t whole = vocab->pretok->whole_words ? find_word(vocab, word, bytes) : -1;
    if (whole >= 0) {
        llm_sink_put(walk->sink, (uint32_t)whole);
        return 0;
    }
    llm_merger_clear(merger);
    for (size_t i = 0; i < bytes; i++) {
        if (llm_merger_add(merger, (uint32_t)i, 1, vocab->byte_tokens[(uint8_t)word[i]]))
            return -ENOMEM;
    }
    if (llm_merger_run(merger, find_join, vocab))
        return -ENOMEM;
    for (uint32_t i = 0; i != UINT32_MAX && merger->count > 0; i = merger->symbols[i].next) {
        const struct llm_symbol *symbol = &merger->symbols[i];
        if (symbol->token >= 0)
            llm_sink_put(walk->sink, (uint32_t)symbol->token);
        else
            llm_vocab_put_byte(vocab, (uint8_t)word[symbol->start], walk->sink);
    }
    return 0;
}

int llm_vocab_encode_bpe(const struct llm_vocab *vocab, const char *text, size_t bytes,
                         struct llm_merger *merger, struct llm_sink *sink)
{
    struct bpe_walk walk = {.vocab = vocab, .merger = merger, .sink = sink};
    return llm_pretok_split(vocab->pretok, text, bytes, encode_word, &walk);
}
