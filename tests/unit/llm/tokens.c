/* What the tokenizer makes of texts: bench/llm/agree compares it with llama.cpp.
 *
 *     llm-tokens FILE < texts > numbers    a line of numbers for each text
 *
 * FILE is GGUF, with weights or without; each text ends with a zero byte. */
#include "llm/model/why.h"
#include "llm/tokenizer/vocab_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "llm-tokens: %s\n", what);
    return 1;
}

/* All of a stream, at an address that a model may have; NULL without memory. */
static char *read_all(FILE *in, size_t *bytes)
{
    char *all = NULL, chunk[65536];
    FILE *copy = in ? open_memstream(&all, bytes) : NULL;
    if (!copy)
        return NULL;
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, in)) > 0;)
        fwrite(chunk, 1, n, copy);
    return fclose(copy) ? NULL : all;
}

static int put(const struct llm_vocab *vocab, const char *text)
{
    size_t bytes = strlen(text), room = bytes + 16;
    uint32_t *ids = malloc(room * sizeof *ids);
    int64_t count = ids ? llm_vocab_encode(vocab, text, bytes, ids, room) : -1;
    if (count < 0)
        return fail("cannot encode");
    if (llm_vocab_adds_bos(vocab))
        printf("%d%s", llm_vocab_bos(vocab), count ? " " : "");
    for (int64_t i = 0; i < count; i++)
        printf("%s%u", i ? " " : "", ids[i]);
    printf("\n");
    free(ids);
    return 0;
}

int main(int argc, char **argv)
{
    char why[LLM_WHY_CHARS] = "";
    size_t bytes, texts_bytes;
    struct gguf gguf;
    struct llm_vocab *vocab;
    if (argc != 2)
        return fail("see the head of tests/unit/llm/tokens.c");
    FILE *in = fopen(argv[1], "rb");
    char *image = read_all(in, &bytes), *texts = read_all(stdin, &texts_bytes);
    if (!image || !texts)
        return fail("cannot read the file or the texts");
    fclose(in);
    if (gguf_init(&gguf, image, bytes, why) ||
        llm_vocab_create_gguf(&gguf, LLM_VOCAB_MAX, &vocab, why))
        return fail(why);
    int status = 0;
    for (const char *text = texts; text < texts + texts_bytes && !status; text += strlen(text) + 1)
        status = put(vocab, text);
    llm_vocab_destroy(vocab);
    gguf_fini(&gguf);
    free(image);
    free(texts);
    return status;
}
