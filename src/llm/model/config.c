#include "llm/model/arch.h"
#include "llm/model/model.h"
#include "llm/model/why.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The metadata of one architecture: keys begin with its name. */
struct source {
    const struct gguf *gguf;
    const char *arch;
    char *why;
};

enum { KEY_CHARS = 96 };

static void make_key(const struct source *s, const char *name, char key[KEY_CHARS])
{
    snprintf(key, KEY_CHARS, "%s.%s", s->arch, name);
}

/* A number within [1, max]; def when the key is absent; def 0: the key is required. */
static int read_u32(const struct source *s, const char *name, uint32_t def, uint32_t max,
                    uint32_t *out)
{
    char key[KEY_CHARS];
    make_key(s, name, key);
    uint32_t value = def;
    int err = gguf_get_u32(s->gguf, key, &value, s->why);
    if (err == -ENOENT && def == 0)
        return llm_why(s->why, -EPROTO, "the metadata lacks %s", key);
    if (err && err != -ENOENT)
        return err;
    if (value == 0 || value > max)
        return llm_why(s->why, -EPROTO, "%s is %u; 1 to %u is possible", key, value, max);
    *out = value;
    return 0;
}

/* A positive number; def when the key is absent, unless def is 0. */
static int read_f32(const struct source *s, const char *name, float def, float *out)
{
    char key[KEY_CHARS];
    make_key(s, name, key);
    float value = def;
    int err = gguf_get_f32(s->gguf, key, &value, s->why);
    if (err == -ENOENT && def == 0)
        return llm_why(s->why, -EPROTO, "the metadata lacks %s", key);
    if (err && err != -ENOENT)
        return err;
    if (!(value > 0) || !isfinite(value))
        return llm_why(s->why, -EPROTO, "%s is %g; it must be positive", key, (double)value);
    *out = value;
    return 0;
}

/* Models that see images, whose text part is another architecture's: of text alone, all sections of
 * a position are equal, and pairs turn as they do there.  Images come from a file of their own. */
static const struct {
    const char *name;
    enum llm_arch arch;
} text_parts[] = {{"qwen3vl", LLM_QWEN3}, {"qwen3vlmoe", LLM_QWEN3MOE}};

/* Keys begin with *name_out. */
static int read_arch(const struct gguf *gguf, enum llm_arch *out, const char **name_out, char *why)
{
    struct gguf_string name;
    int err = gguf_get_string(gguf, "general.architecture", &name, why);
    if (err == -ENOENT)
        return llm_why(why, -EPROTO, "the metadata lacks general.architecture");
    if (err)
        return err;
    for (int i = 0; i < LLM_ARCHS; i++) {
        if (gguf_string_is(name, llm_arch_name((enum llm_arch)i))) {
            *out = (enum llm_arch)i;
            *name_out = llm_arch_name(*out);
            return 0;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(text_parts); i++) {
        if (gguf_string_is(name, text_parts[i].name)) {
            *out = text_parts[i].arch;
            *name_out = text_parts[i].name;
            return 0;
        }
    }
    if (gguf_string_is(name, "clip"))
        return llm_why(
            why, -EOPNOTSUPP,
            "architecture 'clip' is the part of a model that sees or hears; take the file "
            "of its text part");
    return llm_why(
        why, -EOPNOTSUPP,
        "the engine does not run the architecture '%.*s'; llama.cpp may, on a remote GPU "
        "through hawser run; hawser model synth --help lists those that the engine runs",
        name.bytes < 40 ? (int)name.bytes : 40, name.text);
}

/* A number that may be 0 or absent, which leaves *value as it was. */
static int maybe_f32(const struct source *s, const char *name, float *value)
{
    char key[KEY_CHARS];
    make_key(s, name, key);
    float read = *value;
    int err = gguf_get_f32(s->gguf, key, &read, s->why);
    if (err && err != -ENOENT)
        return err;
    if (!isfinite(read) || read < 0)
        return llm_why(s->why, -EPROTO, "%s is %g; it must be positive, or 0 for none", key,
                       (double)read);
    *value = read;
    return 0;
}

static int maybe_u32(const struct source *s, const char *name, uint32_t *value)
{
    char key[KEY_CHARS];
    make_key(s, name, key);
    int err = gguf_get_u32(s->gguf, key, value, s->why);
    return err == -ENOENT ? 0 : err;
}

/* Keys of features that change what a model computes and that the architecture's graph lacks.
 * `most` and less: off. */
static int refuse_numbers(const struct source *s, const struct llm_arch_info *info)
{
    const struct {
        const char *name;
        uint32_t most;
        bool known;
    } numbers[] = {
        {"expert_count", 0, info->has_experts || info->experts_optional},
        {"expert_shared_count", 0, false},
        {"expert_shared_feed_forward_length", 0, info->has_shared_expert || info->shared_optional},
        {"expert_group_count", 1, false},
        {"attention.key_length_mla", 0, false},
        {"attention.shared_kv_layers", 0, false},
        {"nextn_predict_layers", 0, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        uint32_t number = 0;
        int err = numbers[i].known ? 0 : maybe_u32(s, numbers[i].name, &number);
        if (err)
            return err;
        if (number > numbers[i].most)
            return llm_why(s->why, -EOPNOTSUPP, "the model uses %s.%s, which the engine's %s lacks",
                           s->arch, numbers[i].name, s->arch);
    }
    return 0;
}

static int refuse_reals(const struct source *s, const struct llm_arch_info *info)
{
    const struct {
        const char *name;
        bool known;
    } reals[] = {
        {"attention.clamp_kqv", false},
        {"attention.max_alibi_bias", false},
        {"router_logit_softcapping", false},
        {"attn_logit_softcapping", info->has_caps},
        {"final_logit_softcapping", info->has_caps},
        {"logit_scale", info->has_multipliers || info->logits_times},
        {"residual_scale", info->has_multipliers},
        {"embedding_scale", info->has_multipliers},
        {"attention.temperature_scale", info->has_temperature},
    };
    for (size_t i = 0; i < ARRAY_LEN(reals); i++) {
        float real = 0;
        int err = reals[i].known ? 0 : maybe_f32(s, reals[i].name, &real);
        if (err)
            return err;
        if (real != 0)
            return llm_why(s->why, -EOPNOTSUPP, "the model uses %s.%s, which the engine's %s lacks",
                           s->arch, reals[i].name, s->arch);
    }
    return 0;
}

static int refuse_two_way(const struct source *s)
{
    char key[KEY_CHARS];
    bool causal = true;
    make_key(s, "attention.causal", key);
    int err = gguf_get_bool(s->gguf, key, &causal, s->why);
    if (err && err != -ENOENT)
        return err;
    if (!causal)
        return llm_why(s->why, -EOPNOTSUPP, "attention that looks ahead (%s is false)", key);
    return 0;
}

static int read_attention(const struct source *s, struct llm_config *c)
{
    int err = read_u32(s, "attention.head_count", 0, c->width, &c->heads);
    if (err)
        return err;
    err = read_u32(s, "attention.head_count_kv", c->heads, c->heads, &c->kv_heads);
    if (err)
        return err;
    if (c->heads % c->kv_heads)
        return llm_why(s->why, -EPROTO, "%u key and value heads do not divide %u query heads",
                       c->kv_heads, c->heads);
    char key[KEY_CHARS];
    make_key(s, "attention.key_length", key);
    if (c->width % c->heads && !gguf_find(s->gguf, key))
        return llm_why(s->why, -EPROTO, "%u heads do not divide the width of %u", c->heads,
                       c->width);
    uint32_t value_dim;
    err = read_u32(s, "attention.key_length", c->width / c->heads, LLM_WIDTH_MAX, &c->head_dim);
    if (!err)
        err = read_u32(s, "attention.value_length", c->head_dim, LLM_WIDTH_MAX, &value_dim);
    if (err)
        return err;
    if (value_dim != c->head_dim)
        return llm_why(s->why, -EOPNOTSUPP, "keys of %u and values of %u; the engine takes equals",
                       c->head_dim, value_dim);
    if (llm_dim_value(c, LLM_DIM_QKV) > LLM_WIDTH_MAX)
        return llm_why(s->why, -EPROTO, "%u heads of %u: wider than %d", c->heads, c->head_dim,
                       LLM_WIDTH_MAX);
    return 0;
}

static int read_yarn(const struct source *s, struct llm_config *c)
{
    float extrapolation = 1;
    c->rope_is_yarn = true;
    int err = read_f32(s, "rope.scaling.yarn_beta_fast", c->yarn_fast, &c->yarn_fast);
    if (!err)
        err = read_f32(s, "rope.scaling.yarn_beta_slow", c->yarn_slow, &c->yarn_slow);
    if (!err)
        err = maybe_f32(s, "rope.scaling.yarn_log_multiplier", &c->yarn_log);
    if (!err)
        err = maybe_f32(s, "rope.scaling.yarn_ext_factor", &extrapolation);
    if (!err && extrapolation != 1)
        return llm_why(s->why, -EOPNOTSUPP, "YaRN with an extrapolation of %g; the engine takes 1",
                       (double)extrapolation);
    return err;
}

/* Llama 3 and longrope come as tensors: llm/engine/rope.h. */
static int read_rope_scaling(const struct source *s, struct llm_config *c)
{
    char key[KEY_CHARS];
    struct gguf_string type = {.text = "linear", .bytes = strlen("linear")};
    make_key(s, "rope.scaling.type", key);
    int err = gguf_get_string(s->gguf, key, &type, s->why);
    if (err && err != -ENOENT)
        return err;
    if (!gguf_string_is(type, "none") && !gguf_string_is(type, "linear") &&
        !gguf_string_is(type, "yarn") && !gguf_string_is(type, "longrope"))
        return llm_why(s->why, -EOPNOTSUPP,
                       "rope scaling '%.*s'; the engine knows none, linear, yarn and longrope",
                       type.bytes < 40 ? (int)type.bytes : 40, type.text);
    err = read_f32(s, "rope.scaling.attn_factor", 1, &c->rope_magnitude);
    if (!err)
        err = read_u32(s, "rope.scaling.original_context_length", c->context, LLM_CONTEXT_MAX,
                       &c->rope_original);
    if (err || gguf_string_is(type, "none"))
        return err;
    /* scale_linear is what older converters wrote. */
    err = read_f32(s, "rope.scale_linear", 1, &c->rope_scale);
    if (!err)
        err = read_f32(s, "rope.scaling.factor", c->rope_scale, &c->rope_scale);
    return !err && gguf_string_is(type, "yarn") ? read_yarn(s, c) : err;
}

/* Granite says with this key that it has no positions at all. */
static int refuse_no_rope(const struct source *s)
{
    char key[KEY_CHARS];
    bool turns = true;
    make_key(s, "rope.scaling.finetuned", key);
    int err = gguf_get_bool(s->gguf, key, &turns, s->why);
    if (err && err != -ENOENT)
        return err;
    return turns ? 0 : llm_why(s->why, -EOPNOTSUPP, "layers without positions (%s is false)", key);
}

static int read_rope(const struct source *s, struct llm_config *c)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    c->rope_base = c->rope_base_window = 10000; /* every field is set, also where none is used */
    c->rope_original = c->context;
    if (info->learned_positions)
        return 0;
    int err = read_u32(s, "rope.dimension_count", c->head_dim, c->head_dim, &c->rope_dims);
    if (err)
        return err;
    if (c->rope_dims % 2)
        return llm_why(s->why, -EPROTO, "%u rotary dimensions; they come in pairs", c->rope_dims);
    err = read_f32(s, "rope.freq_base", 10000, &c->rope_base);
    float base_window = info->window_base ? info->window_base : c->rope_base;
    c->rope_base_window = base_window;
    if (!err && !info->turns_in_window)
        err = read_f32(s, "rope.freq_base_swa", base_window, &c->rope_base_window);
    if (!err)
        err = read_rope_scaling(s, c);
    if (!err && info->has_multipliers)
        err = refuse_no_rope(s);
    c->rope_scale_window = info->window_unscaled ? 1 : c->rope_scale;
    return err;
}

/* A number, or for each layer whether it slides: then a period must describe the list. */
static int read_window_period(const struct source *s, struct llm_config *c)
{
    char key[KEY_CHARS];
    const struct gguf_pair *list;
    make_key(s, "attention.sliding_window_pattern", key);
    const struct gguf_pair *pair = gguf_find(s->gguf, key);
    if (!pair || !pair->is_array) {
        int err = maybe_u32(s, "attention.sliding_window_pattern", &c->window_period);
        if (!err && c->window_period > LLM_LAYERS_MAX)
            return llm_why(s->why, -EPROTO, "%s is %u; %d at most", key, c->window_period,
                           LLM_LAYERS_MAX);
        return err;
    }
    int err = gguf_get_array(s->gguf, key, GGUF_BOOL, &list, s->why);
    if (err)
        return err;
    if (list->count < c->layers)
        return llm_why(s->why, -EPROTO, "%s has %" PRIu64 " entries for %u layers", key,
                       list->count, c->layers);
    uint32_t period = 0;
    while (period < c->layers && list->payload[period])
        period++;
    c->window_period = period == c->layers ? 0 : period + 1;
    for (uint32_t l = 0; l < c->layers; l++) {
        bool slides = c->window_period == 0 || l % c->window_period != c->window_period - 1;
        if (slides != (list->payload[l] != 0))
            return llm_why(s->why, -EOPNOTSUPP, "%s: layer %u breaks the period of %u", key, l,
                           c->window_period);
    }
    return 0;
}

static int read_window(const struct source *s, struct llm_config *c)
{
    int err = maybe_u32(s, "attention.sliding_window", &c->window);
    if (!err)
        err = read_window_period(s, c);
    if (!err && c->window && llm_arch_info(c->arch)->learned_positions)
        return llm_why(s->why, -EOPNOTSUPP, "learned positions with a sliding window of %u",
                       c->window);
    llm_arch_set_skip(c);
    return err;
}

/* Files that do not tell give the shared expert what a dense layer would have, and divide it among
 * the others that a row meets. */
static int read_shared_expert(const struct source *s, struct llm_config *c)
{
    bool always = llm_arch_info(c->arch)->has_shared_expert;
    c->shared_ffn = always ? c->ffn : 0;
    int err = maybe_u32(s, "expert_shared_feed_forward_length", &c->shared_ffn);
    if (!err && c->shared_ffn > LLM_WIDTH_MAX)
        return llm_why(s->why, -EPROTO, "a shared expert of %u values; %d at most", c->shared_ffn,
                       LLM_WIDTH_MAX);
    c->ffn = always && c->ffn >= c->experts_used ? c->ffn / c->experts_used : c->ffn;
    return err;
}

static int read_experts(const struct source *s, struct llm_config *c)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    if (info->experts_optional) {
        int err = maybe_u32(s, "expert_count", &c->experts);
        if (err || c->experts == 0)
            return err;
    } else if (!info->has_experts) {
        return 0;
    }
    int err = read_u32(s, "expert_count", 0, LLM_EXPERTS_MAX, &c->experts);
    if (!err)
        err = read_u32(s, "expert_used_count", 0,
                       c->experts < LLM_EXPERTS_USED_MAX ? c->experts : LLM_EXPERTS_USED_MAX,
                       &c->experts_used);
    if (!err && (info->has_shared_expert || info->shared_optional))
        err = read_shared_expert(s, c);
    if (!err)
        err = read_u32(s, "expert_feed_forward_length", c->ffn, LLM_WIDTH_MAX, &c->ffn);
    float scale = 0;
    if (!err)
        err = maybe_f32(s, "expert_weights_scale", &scale);
    c->experts_scale = scale != 0 ? scale : 1;
    return err;
}

static int read_multiplier(const struct source *s, const char *name, float *value)
{
    float read = 0;
    int err = maybe_f32(s, name, &read);
    *value = read != 0 ? read : *value;
    return err;
}

/* Scales and soft limits. */
static int read_scales(const struct source *s, struct llm_config *c)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    llm_arch_set_scale(c);
    int err = read_multiplier(s, "attention.scale", &c->attend_scale);
    if (!err && info->has_caps)
        err = maybe_f32(s, "attn_logit_softcapping", &c->attend_cap);
    if (!err && info->has_caps)
        err = maybe_f32(s, "final_logit_softcapping", &c->logit_cap);
    if (!err && info->has_temperature)
        err = maybe_f32(s, "attention.temperature_scale", &c->temperature);
    if (!err && c->temperature != 0 && (c->window || c->rope_dims != c->head_dim))
        return llm_why(
            s->why, -EOPNOTSUPP,
            "%s.attention.temperature_scale with a window or with heads that turn in part",
            s->arch);
    if (!err && info->logits_times)
        err = read_multiplier(s, "logit_scale", &c->logit_scale);
    if (err || !info->has_multipliers)
        return err;
    float divisor = 1;
    if ((err = read_multiplier(s, "embedding_scale", &c->embed_scale)) ||
        (err = read_multiplier(s, "residual_scale", &c->residual_scale)) ||
        (err = read_multiplier(s, "logit_scale", &divisor)))
        return err;
    c->logit_scale = 1 / divisor;
    return 0;
}

/* The rows of the embedding, which may be in another part of the model: then the tokens. */
static int read_vocab_size(const struct gguf *gguf, struct llm_config *c, char *why)
{
    const struct llm_tensor *embedding = llm_tensor_table_find(&gguf->tensors, "token_embd.weight");
    const struct gguf_pair *tokens = NULL;
    if (!embedding && gguf_find(gguf, "split.count"))
        tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
    uint64_t count = embedding                    ? embedding->dims[1]
                     : tokens && tokens->is_array ? tokens->count
                                                  : 0;
    if (count == 0)
        return llm_why(why, -EPROTO, "the file lacks token_embd.weight%s",
                       gguf->tensors.count ? "" : ": it holds no weights at all");
    if (count > LLM_VOCAB_MAX)
        return llm_why(why, -EPROTO, "a vocabulary of %" PRIu64 "; %d at most", count,
                       LLM_VOCAB_MAX);
    c->vocab = (uint32_t)count;
    c->tied_output = !llm_tensor_table_find(&gguf->tensors, "output.weight");
    return 0;
}

int llm_config_read(const struct gguf *gguf, struct llm_config *config, char *why)
{
    struct llm_config c = {0};
    const char *name;
    int err = read_arch(gguf, &c.arch, &name, why);
    if (err)
        return err;
    const struct llm_arch_info *info = llm_arch_info(c.arch);
    llm_arch_set(&c);
    const struct source s = {.gguf = gguf, .arch = name, .why = why};
    const char *eps =
        info->norm_is_rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    if ((err = read_u32(&s, "block_count", 0, LLM_LAYERS_MAX, &c.layers)) ||
        (err = read_u32(&s, "embedding_length", 0, LLM_WIDTH_MAX, &c.width)) ||
        (err = read_u32(&s, "feed_forward_length", 0, LLM_WIDTH_MAX, &c.ffn)) ||
        (err = read_u32(&s, "context_length", 0, LLM_CONTEXT_MAX, &c.context)) ||
        (err = read_f32(&s, eps, 0, &c.norm_eps)) || (err = refuse_numbers(&s, info)) ||
        (err = refuse_reals(&s, info)) || (err = refuse_two_way(&s)) ||
        (err = read_attention(&s, &c)) || (err = read_window(&s, &c)) ||
        (err = read_rope(&s, &c)) || (err = read_experts(&s, &c)) || (err = read_scales(&s, &c)) ||
        (err = read_vocab_size(gguf, &c, why)))
        return err;
    *config = c;
    return 0;
}

static int check_shape(const struct llm_config *config, const struct llm_arch_tensor *row,
                       const struct llm_tensor *tensor, char *why)
{
    uint64_t want[LLM_DIMS_MAX];
    llm_arch_tensor_dims(config, row, want);
    if (memcmp(tensor->dims, want, sizeof want) != 0)
        return llm_why(why, -EPROTO,
                       "tensor %s is %" PRIu64 " x %" PRIu64 " x %" PRIu64
                       "; the metadata makes it %" PRIu64 " x %" PRIu64 " x %" PRIu64,
                       tensor->name, tensor->dims[0], tensor->dims[1], tensor->dims[2], want[0],
                       want[1], want[2]);
    if (llm_arch_tensor_is_vector(row) && tensor->dtype != LLM_F32)
        return llm_why(why, -EOPNOTSUPP, "tensor %s is %s; norms and biases are taken as F32 only",
                       tensor->name, llm_dtype_name(tensor->dtype));
    return 0;
}

static int check_row(const struct llm_config *config, const struct llm_arch_tensor *row,
                     const struct llm_tensor_table *tensors, char *why)
{
    uint32_t copies = row->per_layer ? config->layers : 1;
    if (!llm_arch_tensor_applies(config, row))
        return 0;
    for (uint32_t layer = 0; layer < copies; layer++) {
        char name[LLM_NAME_CHARS];
        llm_arch_tensor_name(row, layer, name);
        const struct llm_tensor *tensor = llm_tensor_table_find(tensors, name);
        if (!tensor && llm_arch_tensor_is_optional(row))
            continue;
        if (!tensor)
            return llm_why(why, -EPROTO, "the file lacks tensor %s", name);
        int err = check_shape(config, row, tensor, why);
        if (err)
            return err;
    }
    return 0;
}

/* The engine would ignore an unknown tensor and compute something else. */
static int refuse_unknown(const struct llm_config *config, const struct llm_tensor_table *tensors,
                          char *why)
{
    const char *first = NULL, *arch = llm_arch_name(config->arch);
    uint32_t others = 0;
    for (uint32_t i = 0; i < tensors->count; i++) {
        if (llm_arch_row_of(config, tensors->items[i].name))
            continue;
        others += first != NULL;
        first = first ? first : tensors->items[i].name;
    }
    if (!first)
        return 0;
    if (others == 0)
        return llm_why(why, -EOPNOTSUPP, "tensor %s: the engine's %s has no place for it", first,
                       arch);
    return llm_why(why, -EOPNOTSUPP,
                   "tensor %s and %u others: the engine's %s has no place for them", first, others,
                   arch);
}

int llm_config_check_tensors(const struct llm_config *config,
                             const struct llm_tensor_table *tensors, char *why)
{
    int err = refuse_unknown(config, tensors, why);
    if (err)
        return err;
    for (const struct llm_arch_tensor *row = llm_arch_info(config->arch)->tensors; row->name;
         row++) {
        err = check_row(config, row, tensors, why);
        if (err)
            return err;
    }
    return 0;
}
