#include "llm/model/arch.h"
#include "llm/model/model.h"
#include "llm/model/why.h"

#include <errno.h>
#include <inttypes.h>
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
    if (!(value > 0))
        return llm_why(s->why, -EPROTO, "%s is %g; it must be positive", key, (double)value);
    *out = value;
    return 0;
}

static int read_arch(const struct gguf *gguf, enum llm_arch *out, char *why)
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
            return 0;
        }
    }
    int chars = name.bytes < 40 ? (int)name.bytes : 40;
    return llm_why(why, -EOPNOTSUPP,
                   "architecture '%.*s'; the engine runs llama, qwen2, gptj and gpt2", chars,
                   name.text);
}

/* Keys of features that change what a model computes and that the engine lacks.  0 and false: off.
 */
static int refuse_features(const struct source *s)
{
    static const char *const numbers[] = {
        "expert_count",
        "attention.key_length_mla",
        "nextn_predict_layers",
    };
    static const char *const reals[] = {
        "attention.clamp_kqv",    "attention.max_alibi_bias", "attention.scale",
        "attn_logit_softcapping", "final_logit_softcapping",  "logit_scale",
        "residual_scale",         "embedding_scale",
    };
    char key[KEY_CHARS];
    uint32_t number = 0;
    float real = 0;
    int err = -ENOENT;
    for (size_t i = 0; i < ARRAY_LEN(numbers) && number == 0; i++) {
        make_key(s, numbers[i], key);
        err = gguf_get_u32(s->gguf, key, &number, s->why);
        if (err && err != -ENOENT)
            return err;
    }
    for (size_t i = 0; i < ARRAY_LEN(reals) && number == 0 && real == 0; i++) {
        make_key(s, reals[i], key);
        err = gguf_get_f32(s->gguf, key, &real, s->why);
        if (err && err != -ENOENT)
            return err;
    }
    if (number != 0 || real != 0)
        return llm_why(s->why, -EOPNOTSUPP, "the model uses %s, which the engine does not compute",
                       key);
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

static int read_rope_scaling(const struct source *s, struct llm_config *c)
{
    char key[KEY_CHARS];
    struct gguf_string type = {.text = "linear", .bytes = strlen("linear")};
    make_key(s, "rope.scaling.type", key);
    int err = gguf_get_string(s->gguf, key, &type, s->why);
    if (err && err != -ENOENT)
        return err;
    c->rope_scale = 1;
    if (gguf_string_is(type, "none"))
        return 0;
    if (!gguf_string_is(type, "linear"))
        return llm_why(s->why, -EOPNOTSUPP, "rope scaling '%.*s'; the engine knows none and linear",
                       type.bytes < 40 ? (int)type.bytes : 40, type.text);
    /* scale_linear is what older converters wrote. */
    err = read_f32(s, "rope.scale_linear", 1, &c->rope_scale);
    return err ? err : read_f32(s, "rope.scaling.factor", c->rope_scale, &c->rope_scale);
}

static int read_rope(const struct source *s, struct llm_config *c)
{
    if (llm_arch_info(c->arch)->learned_positions) {
        c->rope_base = 10000; /* not used, but every field is set */
        c->rope_scale = 1;
        return 0;
    }
    int err = read_u32(s, "rope.dimension_count", c->head_dim, c->head_dim, &c->rope_dims);
    if (err)
        return err;
    if (c->rope_dims % 2)
        return llm_why(s->why, -EPROTO, "%u rotary dimensions; they come in pairs", c->rope_dims);
    err = read_f32(s, "rope.freq_base", 10000, &c->rope_base);
    return err ? err : read_rope_scaling(s, c);
}

/* Within a sliding window every position sees all before it: so the window is the context. */
static int read_context(const struct source *s, struct llm_config *c)
{
    int err = read_u32(s, "context_length", 0, LLM_CONTEXT_MAX, &c->context);
    char key[KEY_CHARS];
    make_key(s, "attention.sliding_window", key);
    uint32_t window = 0;
    if (!err)
        err = gguf_get_u32(s->gguf, key, &window, s->why);
    if (err && err != -ENOENT)
        return err;
    if (window == 0 || window >= c->context)
        return 0;
    if (llm_arch_info(c->arch)->learned_positions)
        return llm_why(s->why, -EOPNOTSUPP, "learned positions with a sliding window of %u",
                       window);
    c->context = window;
    return 0;
}

static int read_vocab_size(const struct gguf *gguf, struct llm_config *c, char *why)
{
    const struct llm_tensor *embedding = llm_tensor_table_find(&gguf->tensors, "token_embd.weight");
    if (!embedding)
        return llm_why(why, -EPROTO, "the file lacks token_embd.weight%s",
                       gguf->tensors.count ? "" : ": it holds no weights at all");
    if (embedding->dims[1] > LLM_VOCAB_MAX)
        return llm_why(why, -EPROTO, "a vocabulary of %" PRIu64 "; %d at most", embedding->dims[1],
                       LLM_VOCAB_MAX);
    c->vocab = (uint32_t)embedding->dims[1];
    c->tied_output = !llm_tensor_table_find(&gguf->tensors, "output.weight");
    return 0;
}

int llm_config_read(const struct gguf *gguf, struct llm_config *config, char *why)
{
    struct llm_config c = {0};
    int err = read_arch(gguf, &c.arch, why);
    if (err)
        return err;
    const struct llm_arch_info *info = llm_arch_info(c.arch);
    c.norm_is_rms = info->norm_is_rms;
    c.rope_is_neox = info->rope_is_neox;
    c.ffn_is_gated = info->ffn_is_gated;
    c.parallel_residual = info->parallel_residual;
    const struct source s = {.gguf = gguf, .arch = info->name, .why = why};
    const char *eps =
        info->norm_is_rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    if ((err = read_u32(&s, "block_count", 0, LLM_LAYERS_MAX, &c.layers)) ||
        (err = read_u32(&s, "embedding_length", 0, LLM_WIDTH_MAX, &c.width)) ||
        (err = read_u32(&s, "feed_forward_length", 0, LLM_WIDTH_MAX, &c.ffn)) ||
        (err = read_f32(&s, eps, 0, &c.norm_eps)) || (err = read_context(&s, &c)) ||
        (err = read_attention(&s, &c)) || (err = read_rope(&s, &c)) ||
        (err = refuse_features(&s)) || (err = refuse_two_way(&s)) ||
        (err = read_vocab_size(gguf, &c, why)))
        return err;
    *config = c;
    return 0;
}

static int check_shape(const struct llm_config *config, const struct llm_arch_tensor *row,
                       const struct llm_tensor *tensor, char *why)
{
    uint64_t width = llm_dim_value(config, row->row), rows = llm_dim_value(config, row->rows);
    if (tensor->dims[0] != width || tensor->dims[1] != rows || tensor->dims[2] != 1 ||
        tensor->dims[3] != 1)
        return llm_why(why, -EPROTO,
                       "tensor %s is %" PRIu64 " x %" PRIu64 "; the metadata makes it %" PRIu64
                       " x %" PRIu64,
                       tensor->name, tensor->dims[0], tensor->dims[1], width, rows);
    if (row->rows == LLM_DIM_NONE && tensor->dtype != LLM_F32)
        return llm_why(why, -EOPNOTSUPP, "tensor %s is %s; norms and biases are taken as F32 only",
                       tensor->name, llm_dtype_name(tensor->dtype));
    return 0;
}

static int check_row(const struct llm_config *config, const struct llm_arch_tensor *row,
                     const struct llm_tensor_table *tensors, char *why)
{
    uint32_t copies = row->per_layer ? config->layers : 1;
    for (uint32_t layer = 0; layer < copies; layer++) {
        char name[LLM_NAME_CHARS];
        llm_arch_tensor_name(row, layer, name);
        const struct llm_tensor *tensor = llm_tensor_table_find(tensors, name);
        if (!tensor && row->optional)
            continue;
        if (!tensor)
            return llm_why(why, -EPROTO, "the file lacks tensor %s", name);
        int err = check_shape(config, row, tensor, why);
        if (err)
            return err;
    }
    return 0;
}

int llm_config_check_tensors(const struct llm_config *config,
                             const struct llm_tensor_table *tensors, char *why)
{
    /* The engine would ignore an unknown tensor and compute something else. */
    for (uint32_t i = 0; i < tensors->count; i++) {
        if (!llm_arch_row_of(config, tensors->items[i].name))
            return llm_why(why, -EOPNOTSUPP, "tensor %s: the engine's %s has no place for it",
                           tensors->items[i].name, llm_arch_name(config->arch));
    }
    for (const struct llm_arch_tensor *row = llm_arch_info(config->arch)->tensors; row->name;
         row++) {
        int err = check_row(config, row, tensors, why);
        if (err)
            return err;
    }
    return 0;
}
