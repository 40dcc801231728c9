/* Weights travel once and the cache stays at the worker, under a handle; tokens go and full, plain
 * logits come back.  The kinds differ in how evicted KV comes back to the worker. */
#include "llm/modes/remote_mode.h"

#include <string.h>

struct remote_cache {
    struct llm_remote_mode base;
    uint8_t handle[LLM_HANDLE_BYTES];
};

static int cache_open(const struct llm_mode_kind *kind, const struct llm_mode_config *config,
                      struct llm_mode **out, char *why)
{
    struct llm_remote_mode *base;
    int rc = llm_remote_mode_create(sizeof(struct remote_cache), config, &base, why);
    if (rc)
        return rc;
    rc = llm_remote_use_file(config->remote, config->file, true, why);
    if (rc == 0)
        rc = llm_remote_set_recovery(config->remote, kind->policy, why);
    if (rc) {
        llm_remote_mode_destroy(base);
        return rc;
    }
    *out = &base->mode;
    return 0;
}

static void cache_close(struct llm_mode *mode)
{
    llm_remote_mode_destroy((struct llm_remote_mode *)mode);
}

static int cache_prefill(struct llm_mode *mode, const uint32_t *tokens, uint32_t count,
                         uint32_t *next, char *why)
{
    struct remote_cache *m = (struct remote_cache *)mode;
    struct llm_request request = {.method = LLM_METHOD_PREFILL_HANDLE,
                                  .tokens = (uint32_t *)(uintptr_t)tokens, /* only encoded */
                                  .token_count = count};
    struct wire_dec d;
    int rc = llm_remote_call(m->base.remote, &request, LLM_LOGITS, &d, why);
    if (rc)
        return rc;
    wire_get_copy(&d, m->handle, sizeof m->handle);
    return llm_remote_mode_sample(&m->base, &d, next, why);
}

static int cache_decode(struct llm_mode *mode, uint32_t want, uint32_t *tokens, uint32_t *got,
                        char *why)
{
    (void)want; /* the next token depends on logits that only the client samples */
    struct remote_cache *m = (struct remote_cache *)mode;
    struct llm_request request = {.method = LLM_METHOD_DECODE_HANDLE, .value = m->base.last};
    struct wire_dec d;
    memcpy(request.handle, m->handle, sizeof m->handle);
    int rc = llm_remote_call(m->base.remote, &request, LLM_LOGITS, &d, why);
    if (rc == 0)
        rc = llm_remote_mode_sample(&m->base, &d, tokens, why);
    if (rc == 0)
        *got = 1;
    return rc;
}

static int cache_evict(struct llm_mode *mode, const struct llm_layers *layers, char *why)
{
    struct remote_cache *m = (struct remote_cache *)mode;
    uint32_t missing;
    return llm_remote_evict(m->base.remote, m->handle, layers, &missing, why);
}

const struct llm_mode_ops llm_mode_remote_cache = {.open = cache_open,
                                                   .close = cache_close,
                                                   .prefill = cache_prefill,
                                                   .decode = cache_decode,
                                                   .figures = llm_remote_mode_figures,
                                                   .traffic = llm_remote_mode_traffic,
                                                   .evict = cache_evict};
