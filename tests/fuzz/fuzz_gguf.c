/* A GGUF file from anywhere: parsed, its vocabulary built and used, its tensors touched. */
#include "llm/engine/rope.h"
#include "llm/model/file.h"
#include "llm/tokenizer/vocab_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IDS_MAX = 256, ROPE_DIMS_MAX = 512 };

/* What is read back must be tokens of the vocabulary, and their pieces readable. */
static void use_vocab(const struct llm_vocab *vocab, const char *text, size_t bytes)
{
    uint32_t ids[IDS_MAX];
    int64_t count = llm_vocab_encode(vocab, text, bytes, ids, IDS_MAX);
    for (int64_t i = 0; i < count && i < IDS_MAX; i++) {
        size_t piece_bytes;
        const char *piece = llm_vocab_piece(vocab, ids[i], i == 0, &piece_bytes);
        if (ids[i] >= llm_vocab_size(vocab) || piece_bytes > LLM_PIECE_BYTES_MAX)
            abort();
        volatile char last = piece_bytes ? piece[piece_bytes - 1] : 0;
        (void)last;
        (void)llm_vocab_ends(vocab, ids[i]);
    }
}

static void use_metadata(const uint8_t *data, size_t size)
{
    static const char text[] = "Hello, w\xc3\xb6rld's  123\n\n\xff<s>ab<|im_end|>";
    char why[LLM_WHY_CHARS];
    struct gguf gguf;
    struct llm_vocab *vocab;
    if (gguf_init(&gguf, data, size, why))
        return;
    if (llm_vocab_create_gguf(&gguf, LLM_VOCAB_MAX, &vocab, why) == 0) {
        use_vocab(vocab, text, sizeof(text) - 1);
        use_vocab(vocab, (const char *)data, size < 512 ? size : 512);
        llm_vocab_destroy(vocab);
    }
    gguf_fini(&gguf);
}

/* Scales of any size yield some floats. */
static void use_rope(const struct llm_config *c)
{
    struct llm_rope *rope;
    if (c->rope_dims > ROPE_DIMS_MAX || llm_rope_create(c, NULL, &rope))
        return;
    float angles[ROPE_DIMS_MAX];
    for (uint32_t t = 0; t < llm_rope_tables(rope); t++)
        llm_rope_angles(rope, t, UINT32_MAX, angles);
    for (uint32_t l = 0; l < c->layers; l++) {
        struct llm_rope_choice choice = llm_rope_choose(c, l);
        if (choice.q >= llm_rope_tables(rope) || choice.k >= llm_rope_tables(rope))
            abort();
    }
    llm_rope_destroy(rope);
}

/* What the engine relies on once a file is open. */
static void use_file(const struct llm_file *file)
{
    const struct llm_config *c = llm_file_config(file);
    if (c->layers == 0 || c->layers > LLM_LAYERS_MAX || c->heads % c->kv_heads ||
        c->rope_dims > c->head_dim || c->vocab == 0 || c->vocab > LLM_VOCAB_MAX)
        abort();
    if (c->experts > LLM_EXPERTS_MAX || c->experts_used > c->experts ||
        (c->experts > 0) != (c->experts_used > 0) || c->window_period > LLM_LAYERS_MAX ||
        c->shared_ffn > LLM_WIDTH_MAX || (c->shared_ffn > 0 && c->experts == 0))
        abort();
    use_rope(c);
    unsigned sum = 0;
    for (uint32_t i = 0; i < llm_file_tensor_count(file); i++) {
        const struct llm_tensor *tensor = llm_file_tensor(file, i);
        const uint8_t *bytes = tensor->data;
        if (llm_file_find(file, tensor->name) != tensor)
            abort();
        sum += bytes[0] + bytes[tensor->bytes - 1];
    }
    volatile unsigned keep = sum;
    (void)keep;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[LLM_WHY_CHARS];
    struct llm_file *file;
    /* Of just that size and aligned, as a mapping is. */
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    use_metadata(copy, size);
    if (llm_file_parse(copy, size, &file, why) == 0) {
        use_file(file);
        llm_file_close(file);
    }
    free(copy);
    return 0;
}
