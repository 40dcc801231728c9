#include "llm/model/synth.h"

#include "base/report/output.h"
#include "base/rng.h"
#include "llm/model/arch.h"
#include "llm/model/byte_text.h"
#include "llm/model/format/gguf_write.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    CHUNK_VALUES = 1 << 18, /* at a time: 1 MiB of floats */
    END_TOKEN = 256,
    ROUTER_DEVIATION = 8,  /* of the logits of experts */
    VOCAB_BYTES_EACH = 40, /* of one made-up token in the file, at most */
};

/* ---- shapes ---- */

struct preset {
    enum llm_arch arch;
    const char *name;
    uint32_t layers, width, heads, kv_heads, ffn, vocab, context, rope_dims;
    float rope_base;
    bool tied;
    uint32_t head_dim; /* 0: width / heads */
    uint32_t experts, experts_used;
    uint32_t window;
    uint32_t shared_ffn;
};

/* clang-format off */
static const struct preset presets[] = {
    {LLM_GPTJ, "6b", 28, 4096, 16, 16, 16384, 50400, 2048, 64, 10000, false, 0, 0, 0, 0, 0},
    {LLM_GPTJ, "tiny", 2, 256, 4, 4, 512, 512, 256, 32, 10000, false, 0, 0, 0, 0, 0},
    {LLM_GPT2, "124m", 12, 768, 12, 12, 3072, 50257, 1024, 0, 10000, true, 0, 0, 0, 0, 0},
    {LLM_GPT2, "1.5b", 48, 1600, 25, 25, 6400, 50257, 1024, 0, 10000, true, 0, 0, 0, 0, 0},
    {LLM_GPT2, "tiny", 2, 256, 4, 4, 512, 512, 256, 0, 10000, true, 0, 0, 0, 0, 0},
    {LLM_LLAMA, "134m", 12, 768, 12, 12, 2048, 32000, 2048, 64, 10000, false, 0, 0, 0, 0, 0},
    {LLM_LLAMA, "1.1b", 22, 2048, 32, 4, 5632, 32000, 2048, 64, 10000, false, 0, 0, 0, 0, 0},
    {LLM_LLAMA, "7b", 32, 4096, 32, 32, 11008, 32000, 4096, 128, 10000, false, 0, 0, 0, 0, 0},
    {LLM_LLAMA, "8b", 32, 4096, 32, 8, 14336, 128256, 8192, 128, 500000, false, 0, 0, 0, 0, 0},
    {LLM_LLAMA, "8x7b", 32, 4096, 32, 8, 14336, 32000, 32768, 128, 1000000, false, 0, 8, 2, 0, 0},
    {LLM_LLAMA, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 10000, true, 0, 0, 0, 0, 0},
    {LLM_LLAMA, "tiny-moe", 2, 256, 4, 2, 512, 512, 256, 64, 10000, false, 0, 8, 2, 0, 0},
    {LLM_QWEN2, "0.5b", 24, 896, 14, 2, 4864, 151936, 32768, 64, 1000000, true, 0, 0, 0, 0, 0},
    {LLM_QWEN2, "7b", 28, 3584, 28, 4, 18944, 152064, 32768, 128, 1000000, false, 0, 0, 0, 0, 0},
    {LLM_QWEN2, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 1000000, true, 0, 0, 0, 0, 0},
    {LLM_QWEN3, "0.6b", 28, 1024, 16, 8, 3072, 151936, 40960, 128, 1000000, true, 128, 0, 0, 0, 0},
    {LLM_QWEN3, "8b", 36, 4096, 32, 8, 12288, 151936, 40960, 128, 1000000, false, 128, 0, 0, 0, 0},
    {LLM_QWEN3, "tiny", 2, 256, 4, 2, 512, 512, 256, 128, 1000000, true, 128, 0, 0, 0, 0},
    {LLM_QWEN3MOE, "30b-a3b", 48, 2048, 32, 4, 768, 151936, 40960, 128, 1000000, false, 128, 128, 8, 0, 0},
    {LLM_QWEN3MOE, "tiny", 2, 256, 4, 2, 256, 512, 256, 128, 1000000, false, 128, 16, 4, 0, 0},
    {LLM_GEMMA2, "2b", 26, 2304, 8, 4, 9216, 256000, 8192, 256, 10000, true, 256, 0, 0, 4096, 0},
    {LLM_GEMMA2, "tiny", 4, 256, 4, 2, 512, 512, 256, 128, 10000, true, 128, 0, 0, 24, 0},
    {LLM_GEMMA3, "1b", 26, 1152, 4, 1, 6912, 262144, 32768, 256, 1000000, true, 256, 0, 0, 512, 0},
    {LLM_GEMMA3, "tiny", 7, 256, 4, 2, 512, 512, 256, 128, 1000000, true, 128, 0, 0, 24, 0},
    {LLM_PHI3, "mini", 32, 3072, 32, 32, 8192, 32064, 131072, 96, 10000, false, 0, 0, 0, 0, 0},
    {LLM_PHI3, "tiny", 2, 256, 4, 2, 512, 512, 256, 48, 10000, false, 0, 0, 0, 0, 0},
    {LLM_OLMOE, "7b", 16, 2048, 16, 16, 1024, 50304, 4096, 128, 10000, false, 0, 64, 8, 0, 0},
    {LLM_OLMOE, "tiny", 2, 256, 4, 4, 256, 512, 256, 64, 10000, false, 0, 16, 4, 0, 0},
    {LLM_MISTRAL3, "3b", 26, 3072, 32, 8, 9216, 131072, 262144, 128, 1000000, true, 128, 0, 0, 0, 0},
    {LLM_MISTRAL3, "tiny", 2, 256, 4, 2, 512, 512, 256, 128, 1000000, true, 128, 0, 0, 0, 0},
    {LLM_GRANITE, "2b", 40, 2048, 32, 8, 8192, 49155, 131072, 64, 5000000, true, 0, 0, 0, 0, 0},
    {LLM_GRANITE, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 10000, true, 0, 0, 0, 0, 0},
    {LLM_STARCODER2, "3b", 30, 3072, 24, 2, 12288, 49152, 16384, 128, 1000000, true, 0, 0, 0, 0, 0},
    {LLM_STARCODER2, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 100000, true, 0, 0, 0, 0, 0},
    {LLM_GPT_OSS, "20b", 24, 2880, 64, 8, 2880, 201088, 131072, 64, 150000, false, 64, 32, 4, 128, 0},
    {LLM_GPT_OSS, "tiny", 4, 256, 4, 2, 256, 512, 256, 128, 150000, false, 128, 16, 4, 24, 0},
    {LLM_QWEN2MOE, "14b-a2.7b", 24, 2048, 16, 16, 1408, 151936, 32768, 128, 1000000, false, 0, 60, 4, 0, 5632},
    {LLM_QWEN2MOE, "tiny", 2, 256, 4, 2, 256, 512, 256, 64, 1000000, false, 0, 16, 4, 0, 512},
    {LLM_GRANITEMOE, "3b-a800m", 32, 1536, 24, 8, 512, 49155, 4096, 64, 10000, true, 0, 40, 8, 0, 0},
    {LLM_GRANITEMOE, "tiny", 2, 256, 4, 2, 256, 512, 256, 64, 10000, true, 0, 16, 4, 0, 0},
    {LLM_GRANITEMOE, "tiny-shared", 2, 256, 4, 2, 256, 512, 256, 64, 10000, true, 0, 16, 4, 0, 512},
    {LLM_GEMMA, "2b", 18, 2048, 8, 1, 16384, 256000, 8192, 256, 10000, true, 256, 0, 0, 0, 0},
    {LLM_GEMMA, "tiny", 2, 256, 4, 1, 512, 512, 256, 128, 10000, true, 128, 0, 0, 0, 0},
    {LLM_GLM4, "9b", 40, 4096, 32, 2, 13696, 151552, 32768, 64, 10000, false, 128, 0, 0, 0, 0},
    {LLM_GLM4, "tiny", 2, 256, 4, 2, 512, 512, 256, 32, 10000, false, 64, 0, 0, 0, 0},
    {LLM_SEED_OSS, "36b", 64, 5120, 80, 8, 27648, 155136, 524288, 128, 10000000, false, 128, 0, 0, 0, 0},
    {LLM_SEED_OSS, "tiny", 2, 256, 4, 2, 512, 512, 256, 128, 10000000, false, 128, 0, 0, 0, 0},
    {LLM_EXAONE, "2.4b", 30, 2560, 32, 8, 7168, 102400, 32768, 80, 1000000, true, 0, 0, 0, 0, 0},
    {LLM_EXAONE, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 1000000, true, 0, 0, 0, 0, 0},
    {LLM_SMOLLM3, "3b", 36, 2048, 16, 4, 11008, 128256, 65536, 128, 5000000, true, 0, 0, 0, 0, 0},
    {LLM_SMOLLM3, "tiny", 5, 256, 4, 2, 512, 512, 256, 64, 5000000, true, 0, 0, 0, 0, 0},
    {LLM_INTERNLM2, "7b", 32, 4096, 32, 8, 14336, 92544, 32768, 128, 1000000, false, 0, 0, 0, 0, 0},
    {LLM_INTERNLM2, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 1000000, false, 0, 0, 0, 0, 0},
    {LLM_ERNIE4_5, "0.3b", 18, 1024, 16, 2, 3072, 103424, 131072, 128, 500000, true, 128, 0, 0, 0, 0},
    {LLM_ERNIE4_5, "tiny", 2, 256, 4, 2, 512, 512, 256, 128, 500000, true, 128, 0, 0, 0, 0},
    {LLM_OLMO2, "1b", 16, 2048, 16, 16, 8192, 100352, 4096, 128, 500000, false, 0, 0, 0, 0, 0},
    {LLM_OLMO2, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 500000, false, 0, 0, 0, 0, 0},
    {LLM_OLMO2, "tiny-window", 5, 256, 4, 2, 512, 512, 256, 64, 500000, false, 0, 0, 0, 24, 0},
    {LLM_EXAONE4, "32b", 64, 5120, 40, 8, 27392, 102400, 131072, 128, 1000000, false, 0, 0, 0, 4096, 0},
    {LLM_EXAONE4, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 1000000, true, 0, 0, 0, 0, 0},
    {LLM_COHERE2, "7b", 32, 4096, 32, 8, 14336, 256000, 8192, 128, 50000, true, 0, 0, 0, 4096, 0},
    {LLM_COHERE2, "tiny", 5, 256, 4, 2, 512, 512, 256, 64, 50000, true, 0, 0, 0, 24, 0},
    {LLM_COMMAND_R, "35b", 40, 8192, 64, 64, 22528, 256000, 131072, 128, 8000000, true, 0, 0, 0, 0, 0},
    {LLM_COMMAND_R, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 8000000, true, 0, 0, 0, 0, 0},
};
/* clang-format on */

bool llm_synth_like(enum llm_arch arch, const char *like, struct llm_config *out)
{
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        const struct preset *p = &presets[i];
        if (p->arch != arch || strcmp(p->name, like) != 0)
            continue;
        *out = (struct llm_config){
            .arch = arch,
            .layers = p->layers,
            .width = p->width,
            .heads = p->heads,
            .kv_heads = p->kv_heads,
            .head_dim = p->head_dim,
            .ffn = p->ffn,
            .vocab = p->vocab,
            .context = p->context,
            .experts = p->experts,
            .experts_used = p->experts_used,
            .shared_ffn = p->shared_ffn,
            .rope_dims = p->rope_dims,
            .rope_base = p->rope_base,
            .window = p->window,
            .tied_output = p->tied,
        };
        llm_synth_complete(out);
        return true;
    }
    return false;
}

const char *llm_synth_like_name(enum llm_arch arch, uint32_t i)
{
    for (size_t p = 0; p < ARRAY_LEN(presets); p++) {
        if (presets[p].arch == arch && i-- == 0)
            return presets[p].name;
    }
    return NULL;
}

static void default_to(uint32_t *field, uint32_t value)
{
    if (*field == 0)
        *field = value;
}

/* As published models of the architecture have them. */
static void set_multipliers(struct llm_config *c)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    if (info->has_multipliers) {
        c->embed_scale = 12;
        c->residual_scale = 0.22f;
        c->logit_scale = 1 / 8.0f;
        c->attend_scale = 1 / 64.0f;
    }
    if (info->logits_times)
        c->logit_scale = 0.25f;
    if (info->has_temperature)
        c->temperature = 0.1f;
}

void llm_synth_complete(struct llm_config *c)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    uint32_t window = c->window;
    llm_arch_set(c);
    c->window = window ? window : info->window;
    llm_arch_set_skip(c);
    default_to(&c->heads, 1);
    default_to(&c->kv_heads, c->heads);
    default_to(&c->head_dim, c->width / c->heads);
    default_to(&c->ffn, 4 * c->width);
    default_to(&c->vocab, 512);
    default_to(&c->context, 2048);
    if (info->has_experts) {
        default_to(&c->experts, 8);
        default_to(&c->experts_used, 2);
    }
    if (info->has_shared_expert)
        default_to(&c->shared_ffn, c->ffn);
    if (info->learned_positions)
        c->rope_dims = 0;
    else
        default_to(&c->rope_dims, c->head_dim);
    if (c->rope_base == 0)
        c->rope_base = 10000;
    c->rope_base_window = info->window_base ? info->window_base : c->rope_base;
    default_to(&c->rope_original, c->context);
    c->norm_eps = 1e-5f;
    llm_arch_set_scale(c);
    set_multipliers(c);
    const struct llm_arch_tensor *output = llm_arch_row_of(c, "output.weight");
    if (!output || !llm_arch_tensor_is_optional(output))
        c->tied_output = !output;
}

void llm_synth_stretch(struct llm_synth *s, enum llm_synth_rope rope, uint32_t factor)
{
    struct llm_config *c = &s->config;
    assert(factor >= 1);
    s->rope = rope;
    if (rope == LLM_SYNTH_ROPE_NONE)
        return;
    c->rope_original = c->context / factor ? c->context / factor : 1;
    if (rope == LLM_SYNTH_ROPE_LONGROPE)
        c->rope_magnitude = sqrtf(1 + logf((float)factor) / logf((float)c->rope_original + 1));
    else if (rope != LLM_SYNTH_ROPE_LLAMA3)
        c->rope_scale = (float)factor;
}

static int check_shape(const struct llm_config *c, char *why)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    const struct {
        const char *name;
        uint64_t value, min, max;
    } bounds[] = {
        {"layers", c->layers, 1, LLM_LAYERS_MAX},
        {"width", c->width, 2, LLM_WIDTH_MAX},
        {"heads", c->heads, 1, c->width},
        {"kv heads", c->kv_heads, 1, c->heads},
        {"head width", c->head_dim, 2, LLM_WIDTH_MAX},
        {"width of all heads", llm_dim_value(c, LLM_DIM_QKV), 2, LLM_WIDTH_MAX},
        {"feed-forward", c->ffn, 1, LLM_WIDTH_MAX},
        {"shared expert", c->shared_ffn, 0, LLM_WIDTH_MAX},
        {"vocabulary", c->vocab, LLM_SYNTH_VOCAB_MIN, LLM_VOCAB_MAX},
        {"context", c->context, 1, LLM_CONTEXT_MAX},
        {"experts", c->experts, 0, LLM_EXPERTS_MAX},
        {"experts of a row", c->experts_used, c->experts > 0, c->experts},
        {"experts of a row", c->experts_used, 0, LLM_EXPERTS_USED_MAX},
    };
    if (c->experts_used && !c->experts)
        return llm_why(why, -EINVAL, "%u experts of a row, and a layer has none: say how many",
                       c->experts_used);
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
        if (bounds[i].value < bounds[i].min || bounds[i].value > bounds[i].max)
            return llm_why(why, -EINVAL,
                           "%s is %" PRIu64 "; %" PRIu64 " to %" PRIu64 " is possible",
                           bounds[i].name, bounds[i].value, bounds[i].min, bounds[i].max);
    }
    if (c->width % c->heads)
        return llm_why(why, -EINVAL, "%u heads do not divide the width of %u", c->heads, c->width);
    if (c->experts && !info->has_experts && !info->experts_optional)
        return llm_why(why, -EINVAL, "%s has no experts", info->name);
    if (c->window && info->learned_positions)
        return llm_why(why, -EINVAL, "%s has no window", info->name);
    if (c->kv_heads != c->heads && (c->arch == LLM_GPT2 || c->arch == LLM_GPTJ))
        return llm_why(why, -EINVAL, "%s has as many kv heads as heads, not %u of %u", info->name,
                       c->kv_heads, c->heads);
    if (c->heads % c->kv_heads)
        return llm_why(why, -EINVAL, "%u kv heads do not divide %u heads", c->kv_heads, c->heads);
    if (c->rope_dims % 2 || c->rope_dims > c->head_dim)
        return llm_why(why, -EINVAL, "%u rotary dimensions of a head of %u; an even number of them",
                       c->rope_dims, c->head_dim);
    return 0;
}

/* ---- the tensors that are written ---- */

static bool row_is_written(const struct llm_synth *s, const struct llm_arch_tensor *row)
{
    if (!llm_arch_tensor_applies(&s->config, row))
        return false;
    if (!llm_arch_tensor_is_optional(row))
        return true;
    if (strcmp(row->name, "output.weight") == 0)
        return !s->config.tied_output;
    if (strcmp(row->name, "rope_freqs.weight") == 0)
        return s->rope == LLM_SYNTH_ROPE_LLAMA3;
    return strncmp(row->name, "rope_factors", strlen("rope_factors")) == 0 &&
           s->rope == LLM_SYNTH_ROPE_LONGROPE;
}

static enum llm_dtype row_dtype(const struct llm_synth *s, const struct llm_arch_tensor *row)
{
    /* The router decides between experts: converters keep it whole. */
    bool whole = llm_arch_tensor_is_vector(row) || row->rows == LLM_DIM_CONTEXT ||
                 row->rows == LLM_DIM_EXPERTS;
    return whole ? LLM_F32 : s->dtype;
}

/* One visit a tensor, in the order of the file.  Stops at an error. */
typedef int (*tensor_fn)(const struct llm_synth *s, const struct llm_arch_tensor *row,
                         const char *name, void *user);

static int each_tensor(const struct llm_synth *s, tensor_fn visit, void *user)
{
    int err = 0;
    for (const struct llm_arch_tensor *row = llm_arch_info(s->config.arch)->tensors; row->name;
         row++) {
        uint32_t copies = row->per_layer ? s->config.layers : 1;
        for (uint32_t layer = 0; row_is_written(s, row) && layer < copies && !err; layer++) {
            char name[LLM_NAME_CHARS];
            llm_arch_tensor_name(row, layer, name);
            err = visit(s, row, name, user);
        }
    }
    return err;
}

static uint64_t row_elements(const struct llm_synth *s, const struct llm_arch_tensor *row)
{
    uint64_t dims[LLM_DIMS_MAX];
    llm_arch_tensor_dims(&s->config, row, dims);
    return dims[0] * dims[1] * dims[2];
}

struct tally {
    uint64_t bytes, tensors;
    char *why;
};

static int add_bytes(const struct llm_synth *s, const struct llm_arch_tensor *row, const char *name,
                     void *user)
{
    struct tally *tally = user;
    enum llm_dtype dtype = row_dtype(s, row);
    uint64_t width = llm_dim_value(&s->config, row->row);
    if (width % llm_dtype_block(dtype))
        return llm_why(tally->why, -EINVAL,
                       "%s: a row of %" PRIu64 " is no whole number of %s blocks of %u", name,
                       width, llm_dtype_name(dtype), llm_dtype_block(dtype));
    uint64_t bytes = llm_dtype_bytes(dtype, row_elements(s, row));
    tally->bytes += (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
    tally->tensors++;
    return 0;
}

uint64_t llm_synth_bytes(const struct llm_synth *s)
{
    char why[LLM_WHY_CHARS];
    struct tally tally = {.why = why};
    return each_tensor(s, add_bytes, &tally) ? 0 : tally.bytes;
}

/* An architecture without the tensors would ignore what was asked for. */
static int check_rope(const struct llm_synth *s, char *why)
{
    const char *needed = s->rope == LLM_SYNTH_ROPE_LLAMA3     ? "rope_freqs.weight"
                         : s->rope == LLM_SYNTH_ROPE_LONGROPE ? "rope_factors_long.weight"
                                                              : NULL;
    if (s->rope != LLM_SYNTH_ROPE_NONE && s->config.rope_dims == 0)
        return llm_why(why, -EINVAL, "%s has no rotary positions", llm_arch_name(s->config.arch));
    if (needed && !llm_arch_row_of(&s->config, needed))
        return llm_why(why, -EINVAL, "%s has no tensor %s", llm_arch_name(s->config.arch), needed);
    return 0;
}

/* ---- metadata ---- */

/* A word of at least two syllables after a blank, different for each number. */
static size_t word_text(uint32_t number, char text[VOCAB_BYTES_EACH])
{
    static const char consonants[] = "bdfgklmnprstvz", vowels[] = "aeiou";
    const uint32_t syllables = (sizeof(consonants) - 1) * (sizeof(vowels) - 1);
    size_t bytes = llm_byte_text(' ', text);
    for (uint32_t i = 0; i < 2 || number > 0; i++) {
        text[bytes++] = consonants[number % syllables / (sizeof(vowels) - 1)];
        text[bytes++] = vowels[number % (sizeof(vowels) - 1)];
        number /= syllables;
    }
    return bytes;
}

static void put_vocab(struct gguf_writer *w, const struct llm_config *c)
{
    static const char end[] = "<|endoftext|>";
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_string(w, "tokenizer.ggml.pre", c->arch == LLM_QWEN2 ? "qwen2" : "gpt-2");
    gguf_write_array(w, "tokenizer.ggml.tokens", GGUF_STRING, c->vocab);
    for (uint32_t id = 0; id < c->vocab; id++) {
        char text[VOCAB_BYTES_EACH];
        if (id == END_TOKEN)
            gguf_put_string(w, end, strlen(end));
        else
            gguf_put_string(w, text,
                            id < 256 ? llm_byte_text((uint8_t)id, text)
                                     : word_text(id - END_TOKEN - 1, text));
    }
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, c->vocab);
    for (uint32_t id = 0; id < c->vocab; id++)
        gguf_put_u32(w, id == END_TOKEN ? 3 : 1); /* control; normal */
    gguf_write_array(w, "tokenizer.ggml.merges", GGUF_STRING, 1);
    gguf_put_string(w, "\xc4\xa0 \xc4\xa0", 5); /* readers need a merge; this one makes no token */
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", END_TOKEN);
    gguf_write_u32(w, "tokenizer.ggml.eos_token_id", END_TOKEN);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", false);
}

enum { VOCAB_PAIRS = 8, NAME_PAIRS = 2, SHAPE_PAIRS_MAX = 40 };

/* A key of the architecture, and a number, or a text. */
struct pair {
    const char *name;
    enum gguf_type type;
    uint32_t number;
    float real;
    const char *text;
};

struct pairs {
    struct pair items[SHAPE_PAIRS_MAX];
    uint32_t count;
};

static void add_number(struct pairs *p, const char *name, uint32_t number)
{
    assert(p->count < SHAPE_PAIRS_MAX);
    p->items[p->count++] = (struct pair){.name = name, .type = GGUF_U32, .number = number};
}

static void add_real(struct pairs *p, const char *name, float real)
{
    assert(p->count < SHAPE_PAIRS_MAX);
    p->items[p->count++] = (struct pair){.name = name, .type = GGUF_F32, .real = real};
}

static void add_text(struct pairs *p, const char *name, const char *text)
{
    assert(p->count < SHAPE_PAIRS_MAX);
    p->items[p->count++] = (struct pair){.name = name, .type = GGUF_STRING, .text = text};
}

static void add_rope(struct pairs *p, const struct llm_synth *s)
{
    static const char *const types[] = {[LLM_SYNTH_ROPE_LINEAR] = "linear",
                                        [LLM_SYNTH_ROPE_YARN] = "yarn",
                                        [LLM_SYNTH_ROPE_LONGROPE] = "longrope"};
    const struct llm_config *c = &s->config;
    if (c->rope_dims == 0)
        return;
    add_number(p, "rope.dimension_count", c->rope_dims);
    add_real(p, "rope.freq_base", c->rope_base);
    if (c->window)
        add_real(p, "rope.freq_base_swa", c->rope_base_window);
    if (c->rope_original != c->context || c->temperature != 0)
        add_number(p, "rope.scaling.original_context_length", c->rope_original);
    if (s->rope == LLM_SYNTH_ROPE_NONE || s->rope == LLM_SYNTH_ROPE_LLAMA3)
        return;
    add_text(p, "rope.scaling.type", types[s->rope]);
    if (s->rope == LLM_SYNTH_ROPE_LONGROPE)
        add_real(p, "rope.scaling.attn_factor", c->rope_magnitude);
    else
        add_real(p, "rope.scaling.factor", c->rope_scale);
}

static void add_features(struct pairs *p, const struct llm_config *c)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    if (c->experts) {
        add_number(p, "expert_count", c->experts);
        add_number(p, "expert_used_count", c->experts_used);
        add_number(p, "expert_feed_forward_length", c->ffn);
    }
    if (c->shared_ffn)
        add_number(p, "expert_shared_feed_forward_length", c->shared_ffn);
    if (c->window)
        add_number(p, "attention.sliding_window", c->window);
    if (info->has_caps) {
        add_real(p, "attn_logit_softcapping", c->attend_cap);
        add_real(p, "final_logit_softcapping", c->logit_cap);
    }
    if (info->has_multipliers) {
        add_real(p, "embedding_scale", c->embed_scale);
        add_real(p, "residual_scale", c->residual_scale);
        add_real(p, "logit_scale", 1 / c->logit_scale);
        add_real(p, "attention.scale", c->attend_scale);
    }
    if (info->logits_times)
        add_real(p, "logit_scale", c->logit_scale);
    if (info->has_temperature)
        add_real(p, "attention.temperature_scale", c->temperature);
}

static struct pairs shape_pairs(const struct llm_synth *s)
{
    const struct llm_config *c = &s->config;
    struct pairs p = {.count = 0};
    add_number(&p, "block_count", c->layers);
    add_number(&p, "context_length", c->context);
    add_number(&p, "embedding_length", c->width);
    add_number(&p, "feed_forward_length", c->ffn);
    add_number(&p, "attention.head_count", c->heads);
    add_number(&p, "attention.head_count_kv", c->kv_heads);
    add_number(&p, "attention.key_length", c->head_dim);
    add_number(&p, "attention.value_length", c->head_dim);
    add_real(&p,
             c->norm_is_rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
             c->norm_eps);
    add_rope(&p, s);
    add_features(&p, c);
    return p;
}

static void put_metadata(struct gguf_writer *w, const struct llm_synth *s)
{
    const char *arch = llm_arch_name(s->config.arch);
    struct pairs pairs = shape_pairs(s);
    char name[LLM_NAME_CHARS];
    snprintf(name, sizeof(name), "random weights, seed %" PRIu64, s->seed);
    gguf_write_string(w, "general.architecture", arch);
    gguf_write_string(w, "general.name", name);
    for (uint32_t i = 0; i < pairs.count; i++) {
        const struct pair *pair = &pairs.items[i];
        char key[96];
        snprintf(key, sizeof(key), "%s.%s", arch, pair->name);
        if (pair->type == GGUF_U32)
            gguf_write_u32(w, key, pair->number);
        else if (pair->type == GGUF_F32)
            gguf_write_f32(w, key, pair->real);
        else
            gguf_write_string(w, key, pair->text);
    }
    put_vocab(w, &s->config);
}

static int put_description(const struct llm_synth *s, const struct llm_arch_tensor *row,
                           const char *name, void *user)
{
    uint64_t dims[LLM_DIMS_MAX];
    llm_arch_tensor_dims(&s->config, row, dims);
    uint32_t count = (llm_arch_tensor_is_vector(row) ? 1 : 2) + (row->stacked ? 1 : 0);
    gguf_write_tensor(user, name, row_dtype(s, row), dims, count);
    return 0;
}

/* ---- weights ---- */

/* The sum of four uniform numbers: about normal, mean 0, deviation 1. */
static float next_normal(struct hw_rng *rng)
{
    uint64_t bits = hw_rng_u64(rng);
    int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) +
                  (int32_t)(bits >> 32 & 0xffff) + (int32_t)(bits >> 48);
    return (float)(sum - 2 * 65535) * (1.0f / 37836.8f); /* sqrt(4 * (65536^2 - 1) / 12) */
}

struct scale {
    float mean, deviation;
};

/* Norms near 1, biases near 0, matrices so that a row's sum of products has deviation 1. */
static struct scale row_scale(const struct llm_synth *s, const struct llm_arch_tensor *row)
{
    const char *ending = strrchr(row->name, '.');
    /* The router of a shared expert is a matrix of one row. */
    if (!llm_arch_tensor_is_vector(row) || row->presence == LLM_IF_SHARED)
        return (struct scale){0, 1 / sqrtf((float)llm_dim_value(&s->config, row->row))};
    bool bias = ending && strcmp(ending, ".bias") == 0;
    return (struct scale){bias ? 0 : 1, 0.1f};
}

struct weights {
    struct gguf_writer *writer;
    float *values;  /* CHUNK_VALUES */
    uint8_t *bytes; /* the same, encoded */
    uint64_t done, total;
};

static int put_weights(const struct llm_synth *s, const struct llm_arch_tensor *row,
                       const char *name, void *user)
{
    struct weights *weights = user;
    struct scale scale = row_scale(s, row);
    enum llm_dtype dtype = row_dtype(s, row);
    struct hw_rng rng;
    hw_rng_seed(&rng, XXH3_64bits_withSeed(name, strlen(name), s->seed));
    for (uint64_t left = row_elements(s, row); left > 0;) {
        size_t count = left < CHUNK_VALUES ? (size_t)left : CHUNK_VALUES;
        for (size_t i = 0; i < count; i++)
            weights->values[i] = scale.mean + scale.deviation * next_normal(&rng);
        size_t bytes = (size_t)llm_dtype_bytes(dtype, count);
        llm_dtype_from_f32(dtype, weights->bytes, weights->values, count);
        gguf_write_data(weights->writer, weights->bytes, bytes);
        left -= count;
        weights->done += bytes;
        if (s->progress)
            s->progress(s->user, weights->done, weights->total);
        if (weights->writer->error)
            return weights->writer->error;
    }
    gguf_write_pad(weights->writer);
    return 0;
}

static int write_stream(const struct llm_synth *s, FILE *out, const struct tally *tally)
{
    struct gguf_writer writer;
    struct weights weights = {.writer = &writer, .total = tally->bytes};
    weights.values = malloc(CHUNK_VALUES * sizeof(float));
    weights.bytes = malloc(CHUNK_VALUES * sizeof(float)); /* no type is wider */
    int err = weights.values && weights.bytes ? 0 : -ENOMEM;
    if (!err) {
        uint64_t pairs = VOCAB_PAIRS + NAME_PAIRS + shape_pairs(s).count;
        gguf_write_begin(&writer, out, tally->tensors, pairs);
        put_metadata(&writer, s);
        err = each_tensor(s, put_description, &writer);
        gguf_write_pad(&writer);
    }
    if (!err)
        err = each_tensor(s, put_weights, &weights);
    if (!err)
        err = gguf_write_end(&writer);
    free(weights.values);
    free(weights.bytes);
    return err;
}

/* ---- the file ---- */

int llm_synth_write(const struct llm_synth *s, const char *path, char *why)
{
    struct tally tally = {.why = why};
    int err = check_shape(&s->config, why);
    if (!err)
        err = check_rope(s, why);
    if (!err)
        err = each_tensor(s, add_bytes, &tally);
    if (err)
        return err;
    if (tally.tensors > LLM_TENSORS_MAX)
        return llm_why(why, -EINVAL, "%" PRIu64 " tensors; %d at most", tally.tensors,
                       LLM_TENSORS_MAX);
    struct hw_output out;
    uint64_t needed = tally.bytes + (uint64_t)s->config.vocab * VOCAB_BYTES_EACH;
    err = hw_output_open(&out, path, true, needed, why);
    if (err)
        return err;
    err = write_stream(s, out.stream, &tally);
    if (err)
        llm_why_set(why, "cannot write %s: %s", path, strerror(-err));
    return hw_output_finish(&out, err, why);
}
