/* Tokenizer files of a published model: tokenizer.json and, after a NUL, tokenizer_config.json; the
 * first byte is the number of tokens that the model has.  What they become is metadata that can be
 * read, and a vocabulary that is built of it can be used. */
#include "folder.h"
#include "fuzz.h"

#include "llm/convert/vocab_json.h"
#include "llm/model/why.h"
#include "llm/tokenizer/vocab_impl.h"
#include "wire/le.h"

enum { PAIRS_MAX = 64, PAIR_COUNT_AT = 16, IDS_MAX = 256 };

static void use(const char *pairs, size_t bytes)
{
    static const char text[] = "Hello, w\xc3\xb6rld's  123\n\n\xff<s>ab";
    char why[LLM_WHY_CHARS];
    struct gguf gguf;
    struct llm_vocab *vocab;
    require(gguf_init(&gguf, pairs, bytes, why) == 0);
    if (llm_vocab_create_gguf(&gguf, LLM_VOCAB_MAX, &vocab, why) == 0) {
        uint32_t ids[IDS_MAX];
        int64_t count = llm_vocab_encode(vocab, text, sizeof text - 1, ids, IDS_MAX);
        for (int64_t i = 0; i < count && i < IDS_MAX; i++)
            require(ids[i] < llm_vocab_size(vocab));
        llm_vocab_destroy(vocab);
    }
    gguf_fini(&gguf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint32_t rows = *data++ + 1U;
    size--;
    folder_take("tokenizer.json", &data, &size);
    folder_take("tokenizer_config.json", &data, &size);

    char *pairs = NULL, why[LLM_WHY_CHARS];
    size_t bytes = 0;
    FILE *out = open_memstream(&pairs, &bytes);
    json_t *config = json_object();
    require(out != NULL && config != NULL);
    struct gguf_writer writer;
    gguf_write_begin(&writer, out, 0, PAIRS_MAX);
    int err = llm_vocab_json_write(&writer, folder_path(), config, rows, why);
    require(fclose(out) == 0);
    if (err == 0) {
        wire_store64(pairs + PAIR_COUNT_AT, PAIRS_MAX - writer.pairs_left);
        use(pairs, bytes);
    }
    json_decref(config);
    free(pairs);
    return 0;
}
