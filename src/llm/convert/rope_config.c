#include "llm/convert/rope_config.h"

#include "llm/model/shape.h"
#include "llm/model/why.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_CHARS = 96 };

struct source {
    struct gguf_writer *w;
    const char *arch;
    const json_t *config, *scaling;
    struct llm_rope_factors *factors;
    char *why;
};

static double real_in(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

/* Newer files have all of it in one object, some one for each kind of layer. */
static const json_t *find_scaling(const json_t *config)
{
    const json_t *scaling = json_object_get(config, "rope_scaling");
    if (json_is_object(scaling))
        return scaling;
    const json_t *all = json_object_get(config, "rope_parameters");
    const json_t *full = json_object_get(all, "full_attention");
    return json_is_object(full) ? full : all;
}

static double find_base(const struct source *s)
{
    return real_in(s->config, "rope_theta", real_in(s->scaling, "rope_theta", 10000));
}

static double head_dim(const struct source *s)
{
    double heads = real_in(s->config, "num_attention_heads", 0);
    double even = heads > 0 ? floor(real_in(s->config, "hidden_size", 0) / heads) : 0;
    return real_in(s->config, "head_dim", even);
}

static void put_real(const struct source *s, const char *name, double value)
{
    char key[KEY_CHARS];
    snprintf(key, sizeof(key), "%s.rope.scaling.%s", s->arch, name);
    gguf_write_f32(s->w, key, (float)value);
}

static void put_type(const struct source *s, const char *type)
{
    char key[KEY_CHARS];
    snprintf(key, sizeof(key), "%s.rope.scaling.type", s->arch);
    gguf_write_string(s->w, key, type);
}

/* Positions that the model was first made for; otherwise 0: they must be told. */
static int put_original(const struct source *s, double otherwise, double *out)
{
    char key[KEY_CHARS];
    const char *name = "original_max_position_embeddings";
    double value = real_in(s->scaling, name, real_in(s->config, name, otherwise));
    if (value < 1 || value > LLM_CONTEXT_MAX || value != floor(value))
        return llm_why(s->why, -EPROTO, "config.json: rope scaling with %s of %g", name, value);
    snprintf(key, sizeof(key), "%s.rope.scaling.original_context_length", s->arch);
    gguf_write_u32(s->w, key, (uint32_t)value);
    *out = value;
    return 0;
}

static float *add_set(struct llm_rope_factors *factors, const char *name, uint32_t count)
{
    float *values = calloc(count, sizeof(*values));
    if (!values)
        return NULL;
    factors->sets[factors->count].name = name;
    factors->sets[factors->count].values = values;
    factors->sets[factors->count++].count = count;
    return values;
}

/* Llama 3: pairs that turn slowly are slowed down further by `factor`, fast ones are not, those
 * between in part. */
static int make_llama3(const struct source *s)
{
    double factor = real_in(s->scaling, "factor", 8);
    double low = real_in(s->scaling, "low_freq_factor", 1);
    double high = real_in(s->scaling, "high_freq_factor", 4);
    double old = real_in(s->scaling, "original_max_position_embeddings", 8192);
    double base = find_base(s), dim = head_dim(s);
    if (!(factor > 0 && low > 0 && high > low && old > 0 && dim >= 2 && dim <= LLM_WIDTH_MAX))
        return llm_why(s->why, -EPROTO, "config.json: rope_scaling has numbers out of bounds");
    uint32_t count = (uint32_t)(dim / 2);
    float *values = add_set(s->factors, "rope_freqs.weight", count);
    if (!values)
        return llm_why(s->why, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        double turns = old * pow(base, -2.0 * i / dim) / (2 * M_PI); /* over the old context */
        double part = (turns - low) / (high - low);
        double slow = turns < low ? factor : turns > high ? 1 : 1 / ((1 - part) / factor + part);
        values[i] = (float)slow;
    }
    return 0;
}

static int read_list(const struct source *s, const char *key, const char *name)
{
    const json_t *list = json_object_get(s->scaling, key);
    size_t count = json_array_size(list);
    if (count == 0 || count > LLM_WIDTH_MAX)
        return llm_why(s->why, -EPROTO, "config.json: rope scaling longrope has no list %s", key);
    float *values = add_set(s->factors, name, (uint32_t)count);
    if (!values)
        return llm_why(s->why, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        values[i] = (float)json_number_value(value);
        if (!json_is_number(value) || !(values[i] > 0) || !isfinite(values[i]))
            return llm_why(s->why, -EPROTO, "config.json: %s has an entry that is no factor", key);
    }
    return 0;
}

static int make_longrope(const struct source *s)
{
    double context = real_in(s->config, "max_position_embeddings", 0), old;
    int err = read_list(s, "long_factor", "rope_factors_long.weight");
    if (!err)
        err = read_list(s, "short_factor", "rope_factors_short.weight");
    if (!err)
        err = put_original(s, 0, &old);
    if (err)
        return err;
    double scale = context / old;
    double told = real_in(s->scaling, "attention_factor", 0);
    double made = scale > 1 && old > 1 ? sqrt(1 + log(scale) / log(old)) : 1;
    put_type(s, "longrope");
    put_real(s, "attn_factor", told > 0 ? told : made);
    return 0;
}

static int make_yarn(const struct source *s)
{
    double old, factor = real_in(s->scaling, "factor", 0);
    double told = real_in(s->scaling, "attention_factor", 0);
    double all = real_in(s->scaling, "mscale_all_dim", 0), one = real_in(s->scaling, "mscale", 1);
    if (!(factor >= 1) || !isfinite(factor))
        return llm_why(s->why, -EPROTO, "config.json: rope scaling yarn with a factor of %g",
                       factor);
    if (told > 0 && fabs(told - (1 + 0.1 * log(factor))) > 1e-3)
        return llm_why(s->why, -EOPNOTSUPP,
                       "config.json: yarn with an attention_factor of %g; %g is computed", told,
                       1 + 0.1 * log(factor));
    if (all > 0 && one != 1)
        return llm_why(s->why, -EOPNOTSUPP, "config.json: yarn with an mscale of %g; 1 is computed",
                       one);
    int err = put_original(s, real_in(s->config, "max_position_embeddings", 0), &old);
    if (err)
        return err;
    put_type(s, "yarn");
    put_real(s, "factor", factor);
    put_real(s, "yarn_beta_fast", real_in(s->scaling, "beta_fast", 32));
    put_real(s, "yarn_beta_slow", real_in(s->scaling, "beta_slow", 1));
    if (all > 0)
        put_real(s, "yarn_log_multiplier", all);
    return 0;
}

int llm_rope_config_write(struct gguf_writer *w, const char *arch, const json_t *config,
                          struct llm_rope_factors *factors, char *why)
{
    const json_t *scaling = find_scaling(config);
    const struct source s = {w, arch, config, scaling, factors, why};
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    type = type ? type : json_string_value(json_object_get(scaling, "type"));
    if (!type || strcmp(type, "default") == 0)
        return 0;
    if (strcmp(type, "llama3") == 0)
        return make_llama3(&s);
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)
        return make_longrope(&s);
    if (strcmp(type, "yarn") == 0)
        return make_yarn(&s);
    if (strcmp(type, "linear") != 0)
        return llm_why(why, -EOPNOTSUPP,
                       "config.json: rope scaling %.40s; linear, yarn, longrope and llama3 are "
                       "imported",
                       type);
    put_type(&s, "linear");
    put_real(&s, "factor", real_in(scaling, "factor", 1));
    return 0;
}

void llm_rope_factors_fini(struct llm_rope_factors *factors)
{
    for (uint32_t i = 0; i < factors->count; i++)
        free(factors->sets[i].values);
}
