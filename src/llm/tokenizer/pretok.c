#include "llm/tokenizer/pretok.h"

#include "base/text/utf8.h"
#include "llm/tokenizer/unicode.h"

#include <ctype.h>
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

/* Sets of classes: bit n is class n. */
enum {
    UPPER = 1 << LLM_CHAR_UPPER,
    LOWER = 1 << LLM_CHAR_LOWER,
    CASELESS = 1 << LLM_CHAR_LETTER,
    MARKS = 1 << LLM_CHAR_MARK,
    LETTERS = UPPER | LOWER | CASELESS,
    NUMBERS = 1 << LLM_CHAR_NUMBER,
    PUNCTUATION = 1 << LLM_CHAR_PUNCTUATION,
    SYMBOLS = 1 << LLM_CHAR_SYMBOL,
    SPACES = 1 << LLM_CHAR_SPACE,
    OTHERS = MARKS | PUNCTUATION | SYMBOLS | 1 << LLM_CHAR_OTHER, /* [^\s\p{L}\p{N}] */
};

static bool is_in(struct character c, unsigned classes)
{
    return c.bytes && (1u << c.class & classes);
}

static size_t run_of(const char *at, const char *end, unsigned classes)
{
    const char *begin = at;
    for (struct character c = peek(at, end); is_in(c, classes); c = peek(at, end))
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

/*  ?[classes]+ */
static size_t spaced_run(const char *at, const char *end, unsigned classes)
{
    size_t space = optional_space(at, end);
    size_t run = run_of(at + space, end, classes);
    return run ? space + run : 0;
}

/*  ?\p{L}+ */
static size_t match_letters(const char *at, const char *end)
{
    return spaced_run(at, end, LETTERS);
}

/*  ?\p{N}+ */
static size_t match_numbers(const char *at, const char *end)
{
    return spaced_run(at, end, NUMBERS);
}

/*  ?[^\s\p{L}\p{N}]+ */
static size_t match_others(const char *at, const char *end)
{
    return spaced_run(at, end, OTHERS);
}

/* A match of `bytes`, and the characters of `more` that follow it. */
static size_t and_more(const char *at, const char *end, size_t bytes, const char *more)
{
    while (bytes && at + bytes < end && at[bytes] && strchr(more, at[bytes]))
        bytes++;
    return bytes;
}

/*  ?[^\s\p{L}\p{N}]+[\r\n]* */
static size_t match_others_and_newlines(const char *at, const char *end)
{
    return and_more(at, end, match_others(at, end), "\r\n");
}

/*  ?[^\s\p{L}\p{N}]+[\r\n/]* */
static size_t match_others_and_slashes(const char *at, const char *end)
{
    return and_more(at, end, match_others(at, end), "\r\n/");
}

/*  ?[^\s\p{L}\p{M}\p{N}]+[\r\n]* */
static size_t match_unmarked_others(const char *at, const char *end)
{
    return and_more(at, end, spaced_run(at, end, OTHERS & ~(unsigned)MARKS), "\r\n");
}

/*  ?[\p{P}\p{S}]+[\r\n]* */
static size_t match_signs_and_newlines(const char *at, const char *end)
{
    return and_more(at, end, spaced_run(at, end, PUNCTUATION | SYMBOLS), "\r\n");
}

/* \s+(?!\S): the blanks before a word but the last one. */
static size_t match_blanks(const char *at, const char *end)
{
    const char *begin = at, *last = at;
    for (struct character c = peek(at, end); is_in(c, SPACES); c = peek(at, end)) {
        last = at;
        at += c.bytes;
    }
    return (size_t)((at == end ? at : last) - begin);
}

/* \s+ */
static size_t match_any_blanks(const char *at, const char *end)
{
    return run_of(at, end, SPACES);
}

/* \s*[\r\n]+ : through the last newline of the blanks. */
static size_t match_newlines(const char *at, const char *end)
{
    size_t bytes = run_of(at, end, SPACES);
    while (bytes && !is_newline(at[bytes - 1]))
        bytes--;
    return bytes;
}

/* The first character if it is neither a newline nor of these classes: what may precede a word. */
static size_t prefix_of(const char *at, const char *end, unsigned excluded)
{
    struct character c = peek(at, end);
    return c.bytes && !is_in(c, excluded) && !is_newline(*at) ? c.bytes : 0;
}

/* prefix?[classes]+ ; without the prefix, where nothing else can follow it. */
static size_t prefixed_run(const char *at, const char *end, unsigned excluded, unsigned classes)
{
    size_t prefix = prefix_of(at, end, excluded);
    size_t run = run_of(at + prefix, end, classes);
    return run ? prefix + run : run_of(at, end, classes);
}

/* [^\r\n\p{L}\p{N}]?\p{L}+ */
static size_t match_prefixed_letters(const char *at, const char *end)
{
    return prefixed_run(at, end, LETTERS | NUMBERS, LETTERS);
}

/* [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ */
static size_t match_prefixed_marked(const char *at, const char *end)
{
    return prefixed_run(at, end, LETTERS | NUMBERS, LETTERS | MARKS);
}

/* [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ */
static size_t match_unsigned_marked(const char *at, const char *end)
{
    return prefixed_run(at, end, LETTERS | PUNCTUATION | SYMBOLS, LETTERS | MARKS);
}

/* [capitals]*[small]+ : letters without case and marks are both.  Capitals give back the last of
 * those where no small letter follows. */
static size_t capitals_then_small(const char *at, const char *end)
{
    const char *begin = at, *given_back = at;
    struct character c = peek(at, end);
    for (; is_in(c, UPPER | CASELESS | MARKS); c = peek(at, end)) {
        at += c.bytes;
        given_back = is_in(c, UPPER) ? given_back : at;
    }
    if (!is_in(c, LOWER))
        return (size_t)(given_back - begin);
    return (size_t)(at - begin) + run_of(at, end, LOWER | CASELESS | MARKS);
}

/* [capitals]+[small]* */
static size_t capitals_and_small(const char *at, const char *end)
{
    size_t capitals = run_of(at, end, UPPER | CASELESS | MARKS);
    return capitals ? capitals + run_of(at + capitals, end, LOWER | CASELESS | MARKS) : 0;
}

/* [^\r\n\p{L}\p{N}]? and one of the two above, the first if it matches. */
static size_t cased_word(const char *at, const char *end)
{
    size_t prefix = prefix_of(at, end, LETTERS | NUMBERS);
    size_t (*const forms[])(const char *, const char *) = {capitals_then_small, capitals_and_small};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        size_t word = forms[i](at + prefix, end);
        if (word)
            return prefix + word;
        if (prefix && (word = forms[i](at, end)))
            return word;
    }
    return 0;
}

/* The words of tekken: capitals and small letters apart. */
static size_t match_cased_word(const char *at, const char *end)
{
    return cased_word(at, end);
}

/* Those of gpt-4o: and an ending. */
static size_t match_cased_word_and_ending(const char *at, const char *end)
{
    size_t bytes = cased_word(at, end);
    return bytes ? bytes + match_any_contraction(at + bytes, end) : 0;
}

/* [!-/:-~ of ASCII][A-Za-z]+ */
static size_t match_sign_and_latin(const char *at, const char *end)
{
    const char *begin = at;
    if (at == end || !ispunct((unsigned char)*at) || (unsigned char)*at >= 0x80)
        return 0;
    for (at++; at < end && ((*at >= 'A' && *at <= 'Z') || (*at >= 'a' && *at <= 'z'));)
        at++;
    return at - begin > 1 ? (size_t)(at - begin) : 0;
}

struct code_range {
    uint32_t first, last;
};

static bool is_within(struct character c, const struct code_range *ranges, size_t count)
{
    bool inside = false;
    for (size_t i = 0; i < count && c.bytes; i++)
        inside |= c.code >= ranges[i].first && c.code <= ranges[i].last;
    return inside;
}

static size_t run_of_codes(const char *at, const char *end, const struct code_range *ranges,
                           size_t count)
{
    const char *begin = at;
    for (struct character c = peek(at, end); is_within(c, ranges, count); c = peek(at, end))
        at += c.bytes;
    return (size_t)(at - begin);
}

/* Chinese characters and both kinds of kana */
static size_t match_han_and_kana(const char *at, const char *end)
{
    static const struct code_range ranges[] = {
        {0x4e00, 0x9fa5}, {0x3040, 0x309f}, {0x30a0, 0x30ff}};
    return run_of_codes(at, end, ranges, ARRAY_LEN(ranges));
}

/* Chinese characters, all before them from U+0800 on, and Hangul */
static size_t match_east_asian(const char *at, const char *end)
{
    static const struct code_range ranges[] = {{0x0800, 0x9fa5}, {0xac00, 0xd7ff}};
    return run_of_codes(at, end, ranges, ARRAY_LEN(ranges));
}

/* [\r\n] */
static size_t match_newline(const char *at, const char *end)
{
    return at < end && is_newline(*at);
}

static size_t blank_and_run(const char *at, const char *end, unsigned classes)
{
    struct character c = peek(at, end);
    size_t blank = is_in(c, SPACES) ? c.bytes : 0, run = run_of(at + blank, end, classes);
    return run ? blank + run : 0;
}

/* \s?\p{L}+ */
static size_t match_blank_and_letters(const char *at, const char *end)
{
    return blank_and_run(at, end, LETTERS);
}

/* \s?\p{P}+ */
static size_t match_blank_and_punctuation(const char *at, const char *end)
{
    return blank_and_run(at, end, PUNCTUATION);
}

/* A letter with two cases, of the scripts that deepseek-llm's list of ranges has: it is older than
 * some letters, and leaves scripts and mathematical letters out. */
static bool is_listed_letter(struct character c)
{
    static const struct code_range left_out[] = {
        {0x0560, 0x0588},   {0x10c6, 0x10ff},   {0x1c80, 0x1c8f},   {0x2d00, 0x2d2d},
        {0xa790, 0xa7ff},   {0xab30, 0xab6f},   {0x10570, 0x105bf}, {0x10d50, 0x10d85},
        {0x16e40, 0x16ed3}, {0x1d400, 0x1dfff},
    };
    return (is_in(c, UPPER | LOWER) && !is_within(c, left_out, ARRAY_LEN(left_out))) ||
           c.code == 0x0295;
}

/* \s?[letters]+ */
static size_t match_blank_and_listed_letters(const char *at, const char *end)
{
    const char *begin = at;
    struct character c = peek(at, end);
    at += is_in(c, SPACES) ? c.bytes : 0;
    const char *letters = at;
    for (c = peek(at, end); is_listed_letter(c); c = peek(at, end))
        at += c.bytes;
    return at > letters ? (size_t)(at - begin) : 0;
}

/* \s?[signs]+ : of ASCII, the same in full width, quotes and the Chinese full stop.  One of them is
 * also a blank. */
static size_t match_blank_and_signs(const char *at, const char *end)
{
    static const struct code_range signs[] = {{'!', '/'},       {':', '~'},       {0xff01, 0xff0f},
                                              {0xff1a, 0xff5e}, {0x2018, 0x201f}, {0x3000, 0x3002}};
    struct character c = peek(at, end);
    size_t blank = is_in(c, SPACES) ? c.bytes : 0;
    size_t run = run_of_codes(at + blank, end, signs, ARRAY_LEN(signs));
    return run ? blank + run : run_of_codes(at, end, signs, ARRAY_LEN(signs));
}

/* \s+$ */
static size_t match_last_blanks(const char *at, const char *end)
{
    size_t blanks = run_of(at, end, SPACES);
    return at + blanks == end ? blanks : 0;
}

static size_t numbers_up_to(const char *at, const char *end, int most)
{
    const char *begin = at;
    for (struct character c = peek(at, end); most-- > 0 && is_in(c, NUMBERS); c = peek(at, end))
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
    return run_of(at, end, NUMBERS);
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
         c.bytes &&
         (is_in(c, PUNCTUATION) || (c.code > 0 && c.code < 0x80 && strchr(symbols, (int)c.code)));
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

static const struct llm_pretok_stage seed_coder_stages[] = {
    {{match_any_contraction, match_prefixed_letters, match_number, match_others, match_newlines,
      match_blanks, match_any_blanks}},
    {{NULL}}};

static const struct llm_pretok_stage qwen35_stages[] = {
    {{match_any_contraction, match_prefixed_marked, match_number, match_unmarked_others,
      match_newlines, match_blanks, match_any_blanks}},
    {{NULL}}};

static const struct llm_pretok_stage gpt4o_stages[] = {
    {{match_cased_word_and_ending, match_three_numbers, match_others_and_slashes, match_newlines,
      match_blanks, match_any_blanks}},
    {{NULL}}};

static const struct llm_pretok_stage tekken_stages[] = {
    {{match_cased_word, match_number, match_others_and_slashes, match_newlines, match_blanks,
      match_any_blanks}},
    {{NULL}}};

static const struct llm_pretok_stage deepseek3_stages[] = {
    {{match_three_numbers}},
    {{match_han_and_kana}},
    {{match_sign_and_latin, match_unsigned_marked, match_signs_and_newlines, match_newlines,
      match_blanks, match_any_blanks}},
    {{NULL}}};

static const struct llm_pretok_stage deepseek_coder_stages[] = {{{match_newline}},
                                                                {{match_blank_and_letters}},
                                                                {{match_blank_and_punctuation}},
                                                                {{match_east_asian}},
                                                                {{match_number}},
                                                                {{NULL}}};

static const struct llm_pretok_stage deepseek_llm_stages[] = {{{match_newline}},
                                                              {{match_blank_and_listed_letters}},
                                                              {{match_blank_and_signs}},
                                                              {{match_last_blanks}},
                                                              {{match_east_asian}},
                                                              {{match_bare_numbers}},
                                                              {{NULL}}};

static const struct llm_pretok rules[] = {
    {.name = "gpt-2", .stages = gpt2_stages},
    {.name = "default", .stages = default_stages},
    {.name = "llama-bpe", .adds_bos = true, .whole_words = true, .stages = llama3_stages},
    {.name = "llama3", .adds_bos = true, .whole_words = true, .stages = llama3_stages},
    {.name = "llama-v3", .adds_bos = true, .whole_words = true, .stages = llama3_stages},
    {.name = "falcon3", .adds_bos = true, .whole_words = true, .stages = llama3_stages},
    {.name = "pixtral", .adds_bos = true, .whole_words = true, .stages = llama3_stages},
    {.name = "dbrx", .stages = llama3_stages},
    {.name = "smaug-bpe", .stages = llama3_stages},
    {.name = "glm4", .stages = llama3_stages},
    {.name = "chatglm-bpe", .stages = llama3_stages},
    {.name = "qwen2", .stages = qwen2_stages},
    {.name = "deepseek-r1-qwen", .stages = qwen2_stages},
    {.name = "stablelm2", .stages = qwen2_stages},
    {.name = "megrez", .stages = qwen2_stages},
    {.name = "seed-coder", .stages = seed_coder_stages},
    {.name = "qwen35", .stages = qwen35_stages},
    {.name = "gpt-4o", .stages = gpt4o_stages},
    {.name = "llama4", .stages = gpt4o_stages},
    {.name = "tekken", .adds_bos = true, .whole_words = true, .stages = tekken_stages},
    {.name = "deepseek-v3", .stages = deepseek3_stages},
    {.name = "deepseek-llm", .stages = deepseek_llm_stages},
    {.name = "deepseek-coder", .stages = deepseek_coder_stages},
    {.name = "smollm", .stages = single_digit_stages},
    {.name = "starcoder", .stages = single_digit_stages},
    {.name = "refact", .stages = single_digit_stages},
    {.name = "command-r", .stages = single_digit_stages},
    {.name = "codeshell", .stages = single_digit_stages},
    {.name = "exaone", .stages = single_digit_stages},
    {.name = "minerva-7b", .stages = single_digit_stages},
    {.name = "falcon", .stages = falcon_stages},
    {.name = "phi-2", .stages = gpt2_stages},
    {.name = "mpt", .stages = gpt2_stages},
    {.name = "olmo", .stages = gpt2_stages},
    {.name = "jais", .stages = gpt2_stages},
    {.name = "gigachat", .stages = gpt2_stages},
    {.name = "mellum", .stages = gpt2_stages},
    {.name = "exaone4", .stages = gpt2_stages},
};

const char *llm_pretok_name(size_t i)
{
    return i < ARRAY_LEN(rules) ? rules[i].name : NULL;
}

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

/* How many bytes at `at`, where no pattern matches, need not be looked at.  From any of a run of
 * blanks \s+$ would read the rest of the run again. */
static size_t skip_unmatched(const struct llm_pretok_stage *stage, const char *at, const char *end)
{
    size_t blanks = stage->patterns[0] == match_last_blanks ? run_of(at, end, SPACES) : 0;
    return blanks ? blanks : peek(at, end).bytes;
}

/* Depth is that of the rule's stages, six at most. */
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
            at += skip_unmatched(stage, at, end);
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
