/* Tokenizers against the ids that llama.cpp's own test files hold.  The files are not part of the
 * tree: without them the test is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llm/tokenizer/vocab_impl.h"

enum { IDS_MAX = 4096 };

static const char separator[] = "\n__ggml_vocab_test__\n";

static const char *data_dir(void)
{
    const char *given = getenv("HAWSER_TEST_DATA");
    return given ? given : HAWSER_SHARED_DATA;
}

/* NULL: there is no such file.  Ends with a 0, at an address that a model may have. */
static char *slurp(const char *name, size_t *bytes)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", data_dir(), name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
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
    int64_t got = llm_vocab_encode(vocab, text, strlen(text), false, found, IDS_MAX);
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

static void check_vocabulary(const char *name)
{
    char file[256], why[LLM_WHY_CHARS];
    size_t bytes, texts_bytes, ids_bytes;
    char *image = slurp(name, &bytes);
    snprintf(file, sizeof(file), "%s.inp", name);
    char *texts = slurp(file, &texts_bytes);
    snprintf(file, sizeof(file), "%s.out", name);
    char *ids = slurp(file, &ids_bytes);
    if (!image || !texts || !ids) {
        free(image);
        free(texts);
        free(ids);
        skip();
    }
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

static void gpt2_tokens_are_llama_cpps(void **state)
{
    (void)state;
    check_vocabulary("ggml-vocab-gpt-2.gguf");
}

static void llama_tokens_are_llama_cpps(void **state)
{
    (void)state;
    check_vocabulary("ggml-vocab-llama-spm.gguf");
}

/* Those of other pre-tokenizers; test_pretok.c checks the rules that have no vocabulary here. */
static void other_tokens_are_llama_cpps(void **state)
{
    check_vocabulary(*state);
}

static void llama2c_tokens_make_the_text_again(void **state)
{
    (void)state;
    static const char text[] =
        "Once upon a time, there was a little girl named Lily. \xf0\x9f\x98\x80";
    size_t bytes;
    char why[LLM_WHY_CHARS], *image = slurp("tok512.bin", &bytes);
    if (!image)
        skip();
    struct llm_vocab *vocab;
    assert_int_equal(llm_vocab_parse_llama2c(image, bytes, 512, &vocab, why), 0);
    free(image);
    uint32_t ids[128];
    int64_t count = llm_vocab_encode(vocab, text, strlen(text), false, ids, 128);
    assert_in_range(count, 10, 64); /* pieces, not bytes */
    expect_text(vocab, text, ids, (size_t)count);
    llm_vocab_destroy(vocab);
}

int main(void)
{
    static char starcoder[] = "ggml-vocab-starcoder.gguf", falcon[] = "ggml-vocab-falcon.gguf",
                mpt[] = "ggml-vocab-mpt.gguf", phi3[] = "ggml-vocab-phi-3.gguf";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_tokens_are_llama_cpps),
        cmocka_unit_test(llama_tokens_are_llama_cpps),
        cmocka_unit_test(llama2c_tokens_make_the_text_again),
        cmocka_unit_test_prestate(other_tokens_are_llama_cpps, starcoder),
        cmocka_unit_test_prestate(other_tokens_are_llama_cpps, falcon),
        cmocka_unit_test_prestate(other_tokens_are_llama_cpps, mpt),
        cmocka_unit_test_prestate(other_tokens_are_llama_cpps, phi3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
