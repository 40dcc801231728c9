#include "llm/convert/recipe.h"

#include "base/attr.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* In which layers a row holds; n is the number of layers. */
enum where {
    EVERYWHERE,
    FIRST_2,
    FIRST_4,
    FIRST_8TH,  /* the first n / 8 */
    FIRST_16TH, /* the first n / 16 */
    SENSITIVE,  /* the first and the last n / 8, and every third between */
};

/* OUTPUT stands for output.weight, or the embedding where it is the output, too. */
#define OUTPUT "output"

struct exception {
    const char *tensor; /* within a layer, without ".weight"; NULL ends the list */
    enum where where;
    enum llm_dtype dtype;
};

enum { EXCEPTIONS_MAX = 7 };

struct llm_recipe {
    const char *name;
    uint32_t file_type;
    enum llm_dtype dtype;
    struct exception exceptions[EXCEPTIONS_MAX]; /* the first that holds */
};

static const struct llm_recipe recipes[] = {
    {"F32", 0, LLM_F32, {{0}}},
    {"F16", 1, LLM_F16, {{0}}},
    {"BF16", 32, LLM_BF16, {{0}}},
    {"Q8_0", 7, LLM_Q8_0, {{0}}},
    {"Q4_0", 2, LLM_Q4_0, {{0}}},
    {"Q4_1", 3, LLM_Q4_1, {{0}}},
    {"Q5_0", 8, LLM_Q5_0, {{0}}},
    {"Q5_1", 9, LLM_Q5_1, {{0}}},
    {"IQ4_NL", 25, LLM_IQ4_NL, {{0}}},
    {"MXFP4", 38, LLM_MXFP4, {{0}}},
    {"Q2_K", 10, LLM_Q2_K, {{0}}},
    {"Q3_K", 11, LLM_Q3_K, {{0}}},
    {"Q4_K", 14, LLM_Q4_K, {{0}}},
    {"Q5_K", 16, LLM_Q5_K, {{0}}},
    {"Q6_K", 18, LLM_Q6_K, {{0}}},
    {"IQ4_XS", 30, LLM_IQ4_XS, {{0}}},
    {"Q3_K_M",
     12,
     LLM_Q3_K,
     {{OUTPUT, EVERYWHERE, LLM_Q6_K},
      {"attn_v", FIRST_2, LLM_Q5_K},
      {"attn_v", EVERYWHERE, LLM_Q4_K},
      {"attn_qkv", EVERYWHERE, LLM_Q4_K},
      {"attn_output", EVERYWHERE, LLM_Q4_K},
      {"ffn_down", FIRST_16TH, LLM_Q5_K},
      {"ffn_down", EVERYWHERE, LLM_Q4_K}}},
    {"Q4_K_S",
     14,
     LLM_Q4_K,
     {{OUTPUT, EVERYWHERE, LLM_Q6_K},
      {"attn_v", FIRST_4, LLM_Q5_K},
      {"ffn_down", FIRST_8TH, LLM_Q5_K}}},
    {"Q4_K_M",
     15,
     LLM_Q4_K,
     {{OUTPUT, EVERYWHERE, LLM_Q6_K},
      {"attn_v", SENSITIVE, LLM_Q6_K},
      {"attn_qkv", EVERYWHERE, LLM_Q5_K},
      {"ffn_down", SENSITIVE, LLM_Q6_K}}},
    {"Q5_K_S", 16, LLM_Q5_K, {{OUTPUT, EVERYWHERE, LLM_Q6_K}}},
    {"Q5_K_M",
     17,
     LLM_Q5_K,
     {{OUTPUT, EVERYWHERE, LLM_Q6_K},
      {"attn_v", SENSITIVE, LLM_Q6_K},
      {"attn_qkv", EVERYWHERE, LLM_Q6_K},
      {"ffn_down", SENSITIVE, LLM_Q6_K}}},
};

const struct llm_recipe *llm_recipe_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(recipes); i++) {
        if (strcasecmp(recipes[i].name, name) == 0)
            return &recipes[i];
    }
    return NULL;
}

const char *llm_recipe_name(size_t i)
{
    return i < ARRAY_LEN(recipes) ? recipes[i].name : NULL;
}

uint32_t llm_recipe_file_type(const struct llm_recipe *recipe)
{
    return recipe->file_type;
}

static bool holds(enum where where, uint32_t layer, uint32_t layers)
{
    switch (where) {
    case FIRST_2:
        return layer < 2;
    case FIRST_4:
        return layer < 4;
    case FIRST_8TH:
        return layer < layers / 8;
    case FIRST_16TH:
        return layer < layers / 16;
    case SENSITIVE:
        return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
    default:
        return true;
    }
}

static bool is_kept(const struct llm_tensor *tensor)
{
    const char *ending = strrchr(tensor->name, '.');
    return tensor->dim_count < 2 || !ending || strcmp(ending, ".weight") != 0 ||
           strcmp(tensor->name, "position_embd.weight") == 0 ||
           strstr(tensor->name, "ffn_gate_inp.");
}

static enum llm_dtype wished(const struct llm_recipe *recipe, const struct llm_config *config,
                             const char *name)
{
    char within[LLM_NAME_CHARS] = "";
    uint32_t layer = 0;
    bool in_layer = sscanf(name, "blk.%u.%63[^.]", &layer, within) == 2;
    bool is_output = strcmp(name, "output.weight") == 0 ||
                     (config->tied_output && strcmp(name, "token_embd.weight") == 0);
    for (size_t i = 0; i < EXCEPTIONS_MAX && recipe->exceptions[i].tensor; i++) {
        const struct exception *e = &recipe->exceptions[i];
        if (strcmp(e->tensor, OUTPUT) == 0 ? is_output
                                           : in_layer && strcmp(e->tensor, within) == 0 &&
                                                 holds(e->where, layer, config->layers))
            return e->dtype;
    }
    return recipe->dtype;
}

static enum llm_dtype with_smaller_block(enum llm_dtype dtype)
{
    switch (dtype) {
    case LLM_Q2_K:
    case LLM_Q3_K:
    case LLM_IQ4_XS:
        return LLM_IQ4_NL;
    case LLM_Q4_K:
        return LLM_Q5_0;
    case LLM_Q5_K:
        return LLM_Q5_1;
    case LLM_Q6_K:
        return LLM_Q8_0;
    default:
        return LLM_F16;
    }
}

enum llm_dtype llm_recipe_dtype(const struct llm_recipe *recipe, const struct llm_config *config,
                                const struct llm_tensor *tensor)
{
    if (is_kept(tensor))
        return tensor->dtype;
    enum llm_dtype dtype = wished(recipe, config, tensor->name);
    while (tensor->dims[0] % llm_dtype_block(dtype))
        dtype = with_smaller_block(dtype);
    return dtype;
}
