/* Knows what each tensor is for: weights that the worker has are not sent, the cache stays at the
 * worker, tokens are varints.  What the consumer needs comes back: sampled tokens, the top k, or
 * logits in the codec that the link asks for.
 *
 * A blind kind knows less: it sends the weights and takes all logits, always packed. */
#include "base/clock.h"
#include "llm/model/why.h"
#include "llm/modes/remote_mode.h"
#include "llm/worker/result.h"

#include <errno.h>

struct semantic {
    struct llm_remote_mode base;
    struct llm_wish wish;
    struct llm_packer packer;
    uint32_t tokens_per_request;
    uint64_t id; /* stands for the handle on this connection */
    uint8_t handle[LLM_HANDLE_BYTES];
};

static void semantic_close(struct llm_mode *mode)
{
    struct semantic *m = (struct semantic *)mode;
    llm_packer_fini(&m->packer);
    llm_remote_mode_destroy(&m->base);
}

/* Sampling from the top k is exact when no other token can be drawn. */
static int check_wish(const struct llm_mode_config *config, char *why)
{
    const struct llm_sampling *s = &config->sampling;
    uint32_t k = config->wish.top_k;
    if (config->wish.kind == LLM_WISH_TOP_K && s->temperature != 0 &&
        (s->top_k == 0 || s->top_k > k))
        return llm_why(why, -EINVAL,
                       "the top %u are not enough to draw from all tokens: sample with a top k of "
                       "1 to %u, or greedily",
                       k, k);
    return 0;
}

enum { ALWAYS_PACKED = 1 }; /* bytes a second: on such a link packing pays */

static int build(struct semantic *m, const struct llm_mode_kind *kind,
                 const struct llm_mode_config *config, char *why)
{
    m->wish = kind->blind ? (struct llm_wish){.kind = LLM_WISH_LOGITS, .link_rate = ALWAYS_PACKED}
                          : config->wish;
    if (!m->wish.kind)
        m->wish.kind = LLM_WISH_TOKENS;
    m->wish.sampling = config->sampling;
    m->tokens_per_request = config->tokens_per_request ? config->tokens_per_request : 1;
    if (llm_packer_init(&m->packer))
        return llm_why(why, -ENOMEM, "no memory for a codec");
    int rc = llm_remote_use_file(config->remote, config->file, kind->blind, why);
    if (rc == 0)
        rc = llm_remote_set_recovery(config->remote, kind->policy, why);
    if (rc == 0 && m->wish.kind == LLM_WISH_LOGITS && !kind->blind)
        rc = llm_remote_link_rate(config->remote, &m->wish.link_rate, why);
    return rc;
}

static int semantic_open(const struct llm_mode_kind *kind, const struct llm_mode_config *config,
                         struct llm_mode **out, char *why)
{
    struct llm_remote_mode *base;
    int rc = kind->blind ? 0 : check_wish(config, why);
    if (rc == 0)
        rc = llm_remote_mode_create(sizeof(struct semantic), config, &base, why);
    if (rc)
        return rc;
    rc = build((struct semantic *)base, kind, config, why);
    if (rc) {
        semantic_close(&base->mode);
        return rc;
    }
    *out = &base->mode;
    return 0;
}

static enum llm_class result_class(const struct semantic *m)
{
    return m->wish.kind == LLM_WISH_TOKENS ? LLM_TOKENS : LLM_LOGITS;
}

/* Tokens as they came, or one that is sampled here. */
static int take_result(struct semantic *m, struct wire_dec *d, uint32_t want, uint32_t *tokens,
                       uint32_t *got, char *why)
{
    uint64_t began = hw_now_ns();
    int64_t count = 1;
    if (m->wish.kind == LLM_WISH_TOKENS) {
        count = llm_get_tokens(d, tokens, want);
    } else {
        int rc = llm_result_get(&m->packer, &m->wish, d, m->base.logits, m->base.vocab);
        if (rc)
            return llm_why(why, rc, "the worker's result is malformed");
    }
    m->base.serdes_ns += hw_now_ns() - began;
    if (m->wish.kind != LLM_WISH_TOKENS)
        tokens[0] = llm_sampler_next(m->base.sampler, m->base.logits);
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] >= m->base.vocab)
            count = -EPROTO;
    }
    if (count <= 0)
        return llm_why(why, -EPROTO, "the worker's tokens are malformed");
    m->base.last = tokens[count - 1];
    *got = (uint32_t)count;
    return 0;
}

static int semantic_prefill(struct llm_mode *mode, const uint32_t *tokens, uint32_t count,
                            uint32_t *next, char *why)
{
    struct semantic *m = (struct semantic *)mode;
    struct llm_request request = {.method = LLM_METHOD_PREFILL_SEMANTIC,
                                  .wish = m->wish,
                                  .tokens = (uint32_t *)(uintptr_t)tokens, /* only encoded */
                                  .token_count = count};
    struct wire_dec d;
    uint32_t got;
    int rc = llm_remote_call(m->base.remote, &request, result_class(m), &d, why);
    if (rc)
        return rc;
    wire_get_copy(&d, m->handle, sizeof m->handle);
    m->id = wire_get_varint(&d);
    return take_result(m, &d, 1, next, &got, why);
}

static int semantic_decode(struct llm_mode *mode, uint32_t want, uint32_t *tokens, uint32_t *got,
                           char *why)
{
    struct semantic *m = (struct semantic *)mode;
    bool sampled_there = m->wish.kind == LLM_WISH_TOKENS;
    if (want > m->tokens_per_request)
        want = m->tokens_per_request;
    struct llm_request request = {.method = LLM_METHOD_DECODE_SEMANTIC,
                                  .id = m->id,
                                  .value = sampled_there ? want : m->base.last};
    struct wire_dec d;
    int rc = llm_remote_call(m->base.remote, &request, result_class(m), &d, why);
    return rc ? rc : take_result(m, &d, want, tokens, got, why);
}

static int semantic_evict(struct llm_mode *mode, const struct llm_layers *layers, char *why)
{
    struct semantic *m = (struct semantic *)mode;
    uint32_t missing;
    return llm_remote_evict(m->base.remote, m->handle, layers, &missing, why);
}

const struct llm_mode_ops llm_mode_semantic = {.open = semantic_open,
                                               .close = semantic_close,
                                               .prefill = semantic_prefill,
                                               .decode = semantic_decode,
                                               .figures = llm_remote_mode_figures,
                                               .traffic = llm_remote_mode_traffic,
                                               .evict = semantic_evict};
