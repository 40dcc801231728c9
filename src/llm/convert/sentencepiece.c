#include "llm/convert/sentencepiece.h"

#include "llm/model/shape.h"
#include "llm/model/why.h"
#include "wire/le.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 }; /* kinds of fields */
enum { VARINT_BYTES_MAX = 10, TYPES = 6 };

/* ---- protocol buffers ---- */

/* A message; is_bad sticks and ends it. */
struct reader {
    const uint8_t *at, *end;
    bool is_bad;
};

struct field {
    uint32_t number, kind;
    uint64_t value;      /* of VARINT, FIXED64 and FIXED32 */
    struct reader inner; /* of BYTES */
};

static uint64_t next_varint(struct reader *r)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < VARINT_BYTES_MAX && r->at < r->end; i++) {
        uint8_t byte = *r->at++;
        value |= (uint64_t)(byte & 127) << 7 * i;
        if (byte < 128)
            return value;
    }
    r->is_bad = true;
    return 0;
}

static const uint8_t *next_bytes(struct reader *r, uint64_t count)
{
    const uint8_t *bytes = r->at;
    if (r->is_bad || count > (uint64_t)(r->end - r->at)) {
        r->is_bad = true;
        return NULL;
    }
    r->at += count;
    return bytes;
}

/* false: the message ends, or is bad. */
static bool next_field(struct reader *r, struct field *out)
{
    if (r->is_bad || r->at == r->end)
        return false;
    uint64_t tag = next_varint(r), count;
    const uint8_t *bytes;
    *out = (struct field){.number = (uint32_t)(tag >> 3), .kind = tag & 7};
    switch (out->kind) {
    case VARINT:
        out->value = next_varint(r);
        break;
    case FIXED64:
        bytes = next_bytes(r, 8);
        out->value = bytes ? wire_load64(bytes) : 0;
        break;
    case FIXED32:
        bytes = next_bytes(r, 4);
        out->value = bytes ? wire_load32(bytes) : 0;
        break;
    case BYTES:
        count = next_varint(r);
        bytes = next_bytes(r, count);
        out->inner = (struct reader){.at = bytes, .end = bytes ? bytes + count : NULL};
        break;
    default:
        r->is_bad = true;
    }
    r->is_bad = r->is_bad || tag >> 3 == 0 || tag >> 3 > UINT32_MAX;
    return !r->is_bad;
}

/* ---- pieces ---- */

static int put_text(struct llm_sp_piece *piece, struct reader text, char **texts, uint32_t id,
                    char *why)
{
    size_t bytes = (size_t)(text.end - text.at);
    if (bytes == 0 || memchr(text.at, 0, bytes))
        return llm_why(why, -EPROTO, "tokenizer.model: piece %u is empty or has a zero byte", id);
    memcpy(*texts, text.at, bytes);
    (*texts)[bytes] = 0;
    piece->text = *texts;
    *texts += bytes + 1;
    return 0;
}

static int read_piece(struct reader r, struct llm_sp_piece *piece, char **texts, uint32_t id,
                      char *why)
{
    struct field f;
    struct reader text = {0};
    *piece = (struct llm_sp_piece){.type = 1};
    while (next_field(&r, &f)) {
        uint32_t bits = (uint32_t)f.value;
        if (f.number == 1 && f.kind == BYTES)
            text = f.inner;
        else if (f.number == 2 && f.kind == FIXED32)
            memcpy(&piece->score, &bits, sizeof(bits));
        else if (f.number == 3 && f.kind == VARINT)
            piece->type = f.value <= TYPES ? (uint8_t)f.value : 0;
    }
    if (r.is_bad || !text.at || piece->type == 0 || !isfinite(piece->score))
        return llm_why(why, -EPROTO, "tokenizer.model: piece %u is damaged", id);
    return put_text(piece, text, texts, id, why);
}

/* ---- settings ---- */

static int read_training(struct reader r, struct llm_sp *sp, char *why)
{
    struct field f;
    while (next_field(&r, &f)) {
        if (f.kind != VARINT)
            continue;
        if (f.number == 3)
            sp->algorithm = f.value <= LLM_SP_BPE ? (uint32_t)f.value : 0;
        else if (f.number == 24)
            sp->blanks_at_end = f.value != 0;
        else if (f.number == 40)
            sp->unknown = (int32_t)(uint32_t)f.value;
        else if (f.number == 41)
            sp->bos = (int32_t)(uint32_t)f.value;
        else if (f.number == 42)
            sp->eos = (int32_t)(uint32_t)f.value;
    }
    return r.is_bad ? llm_why(why, -EPROTO, "tokenizer.model: its trainer_spec is damaged") : 0;
}

static int read_rules(struct reader r, struct llm_sp *sp, char *why)
{
    struct field f;
    while (next_field(&r, &f)) {
        if (f.number == 2 && f.kind == BYTES)
            sp->has_table = f.inner.at != f.inner.end;
        else if (f.number == 3 && f.kind == VARINT)
            sp->adds_space = f.value != 0;
        else if (f.number == 4 && f.kind == VARINT)
            sp->joins_blanks = f.value != 0;
        else if (f.number == 5 && f.kind == VARINT)
            sp->has_plain_blanks = f.value == 0;
    }
    return r.is_bad ? llm_why(why, -EPROTO, "tokenizer.model: its normalizer_spec is damaged") : 0;
}

/* ---- the file ---- */

static int count_pieces(struct reader r, uint32_t *out, char *why)
{
    struct field f;
    uint32_t count = 0;
    while (next_field(&r, &f)) {
        count += f.number == 1 && f.kind == BYTES;
        if (count > LLM_VOCAB_MAX)
            return llm_why(why, -EPROTO, "tokenizer.model has more than %d pieces", LLM_VOCAB_MAX);
    }
    if (r.is_bad)
        return llm_why(why, -EPROTO, "tokenizer.model is damaged or cut off after %u pieces",
                       count);
    if (count == 0)
        return llm_why(why, -EPROTO, "tokenizer.model has no pieces");
    *out = count;
    return 0;
}

static int read_all(struct llm_sp *sp, struct reader r, char *why)
{
    struct field f;
    char *texts = sp->texts;
    uint32_t id = 0;
    int err = 0;
    while (!err && next_field(&r, &f)) {
        if (f.kind != BYTES)
            continue;
        if (f.number == 1) {
            err = read_piece(f.inner, &sp->pieces[id], &texts, id, why);
            id++;
        } else if (f.number == 2) {
            err = read_training(f.inner, sp, why);
        } else if (f.number == 3) {
            err = read_rules(f.inner, sp, why);
        }
    }
    return err;
}

static int32_t id_within(int32_t id, uint32_t count)
{
    return id >= 0 && (uint32_t)id < count ? id : -1;
}

int llm_sp_parse(struct llm_sp *sp, const void *bytes, size_t size, char *why)
{
    const struct reader r = {.at = bytes, .end = (const uint8_t *)bytes + size};
    /* What a file leaves out has these values. */
    *sp = (struct llm_sp){.algorithm = LLM_SP_UNIGRAM,
                          .unknown = 0,
                          .bos = 1,
                          .eos = 2,
                          .adds_space = true,
                          .joins_blanks = true};
    int err = count_pieces(r, &sp->count, why);
    if (err)
        return err;
    sp->pieces = calloc(sp->count, sizeof(*sp->pieces));
    sp->texts = malloc(size); /* a text's tag and length are longer than its final 0 */
    err = sp->pieces && sp->texts ? read_all(sp, r, why)
                                  : llm_why(why, -ENOMEM, "out of memory for tokenizer.model");
    if (err) {
        llm_sp_fini(sp);
        return err;
    }
    sp->unknown = id_within(sp->unknown, sp->count);
    sp->bos = id_within(sp->bos, sp->count);
    sp->eos = id_within(sp->eos, sp->count);
    return 0;
}

void llm_sp_fini(struct llm_sp *sp)
{
    free(sp->pieces);
    free(sp->texts);
    *sp = (struct llm_sp){0};
}
