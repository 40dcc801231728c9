#include "llm/tokenizer/pretok.h"

#include "base/utf8.h"
#include "llm/tokenizer/unicode.h"

#include <string.h>

/* A pattern: bytes that it matches at `at`, before `end`; 0 when it does not. */
typedef size_t (*match_fn)(const char *at, const char *end);

enum { PATTERNS_MAX = 8 }; /* of a stage; the longest rule has seven */

struct llm_pretok_stage {
    match_fn patterns[PATTERNS_MAX]; /* ended by NULL */
};

struct character {
    uint32_t code;
    enum llm_char class;
    size_t bytes; /* 0: the text is at its end */
};

static struct character peek(const char *at, const char *end)
{
    struct character c = {0};
    if (at == end)
        return c;
    c.bytes = hw_utf8_next(at, (size_t)(end - at), &c.code);
    c.class = llm_char_class(c.code);
    return c;
}

static size_t run_of(const char *at, const char *end, enum llm_char class)
{
    const char *begin = at;
    for (struct character c = peek(at, end); c.bytes && c.class == class; c = peek(at, end))
        at += c.bytes;
    return (size_t)(at - begin);
}

/* [^\s\p{L}\p{N}]+ */
static size_t run_of_others(const char *at, const char *end)
{
    const char *begin = at;
    for (struct character c = peek(at, end);
         c.bytes && (c.class == LLM_CHAR_OTHER || c.class == LLM_CHAR_PUNCTUATION);
         c = peek(at, end))
        at += c.bytes;
    return (size_t)(at - begin);
}

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

static size_t optional_space(const char *at, const char *end)
{
    return at < end && *at == ' ' ? 1 : 0;
}

static size_t contraction(const char *at, const char *end,
                          int (*compare)(const char *, const char *, size_t))
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        size_t bytes = strlen(endings[i]);
        if ((size_t)(end - at) >= bytes && compare(at, endings[i], bytes) == 0)
            return bytes;
    }
    return 0;
}

/* 's|'t|'re|'ve|'m|'ll|'d */
static size_t match_contraction(const char *at, const char *end)
{
    return contraction(at, end, strncmp);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) */
static size_t match_any_contraction(const char *at, const char *end)
{
    return contraction(at, end, strncasecmp);
}

static size_t spaced_run(const char *at, const char *end, enum llm_char class)
{
    size_t space = optional_space(at, end);
    size_t run = run_of(at + space, end, class);
    return run ? space + run : 0;
}

/*  ?\p{L}+ */
static size_t match_letters(const char *at, const char *end)
{
    return spaced_run(at, end, LLM_CHAR_LETTER);
}

/*  ?\p{N}+ */
static size_t match_numbers(const char *at, const char *end)
{
    return spaced_run(at, end, LLM_CHAR_NUMBER);
}

/*  ?[^\s\p{L}\p{N}]+ */
static size_t match_others(const char *at, const char *end)
{
    size_t space = optional_space(at, end);
    size_t run = run_of_others(at + space, end);
    return run ? space + run : 0;
}

/*  ?[^\s\p{L}\p{N}]+[\r\n]* */
static size_t match_others_and_newlines(const char *at, const char *end)
{
    size_t bytes = match_others(at, end);
    while (bytes && at + bytes < end && is_newline(at[bytes]))
        bytes++;
    return bytes;
}

/* \s+(?!\S): the blanks before a word but the last one. */
static size_t match_blanks(const char *at, const char *end)
{
    const char *begin = at, *last = at;
    for (struct character c = peek(at, end); c.bytes && c.class == LLM_CHAR_SPACE;
         c = peek(at, end)) {
        last = at;
        at += c.bytes;
    }
    return (size_t)((at == end ? at : last) - begin);
}

/* \s+ */
static size_t match_any_blanks(const char *at, const char *end)
{
    return run_of(at, end, LLM_CHAR_SPACE);
}

/* \s*[\r\n]+ : through the last newline of the blanks. */
static size_t match_newlines(const char *at, const char *end)
{
    size_t bytes = run_of(at, end, LLM_CHAR_SPACE);
    while (bytes && !is_newline(at[bytes - 1]))
        bytes--;
    return bytes;
}

/* [^\r\n\p{L}\p{N}]?\p{L}+ */
static size_t match_prefixed_letters(const char *at, const char *end)
{
    struct character c = peek(at, end);
    bool prefix =
        c.bytes && c.class != LLM_CHAR_LETTER && c.class != LLM_CHAR_NUMBER && !is_newline(*at);
    size_t skipped = prefix ? c.bytes : 0;
    size_t run = run_of(at + skipped, end, LLM_CHAR_LETTER);
    return run ? skipped + run : 0;
}

static size_t numbers_up_to(const char *at, const char *end, int most)
{
    const char *begin = at;
    for (struct character c = peek(at, end); most-- > 0 && c.class == LLM_CHAR_NUMBER;
         c = peek(at, end))
        at += c.bytes;
    return (size_t)(at - begin);
}

/* \p{N} */
static size_t match_number(const char *at, const char *end)
{
    return numbers_up_to(at, end, 1);
}

/* \p{N}{1,3} */
static size_t match_three_numbers(const char *at, const char *end)
{
    return numbers_up_to(at, end, 3);
}

/* \p{N}+ */
static size_t match_bare_numbers(const char *at, const char *end)
{
    return run_of(at, end, LLM_CHAR_NUMBER);
}

/* [0-9][0-9][0-9] */
static size_t match_three_digits(const char *at, const char *end)
{
    if (end - at < 3)
        return 0;
    for (int i = 0; i < 3; i++) {
        if (at[i] < '0' || at[i] > '9')
            return 0;
    }
    return 3;
}

static size_t run_of_punctuation(const char *at, const char *end, const char *symbols)
{
    const char *begin = at;
    for (struct character c = peek(at, end);
         c.bytes && (c.class == LLM_CHAR_PUNCTUATION ||
                     (c.code > 0 && c.code < 0x80 && strchr(symbols, (int)c.code)));
         c = peek(at, end))
        at += c.bytes;
    return (size_t)(at - begin);
}

/* [\p{P}\$\+<=>\^~\|]+ */
static size_t match_punctuation(const char *at, const char *end)
{
    return run_of_punctuation(at, end, "$+<=>^~|");
}

/* [\p{P}\$\+<=>\^~\|`]+ */
static size_t match_punctuation_and_grave(const char *at, const char *end)
{
    return run_of_punctuation(at, end, "$+<=>^~|`");
}

/* GPT-2's patterns; a last blank that none of them matches is a piece, as with its \s+. */
#define GPT2_PATTERNS match_contraction, match_letters, match_numbers, match_others, match_blanks

static const struct llm_pretok_stage gpt2_stages[] = {{{GPT2_PATTERNS}}, {{NULL}}};

static const struct llm_pretok_stage single_digit_stages[] = {
    {{match_number}}, {{GPT2_PATTERNS}}, {{NULL}}};

static const struct llm_pretok_stage default_stages[] = {{{match_punctuation}},
                                                         {{GPT2_PATTERNS}},
                                                         {{match_bare_numbers}},
                                                         {{match_three_digits}},
                                                         {{NULL}}};

static const struct llm_pretok_stage falcon_stages[] = {
    {{match_punctuation_and_grave}}, {{GPT2_PATTERNS}}, {{match_three_digits}}, {{NULL}}};

static const struct llm_pretok_stage llama3_stages[] = {
    {{match_any_contraction, match_prefixed_letters, match_three_numbers, match_others_and_newlines,
      match_newlines, match_blanks, match_any_blanks}},
    {{NULL}}};

static const struct llm_pretok_stage qwen2_stages[] = {
    {{match_any_contraction, match_prefixed_letters, match_number, match_others_and_newlines,
      match_newlines, match_blanks, match_any_blanks}},
    {{NULL}}};

static const struct llm_pretok rules[] = {
    {.name = "gpt-2", .stages = gpt2_stages},
    {.name = "default", .stages = default_stages},
    {.name = "llama-bpe", .adds_bos = true, .whole_words = true, .stages = llama3_stages},
    {.name = "llama3", .adds_bos = true, .whole_words = true, .stages = llama3_stages},
    {.name = "llama-v3", .adds_bos = true, .whole_words = true, .stages = llama3_stages},
    {.name = "dbrx", .stages = llama3_stages},
    {.name = "smaug-bpe", .stages = llama3_stages},
    {.name = "qwen2", .stages = qwen2_stages},
    {.name = "deepseek-r1-qwen", .stages = qwen2_stages},
    {.name = "stablelm2", .stages = qwen2_stages},
    {.name = "smollm", .stages = single_digit_stages},
    {.name = "starcoder", .stages = single_digit_stages},
    {.name = "refact", .stages = single_digit_stages},
    {.name = "command-r", .stages = single_digit_stages},
    {.name = "codeshell", .stages = single_digit_stages},
    {.name = "falcon", .stages = falcon_stages},
    {.name = "phi-2", .stages = gpt2_stages},
    {.name = "mpt", .stages = gpt2_stages},
    {.name = "olmo", .stages = gpt2_stages},
    {.name = "jais", .stages = gpt2_stages},
};

const struct llm_pretok *llm_pretok_find(const char *name, size_t bytes)
{
    if (bytes == 0)
        return llm_pretok_find("default", strlen("default"));
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        if (strlen(rules[i].name) == bytes && memcmp(rules[i].name, name, bytes) == 0)
            return &rules[i];
    }
    return NULL;
}

struct walk {
    int (*word)(void *user, const char *text, size_t bytes);
    void *user;
};

static size_t match_first(const struct llm_pretok_stage *stage, const char *at, const char *end)
{
    size_t bytes = 0;
    for (const match_fn *match = stage->patterns; *match && bytes == 0; match++)
        bytes = (*match)(at, end);
    return bytes;
}

/* Depth is that of the rule's stages, four at most. */
static int split_stage(const struct llm_pretok_stage *stage, const char *at, const char *end,
                       const struct walk *walk)
{
    if (!stage->patterns[0])
        return walk->word(walk->user, at, (size_t)(end - at));
    const char *gap = at;
    int err = 0;
    while (at < end && !err) {
        size_t bytes = match_first(stage, at, end);
        if (bytes == 0) {
            at += peek(at, end).bytes;
            continue;
        }
        if (gap < at)
            err = split_stage(stage + 1, gap, at, walk);
        if (!err)
            err = split_stage(stage + 1, at, at + bytes, walk);
        at += bytes;
        gap = at;
    }
    return !err && gap < at ? split_stage(stage + 1, gap, at, walk) : err;
}

int llm_pretok_split(const struct llm_pretok *rule, const char *text, size_t bytes,
                     int (*word)(void *user, const char *text, size_t bytes), void *user)
{
    const struct walk walk = {.word = word, .user = user};
    return split_stage(rule->stages, text, text + bytes, &walk);
}
