#include "llm/tokenizer/vocab.h"

#include "llm/model/model.h"
#include "llm/model/why.h"
#include "llm/tokenizer/vocab_impl.h"
#include "wire/le.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pieces are no longer than their texts in the file; plus the arena's overhead. */
#define ARENA_BYTES_MAX ((size_t)1 << 31)

#define BLANK_SIGN "\xe2\x96\x81" /* U+2581 */

struct llm_vocab *llm_vocab_alloc(enum llm_vocab_kind kind, uint32_t count)
{
    assert(count > 0 && count <= LLM_VOCAB_MAX);
    struct llm_vocab *vocab = calloc(1, sizeof(*vocab));
    if (!vocab)
        return NULL;
    hw_arena_init(&vocab->arena, ARENA_BYTES_MAX);
    vocab->kind = kind;
    vocab->count = count;
    vocab->tokens = calloc(count, sizeof(*vocab->tokens));
    vocab->bos = vocab->eos = vocab->last = vocab->unknown = -1;
    vocab->space = BLANK_SIGN;
    memset(vocab->byte_tokens, 0xff, sizeof(vocab->byte_tokens));
    if (!vocab->tokens || llm_piece_map_init(&vocab->map, count)) {
        llm_vocab_destroy(vocab);
        return NULL;
    }
    return vocab;
}

void llm_vocab_destroy(struct llm_vocab *vocab)
{
    if (!vocab)
        return;
    llm_piece_map_fini(&vocab->map);
    hw_arena_fini(&vocab->arena);
    free(vocab->rules);
    free(vocab->specials);
    free(vocab->tokens);
    free(vocab);
}

/* ---- special tokens ---- */

static bool is_special(const struct llm_token *token)
{
    return token->type == LLM_TOKEN_CONTROL || token->type == LLM_TOKEN_USER_DEFINED;
}

/* Special, and the first token of its text: no two in the list have the same text. */
static bool is_listed(const struct llm_vocab *vocab, uint32_t id)
{
    struct gguf_string text = vocab->tokens[id].text;
    return is_special(&vocab->tokens[id]) &&
           llm_piece_map_find(&vocab->map, text.text, text.bytes) == (int32_t)id;
}

static int compare_texts(const void *a, const void *b, void *user)
{
    const struct llm_token *tokens = user;
    const struct gguf_string *s = &tokens[*(const uint32_t *)a].text;
    const struct gguf_string *t = &tokens[*(const uint32_t *)b].text;
    int order = memcmp(s->text, t->text, s->bytes < t->bytes ? s->bytes : t->bytes);
    return order ? order : (s->bytes > t->bytes) - (s->bytes < t->bytes);
}

static int index_specials(struct llm_vocab *vocab)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < vocab->count; id++)
        count += is_listed(vocab, id);
    vocab->specials = calloc(count ? count : 1, sizeof(*vocab->specials));
    if (!vocab->specials)
        return -ENOMEM;
    for (uint32_t id = 0; id < vocab->count; id++) {
        if (is_listed(vocab, id))
            vocab->specials[vocab->special_count++] = id;
    }
    qsort_r(vocab->specials, count, sizeof(*vocab->specials), compare_texts, vocab->tokens);
    return 0;
}

/* Texts of tokens that end a turn or a text; files do not always give their numbers. */
static bool is_end_name(struct gguf_string text)
{
    static const char *const names[] = {
        "<|endoftext|>", "<|end_of_text|>", "<|im_end|>",    "<|eot_id|>", "<|eom_id|>",
        "<|end|>",       "<EOT>",           "<end_of_turn>", "<|return|>", "<|call|>",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (gguf_string_is(text, names[i]))
            return true;
    }
    return false;
}

int llm_vocab_index(struct llm_vocab *vocab, char *why)
{
    for (uint32_t id = 0; id < vocab->count; id++) {
        struct llm_token *token = &vocab->tokens[id];
        if (token->text.bytes > LLM_PIECE_BYTES_MAX)
            return llm_why(why, -EPROTO, "token %u has %zu bytes; %d at most", id,
                           token->text.bytes, LLM_PIECE_BYTES_MAX);
        llm_piece_map_add(&vocab->map, token->text, id);
        token->ends = is_special(token) && is_end_name(token->text);
    }
    /* Where <|return|> ends an answer, <|end|> only ends one of its messages. */
    int32_t end = llm_piece_map_find(&vocab->map, "<|end|>", strlen("<|end|>"));
    if (end >= 0 && llm_piece_map_find(&vocab->map, "<|return|>", strlen("<|return|>")) >= 0)
        vocab->tokens[end].ends = false;
    if (index_specials(vocab))
        return llm_why(why, -ENOMEM, "out of memory for the vocabulary");
    return 0;
}

/* Narrows a range of specials to those with this byte at offset depth. */
static void narrow(const struct llm_vocab *vocab, uint32_t *low, uint32_t *high, size_t depth,
                   uint8_t byte)
{
    for (int side = 0; side < 2; side++) {
        uint32_t from = *low, to = *high;
        while (from < to) {
            uint32_t middle = from + (to - from) / 2;
            struct gguf_string text = vocab->tokens[vocab->specials[middle]].text;
            int here = text.bytes > depth ? (uint8_t)text.text[depth] : -1;
            if (here < byte + side)
                from = middle + 1;
            else
                to = middle;
        }
        *(side ? high : low) = from;
    }
}

/* The longest special token that the text begins with; -1: none. */
static int32_t match_special(const struct llm_vocab *vocab, const char *text, size_t bytes)
{
    uint32_t low = 0, high = vocab->special_count;
    int32_t best = -1;
    for (size_t depth = 0; depth < bytes; depth++) {
        narrow(vocab, &low, &high, depth, (uint8_t)text[depth]);
        if (low == high)
            break;
        /* The shortest is first: the one that ends here, if any. */
        const struct llm_token *token = &vocab->tokens[vocab->specials[low]];
        if (token->text.bytes == depth + 1)
            best = (int32_t)vocab->specials[low];
    }
    return best;
}

/* ---- metadata ---- */

static int read_tokens(const struct gguf *gguf, uint32_t limit, const struct gguf_pair **out,
                       char *why)
{
    const struct gguf_pair *texts;
    int err = gguf_get_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, &texts, why);
    if (err == -ENOENT)
        return llm_why(why, -ENOENT, "the file holds no vocabulary");
    if (err)
        return err;
    if (texts->count == 0 || texts->count > limit)
        return llm_why(why, -EPROTO, "a vocabulary of %llu tokens; the model has %u",
                       (unsigned long long)texts->count, limit);
    *out = texts;
    return 0;
}

static void fill_texts(struct llm_vocab *vocab, const struct gguf_pair *texts)
{
    size_t at = 0;
    for (uint32_t id = 0; id < vocab->count; id++) {
        vocab->tokens[id].text = gguf_next_string(texts, &at);
        vocab->tokens[id].type = LLM_TOKEN_NORMAL;
    }
}

/* An array of one value a token.  -ENOENT when it is not there. */
static int find_column(const struct gguf *gguf, const char *key, enum gguf_type type,
                       uint32_t count, const struct gguf_pair **out, char *why)
{
    int err = gguf_get_array(gguf, key, type, out, why);
    if (!err && (*out)->count != count)
        return llm_why(why, -EPROTO, "%s has %llu entries for %u tokens", key,
                       (unsigned long long)(*out)->count, count);
    return err;
}

static int fill_types(struct llm_vocab *vocab, const struct gguf *gguf, char *why)
{
    const struct gguf_pair *types;
    int err = find_column(gguf, "tokenizer.ggml.token_type", GGUF_I32, vocab->count, &types, why);
    if (err)
        return err == -ENOENT ? 0 : err;
    for (uint32_t id = 0; id < vocab->count; id++) {
        uint32_t type = wire_load32(types->payload + (size_t)4 * id);
        if (type >= LLM_TOKEN_TYPES)
            return llm_why(why, -EPROTO, "token %u has type %u, which is none", id, type);
        vocab->tokens[id].type = (uint8_t)type;
    }
    return 0;
}

static int fill_scores(struct llm_vocab *vocab, const struct gguf *gguf, char *why)
{
    const struct gguf_pair *scores;
    int err = find_column(gguf, "tokenizer.ggml.scores", GGUF_F32, vocab->count, &scores, why);
    if (err == -ENOENT)
        return llm_why(why, -EPROTO, "the metadata lacks tokenizer.ggml.scores");
    for (uint32_t id = 0; id < vocab->count && !err; id++) {
        uint32_t bits = wire_load32(scores->payload + (size_t)4 * id);
        memcpy(&vocab->tokens[id].score, &bits, sizeof(bits));
    }
    return err;
}

/* A token's number, or -1 where the file gives none. */
static int read_id(const struct llm_vocab *vocab, const struct gguf *gguf, const char *key,
                   int32_t *out, char *why)
{
    uint32_t id;
    int err = gguf_get_u32(gguf, key, &id, why);
    if (err == -ENOENT || (!err && id == UINT32_MAX)) /* some writers put -1 for none */
        return 0;
    if (err)
        return err;
    if (id >= vocab->count)
        return llm_why(why, -EPROTO, "%s is %u; there are %u tokens", key, id, vocab->count);
    *out = (int32_t)id;
    return 0;
}

static int read_ids(struct llm_vocab *vocab, const struct gguf *gguf, char *why)
{
    int32_t turn = -1, message = -1;
    if (vocab->kind == LLM_VOCAB_SPM && vocab->count > 2) { /* SentencePiece's defaults */
        vocab->unknown = 0;
        vocab->bos = 1;
        vocab->eos = 2;
    }
    int err = read_id(vocab, gguf, "tokenizer.ggml.bos_token_id", &vocab->bos, why);
    if (!err)
        err = read_id(vocab, gguf, "tokenizer.ggml.eos_token_id", &vocab->eos, why);
    if (!err)
        err = read_id(vocab, gguf, "tokenizer.ggml.unknown_token_id", &vocab->unknown, why);
    if (!err)
        err = read_id(vocab, gguf, "tokenizer.ggml.eot_token_id", &turn, why);
    if (!err)
        err = read_id(vocab, gguf, "tokenizer.ggml.eom_token_id", &message, why);
    if (err)
        return err;
    const int32_t ends[] = {vocab->eos, turn, message};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (ends[i] >= 0)
            vocab->tokens[ends[i]].ends = true;
    }
    return 0;
}

static int read_flags(struct llm_vocab *vocab, const struct gguf *gguf, char *why)
{
    vocab->adds_space = vocab->kind == LLM_VOCAB_SPM;
    vocab->adds_bos = vocab->kind == LLM_VOCAB_SPM || vocab->pretok->adds_bos;
    int err = gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", &vocab->adds_space, why);
    if (!err || err == -ENOENT)
        err = gguf_get_bool(gguf, "tokenizer.ggml.add_bos_token", &vocab->adds_bos, why);
    if (err && err != -ENOENT)
        return err;
    vocab->adds_bos = vocab->adds_bos && vocab->bos >= 0;
    bool adds_eos = false;
    err = gguf_get_bool(gguf, "tokenizer.ggml.add_eos_token", &adds_eos, why);
    vocab->last = adds_eos ? vocab->eos : -1;
    return err == -ENOENT ? 0 : err;
}

static bool text_is(struct gguf_string text, const char *const *others, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (gguf_string_is(text, others[i]))
            return true;
    }
    return false;
}

/* The control tokens of Phi-3 take the blanks after them, which no key of the file tells: as in
 * llama.cpp, its name does. */
static int read_spaces(struct llm_vocab *vocab, const struct gguf *gguf, char *why)
{
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    struct gguf_string name;
    char lower[64] = "";
    int err = gguf_get_string(gguf, "general.name", &name, why);
    if (err)
        return err == -ENOENT ? 0 : err;
    for (size_t i = 0; i < name.bytes && i < sizeof lower - 1; i++)
        lower[i] = (char)tolower((unsigned char)name.text[i]);
    bool is_phi3 = strstr(lower, "phi-3") || strstr(lower, "phi3");
    for (uint32_t i = 0; is_phi3 && i < vocab->special_count; i++) {
        struct llm_token *token = &vocab->tokens[vocab->specials[i]];
        token->takes_space = !text_is(token->text, others, ARRAY_LEN(others));
    }
    return 0;
}

static int fill(struct llm_vocab *vocab, const struct gguf *gguf, const struct gguf_pair *texts,
                char *why)
{
    fill_texts(vocab, texts);
    int err = fill_types(vocab, gguf, why);
    if (!err && vocab->kind == LLM_VOCAB_SPM)
        err = fill_scores(vocab, gguf, why);
    if (!err)
        err = llm_vocab_index(vocab, why);
    if (!err)
        err = vocab->kind == LLM_VOCAB_SPM ? llm_vocab_finish_spm(vocab, why)
                                           : llm_vocab_finish_bpe(vocab, gguf, why);
    if (!err)
        err = read_ids(vocab, gguf, why);
    if (!err)
        err = read_spaces(vocab, gguf, why);
    return err ? err : read_flags(vocab, gguf, why);
}

static int read_kind(const struct gguf *gguf, enum llm_vocab_kind *out, char *why)
{
    struct gguf_string model;
    int err = gguf_get_string(gguf, "tokenizer.ggml.model", &model, why);
    if (err == -ENOENT ||
        (!err && (gguf_string_is(model, "none") || gguf_string_is(model, "no_vocab"))))
        return llm_why(why, -ENOENT, "the file holds no vocabulary");
    if (err)
        return err;
    if (!gguf_string_is(model, "llama") && !gguf_string_is(model, "gpt2"))
        return llm_why(
            why, -EOPNOTSUPP,
            "tokenizer '%.*s'; llama (SentencePiece) and gpt2 (byte-level BPE) are known",
            model.bytes < 40 ? (int)model.bytes : 40, model.text);
    *out = gguf_string_is(model, "llama") ? LLM_VOCAB_SPM : LLM_VOCAB_BPE;
    return 0;
}

int llm_vocab_create_gguf(const struct gguf *gguf, uint32_t limit, struct llm_vocab **out,
                          char *why)
{
    enum llm_vocab_kind kind = LLM_VOCAB_SPM;
    const struct gguf_pair *texts = NULL;
    int err = read_kind(gguf, &kind, why);
    if (!err)
        err = read_tokens(gguf, limit, &texts, why);
    if (err)
        return err;
    struct llm_vocab *vocab = llm_vocab_alloc(kind, (uint32_t)texts->count);
    if (!vocab)
        return llm_why(why, -ENOMEM, "out of memory for the vocabulary");
    err = fill(vocab, gguf, texts, why);
    if (err) {
        llm_vocab_destroy(vocab);
        return err;
    }
    *out = vocab;
    return 0;
}

int llm_vocab_create(const struct llm_file *file, const char *tokenizer_path,
                     struct llm_vocab **out, char *why)
{
    const struct gguf *gguf = llm_file_metadata(file);
    uint32_t limit = llm_file_config(file)->vocab;
    if (tokenizer_path)
        return llm_vocab_create_llama2c(tokenizer_path, limit, out, why);
    if (!gguf)
        return llm_why(why, -ENOENT, "llama2.c's format holds no vocabulary: name its tokenizer");
    return llm_vocab_create_gguf(gguf, limit, out, why);
}

/* ---- use ---- */

uint32_t llm_vocab_size(const struct llm_vocab *vocab)
{
    return vocab->count;
}

void llm_vocab_describe(const struct llm_vocab *vocab, char text[LLM_NAME_CHARS])
{
    if (vocab->kind == LLM_VOCAB_SPM)
        snprintf(text, LLM_NAME_CHARS, "SentencePiece");
    else
        snprintf(text, LLM_NAME_CHARS, "byte-level BPE (%s)", vocab->pretok->name);
}

int32_t llm_vocab_bos(const struct llm_vocab *vocab)
{
    return vocab->bos;
}

bool llm_vocab_adds_bos(const struct llm_vocab *vocab)
{
    return vocab->adds_bos;
}

int32_t llm_vocab_last(const struct llm_vocab *vocab)
{
    return vocab->last;
}

bool llm_vocab_ends(const struct llm_vocab *vocab, uint32_t token)
{
    return token < vocab->count && vocab->tokens[token].ends;
}

void llm_vocab_put_byte(const struct llm_vocab *vocab, uint8_t byte, struct llm_sink *sink)
{
    int32_t token = vocab->byte_tokens[byte] >= 0 ? vocab->byte_tokens[byte] : vocab->unknown;
    if (token >= 0)
        llm_sink_put(sink, (uint32_t)token);
}

static int encode_plain(const struct llm_vocab *vocab, const char *text, size_t bytes,
                        struct llm_merger *merger, struct llm_sink *sink)
{
    if (bytes == 0)
        return 0;
    return vocab->kind == LLM_VOCAB_SPM ? llm_vocab_encode_spm(vocab, text, bytes, merger, sink)
                                        : llm_vocab_encode_bpe(vocab, text, bytes, merger, sink);
}

int64_t llm_vocab_encode(const struct llm_vocab *vocab, const char *text, size_t bytes,
                         uint32_t *tokens, size_t room)
{
    if (bytes > LLM_TEXT_BYTES_MAX)
        return -EMSGSIZE;
    struct llm_merger merger = {0};
    struct llm_sink sink = {.tokens = tokens, .room = room};
    int err = 0;
    size_t plain = 0; /* where the text since the last special token begins */
    for (size_t at = 0; at < bytes && !err;) {
        int32_t token = match_special(vocab, text + at, bytes - at);
        if (token < 0) {
            at++;
            continue;
        }
        err = encode_plain(vocab, text + plain, at - plain, &merger, &sink);
        llm_sink_put(&sink, (uint32_t)token);
        at += vocab->tokens[token].text.bytes;
        while (vocab->tokens[token].takes_space && at < bytes && isspace((unsigned char)text[at]))
            at++;
        plain = at;
    }
    if (!err)
        err = encode_plain(vocab, text + plain, bytes - plain, &merger, &sink);
    llm_merger_fini(&merger);
    return err ? err : sink.count;
}

const char *llm_vocab_piece(const struct llm_vocab *vocab, uint32_t token, bool first,
                            size_t *bytes)
{
    *bytes = 0;
    if (token >= vocab->count || vocab->tokens[token].type == LLM_TOKEN_CONTROL)
        return "";
    struct gguf_string piece = vocab->tokens[token].piece;
    if (first && vocab->adds_space && piece.bytes > 0 && piece.text[0] == ' ')
        piece = (struct gguf_string){.text = piece.text + 1, .bytes = piece.bytes - 1};
    *bytes = piece.bytes;
    return piece.text;
}

const char *llm_vocab_mark(const struct llm_vocab *vocab, uint32_t token, const char *const *texts,
                           size_t count, size_t *bytes)
{
    const char *piece = llm_vocab_piece(vocab, token, false, bytes);
    if (*bytes > 0 || token >= vocab->count || vocab->tokens[token].text.bytes == 0)
        return piece;
    const struct gguf_string *name = &vocab->tokens[token].text;
    for (size_t i = 0; i < count; i++) {
        const char *found =
            texts[i] ? memmem(texts[i], strlen(texts[i]), name->text, name->bytes) : NULL;
        if (found) {
            *bytes = name->bytes;
            return found;
        }
    }
    return piece;
}
