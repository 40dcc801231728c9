/* Tokenizers against llama.cpp: difficult texts under two vocabularies of the tree, and the ids
 * that llama.cpp's own test files hold.  Those are not part of the tree: where they are not, there
 * is no test of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "llm/tokenizer/vocab_impl.h"

enum { IDS_MAX = 4096 };

static const char separator[] = "\n__ggml_vocab_test__\n";

static const char *data_dir(void)
{
    const char *given = getenv("HAWSER_TEST_DATA");
    return given ? given : HAWSER_SHARED_DATA;
}

/* Ends with a 0, at an address that a model may have. */
static char *slurp(const char *folder, const char *name, size_t *bytes)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = NULL;
    FILE *copy = open_memstream(&text, bytes);
    assert_non_null(copy);
    char chunk[65536];
    for (size_t n; (n = fread(chunk, 1, sizeof(chunk), file)) > 0;)
        assert_int_equal(fwrite(chunk, 1, n, copy), n);
    fclose(file);
    assert_int_equal(fclose(copy), 0);
    return text;
}

/* One line of numbers. */
static size_t parse_ids(char **line, uint32_t *ids)
{
    char *end = strchr(*line, '\n');
    assert_non_null(end);
    *end = 0;
    size_t count = 0;
    char *at = *line;
    for (;;) {
        char *next;
        unsigned long id = strtoul(at, &next, 10);
        if (next == at)
            break;
        assert_in_range(count, 0, IDS_MAX - 1);
        ids[count++] = (uint32_t)id;
        at = next;
    }
    *line = end + 1;
    return count;
}

static void expect_ids(const struct llm_vocab *vocab, const char *text, const uint32_t *ids,
                       size_t count)
{
    static uint32_t found[IDS_MAX];
    int64_t got = llm_vocab_encode(vocab, text, strlen(text), found, IDS_MAX);
    for (int64_t i = 0; i < got && i < (int64_t)count; i++) {
        if (found[i] != ids[i])
            print_error("text '%s': token %d is %u, not %u\n", text, (int)i, found[i], ids[i]);
    }
    assert_int_equal(got, count);
    assert_memory_equal(found, ids, count * sizeof(*ids));
}

/* Pieces put together are the text again. */
static void expect_text(const struct llm_vocab *vocab, const char *text, const uint32_t *ids,
                        size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *piece = llm_vocab_piece(vocab, ids[i], i == 0, &bytes);
        assert_in_range(bytes, 0, strlen(text) - at);
        assert_memory_equal(piece, text + at, bytes);
        at += bytes;
    }
    assert_int_equal(at, strlen(text));
}

static void run_cases(const struct llm_vocab *vocab, char *texts, char *ids_text)
{
    static uint32_t ids[IDS_MAX];
    char *text = texts, *line = ids_text;
    while (text) {
        char *next = strstr(text, separator);
        if (next)
            *next = 0;
        if (!next && *line == 0)
            break;
        size_t count = parse_ids(&line, ids);
        expect_ids(vocab, text, ids, count);
        expect_text(vocab, text, ids, count);
        text = next ? next + strlen(separator) : NULL;
    }
    assert_int_equal(*line, 0);
}

static void tokens_are_llama_cpps(void **state)
{
    const char *name = *state;
    char file[256], why[LLM_WHY_CHARS];
    size_t bytes, texts_bytes, ids_bytes;
    char *image = slurp(data_dir(), name, &bytes);
    snprintf(file, sizeof(file), "%s.inp", name);
    char *texts = slurp(data_dir(), file, &texts_bytes);
    snprintf(file, sizeof(file), "%s.out", name);
    char *ids = slurp(data_dir(), file, &ids_bytes);
    struct gguf gguf;
    struct llm_vocab *vocab = NULL;
    if (gguf_init(&gguf, image, bytes, why) ||
        llm_vocab_create_gguf(&gguf, LLM_VOCAB_MAX, &vocab, why))
        fail_msg("%s: %s", name, why);
    run_cases(vocab, texts, ids);
    llm_vocab_destroy(vocab);
    gguf_fini(&gguf);
    free(image);
    free(texts);
    free(ids);
}

struct golden {
    const char *file, *text;
    size_t count;
    uint32_t ids[128];
};

/* clang-format off */
static const struct golden goldens[] = {
#include "vocab_golden.inc"
};
/* clang-format on */

static void difficult_texts_become_llama_cpps_tokens(void **state)
{
    (void)state;
    char why[LLM_WHY_CHARS], *image = NULL;
    struct gguf gguf;
    struct llm_vocab *vocab = NULL;
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        const struct golden *g = &goldens[i];
        if (i == 0 || strcmp(g->file, goldens[i - 1].file) != 0) {
            size_t bytes;
            if (vocab)
                gguf_fini(&gguf);
            llm_vocab_destroy(vocab);
            free(image);
            image = slurp(HAWSER_SOURCE_ROOT, g->file, &bytes);
            assert_int_equal(gguf_init(&gguf, image, bytes, why), 0);
            assert_int_equal(llm_vocab_create_gguf(&gguf, LLM_VOCAB_MAX, &vocab, why), 0);
        }
        /* The token that begins a text is the caller's to put. */
        assert_true(llm_vocab_adds_bos(vocab));
        assert_int_equal(llm_vocab_bos(vocab), g->ids[0]);
        expect_ids(vocab, g->text, g->ids + 1, g->count - 1);
    }
    gguf_fini(&gguf);
    llm_vocab_destroy(vocab);
    free(image);
}

static void llama2c_tokens_make_the_text_again(void **state)
{
    (void)state;
    static const char text[] =
        "Once upon a time, there was a little girl named Lily. \xf0\x9f\x98\x80";
    size_t bytes;
    char why[LLM_WHY_CHARS], *image = slurp(data_dir(), "tok512.bin", &bytes);
    struct llm_vocab *vocab;
    assert_int_equal(llm_vocab_parse_llama2c(image, bytes, 512, &vocab, why), 0);
    free(image);
    uint32_t ids[128];
    int64_t count = llm_vocab_encode(vocab, text, strlen(text), ids, 128);
    assert_in_range(count, 10, 64); /* pieces, not bytes */
    expect_text(vocab, text, ids, (size_t)count);
    llm_vocab_destroy(vocab);
}

/* The vocabularies of other pre-tokenizers; test_pretok.c checks the rules that have none here. */
static char vocabularies[][32] = {"ggml-vocab-gpt-2.gguf",     "ggml-vocab-llama-spm.gguf",
                                  "ggml-vocab-starcoder.gguf", "ggml-vocab-falcon.gguf",
                                  "ggml-vocab-mpt.gguf",       "ggml-vocab-phi-3.gguf"};
enum { VOCABULARIES = sizeof vocabularies / sizeof vocabularies[0] };

static bool is_there(const char *name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", data_dir(), name);
    return access(path, R_OK) == 0;
}

int main(void)
{
    struct CMUnitTest tests[VOCABULARIES + 2] = {
        cmocka_unit_test(difficult_texts_become_llama_cpps_tokens)};
    size_t count = 1;
    for (size_t i = 0; i < VOCABULARIES; i++) {
        if (is_there(vocabularies[i]))
            tests[count++] = (struct CMUnitTest){.name = vocabularies[i],
                                                 .test_func = tokens_are_llama_cpps,
                                                 .initial_state = vocabularies[i]};
    }
    if (is_there("tok512.bin"))
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(llama2c_tokens_make_the_text_again);
    return _cmocka_run_group_tests("vocabularies", tests, count, NULL, NULL);
}
