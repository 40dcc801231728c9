/* byte_vocab.h - a small vocabulary for tests of chats: <unk>, <s>, </s>, the 256 bytes, and
 * pieces.
 *
 * Lifetime: byte_vocab_make/byte_vocab_drop. */
#ifndef HAWSER_TESTS_UNIT_LLM_BYTE_VOCAB_H
#define HAWSER_TESTS_UNIT_LLM_BYTE_VOCAB_H

#include "image.h"
#include "llm/tokenizer/vocab_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTE_VOCAB_BOS = 1, BYTE_VOCAB_EOS = 2, BYTE_VOCAB_FIRST = 3 };

struct byte_vocab {
    struct image image;
    struct gguf gguf;
    struct llm_vocab *vocab;
};

/* A piece in brackets is a control token, as Mistral's marks are; MiniMax' turn outwards. */
static inline bool byte_vocab_is_control(const char *piece)
{
    size_t n = strlen(piece);
    return n > 2 &&
           ((piece[0] == '[' && piece[n - 1] == ']') || (piece[0] == ']' && piece[n - 1] == '['));
}

/* keys: pairs of a key and a string more. */
static inline struct byte_vocab byte_vocab_make(bool adds_bos, const char *const *pieces,
                                                uint32_t piece_count, const char *const *keys,
                                                uint32_t key_count)
{
    static const char *const names[] = {"<unk>", "<s>", "</s>"};
    struct image_writer w;
    struct byte_vocab made;
    char why[LLM_WHY_CHARS];
    uint32_t count = BYTE_VOCAB_FIRST + 256 + piece_count;
    image_begin(&w, 0, 6 + key_count);
    gguf_write_string(&w.gguf, "tokenizer.ggml.model", "llama");
    gguf_write_array(&w.gguf, "tokenizer.ggml.tokens", GGUF_STRING, count);
    for (uint32_t i = 0; i < count; i++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (i - BYTE_VOCAB_FIRST) & 0xff);
        const char *name = i < BYTE_VOCAB_FIRST         ? names[i]
                           : i < BYTE_VOCAB_FIRST + 256 ? text
                                                        : pieces[i - BYTE_VOCAB_FIRST - 256];
        gguf_put_string(&w.gguf, name, strlen(name));
    }
    gguf_write_array(&w.gguf, "tokenizer.ggml.scores", GGUF_F32, count);
    for (uint32_t i = 0; i < count; i++)
        gguf_put_u32(&w.gguf, 0);
    gguf_write_array(&w.gguf, "tokenizer.ggml.token_type", GGUF_I32, count);
    for (uint32_t i = 0; i < count; i++)
        gguf_put_u32(&w.gguf, i == 0                        ? LLM_TOKEN_UNKNOWN
                              : i < BYTE_VOCAB_FIRST        ? LLM_TOKEN_CONTROL
                              : i < BYTE_VOCAB_FIRST + 256u ? LLM_TOKEN_BYTE
                              : byte_vocab_is_control(pieces[i - BYTE_VOCAB_FIRST - 256])
                                  ? LLM_TOKEN_CONTROL
                                  : LLM_TOKEN_NORMAL);
    gguf_write_bool(&w.gguf, "tokenizer.ggml.add_bos_token", adds_bos);
    gguf_write_u32(&w.gguf, "tokenizer.ggml.eos_token_id", BYTE_VOCAB_EOS);
    for (uint32_t i = 0; i < key_count; i++)
        gguf_write_string(&w.gguf, keys[2 * i], keys[2 * i + 1]);
    made.image = image_end(&w);
    if (gguf_init(&made.gguf, made.image.bytes, made.image.size, why) ||
        llm_vocab_create_gguf(&made.gguf, LLM_VOCAB_MAX, &made.vocab, why)) {
        fprintf(stderr, "%s\n", why);
        abort();
    }
    return made;
}

static inline void byte_vocab_drop(struct byte_vocab *made)
{
    llm_vocab_destroy(made->vocab);
    gguf_fini(&made->gguf);
    image_free(&made->image);
}

#endif
