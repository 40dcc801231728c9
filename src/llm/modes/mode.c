#include "llm/modes/mode.h"

#include <assert.h>
#include <string.h>

static const struct llm_mode_kind kinds[] = {
    {.name = "local", .ops = &llm_mode_local},
    {.name = "vulkan", .ops = &llm_mode_local, .backend = "vulkan"},
    {.name = "naive", .ops = &llm_mode_naive, .remote = true},
    {.name = "remote_cache",
     .ops = &llm_mode_remote_cache,
     .remote = true,
     .policy = {LLM_RECOVER_ALL, LLM_PACK_NEVER}},
    {.name = "remote_cache_compressed",
     .ops = &llm_mode_semantic,
     .remote = true,
     .blind = true,
     .policy = {LLM_RECOVER_ALL, LLM_PACK_ALWAYS}},
    {.name = "remote_cache_delta_raw",
     .ops = &llm_mode_remote_cache,
     .remote = true,
     .policy = {LLM_RECOVER_DELTA, LLM_PACK_NEVER}},
    {.name = "remote_cache_delta_compressed",
     .ops = &llm_mode_semantic,
     .remote = true,
     .blind = true,
     .policy = {LLM_RECOVER_DELTA, LLM_PACK_ALWAYS}},
    {.name = "remote_cache_recompute",
     .ops = &llm_mode_remote_cache,
     .remote = true,
     .policy = {LLM_RECOVER_COMPUTE, LLM_PACK_NEVER}},
    {.name = "semantic",
     .ops = &llm_mode_semantic,
     .remote = true,
     .policy = {LLM_RECOVER_DELTA, LLM_PACK_AUTO}},
    {.name = "sys_simulated", /* seed 003's other name for it */
     .ops = &llm_mode_semantic,
     .remote = true,
     .policy = {LLM_RECOVER_DELTA, LLM_PACK_AUTO}},
};

const struct llm_mode_kind *llm_mode_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    }
    return NULL;
}

int llm_mode_open(const struct llm_mode_kind *kind, const struct llm_mode_config *config,
                  struct llm_mode **out, char *why)
{
    assert(!kind->remote || config->remote);
    int rc = kind->ops->open(kind, config, out, why);
    if (rc == 0)
        (*out)->kind = kind;
    return rc;
}

void llm_mode_close(struct llm_mode *mode)
{
    if (mode)
        mode->kind->ops->close(mode);
}

int llm_mode_prefill(struct llm_mode *mode, const uint32_t *tokens, uint32_t count, uint32_t *next,
                     char *why)
{
    assert(count > 0);
    return mode->kind->ops->prefill(mode, tokens, count, next, why);
}

int llm_mode_decode(struct llm_mode *mode, uint32_t want, uint32_t *tokens, uint32_t *got,
                    char *why)
{
    assert(want > 0);
    return mode->kind->ops->decode(mode, want, tokens, got, why);
}

int llm_mode_figures(struct llm_mode *mode, struct llm_mode_figures *out, char *why)
{
    return mode->kind->ops->figures(mode, out, why);
}

void llm_mode_traffic(const struct llm_mode *mode, struct llm_mode_traffic *out)
{
    mode->kind->ops->traffic(mode, out);
}

int llm_mode_evict(struct llm_mode *mode, const struct llm_layers *layers, char *why)
{
    return mode->kind->ops->evict ? mode->kind->ops->evict(mode, layers, why) : 0;
}
