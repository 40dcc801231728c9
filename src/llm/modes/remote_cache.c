/* Weights travel once and the cache stays with the worker, under a handle; tokens go and full
 * logits come back, as they are.  The modes of this file differ in how the worker gets KV back that
 * it had to move out. */
#include "llm/modes/remote_mode.h"

#include <string.h>

struct remote_cache {
    struct llm_remote_mode base;
    uint8_t handle[LLM_HANDLE_BYTES];
};

static int open_with(const struct llm_mode_config *config, struct llm_eviction_policy policy,
                     struct llm_mode **out, char *why)
{
    struct llm_remote_mode *base;
    int rc = llm_remote_mode_create(sizeof(struct remote_cache), config, &base, why);
    if (rc)
        return rc;
    rc = llm_remote_use_file(config->remote, config->file, true, why);
    if (rc == 0)
        rc = llm_remote_set_recovery(config->remote, policy, why);
    if (rc) {
        llm_remote_mode_destroy(base);
        return rc;
    }
    *out = &base->mode;
    return 0;
}

static int open_whole(const struct llm_mode_config *config, struct llm_mode **out, char *why)
{
    return open_with(config, (struct llm_eviction_policy){LLM_RECOVER_ALL, LLM_PACK_NEVER}, out,
                     why);
}

static int open_delta(const struct llm_mode_config *config, struct llm_mode **out, char *why)
{
    return open_with(config, (struct llm_eviction_policy){LLM_RECOVER_DELTA, LLM_PACK_NEVER}, out,
                     why);
}

static int open_recompute(const struct llm_mode_config *config, struct llm_mode **out, char *why)
{
    return open_with(config, (struct llm_eviction_policy){LLM_RECOVER_COMPUTE, LLM_PACK_NEVER}, out,
                     why);
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
    (void)want; /* the next token depends on logits that only we look at */
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

const struct llm_mode_ops llm_mode_remote_cache = {.name = "remote_cache",
                                                   .remote = true,
                                                   .open = open_whole,
                                                   .close = cache_close,
                                                   .prefill = cache_prefill,
                                                   .decode = cache_decode,
                                                   .figures = llm_remote_mode_figures,
                                                   .evict = cache_evict};

const struct llm_mode_ops llm_mode_remote_cache_delta_raw = {.name = "remote_cache_delta_raw",
                                                             .remote = true,
                                                             .open = open_delta,
                                                             .close = cache_close,
                                                             .prefill = cache_prefill,
                                                             .decode = cache_decode,
                                                             .figures = llm_remote_mode_figures,
                                                             .evict = cache_evict};

const struct llm_mode_ops llm_mode_remote_cache_recompute = {.name = "remote_cache_recompute",
                                                             .remote = true,
                                                             .open = open_recompute,
                                                             .close = cache_close,
                                                             .prefill = cache_prefill,
                                                             .decode = cache_decode,
                                                             .figures = llm_remote_mode_figures,
                                                             .evict = cache_evict};
