#include "llm/modes/mode.h"

#include <assert.h>
#include <string.h>

const struct llm_mode_ops *llm_mode_find(const char *name)
{
    static const struct llm_mode_ops *const all[] = {&llm_mode_local,
                                                     &llm_mode_naive,
                                                     &llm_mode_remote_cache,
                                                     &llm_mode_remote_cache_compressed,
                                                     &llm_mode_remote_cache_delta_raw,
                                                     &llm_mode_remote_cache_delta_compressed,
                                                     &llm_mode_remote_cache_recompute,
                                                     &llm_mode_semantic,
                                                     &llm_mode_vulkan};
    if (strcmp(name, "sys_simulated") == 0)
        return &llm_mode_semantic;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    }
    return NULL;
}

int llm_mode_open(const struct llm_mode_ops *ops, const struct llm_mode_config *config,
                  struct llm_mode **out, char *why)
{
    assert(!ops->remote || config->remote);
    int rc = ops->open(config, out, why);
    if (rc == 0)
        (*out)->ops = ops;
    return rc;
}

void llm_mode_close(struct llm_mode *mode)
{
    if (mode)
        mode->ops->close(mode);
}

int llm_mode_prefill(struct llm_mode *mode, const uint32_t *tokens, uint32_t count, uint32_t *next,
                     char *why)
{
    assert(count > 0);
    return mode->ops->prefill(mode, tokens, count, next, why);
}

int llm_mode_decode(struct llm_mode *mode, uint32_t want, uint32_t *tokens, uint32_t *got,
                    char *why)
{
    assert(want > 0);
    return mode->ops->decode(mode, want, tokens, got, why);
}

int llm_mode_figures(struct llm_mode *mode, struct llm_mode_figures *out, char *why)
{
    return mode->ops->figures(mode, out, why);
}

int llm_mode_evict(struct llm_mode *mode, const struct llm_layers *layers, char *why)
{
    return mode->ops->evict ? mode->ops->evict(mode, layers, why) : 0;
}
