#include "llm/worker/result.h"

#include "base/clock.h"
#include "base/order.h"

#include <math.h>
#include <stdlib.h>

int llm_packer_init(struct llm_packer *p)
{
    *p = (struct llm_packer){.ratio = 1};
    return wire_codec_ctx_create(&p->codec);
}

void llm_packer_fini(struct llm_packer *p)
{
    wire_codec_ctx_destroy(p->codec);
    p->codec = NULL;
}

/* ---- top k ---- */

static int put_top(uint32_t k, const float *logits, uint32_t vocab, struct wire_enc *e)
{
    struct hw_ranked *top = malloc(k * sizeof *top);
    if (!top)
        return -ENOMEM;
    uint32_t count = hw_top(logits, vocab, k, top);
    for (uint32_t i = 0; i < count; i++) {
        wire_put_varint(e, top[i].index);
        wire_put_f32(e, top[i].value);
    }
    free(top);
    return wire_enc_error(e);
}

static int get_top(uint32_t k, struct wire_dec *d, float *logits, uint32_t vocab)
{
    uint32_t expected = k < vocab ? k : vocab;
    for (uint32_t i = 0; i < vocab; i++)
        logits[i] = -INFINITY;
    for (uint32_t i = 0; i < expected; i++) {
        uint64_t token = wire_get_varint(d);
        float logit = wire_get_f32(d);
        if (token >= vocab)
            wire_dec_fail(d, -EPROTO);
        else
            logits[token] = logit;
    }
    return wire_dec_end(d);
}

/* ---- logits ---- */

static int put_logits(struct llm_packer *p, const struct llm_wish *wish, const float *logits,
                      uint32_t vocab, struct wire_enc *e)
{
    struct wire_codec_params params = {.allow_lossy = wish->lossy};
    bool trial = wish->link_rate && p->blocks++ % LLM_PACK_AGAIN == 0;
    bool pack = trial || llm_packing_pays(p->ratio, p->ns_per_byte, wish->link_rate);
    enum wire_codec codec = wish->lossy ? pack ? WIRE_CODEC_HALF_SHUFFLE_ZSTD : WIRE_CODEC_HALF
                            : pack      ? WIRE_CODEC_SHUFFLE_ZSTD
                                        : WIRE_CODEC_RAW;
    size_t before = wire_enc_len(e), plain = vocab * (wish->lossy ? 2 : sizeof *logits);
    uint64_t began = hw_now_ns();
    int rc = wire_codec_encode(p->codec, codec, WIRE_DTYPE_F32, logits, vocab, &params, e);
    if (rc == 0 && trial) {
        p->ns_per_byte = (double)(hw_now_ns() - began) / (double)plain;
        p->ratio = (double)(wire_enc_len(e) - before) / (double)plain;
    }
    return rc;
}

static int get_logits(struct llm_packer *p, bool lossy, struct wire_dec *d, float *logits,
                      uint32_t vocab)
{
    struct wire_block block;
    size_t bytes = vocab * sizeof *logits;
    int rc = wire_codec_parse(d, bytes, &block);
    if (rc == 0)
        rc = wire_dec_end(d);
    if (rc == 0 &&
        (block.raw_bytes != bytes || block.dtype != WIRE_DTYPE_F32 || (block.lossy && !lossy)))
        rc = -EPROTO;
    return rc ? rc : wire_codec_decode(p->codec, &block, logits, bytes);
}

int llm_result_put(struct llm_packer *p, const struct llm_wish *wish, const float *logits,
                   uint32_t vocab, struct wire_enc *e)
{
    return wish->kind == LLM_WISH_TOP_K ? put_top(wish->top_k, logits, vocab, e)
                                        : put_logits(p, wish, logits, vocab, e);
}

int llm_result_get(struct llm_packer *p, const struct llm_wish *wish, struct wire_dec *d,
                   float *logits, uint32_t vocab)
{
    return wish->kind == LLM_WISH_TOP_K ? get_top(wish->top_k, d, logits, vocab)
                                        : get_logits(p, wish->lossy, d, logits, vocab);
}
