/* llama2.c's legacy .bin: seven i32 (width, feed-forward, layers, heads, key and value heads,
 * vocabulary, context), then F32 weights in a fixed order, nothing else.  A
 * negative vocabulary means that the classifier is a separate tensor at the end.  There is no magic
 * number: a file is accepted when its size is exactly what its header says. */
#include "llm/model/arch.h"
#include "llm/model/model.h"
#include "llm/model/why.h"
#include "wire/dec.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

enum { HEADER_BYTES = 7 * 4 };

/* The format's own constants. */
#define ROPE_BASE 10000.0f
#define NORM_EPS 1e-5f

struct part {
    const char *name; /* NULL: skipped */
    enum llm_dim row, rows;
    bool per_layer;
};

/* In file order.  The engine computes the rotary tables itself. */
static const struct part parts[] = {
    {"token_embd.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB, false},
    {"attn_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE, true},
    {"attn_q.weight", LLM_DIM_WIDTH, LLM_DIM_Q, true},
    {"attn_k.weight", LLM_DIM_WIDTH, LLM_DIM_KV, true},
    {"attn_v.weight", LLM_DIM_WIDTH, LLM_DIM_KV, true},
    {"attn_output.weight", LLM_DIM_Q, LLM_DIM_WIDTH, true},
    {"ffn_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE, true},
    {"ffn_gate.weight", LLM_DIM_WIDTH, LLM_DIM_FFN, true},
    {"ffn_down.weight", LLM_DIM_FFN, LLM_DIM_WIDTH, true},
    {"ffn_up.weight", LLM_DIM_WIDTH, LLM_DIM_FFN, true},
    {"output_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE, false},
    {NULL, LLM_DIM_ROPE_HALF, LLM_DIM_CONTEXT, false}, /* cosines */
    {NULL, LLM_DIM_ROPE_HALF, LLM_DIM_CONTEXT, false}, /* sines */
    {"output.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB, false},
};

static bool part_is_there(const struct llm_config *c, const struct part *part)
{
    return !(c->tied_output && part == &parts[ARRAY_LEN(parts) - 1]);
}

static uint32_t part_copies(const struct llm_config *c, const struct part *part)
{
    return part->per_layer ? c->layers : 1;
}

/* Every factor was bounded: at most 2^20 x 2^24 x 2^10 elements a part. */
static uint64_t part_bytes(const struct llm_config *c, const struct part *part)
{
    return llm_dim_value(c, part->row) * llm_dim_value(c, part->rows) * sizeof(float);
}

static bool config_is_possible(const struct llm_config *c)
{
    return c->width > 0 && c->width <= LLM_WIDTH_MAX && c->ffn > 0 && c->ffn <= LLM_WIDTH_MAX &&
           c->layers > 0 && c->layers <= LLM_LAYERS_MAX && c->heads > 0 && c->kv_heads > 0 &&
           c->kv_heads <= c->heads && c->heads % c->kv_heads == 0 && c->width % c->heads == 0 &&
           c->width / c->heads % 2 == 0 && c->vocab > 0 && c->vocab <= LLM_VOCAB_MAX &&
           c->context > 0 && c->context <= LLM_CONTEXT_MAX;
}

static int read_header(const void *bytes, uint64_t size, struct llm_config *out, char *why)
{
    struct wire_dec d;
    wire_dec_init(&d, bytes, size < HEADER_BYTES ? (size_t)size : HEADER_BYTES);
    struct llm_config c = {.arch = LLM_LLAMA};
    llm_arch_set(&c);
    c.width = wire_get_u32(&d);
    c.ffn = wire_get_u32(&d);
    c.layers = wire_get_u32(&d);
    c.heads = wire_get_u32(&d);
    c.kv_heads = wire_get_u32(&d);
    int64_t vocab = wire_get_i32(&d);
    c.context = wire_get_u32(&d);
    c.tied_output = vocab > 0;
    c.vocab = (uint32_t)(vocab < 0 ? -vocab : vocab);
    if (wire_dec_error(&d) || !config_is_possible(&c))
        return llm_why(why, -EPROTO,
                       "not a model: neither GGUF (it does not begin with \"GGUF\") nor llama2.c's "
                       "format (its first numbers are no possible shape)");
    c.head_dim = c.rope_dims = c.width / c.heads;
    c.rope_base = c.rope_base_window = ROPE_BASE;
    c.rope_original = c.context;
    llm_arch_set_scale(&c);
    c.norm_eps = NORM_EPS;
    *out = c;
    return 0;
}

static int check_size(const struct llm_config *c, uint64_t size, uint32_t *tensors, char *why)
{
    uint64_t expected = HEADER_BYTES;
    uint32_t count = 0;
    for (const struct part *part = parts; part < parts + ARRAY_LEN(parts); part++) {
        if (!part_is_there(c, part))
            continue;
        expected += part_copies(c, part) * part_bytes(c, part);
        count += part->name ? part_copies(c, part) : 0;
    }
    if (expected != size)
        return llm_why(why, -EPROTO,
                       "not a model, or damaged: llama2.c's header for this shape means %" PRIu64
                       " bytes, the file has %" PRIu64,
                       expected, size);
    *tensors = count;
    return 0;
}

static void fill_tensor(struct llm_tensor *tensor, const struct llm_config *c,
                        const struct part *part, uint32_t layer, const uint8_t *at)
{
    const struct llm_arch_tensor row = {.name = part->name, .per_layer = part->per_layer};
    llm_arch_tensor_name(&row, layer, tensor->name);
    tensor->dtype = LLM_F32;
    tensor->dim_count = part->rows == LLM_DIM_NONE ? 1 : 2;
    tensor->dims[0] = llm_dim_value(c, part->row);
    tensor->dims[1] = llm_dim_value(c, part->rows);
    tensor->dims[2] = tensor->dims[3] = 1;
    tensor->bytes = part_bytes(c, part);
    tensor->data = at;
}

static void fill_tensors(struct llm_tensor_table *table, const struct llm_config *c,
                         const uint8_t *at)
{
    struct llm_tensor *tensor = table->items;
    for (const struct part *part = parts; part < parts + ARRAY_LEN(parts); part++) {
        if (!part_is_there(c, part))
            continue;
        for (uint32_t layer = 0; layer < part_copies(c, part); layer++) {
            if (part->name)
                fill_tensor(tensor++, c, part, layer, at);
            at += part_bytes(c, part);
        }
    }
    assert(tensor == table->items + table->count);
}

int llm_llama2c_read(struct llm_model *model, const void *bytes, uint64_t size, char *why)
{
    struct llm_config config;
    uint32_t count;
    int err = read_header(bytes, size, &config, why);
    if (!err)
        err = check_size(&config, size, &count, why);
    if (err)
        return err;
    if (llm_tensor_table_init(&model->own_tensors, count))
        return llm_why(why, -ENOMEM, "out of memory for the table of tensors");
    fill_tensors(&model->own_tensors, &config, (const uint8_t *)bytes + HEADER_BYTES);
    err = llm_tensor_table_seal(&model->own_tensors, why);
    assert(!err); /* the parts are adjacent and have different names */
    snprintf(model->format, sizeof(model->format), "llama2.c");
    model->config = config;
    model->tensors = &model->own_tensors;
    return err;
}
