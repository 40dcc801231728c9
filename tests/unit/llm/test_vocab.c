/* Tokenizers on vocabularies made here: rules of both kinds, pre-tokenizers, hostile metadata. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "failing.h"
#include "image.h"
#include "llm/model/byte_text.h"
#include "llm/tokenizer/unicode.h"
#include "llm/tokenizer/vocab_impl.h"
#include "wire/le.h"

static char why[LLM_WHY_CHARS];

/* ---- vocabularies ---- */

struct entry {
    const char *text;
    float score;
    int type;
};

#define BLANK "\xe2\x96\x81"

static const struct entry spm_entries[] = {
    {"<unk>", 0, LLM_TOKEN_UNKNOWN},       {"<s>", 0, LLM_TOKEN_CONTROL},
    {"</s>", 0, LLM_TOKEN_CONTROL},        {"<0x21>", 0, LLM_TOKEN_BYTE},
    {BLANK, -1, LLM_TOKEN_NORMAL},         {"a", -2, LLM_TOKEN_NORMAL},
    {"b", -3, LLM_TOKEN_NORMAL},           {"ab", -4, LLM_TOKEN_NORMAL},
    {"ba", -3.5f, LLM_TOKEN_NORMAL},       {BLANK "a", -5, LLM_TOKEN_NORMAL},
    {"<user>", 0, LLM_TOKEN_USER_DEFINED}, {"<0xC3>", 0, LLM_TOKEN_BYTE},
    {"aba", -9, LLM_TOKEN_NORMAL},
};

enum { SPM_COUNT = ARRAY_LEN(spm_entries) };

static void put_texts(struct gguf_writer *w, const struct entry *entries, uint32_t count)
{
    gguf_write_array(w, "tokenizer.ggml.tokens", GGUF_STRING, count);
    for (uint32_t i = 0; i < count; i++)
        gguf_put_string(w, entries[i].text, strlen(entries[i].text));
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, count);
    for (uint32_t i = 0; i < count; i++)
        gguf_put_u32(w, (uint32_t)entries[i].type);
}

/* With the keys that a test adds: extra of them. */
static struct image make_spm(uint32_t extra, void (*add)(struct gguf_writer *))
{
    struct image_writer w;
    image_begin(&w, 0, 4 + extra);
    gguf_write_string(&w.gguf, "tokenizer.ggml.model", "llama");
    put_texts(&w.gguf, spm_entries, SPM_COUNT);
    gguf_write_array(&w.gguf, "tokenizer.ggml.scores", GGUF_F32, SPM_COUNT);
    for (uint32_t i = 0; i < SPM_COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &spm_entries[i].score, sizeof(bits));
        gguf_put_u32(&w.gguf, bits);
    }
    if (add)
        add(&w.gguf);
    return image_end(&w);
}

/* 256 bytes, a few pieces, and merges. */
static struct image make_bpe(const char *pre, const char *const *pieces, uint32_t piece_count,
                             const char *const *merges, uint32_t merge_count)
{
    struct image_writer w;
    image_begin(&w, 0, 4);
    gguf_write_string(&w.gguf, "tokenizer.ggml.model", "gpt2");
    gguf_write_string(&w.gguf, "tokenizer.ggml.pre", pre);
    gguf_write_array(&w.gguf, "tokenizer.ggml.tokens", GGUF_STRING, 256 + piece_count);
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[LLM_BYTE_TEXT_MAX];
        gguf_put_string(&w.gguf, text, llm_byte_text((uint8_t)byte, text));
    }
    for (uint32_t i = 0; i < piece_count; i++)
        gguf_put_string(&w.gguf, pieces[i], strlen(pieces[i]));
    gguf_write_array(&w.gguf, "tokenizer.ggml.merges", GGUF_STRING, merge_count);
    for (uint32_t i = 0; i < merge_count; i++)
        gguf_put_string(&w.gguf, merges[i], strlen(merges[i]));
    return image_end(&w);
}

/* A vocabulary and what it points into. */
struct made {
    struct image image;
    struct gguf gguf;
    struct llm_vocab *vocab;
};

static int try_make(struct made *made, struct image image)
{
    made->image = image;
    made->vocab = NULL;
    why[0] = 0;
    int err = gguf_init(&made->gguf, image.bytes, image.size, why);
    if (err)
        fail_msg("%s", why);
    return llm_vocab_create_gguf(&made->gguf, LLM_VOCAB_MAX, &made->vocab, why);
}

static void drop(struct made *made)
{
    llm_vocab_destroy(made->vocab);
    gguf_fini(&made->gguf);
    image_free(&made->image);
}

static struct made make(struct image image)
{
    struct made made;
    if (try_make(&made, image))
        fail_msg("%s", why);
    return made;
}

static void refuse(struct image image, int expected, const char *phrase)
{
    struct made made;
    int err = try_make(&made, image);
    if (err != expected || !strstr(why, phrase))
        fail_msg("got %d '%s'; expected %d '%s'", err, why, expected, phrase);
    drop(&made);
}

static void expect(const struct llm_vocab *vocab, const char *text, size_t bytes,
                   const uint32_t *ids, size_t count)
{
    uint32_t found[64];
    int64_t got = llm_vocab_encode(vocab, text, bytes, found, ARRAY_LEN(found));
    assert_int_equal(got, count);
    assert_memory_equal(found, ids, count * sizeof(*ids));
}

#define EXPECT(vocab, text, ...)                                                                   \
    do {                                                                                           \
        const uint32_t expected_ids[] = {__VA_ARGS__};                                             \
        expect(vocab, text, sizeof(text) - 1, expected_ids, ARRAY_LEN(expected_ids));              \
    } while (0)

/* ---- SentencePiece ---- */

static void pieces_join_by_score_then_from_the_left(void **state)
{
    (void)state;
    struct made m = make(make_spm(0, NULL));
    EXPECT(m.vocab, "b", 4, 6);
    EXPECT(m.vocab, "a", 9);
    EXPECT(m.vocab, "bab", 4, 8, 6); /* "ba" (-3.5) before "ab" (-4) */
    EXPECT(m.vocab, "b b", 4, 6, 4, 6);
    EXPECT(m.vocab, "baba", 4, 8, 8); /* the left of two equals */
    assert_int_equal(llm_vocab_encode(m.vocab, "", 0, NULL, 0), 0);
    drop(&m);
}

static void what_is_no_piece_goes_byte_by_byte(void **state)
{
    (void)state;
    struct made m = make(make_spm(0, NULL));
    EXPECT(m.vocab, "!", 4, 3);
    EXPECT(m.vocab, "?", 4, 0);                   /* no token for that byte: unknown */
    EXPECT(m.vocab, "\xc3\xa4", 4, 11, 0);        /* one character, two bytes */
    EXPECT(m.vocab, "b\xff\x80!", 4, 6, 0, 0, 3); /* no UTF-8 */
    EXPECT(m.vocab, "\xc3", 4, 11);               /* cut short */
    drop(&m);
}

static void special_tokens_are_found_in_texts(void **state)
{
    (void)state;
    struct made m = make(make_spm(0, NULL));
    EXPECT(m.vocab, "<s>b", 1, 4, 6);
    EXPECT(m.vocab, "b</s>b", 4, 6, 2, 4, 6);
    EXPECT(m.vocab, "<user>", 10);
    EXPECT(m.vocab, "b<user>b", 4, 6, 10, 4, 6);
    drop(&m);
}

static void add_no_prefix(struct gguf_writer *w)
{
    gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", false);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_write_u32(w, "tokenizer.ggml.eot_token_id", 10);
}

static void add_phi3(struct gguf_writer *w)
{
    gguf_write_string(w, "general.name", "Phi-3 mini 4K");
}

/* As in llama.cpp, by the model's name; a name that begins a text takes none. */
static void marks_of_phi3_take_the_blanks_after_them(void **state)
{
    (void)state;
    struct made m = make(make_spm(1, add_phi3));
    EXPECT(m.vocab, "</s> \n b", 2, 4, 6);
    EXPECT(m.vocab, "b<user>\n", 4, 6, 10);
    EXPECT(m.vocab, "<s> b", 1, 4, 4, 6);
    drop(&m);
    m = make(make_spm(0, NULL));
    EXPECT(m.vocab, "</s> b", 2, 4, 4, 6);
    drop(&m);
}

static void flags_of_the_file_are_kept(void **state)
{
    (void)state;
    struct made m = make(make_spm(0, NULL));
    size_t bytes;
    assert_true(llm_vocab_adds_bos(m.vocab));
    assert_int_equal(llm_vocab_bos(m.vocab), 1);
    assert_true(llm_vocab_ends(m.vocab, 2));
    assert_false(llm_vocab_ends(m.vocab, 10));
    assert_false(llm_vocab_ends(m.vocab, UINT32_MAX));
    assert_memory_equal(llm_vocab_piece(m.vocab, 9, true, &bytes), "a", 1);
    assert_int_equal(bytes, 1);
    assert_memory_equal(llm_vocab_piece(m.vocab, 9, false, &bytes), " a", 2);
    assert_int_equal(bytes, 2);
    llm_vocab_piece(m.vocab, 1, false, &bytes); /* control */
    assert_int_equal(bytes, 0);
    llm_vocab_piece(m.vocab, 1000, false, &bytes);
    assert_int_equal(bytes, 0);
    assert_memory_equal(llm_vocab_piece(m.vocab, 3, false, &bytes), "!", 1);
    drop(&m);

    m = make(make_spm(3, add_no_prefix));
    assert_false(llm_vocab_adds_bos(m.vocab));
    assert_true(llm_vocab_ends(m.vocab, 10));
    EXPECT(m.vocab, "b", 6);
    assert_memory_equal(llm_vocab_piece(m.vocab, 9, true, &bytes), " a", 2);
    drop(&m);
}

/* ---- byte-level BPE ---- */

#define SP "\xc4\xa0" /* a blank, as its texts write it */

static void merges_join_in_their_order(void **state)
{
    (void)state;
    static const char *const pieces[] = {"ab", "bc", "abc", SP "a"};
    static const char *const merges[] = {"b c", "a b", "a bc", SP " a"};
    struct made m = make(make_bpe("gpt-2", pieces, 4, merges, 4));
    EXPECT(m.vocab, "abc", 258); /* "bc" comes first, then "a" + "bc" */
    EXPECT(m.vocab, "ab", 256);
    EXPECT(m.vocab, "x abc", 'x', ' ', 258);
    EXPECT(m.vocab, "x ad", 'x', 259, 'd');
    EXPECT(m.vocab, "\xff\n", 0xff, '\n'); /* bytes are tokens */
    char kind[LLM_NAME_CHARS];
    llm_vocab_describe(m.vocab, kind);
    assert_string_equal(kind, "byte-level BPE (gpt-2)");
    assert_int_equal(llm_vocab_bos(m.vocab), -1);
    assert_false(llm_vocab_adds_bos(m.vocab));
    drop(&m);
}

/* Rules that make a piece of its own parts again, or lead nowhere, still end. */
static void merges_in_circles_end(void **state)
{
    (void)state;
    static const char *const pieces[] = {"aa", "aaa"};
    static const char *const merges[] = {"aa aa", "a a", "aa a", "a aa", "a a", "q zz", "zz q"};
    struct made m = make(make_bpe("gpt-2", pieces, 2, merges, 7));
    char text[4096];
    memset(text, 'a', sizeof(text));
    uint32_t ids[4096];
    int64_t count = llm_vocab_encode(m.vocab, text, sizeof(text), ids, 4096);
    assert_in_range(count, 4096 / 3, 4096 / 2);
    drop(&m);
}

static void whole_words_come_before_merges(void **state)
{
    (void)state;
    static const char *const pieces[] = {"abc", "ab"};
    static const char *const merges[] = {"a b"};
    struct made with = make(make_bpe("llama-bpe", pieces, 2, merges, 1));
    EXPECT(with.vocab, "abc", 256);
    drop(&with);
    struct made without = make(make_bpe("qwen2", pieces, 2, merges, 1));
    EXPECT(without.vocab, "abc", 257, 'c');
    drop(&without);
}

/* ---- pre-tokenizers ---- */

struct words {
    char text[512];
};

static int note_word(void *user, const char *text, size_t bytes)
{
    struct words *words = user;
    size_t used = strlen(words->text);
    snprintf(words->text + used, sizeof(words->text) - used, "%s%.*s", used ? "|" : "", (int)bytes,
             text);
    return 0;
}

static void expect_words(const char *rule, const char *text, const char *expected)
{
    struct words words = {""};
    const struct llm_pretok *pretok = llm_pretok_find(rule, strlen(rule));
    assert_non_null(pretok);
    assert_int_equal(llm_pretok_split(pretok, text, strlen(text), note_word, &words), 0);
    if (strcmp(words.text, expected) != 0)
        fail_msg("%s: '%s' became '%s', not '%s'", rule, text, words.text, expected);
}

static void texts_are_cut_as_the_expressions_say(void **state)
{
    (void)state;
    expect_words("gpt-2", "Hello world's 123 !!", "Hello| world|'s| 123| !!");
    expect_words("gpt-2", "a   b", "a|  | b");
    expect_words("gpt-2", "a\t\tb \n", "a|\t|\t|b| \n");
    expect_words("gpt-2", "It'S", "It|'|S");
    expect_words("gpt-2", "\xc3\xa4\xce\xb2 \xe4\xbd\xa0", "\xc3\xa4\xce\xb2| \xe4\xbd\xa0");
    expect_words("smollm", "a 12 b", "a| |1|2| b");
    expect_words("llama-bpe", "It'S 12345", "It|'S| |123|45");
    expect_words("llama-bpe", "(ab)\n\nc", "(ab|)\n\n|c");
    expect_words("llama-bpe", " \n\n  x", " \n\n| | x");
    expect_words("llama-bpe", "\xe2\x80\xa6xy\r\n", "\xe2\x80\xa6xy|\r\n");
    expect_words("qwen2", "x123", "x|1|2|3");
    expect_words("qwen2", "\tab", "\tab");
    expect_words("default", "a$b 1234", "a|$|b| |123|4");
    expect_words("falcon", "a`b 1234", "a|`|b| |123|4");
    expect_words("", "a 1", "a| |1");
    assert_null(llm_pretok_find("nonsense", 8));
}

static void characters_have_their_classes(void **state)
{
    (void)state;
    assert_int_equal(llm_char_class('a'), LLM_CHAR_LOWER);
    assert_int_equal(llm_char_class('A'), LLM_CHAR_UPPER);
    assert_int_equal(llm_char_class(0x1c5), LLM_CHAR_UPPER); /* title case */
    assert_int_equal(llm_char_class(0x301), LLM_CHAR_MARK);
    assert_int_equal(llm_char_class(0x4f60), LLM_CHAR_LETTER);
    assert_int_equal(llm_char_class('7'), LLM_CHAR_NUMBER);
    assert_int_equal(llm_char_class(0xbd), LLM_CHAR_NUMBER);
    assert_int_equal(llm_char_class('!'), LLM_CHAR_PUNCTUATION);
    assert_int_equal(llm_char_class(' '), LLM_CHAR_SPACE);
    assert_int_equal(llm_char_class(0x3000), LLM_CHAR_SPACE);
    assert_int_equal(llm_char_class('+'), LLM_CHAR_SYMBOL);
    assert_int_equal(llm_char_class(0), LLM_CHAR_OTHER);
    assert_int_equal(llm_char_class(UINT32_MAX), LLM_CHAR_OTHER);
}

static void byte_texts_lead_back(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char text[LLM_BYTE_TEXT_MAX];
        size_t bytes = llm_byte_text((uint8_t)byte, text);
        uint32_t code =
            bytes == 1 ? (uint8_t)text[0] : (uint32_t)(text[0] & 0x1f) << 6 | (text[1] & 0x3f);
        assert_int_equal(llm_byte_of_code(code), byte);
    }
    assert_int_equal(llm_byte_of_code(' '), -1);
    assert_int_equal(llm_byte_of_code(0xad), -1);
    assert_int_equal(llm_byte_of_code(0x144), -1);
    assert_int_equal(llm_byte_of_code(0x10ffff), -1);
}

/* ---- hostile metadata ---- */

static void add_far_bos(struct gguf_writer *w)
{
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", SPM_COUNT);
}

static void add_far_eot(struct gguf_writer *w)
{
    gguf_write_u32(w, "tokenizer.ggml.eot_token_id", 4000000000u);
}

static void add_wrong_flag(struct gguf_writer *w)
{
    gguf_write_u32(w, "tokenizer.ggml.add_space_prefix", 1);
}

static void ids_and_flags_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    refuse(make_spm(1, add_far_bos), -EPROTO, "bos_token_id");
    refuse(make_spm(1, add_far_eot), -EPROTO, "eot_token_id");
    refuse(make_spm(1, add_wrong_flag), -EPROTO, "add_space_prefix");
}

static void columns_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct image image = make_spm(0, NULL);
    char *at = memmem(image.bytes, image.size, "tokenizer.ggml.scores", 21);
    assert_non_null(at);
    wire_store64(at + 21 + 8, SPM_COUNT - 1);
    image.size -= 4;
    refuse(image, -EPROTO, "scores");

    image = make_spm(0, NULL);
    at = memmem(image.bytes, image.size, "tokenizer.ggml.scores", 21);
    assert_non_null(at);
    wire_store32(at + 21 + 16, 0x7fc00000); /* NaN */
    refuse(image, -EPROTO, "finite");

    image = make_spm(0, NULL);
    at = memmem(image.bytes, image.size, "tokenizer.ggml.token_type", 25);
    assert_non_null(at);
    wire_store32(at + 25 + 16, LLM_TOKEN_TYPES);
    refuse(image, -EPROTO, "type");

    image = make_spm(0, NULL);
    image_patch(&image, "<0x21>", "<0x2g>", 6);
    refuse(image, -EPROTO, "<0xNN>");

    image = make_spm(0, NULL);
    image_patch(&image, "tokenizer.ggml.scores", "tokenizer.ggml.scorex", 21);
    refuse(image, -EPROTO, "scores");
}

static void vocabularies_of_other_kinds_are_named(void **state)
{
    (void)state;
    static const char *const pieces[] = {"ab"};
    static const char *const merges[] = {"a b"};
    struct image image = make_spm(0, NULL);
    char *at = memmem(image.bytes, image.size, "tokenizer.ggml.model", 20);
    assert_non_null(at);
    memcpy(at + 20 + 4 + 8, "rwkv!", 5);
    refuse(image, -EOPNOTSUPP, "rwkv!");
    refuse(make_bpe("unheard-of", pieces, 1, merges, 1), -EOPNOTSUPP, "'unheard-of'");
    struct image_writer w;
    image_begin(&w, 0, 0);
    refuse(image_end(&w), -ENOENT, "no vocabulary");
    image_begin(&w, 0, 1);
    gguf_write_string(&w.gguf, "tokenizer.ggml.model", "none");
    refuse(image_end(&w), -ENOENT, "no vocabulary");
}

static void merges_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const pieces[] = {"ab"};
    static const char *const bad[] = {"", "a", "ab", "abc", " ab"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        refuse(make_bpe("gpt-2", pieces, 1, bad + i, 1), -EPROTO, "merge 1");
    struct image image = make_bpe("gpt-2", pieces, 1, NULL, 0);
    image_patch(&image, "tokenizer.ggml.merges", "tokenizer.ggml.mergex", 21);
    refuse(image, -EPROTO, "merges");
}

static void sizes_have_limits(void **state)
{
    (void)state;
    static char piece[LLM_PIECE_BYTES_MAX + 2];
    memset(piece, 'x', LLM_PIECE_BYTES_MAX + 1);
    const char *const pieces[] = {piece};
    refuse(make_bpe("gpt-2", pieces, 1, NULL, 0), -EPROTO, "bytes");
    piece[LLM_PIECE_BYTES_MAX] = 0;
    struct made m = make(make_bpe("gpt-2", pieces, 1, NULL, 0));
    assert_int_equal(llm_vocab_encode(m.vocab, piece, (size_t)LLM_TEXT_BYTES_MAX + 1, NULL, 0),
                     -EMSGSIZE);
    assert_int_equal(llm_vocab_encode(m.vocab, "abc", 3, NULL, 0), 3); /* only counted */
    struct llm_vocab *vocab;
    assert_int_equal(llm_vocab_create_gguf(&m.gguf, 256, &vocab, why), -EPROTO);
    assert_non_null(strstr(why, "257"));
    drop(&m);
}

static void equal_pieces_and_specials_do_no_harm(void **state)
{
    (void)state;
    struct image_writer w;
    const struct entry entries[] = {{"<s>", 0, LLM_TOKEN_CONTROL},
                                    {"<s>", 0, LLM_TOKEN_CONTROL},
                                    {"", 0, LLM_TOKEN_CONTROL},
                                    {"<s>x", 0, LLM_TOKEN_USER_DEFINED},
                                    {"x", 0, LLM_TOKEN_NORMAL}};
    image_begin(&w, 0, 4);
    gguf_write_string(&w.gguf, "tokenizer.ggml.model", "gpt2");
    put_texts(&w.gguf, entries, 5);
    gguf_write_array(&w.gguf, "tokenizer.ggml.merges", GGUF_STRING, 0);
    struct made m = make(image_end(&w));
    EXPECT(m.vocab, "<s><s>xx", 0, 3, 4);
    EXPECT(m.vocab, "<s>x", 3);
    drop(&m);
}

static void every_failed_allocation_is_told_and_leaks_nothing(void **state)
{
    (void)state;
    static const char *const pieces[] = {"ab"};
    static const char *const merges[] = {"a b"};
    struct made m = make(make_bpe("gpt-2", pieces, 1, merges, 1));
    int n = 1;
    for (int err = -ENOMEM; err; n++) {
        struct llm_vocab *vocab = NULL;
        allocations_left = n - 1;
        counting = true;
        err = llm_vocab_create_gguf(&m.gguf, LLM_VOCAB_MAX, &vocab, why);
        counting = false;
        assert_true(err == 0 || err == -ENOMEM);
        llm_vocab_destroy(vocab);
    }
    assert_in_range(n, 6, 100);
    n = 1;
    for (int64_t got = -ENOMEM; got < 0; n++) {
        allocations_left = n - 1;
        counting = true;
        got = llm_vocab_encode(m.vocab, "ab abab", 7, NULL, 0);
        counting = false;
        assert_true(got == -ENOMEM || got == 4);
    }
    assert_in_range(n, 3, 100);
    drop(&m);
    m = make(make_spm(0, NULL));
    n = 1;
    for (int64_t got = -ENOMEM; got < 0; n++) {
        allocations_left = n - 1;
        counting = true;
        got = llm_vocab_encode(m.vocab, "bab", 3, NULL, 0);
        counting = false;
        assert_true(got == -ENOMEM || got == 3);
    }
    assert_in_range(n, 4, 100);
    drop(&m);
}

/* ---- llama2.c's tokenizer ---- */

static struct image make_llama2c(void)
{
    static const char *const texts[] = {"<unk>", "\n<s>\n", "\n</s>\n", "<0x21>", " ", "a", " a"};
    struct image_writer w;
    image_begin(&w, 0, 0);
    rewind(w.out); /* none of GGUF's header */
    gguf_put_u32(&w.gguf, 6);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        gguf_put_u32(&w.gguf, 0x3f800000);
        gguf_put_u32(&w.gguf, (uint32_t)strlen(texts[i]));
        gguf_write_data(&w.gguf, texts[i], strlen(texts[i]));
    }
    return image_end(&w);
}

static void llama2c_tokenizers_are_read(void **state)
{
    (void)state;
    struct image image = make_llama2c();
    struct llm_vocab *vocab;
    assert_int_equal(llm_vocab_parse_llama2c(image.bytes, image.size, 7, &vocab, why), 0);
    EXPECT(vocab, "a a!", 6, 6, 3);
    assert_int_equal(llm_vocab_bos(vocab), 1);
    assert_true(llm_vocab_ends(vocab, 1) && llm_vocab_ends(vocab, 2));
    llm_vocab_destroy(vocab);
    for (size_t size = 0; size < image.size; size++) {
        struct image cut = image_prefix(&image, size);
        assert_int_equal(llm_vocab_parse_llama2c(cut.bytes, size, 7, &vocab, why), -EPROTO);
        image_free(&cut);
    }
    assert_int_equal(llm_vocab_parse_llama2c(image.bytes, image.size, 6, &vocab, why), -EPROTO);
    assert_int_equal(llm_vocab_parse_llama2c(image.bytes, image.size, 8, &vocab, why), -EPROTO);
    assert_int_equal(llm_vocab_create_llama2c("/nowhere/tok.bin", 7, &vocab, why), -ENOENT);
    assert_int_equal(llm_vocab_create_llama2c("/tmp", 7, &vocab, why), -EPROTO);
    image_free(&image);
}

static void synthetic_models_take_any_prompt(void **state)
{
    (void)state;
    struct llm_synth synth = image_tiny(LLM_LLAMA);
    synth.config.vocab = 400;
    struct image image = image_synth(&synth);
    struct llm_file *file;
    struct llm_vocab *vocab;
    assert_int_equal(llm_file_parse(image.bytes, image.size, &file, why), 0);
    assert_int_equal(llm_vocab_create(file, NULL, &vocab, why), 0);
    assert_int_equal(llm_vocab_size(vocab), 400);
    char text[256];
    uint32_t ids[256];
    for (int i = 0; i < 256; i++)
        text[i] = (char)i;
    assert_int_equal(llm_vocab_encode(vocab, text, 256, ids, 256), 256);
    for (int i = 0; i < 256; i++) {
        size_t bytes;
        const char *piece = llm_vocab_piece(vocab, ids[i], false, &bytes);
        assert_int_equal(bytes, 1);
        assert_memory_equal(piece, text + i, 1);
    }
    EXPECT(vocab, "<|endoftext|>", 256);
    assert_true(llm_vocab_ends(vocab, 256));
    llm_vocab_destroy(vocab);
    llm_file_close(file);
    image_free(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_join_by_score_then_from_the_left),
        cmocka_unit_test(what_is_no_piece_goes_byte_by_byte),
        cmocka_unit_test(special_tokens_are_found_in_texts),
        cmocka_unit_test(marks_of_phi3_take_the_blanks_after_them),
        cmocka_unit_test(flags_of_the_file_are_kept),
        cmocka_unit_test(merges_join_in_their_order),
        cmocka_unit_test(merges_in_circles_end),
        cmocka_unit_test(whole_words_come_before_merges),
        cmocka_unit_test(texts_are_cut_as_the_expressions_say),
        cmocka_unit_test(characters_have_their_classes),
        cmocka_unit_test(byte_texts_lead_back),
        cmocka_unit_test(ids_and_flags_that_do_not_fit_are_refused),
        cmocka_unit_test(columns_that_do_not_fit_are_refused),
        cmocka_unit_test(vocabularies_of_other_kinds_are_named),
        cmocka_unit_test(merges_that_are_none_are_refused),
        cmocka_unit_test(sizes_have_limits),
        cmocka_unit_test(equal_pieces_and_specials_do_no_harm),
        cmocka_unit_test(every_failed_allocation_is_told_and_leaks_nothing),
        cmocka_unit_test(llama2c_tokenizers_are_read),
        cmocka_unit_test(synthetic_models_take_any_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
