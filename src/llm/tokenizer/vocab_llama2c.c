/* llama2.c's tokenizer.bin: u32 longest text, then for each token f32 score, i32 bytes, text.
 * SentencePiece's pieces with plain blanks; token 0 is unknown, 1 begins a text, 2 ends it, and
 * "<0xNN>" are bytes.  The model tells how many there are. */
#include "llm/tokenizer/vocab_impl.h"

#include "llm/model/why.h"
#include "wire/dec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    UNKNOWN_ID = 0,
    BOS_ID = 1,
    EOS_ID = 2,
    TOKENIZER_BYTES_MAX = 64 << 20, /* published ones have 434 KB for 32,000 tokens */
};

static uint8_t type_of(uint32_t id, struct gguf_string text)
{
    if (id == UNKNOWN_ID)
        return LLM_TOKEN_UNKNOWN;
    if (id == BOS_ID || id == EOS_ID)
        return LLM_TOKEN_CONTROL;
    bool byte = text.bytes == 6 && memcmp(text.text, "<0x", 3) == 0 && text.text[5] == '>';
    return byte ? LLM_TOKEN_BYTE : LLM_TOKEN_NORMAL;
}

/* Texts are copied: the file may be closed. */
static int read_token(struct llm_vocab *vocab, uint32_t id, struct wire_dec *d, char *why)
{
    struct llm_token *token = &vocab->tokens[id];
    token->score = wire_get_f32(d);
    uint32_t bytes = wire_get_u32(d);
    if (bytes > LLM_PIECE_BYTES_MAX)
        return llm_why(why, -EPROTO, "token %u has %u bytes; %d at most", id, bytes,
                       LLM_PIECE_BYTES_MAX);
    const uint8_t *text = wire_get_bytes(d, bytes);
    if (!text)
        return llm_why(why, -EPROTO, "the tokenizer ends in token %u of %u", id, vocab->count);
    char *copy = hw_arena_alloc(&vocab->arena, bytes, 1);
    if (!copy)
        return llm_why(why, -ENOMEM, "out of memory for the vocabulary");
    memcpy(copy, text, bytes);
    token->text = (struct gguf_string){.text = copy, .bytes = bytes};
    token->type = type_of(id, token->text);
    return 0;
}

static int fill(struct llm_vocab *vocab, struct wire_dec *d, char *why)
{
    (void)wire_get_u32(d); /* the longest text: computed here instead */
    int err = 0;
    for (uint32_t id = 0; id < vocab->count && !err; id++)
        err = read_token(vocab, id, d, why);
    if (err)
        return err;
    if (wire_dec_end(d))
        return llm_why(why, -EPROTO, "the tokenizer goes on after the model's %u tokens",
                       vocab->count);
    vocab->space = " ";
    vocab->adds_space = true;
    vocab->unknown = UNKNOWN_ID;
    vocab->bos = BOS_ID;
    vocab->eos = EOS_ID;
    vocab->adds_bos = true;
    err = llm_vocab_index(vocab, why);
    vocab->tokens[BOS_ID].ends = true; /* llama2.c's models put it between two texts */
    vocab->tokens[EOS_ID].ends = true;
    return err ? err : llm_vocab_finish_spm(vocab, why);
}

int llm_vocab_parse_llama2c(const void *bytes, size_t size, uint32_t count, struct llm_vocab **out,
                            char *why)
{
    if (count <= EOS_ID || count > LLM_VOCAB_MAX || count > size / 8)
        return llm_why(why, -EPROTO, "the tokenizer is too short for %u tokens", count);
    struct llm_vocab *vocab = llm_vocab_alloc(LLM_VOCAB_SPM, count);
    if (!vocab)
        return llm_why(why, -ENOMEM, "out of memory for the vocabulary");
    struct wire_dec d;
    wire_dec_init(&d, bytes, size);
    int err = fill(vocab, &d, why);
    if (err) {
        llm_vocab_destroy(vocab);
        return err;
    }
    *out = vocab;
    return 0;
}

static int read_whole(int fd, size_t size, uint8_t **out)
{
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return -ENOMEM;
    size_t have = 0;
    int err = 0;
    while (have < size && !err) {
        ssize_t n = read(fd, bytes + have, size - have);
        if (n > 0)
            have += (size_t)n;
        else if (n == 0)
            err = -EIO; /* it shrank */
        else if (errno != EINTR)
            err = -errno;
    }
    if (err) {
        free(bytes);
        return err;
    }
    *out = bytes;
    return 0;
}

int llm_vocab_create_llama2c(const char *path, uint32_t count, struct llm_vocab **out, char *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        int err = -errno;
        if (fd >= 0)
            close(fd);
        return llm_why(why, err, "cannot open %s: %s", path, strerror(-err));
    }
    uint8_t *bytes = NULL;
    int err = -EPROTO;
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > TOKENIZER_BYTES_MAX)
        llm_why_set(why, "%s is no tokenizer", path);
    else if ((err = read_whole(fd, (size_t)st.st_size, &bytes)))
        llm_why_set(why, "cannot read %s: %s", path, strerror(-err));
    else
        err = llm_vocab_parse_llama2c(bytes, (size_t)st.st_size, count, out, why);
    free(bytes);
    close(fd);
    return err;
}
