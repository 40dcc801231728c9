#include "unit.h"

#include "model.h"

#include "llm/model/synth.h"

#include <stdlib.h>
#include <unistd.h>

static struct llm_file *open_synth(struct llm_synth *synth)
{
    char path[] = "/tmp/hawser-model-XXXXXX", why[LLM_WHY_CHARS] = "";
    struct llm_file *file = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    llm_synth_complete(&synth->config);
    int rc = llm_synth_write(synth, path, why);
    if (rc == 0)
        rc = llm_file_open(path, &file, why);
    unlink(path);
    if (rc)
        fail_msg("%s", why);
    return file;
}

/* Short, so that prompts of tests go beyond it. */
static uint32_t window_for(enum llm_arch arch)
{
    bool has = arch == LLM_GEMMA2 || arch == LLM_GEMMA3 || arch == LLM_GPT_OSS || arch == LLM_PHI3;
    return has ? 40 : 0;
}

struct llm_file *model_wide(enum llm_arch arch, enum llm_dtype dtype, uint32_t ffn,
                            uint32_t context)
{
    struct llm_synth synth = {.config = {.arch = arch,
                                         .layers = 2,
                                         .width = 256,
                                         .heads = 4,
                                         .kv_heads = arch == LLM_LLAMA ? 2 : 4,
                                         .ffn = ffn,
                                         .vocab = MODEL_VOCAB,
                                         .context = context,
                                         .window = window_for(arch),
                                         .tied_output = arch == LLM_GPT2},
                              .dtype = dtype,
                              .seed = 3};
    return open_synth(&synth);
}

struct llm_file *model_deep(uint32_t context, uint64_t seed)
{
    struct llm_synth synth = {.config = {.arch = LLM_LLAMA,
                                         .layers = MODEL_DEEP_LAYERS,
                                         .width = 64,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .ffn = 64,
                                         .vocab = MODEL_VOCAB,
                                         .context = context},
                              .dtype = LLM_Q8_0,
                              .seed = seed};
    return open_synth(&synth);
}
