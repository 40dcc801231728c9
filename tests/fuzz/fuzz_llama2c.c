/* llama2.c's formats: the input is a model, and a tokenizer of as many tokens as its first byte
 * says. */
#include "llm/model/file.h"
#include "llm/tokenizer/vocab_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_model(const uint8_t *data, size_t size)
{
    char why[LLM_WHY_CHARS];
    struct llm_file *file;
    if (llm_file_parse(data, size, &file, why))
        return;
    for (uint32_t i = 0; i < llm_file_tensor_count(file); i++) {
        const struct llm_tensor *tensor = llm_file_tensor(file, i);
        const uint8_t *bytes = tensor->data;
        if (bytes < data || tensor->bytes > size - (size_t)(bytes - data))
            abort();
    }
    llm_file_close(file);
}

static void use_tokenizer(const uint8_t *data, size_t size)
{
    static const char text[] = "Once upon a time \xff!";
    char why[LLM_WHY_CHARS];
    struct llm_vocab *vocab;
    uint32_t ids[64];
    if (size == 0 || llm_vocab_parse_llama2c(data + 1, size - 1, data[0], &vocab, why))
        return;
    int64_t count = llm_vocab_encode(vocab, text, sizeof(text) - 1, ids, 64);
    for (int64_t i = 0; i < count && i < 64; i++) {
        size_t bytes;
        (void)llm_vocab_piece(vocab, ids[i], i == 0, &bytes);
        if (bytes > LLM_PIECE_BYTES_MAX)
            abort();
    }
    llm_vocab_destroy(vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1); /* of just that size, aligned */
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    use_model(copy, size);
    use_tokenizer(copy, size);
    free(copy);
    return 0;
}
