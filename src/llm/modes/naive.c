/* Knows nothing of what it sends: weights, tokens and the whole cache go with every step, and the
 * cache comes back.  The next step sends that cache again. */
#include "llm/model/why.h"
#include "llm/modes/remote_mode.h"

#include <errno.h>
#include <stdlib.h>

struct naive {
    struct llm_remote_mode base;
    uint64_t position_bytes; /* of all layers */
    uint32_t positions;      /* in the cache */
    uint8_t *cache;
};

static int naive_open(const struct llm_mode_kind *kind, const struct llm_mode_config *config,
                      struct llm_mode **out, char *why)
{
    (void)kind;
    const struct llm_config *c = llm_file_config(config->file);
    struct llm_remote_mode *base;
    int rc = llm_remote_mode_create(sizeof(struct naive), config, &base, why);
    if (rc)
        return rc;
    struct naive *m = (struct naive *)base;
    m->position_bytes = UINT64_C(2) * c->layers * c->kv_heads * c->head_dim * sizeof(uint16_t);
    *out = &base->mode;
    return 0;
}

static void naive_close(struct llm_mode *mode)
{
    struct naive *m = (struct naive *)mode;
    free(m->cache);
    llm_remote_mode_destroy(&m->base);
}

static int send_all(struct naive *m, char *why)
{
    uint64_t bytes, cache = m->positions * m->position_bytes;
    const void *weights = llm_file_bytes(m->base.file, &bytes);
    int rc = llm_remote_upload(m->base.remote, LLM_UPLOAD_WEIGHTS, weights, bytes, why);
    if (rc == 0 && cache)
        rc = llm_remote_upload(m->base.remote, LLM_UPLOAD_KV, m->cache, cache, why);
    return rc;
}

static int fetch_cache(struct naive *m, uint32_t positions, char *why)
{
    uint64_t bytes = positions * m->position_bytes;
    uint8_t *larger = realloc(m->cache, bytes);
    if (!larger)
        return llm_why(why, -ENOMEM, "no memory for a cache of %llu bytes",
                       (unsigned long long)bytes);
    m->cache = larger;
    int rc = llm_remote_fetch_kv(m->base.remote, m->cache, bytes, why);
    if (rc == 0)
        m->positions = positions;
    return rc;
}

static int forward(struct naive *m, const uint32_t *tokens, uint32_t count, uint32_t *next,
                   char *why)
{
    struct llm_request request = {.method = LLM_METHOD_STATELESS,
                                  .positions = m->positions,
                                  .tokens = (uint32_t *)(uintptr_t)tokens, /* only encoded */
                                  .token_count = count};
    struct wire_dec d;
    int rc = send_all(m, why);
    if (rc == 0)
        rc = llm_remote_call(m->base.remote, &request, LLM_LOGITS, &d, why);
    if (rc == 0)
        rc = llm_remote_mode_sample(&m->base, &d, next, why);
    return rc ? rc : fetch_cache(m, m->positions + count, why);
}

static int naive_prefill(struct llm_mode *mode, const uint32_t *tokens, uint32_t count,
                         uint32_t *next, char *why)
{
    return forward((struct naive *)mode, tokens, count, next, why);
}

static int naive_decode(struct llm_mode *mode, uint32_t want, uint32_t *tokens, uint32_t *got,
                        char *why)
{
    (void)want; /* it knows only steps */
    struct naive *m = (struct naive *)mode;
    uint32_t last = m->base.last;
    int rc = forward(m, &last, 1, tokens, why);
    if (rc == 0)
        *got = 1;
    return rc;
}

const struct llm_mode_ops llm_mode_naive = {.open = naive_open,
                                            .close = naive_close,
                                            .prefill = naive_prefill,
                                            .decode = naive_decode,
                                            .figures = llm_remote_mode_figures,
                                            .traffic = llm_remote_mode_traffic};
