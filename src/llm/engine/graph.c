#include "llm/engine/graph.h"

#include "llm/engine/rope.h"
#include "llm/engine/split.h"
#include "llm/engine/stages.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layer {
    struct llm_weight *q, *k, *v, *o, *gate, *up, *down; /* the last three: also of experts */
    struct llm_weight *router;
    struct llm_weight *shared_gate, *shared_up, *shared_down, *shared_router;
    struct llm_place q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias, router_bias;
    struct llm_place attn_norm, attn_norm_bias, ffn_norm, ffn_norm_bias;
    struct llm_place attn_post_norm, ffn_post_norm;
    struct llm_place q_norm, k_norm;
    uint32_t q_norm_width, k_norm_width; /* a head's, or those of all heads */
    struct llm_place sinks;
};

/* Activations of a batch, all in one buffer. */
struct acts {
    struct llm_buffer *buffer;
    uint32_t rows, picks; /* allocated */
    struct llm_place x, h, q, k, v, att, up, gate, picked, logits;
    struct llm_place product; /* that is added to x; h, where nobody else needs h */
    struct llm_place routes, chosen, shares, parts; /* of experts */
};

/* What of an output this process computes: a row of a matrix, a value of a bias. */
enum output {
    OUT_ALL,
    OUT_HEADS,
    OUT_Q,
    OUT_KV,
    OUT_FFN,
    OUT_SHARED, /* of the expert that all rows meet */
    OUT_WIDTH,
    OUT_VOCAB,
    OUTPUTS
};

/* Shares of experts: a tensor of its own, since they are not neighbours in the file's. */
struct slice {
    struct slice *next;
    struct llm_tensor tensor;
    _Alignas(64) uint8_t data[]; /* as the kernels like it */
};

struct llm_graph {
    struct llm_backend *backend;
    const struct llm_file *file;
    const struct llm_config *config;
    const struct llm_split *split; /* the backend's; NULL: this process computes everything */
    struct llm_stages stages;      /* the backend's, or one of all layers */
    uint32_t page_layer;           /* whose pages are the first of a batch's */
    struct llm_share own[OUTPUTS]; /* but OUT_ALL; of each expert */
    struct slice *slices;
    int error;                  /* of the run: of a gather or a pass */
    char *why;                  /* of the run */
    struct llm_buffer *vectors; /* norms and biases */
    uint64_t vectors_used;
    struct llm_weight *embedding, *positions, *output; /* output: NULL when tied */
    struct llm_place output_norm, output_norm_bias, output_bias;
    struct acts acts;
    struct layer layers[];
};

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + LLM_PLACE_ALIGN - 1) / LLM_PLACE_ALIGN * LLM_PLACE_ALIGN;
}

/* ---- binding the file's tensors ---- */

enum { WHOLE_MODEL = -1 };

static const struct llm_tensor *find(const struct llm_graph *g, int layer, const char *name)
{
    char full[LLM_NAME_CHARS];
    if (layer == WHOLE_MODEL)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return llm_file_find(g->file, full);
}

/* Some rows of a matrix; *out stays NULL when the file lacks the tensor, which llm/model/file.h has
 * allowed. */
static int bind_rows(struct llm_graph *g, int layer, const char *name, uint64_t first,
                     uint64_t rows, struct llm_weight **out, char *why)
{
    const struct llm_tensor *t = find(g, layer, name);
    if (!t)
        return 0;
    assert(first + rows <= t->dims[1] * t->dims[2]);
    return g->backend->ops->weight_create(g->backend, t, first, rows, out, why);
}

/* Where this process' share of `count` rows or values lies. */
static struct llm_share own_of(const struct llm_graph *g, enum output output, uint64_t count)
{
    return output == OUT_ALL ? (struct llm_share){.count = (uint32_t)count} : g->own[output];
}

/* The share's rows of each expert, one expert below the other. */
static int bind_slice(struct llm_graph *g, const struct llm_tensor *t, struct llm_share own,
                      struct llm_weight **out, char *why)
{
    uint64_t row = t->bytes / (t->dims[1] * t->dims[2]), part = own.count * row;
    uint64_t align = _Alignof(struct slice), bytes = sizeof(struct slice) + t->dims[2] * part;
    struct slice *s = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (!s)
        return llm_why(why, -ENOMEM, "no memory for a share of %s", t->name);
    s->tensor = *t;
    s->tensor.dims[1] = own.count;
    s->tensor.bytes = t->dims[2] * part;
    s->tensor.data = s->data;
    for (uint64_t e = 0; e < t->dims[2]; e++)
        memcpy(s->data + e * part, (const uint8_t *)t->data + (e * t->dims[1] + own.first) * row,
               part);
    s->next = g->slices;
    g->slices = s;
    return g->backend->ops->weight_create(g->backend, &s->tensor, 0, own.count * t->dims[2], out,
                                          why);
}

static int bind(struct llm_graph *g, int layer, const char *name, enum output output,
                struct llm_weight **out, char *why)
{
    const struct llm_tensor *t = find(g, layer, name);
    struct llm_share own = own_of(g, output, t ? t->dims[1] * t->dims[2] : 0);
    if (t && t->dims[2] > 1 && own.count < t->dims[1])
        return bind_slice(g, t, own, out, why);
    if (t && t->dims[2] > 1)
        own.count = (uint32_t)(t->dims[1] * t->dims[2]);
    return bind_rows(g, layer, name, own.first, own.count, out, why);
}

/* Values first to first + count, or those of each of `parts` experts. */
static int upload_values(struct llm_graph *g, const struct llm_tensor *t, uint64_t first,
                         uint64_t count, uint64_t parts, struct llm_place place, char *why)
{
    uint64_t all = t->dims[0] * t->dims[1];
    float *values = malloc(all * sizeof *values);
    if (!values)
        return llm_why(why, -ENOMEM, "no memory for %s", t->name);
    llm_dtype_to_f32(t->dtype, values, t->data, all);
    for (uint64_t i = 1; i < parts; i++)
        memmove(values + first + i * count, values + first + i * t->dims[0],
                count * sizeof *values);
    int rc = g->backend->ops->upload(g->backend, place, values + first,
                                     parts * count * sizeof *values, why);
    free(values);
    return rc;
}

/* Some values of a norm's weight or a bias; out->buffer stays NULL when there is none. */
static int bind_values(struct llm_graph *g, int layer, const char *name, uint64_t first,
                       uint64_t count, uint64_t parts, struct llm_place *out, char *why)
{
    const struct llm_tensor *t = find(g, layer, name);
    if (!t)
        return 0;
    assert(first + count <= t->dims[0] * (parts > 1 ? 1 : t->dims[1]));
    struct llm_place place = {.buffer = g->vectors, .offset = g->vectors_used};
    int rc = upload_values(g, t, first, count, parts, place, why);
    if (rc == 0) {
        *out = place;
        g->vectors_used += aligned(parts * count * sizeof(float));
    }
    return rc;
}

static int bind_vector(struct llm_graph *g, int layer, const char *name, enum output output,
                       struct llm_place *out, char *why)
{
    const struct llm_tensor *t = find(g, layer, name);
    struct llm_share own = own_of(g, output, t ? t->dims[0] * t->dims[1] : 0);
    uint64_t parts = t && output != OUT_ALL ? t->dims[1] : 1;
    return bind_values(g, layer, name, own.first, own.count, parts, out, why);
}

struct named_weight {
    const char *name;
    size_t offset; /* in struct layer or struct llm_graph */
    enum output output;
};

static const struct named_weight layer_matrices[] = {
    {"attn_q.weight", offsetof(struct layer, q), OUT_Q},
    {"attn_k.weight", offsetof(struct layer, k), OUT_KV},
    {"attn_v.weight", offsetof(struct layer, v), OUT_KV},
    {"attn_output.weight", offsetof(struct layer, o), OUT_WIDTH},
    {"ffn_down.weight", offsetof(struct layer, down), OUT_WIDTH},
    {"ffn_gate_inp.weight", offsetof(struct layer, router), OUT_ALL},
    {"ffn_gate_exps.weight", offsetof(struct layer, gate), OUT_FFN},
    {"ffn_up_exps.weight", offsetof(struct layer, up), OUT_FFN},
    {"ffn_down_exps.weight", offsetof(struct layer, down), OUT_WIDTH},
    {"ffn_gate_shexp.weight", offsetof(struct layer, shared_gate), OUT_SHARED},
    {"ffn_up_shexp.weight", offsetof(struct layer, shared_up), OUT_SHARED},
    {"ffn_down_shexp.weight", offsetof(struct layer, shared_down), OUT_WIDTH},
    {"ffn_gate_inp_shexp.weight", offsetof(struct layer, shared_router), OUT_ALL},
};

static const struct named_weight layer_vectors[] = {
    {"attn_q.bias", offsetof(struct layer, q_bias), OUT_Q},
    {"attn_k.bias", offsetof(struct layer, k_bias), OUT_KV},
    {"attn_v.bias", offsetof(struct layer, v_bias), OUT_KV},
    {"attn_output.bias", offsetof(struct layer, o_bias), OUT_WIDTH},
    {"ffn_gate.bias", offsetof(struct layer, gate_bias), OUT_FFN},
    {"ffn_up.bias", offsetof(struct layer, up_bias), OUT_FFN},
    {"ffn_down.bias", offsetof(struct layer, down_bias), OUT_WIDTH},
    {"ffn_gate_inp.bias", offsetof(struct layer, router_bias), OUT_ALL},
    {"ffn_gate_exps.bias", offsetof(struct layer, gate_bias), OUT_FFN},
    {"ffn_up_exps.bias", offsetof(struct layer, up_bias), OUT_FFN},
    {"ffn_down_exps.bias", offsetof(struct layer, down_bias), OUT_WIDTH},
    {"attn_q_norm.weight", offsetof(struct layer, q_norm), OUT_ALL},
    {"attn_k_norm.weight", offsetof(struct layer, k_norm), OUT_ALL},
    {"attn_sinks.weight", offsetof(struct layer, sinks), OUT_HEADS},
    {"post_ffw_norm.weight", offsetof(struct layer, ffn_post_norm), OUT_ALL},
    {"attn_norm.weight", offsetof(struct layer, attn_norm), OUT_ALL},
    {"attn_norm.bias", offsetof(struct layer, attn_norm_bias), OUT_ALL},
    {"ffn_norm.weight", offsetof(struct layer, ffn_norm), OUT_ALL},
    {"ffn_norm.bias", offsetof(struct layer, ffn_norm_bias), OUT_ALL},
};

static const struct named_weight model_matrices[] = {
    {"token_embd.weight", offsetof(struct llm_graph, embedding), OUT_ALL},
    {"position_embd.weight", offsetof(struct llm_graph, positions), OUT_ALL},
    {"output.weight", offsetof(struct llm_graph, output), OUT_VOCAB},
};

static const struct named_weight model_vectors[] = {
    {"output_norm.weight", offsetof(struct llm_graph, output_norm), OUT_ALL},
    {"output_norm.bias", offsetof(struct llm_graph, output_norm_bias), OUT_ALL},
    {"output.bias", offsetof(struct llm_graph, output_bias), OUT_VOCAB},
};

static void *member(void *base, size_t offset)
{
    return (char *)base + offset;
}

static int bind_tables(struct llm_graph *g, int layer, const struct named_weight *matrices,
                       size_t matrix_count, const struct named_weight *vectors, size_t vector_count,
                       char *why)
{
    void *base = layer == WHOLE_MODEL ? (void *)g : &g->layers[layer];
    int rc = 0;
    for (size_t i = 0; i < matrix_count && rc == 0; i++)
        rc = bind(g, layer, matrices[i].name, matrices[i].output, member(base, matrices[i].offset),
                  why);
    for (size_t i = 0; i < vector_count && rc == 0; i++)
        rc = bind_vector(g, layer, vectors[i].name, vectors[i].output,
                         member(base, vectors[i].offset), why);
    return rc;
}

/* One tensor for q, k and v: three runs of its rows. */
static int bind_joined_qkv(struct llm_graph *g, uint32_t l, char *why)
{
    struct layer *layer = &g->layers[l];
    uint64_t q = (uint64_t)g->config->heads * g->config->head_dim;
    uint64_t kv = (uint64_t)g->config->kv_heads * g->config->head_dim;
    struct llm_share own_kv = g->own[OUT_KV];
    const struct {
        uint64_t first, rows;
        struct llm_weight **weight;
        struct llm_place *bias;
    } runs[] = {{g->own[OUT_Q].first, g->own[OUT_Q].count, &layer->q, &layer->q_bias},
                {q + own_kv.first, own_kv.count, &layer->k, &layer->k_bias},
                {q + kv + own_kv.first, own_kv.count, &layer->v, &layer->v_bias}};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(runs) && rc == 0; i++) {
        rc = bind_rows(g, (int)l, "attn_qkv.weight", runs[i].first, runs[i].rows, runs[i].weight,
                       why);
        if (rc == 0)
            rc = bind_values(g, (int)l, "attn_qkv.bias", runs[i].first, runs[i].rows, 1,
                             runs[i].bias, why);
    }
    return rc;
}

/* One tensor for gate and up, or two. */
static int bind_ffn(struct llm_graph *g, uint32_t l, char *why)
{
    struct layer *layer = &g->layers[l];
    const struct llm_tensor *up = find(g, (int)l, "ffn_up.weight");
    struct llm_share own = g->own[OUT_FFN];
    uint64_t ffn = g->config->ffn;
    if (up && up->dims[1] == 2 * ffn) {
        int rc = bind_rows(g, (int)l, "ffn_up.weight", own.first, own.count, &layer->gate, why);
        return rc ? rc
                  : bind_rows(g, (int)l, "ffn_up.weight", ffn + own.first, own.count, &layer->up,
                              why);
    }
    int rc = bind(g, (int)l, "ffn_up.weight", OUT_FFN, &layer->up, why);
    return rc || layer->gate ? rc : bind(g, (int)l, "ffn_gate.weight", OUT_FFN, &layer->gate, why);
}

static uint32_t norm_width(const struct llm_graph *g, uint32_t l, const char *name)
{
    const struct llm_tensor *t = find(g, (int)l, name);
    return t ? (uint32_t)t->dims[0] : 0;
}

/* A file with a norm after the feed-forward has one after the attention, too, else the tensor of
 * that name is the norm before the feed-forward, as gpt-oss has it. */
static int bind_post_norm(struct llm_graph *g, uint32_t l, char *why)
{
    struct layer *layer = &g->layers[l];
    return bind_vector(g, (int)l, "post_attention_norm.weight", OUT_ALL,
                       layer->ffn_post_norm.buffer ? &layer->attn_post_norm : &layer->ffn_norm,
                       why);
}

static int bind_layer(struct llm_graph *g, uint32_t l, char *why)
{
    struct layer *layer = &g->layers[l];
    int rc = bind_tables(g, (int)l, layer_matrices, ARRAY_LEN(layer_matrices), layer_vectors,
                         ARRAY_LEN(layer_vectors), why);
    if (rc == 0 && !layer->q)
        rc = bind_joined_qkv(g, l, why);
    if (rc == 0 && !layer->router)
        rc = bind_ffn(g, l, why);
    if (rc == 0)
        rc = bind_post_norm(g, l, why);
    layer->q_norm_width = norm_width(g, l, "attn_q_norm.weight");
    layer->k_norm_width = norm_width(g, l, "attn_k_norm.weight");
    return rc;
}

static bool is_bias(const char *name)
{
    const char *ending = strrchr(name, '.');
    return ending && strcmp(ending, ".bias") == 0;
}

/* Room for all norms and biases, also in three parts. */
static int make_vectors(struct llm_graph *g, char *why)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < llm_file_tensor_count(g->file); i++) {
        const struct llm_tensor *t = llm_file_tensor(g->file, i);
        if (t->dim_count == 1 || is_bias(t->name))
            bytes += aligned(t->dims[0] * t->dims[1] * sizeof(float)) + 2 * LLM_PLACE_ALIGN;
    }
    return g->backend->ops->buffer_create(g->backend, bytes, &g->vectors, why);
}

static int bind_stage(struct llm_graph *g, const struct llm_stage_layers *stage, char *why)
{
    int rc = 0;
    for (uint32_t l = stage->first; l < stage->end && stage->is_local && rc == 0; l++)
        rc = bind_layer(g, l, why);
    return rc;
}

static int bind_all(struct llm_graph *g, char *why)
{
    int rc = make_vectors(g, why);
    if (rc == 0 && g->stages.is_front)
        rc = bind_tables(g, WHOLE_MODEL, model_matrices, ARRAY_LEN(model_matrices), model_vectors,
                         ARRAY_LEN(model_vectors), why);
    if (rc == 0 && g->split && !g->output) /* every row is embedded, a share of them multiplied */
        rc = bind(g, WHOLE_MODEL, "token_embd.weight", OUT_VOCAB, &g->output, why);
    for (uint32_t i = 0; i < g->stages.count && rc == 0; i++)
        rc = bind_stage(g, &g->stages.items[i], why);
    return rc;
}

/* How many there are, and how many go together. */
static void count_outputs(const struct llm_config *c, enum output output, uint32_t *count,
                          uint32_t *unit)
{
    uint32_t group = c->heads / c->kv_heads;
    *count = output == OUT_FFN      ? c->ffn
             : output == OUT_SHARED ? c->shared_ffn
             : output == OUT_WIDTH  ? c->width
                                    : c->vocab;
    *unit = LLM_SPLIT_UNIT;
    if (output == OUT_HEADS || output == OUT_Q || output == OUT_KV) {
        *unit = (output == OUT_KV ? 1 : group) * (output == OUT_HEADS ? 1 : c->head_dim);
        *count = c->kv_heads * *unit;
    }
}

static void find_own(struct llm_graph *g)
{
    uint32_t rank = g->split ? g->split->rank : 0, ranks = g->split ? g->split->ranks : 1;
    for (enum output output = OUT_HEADS; output < OUTPUTS; output++) {
        uint32_t count, unit;
        count_outputs(g->config, output, &count, &unit);
        g->own[output] = llm_share_of(count, unit, rank, ranks);
    }
}

int llm_graph_create(struct llm_backend *backend, const struct llm_file *file,
                     struct llm_graph **out, char *why)
{
    const struct llm_config *config = llm_file_config(file);
    struct llm_graph *g = calloc(1, sizeof *g + config->layers * sizeof g->layers[0]);
    if (!g)
        return llm_why(why, -ENOMEM, "no memory for %u layers", config->layers);
    g->backend = backend;
    g->file = file;
    g->config = config;
    g->split = backend->split;
    g->stages = backend->stages
                    ? *backend->stages
                    : (struct llm_stages){.count = 1,
                                          .items = {{.end = config->layers, .is_local = true}},
                                          .is_front = true};
    g->page_layer = llm_stages_own(&g->stages).first;
    find_own(g);
    int rc = bind_all(g, why);
    if (rc) {
        llm_graph_destroy(g);
        return rc;
    }
    *out = g;
    return 0;
}

static void unbind(struct llm_graph *g, void *base, const struct named_weight *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct llm_weight **weight = member(base, table[i].offset);
        g->backend->ops->weight_destroy(g->backend, *weight);
    }
}

void llm_graph_destroy(struct llm_graph *g)
{
    if (!g)
        return;
    for (uint32_t l = 0; l < g->config->layers; l++) {
        struct layer *layer = &g->layers[l];
        struct llm_weight *all[] = {layer->q,         layer->k,           layer->v,
                                    layer->o,         layer->gate,        layer->up,
                                    layer->down,      layer->router,      layer->shared_gate,
                                    layer->shared_up, layer->shared_down, layer->shared_router};
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
            g->backend->ops->weight_destroy(g->backend, all[i]);
    }
    unbind(g, g, model_matrices, ARRAY_LEN(model_matrices));
    g->backend->ops->buffer_destroy(g->backend, g->vectors);
    g->backend->ops->buffer_destroy(g->backend, g->acts.buffer);
    while (g->slices) {
        struct slice *next = g->slices->next;
        free(g->slices);
        g->slices = next;
    }
    free(g);
}

/* ---- room for activations ---- */

static struct llm_place carve(uint64_t *offset, uint64_t rows, uint64_t width)
{
    struct llm_place place = {.offset = *offset};
    *offset += aligned(rows * width * sizeof(float));
    return place;
}

static void lay_out(struct acts *a, const struct llm_config *c, bool is_split, uint64_t *bytes)
{
    uint64_t q = (uint64_t)c->heads * c->head_dim, kv = (uint64_t)c->kv_heads * c->head_dim;
    uint64_t copies = c->experts ? c->experts_used : 1, used = c->experts_used;
    uint64_t ffn = copies * c->ffn > c->shared_ffn ? copies * c->ffn : c->shared_ffn; /* of a row */
    *bytes = 0;
    a->x = carve(bytes, a->rows, c->width);
    a->h = carve(bytes, a->rows, c->width);
    a->q = carve(bytes, a->rows, q);
    a->k = carve(bytes, a->rows, kv);
    a->v = carve(bytes, a->rows, kv);
    a->att = carve(bytes, a->rows, q);
    a->up = carve(bytes, a->rows, ffn);
    a->gate = carve(bytes, a->rows, c->ffn_is_gated ? ffn : 0);
    a->routes = carve(bytes, a->rows, c->experts);
    a->chosen = carve(bytes, a->rows, used);
    a->shares = carve(bytes, a->rows, used);
    a->parts = carve(bytes, a->rows * used, c->width);
    a->picked = carve(bytes, a->picks, c->width);
    a->logits = carve(bytes, a->picks, c->vocab);
    a->product = is_split ? carve(bytes, a->rows, c->width) : a->h;
}

static uint32_t grown(uint32_t has, uint32_t needs)
{
    uint32_t room = has ? has : 1;
    while (room < needs)
        room *= 2;
    return room;
}

static int make_room(struct llm_graph *g, uint32_t rows, uint32_t picks, char *why)
{
    struct acts a = g->acts;
    if (a.buffer && rows <= a.rows && picks <= a.picks)
        return 0;
    uint64_t bytes;
    a.rows = grown(a.rows, rows);
    a.picks = grown(a.picks, picks);
    lay_out(&a, g->config, g->split != NULL, &bytes);
    int rc = g->backend->ops->buffer_create(g->backend, bytes, &a.buffer, why);
    if (rc)
        return rc;
    struct llm_place *places[] = {&a.x,      &a.h,     &a.q,      &a.k,      &a.v,
                                  &a.att,    &a.up,    &a.gate,   &a.routes, &a.chosen,
                                  &a.shares, &a.parts, &a.picked, &a.logits, &a.product};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        places[i]->buffer = a.buffer;
    g->backend->ops->buffer_destroy(g->backend, g->acts.buffer);
    g->acts = a;
    return 0;
}

/* ---- one batch ---- */

static void norm_rows(struct llm_graph *g, struct llm_place in, struct llm_place out, uint32_t rows,
                      uint32_t width, struct llm_place weight, struct llm_place bias)
{
    struct llm_op_norm op = {.in = in,
                             .out = out,
                             .weight = weight,
                             .bias = bias,
                             .rows = rows,
                             .width = width,
                             .eps = g->config->norm_eps,
                             .is_rms = g->config->norm_is_rms};
    g->backend->ops->norm(g->backend, &op);
}

static void norm(struct llm_graph *g, struct llm_place in, struct llm_place out, uint32_t rows,
                 struct llm_place weight, struct llm_place bias)
{
    norm_rows(g, in, out, rows, g->config->width, weight, bias);
}

static void multiply(struct llm_graph *g, uint32_t rows, struct llm_place in,
                     struct llm_matmul_part part)
{
    struct llm_op_matmul op = {.in = in, .rows = rows, .part_count = 1, .parts = {part}};
    g->backend->ops->matmul(g->backend, &op);
}

/* A place has this process' share of each row, and gets the shares of the others. */
static void gather(struct llm_graph *g, struct llm_place place, uint32_t rows, enum output output)
{
    struct llm_gather op = {.place = place, .rows = rows, .first_only = output == OUT_VOCAB};
    if (!g->split || g->error)
        return;
    count_outputs(g->config, output, &op.width, &op.unit);
    g->error = g->split->gather(g->split->user, &op, g->why);
}

/* Adds a product to the residual stream.  Where a norm, a multiplier or other workers' shares come
 * between, it cannot be added while it is computed. */
static void add_product(struct llm_graph *g, uint32_t rows, struct llm_place in,
                        const struct llm_weight *weight, struct llm_place bias,
                        struct llm_place post_norm)
{
    const struct acts *a = &g->acts;
    bool direct = !post_norm.buffer && g->config->residual_scale == 1 && !g->split;
    multiply(g, rows, in,
             (struct llm_matmul_part){.weight = weight,
                                      .bias = bias,
                                      .out = direct ? a->x : a->product,
                                      .accumulate = direct});
    if (direct)
        return;
    gather(g, a->product, rows, OUT_WIDTH);
    if (post_norm.buffer)
        norm(g, a->product, a->product, rows, post_norm, (struct llm_place){0});
    struct llm_op_add add = {.x = a->x,
                             .y = a->product,
                             .terms = 1,
                             .width = g->config->width,
                             .scale = g->config->residual_scale};
    g->backend->ops->add(g->backend, &add);
}

/* Queries and keys of a row, as turned: normed first where the file has norms for them. */
static void turn(struct llm_graph *g, uint32_t l, const struct llm_batch *batch)
{
    const struct llm_config *c = g->config;
    const struct layer *layer = &g->layers[l];
    const struct acts *a = &g->acts;
    const struct llm_place none = {0};
    if (layer->q_norm.buffer)
        norm_rows(g, a->q, a->q, batch->rows * (g->own[OUT_Q].count / layer->q_norm_width),
                  layer->q_norm_width, layer->q_norm, none);
    if (layer->k_norm.buffer)
        norm_rows(g, a->k, a->k, batch->rows * (g->own[OUT_KV].count / layer->k_norm_width),
                  layer->k_norm_width, layer->k_norm, none);
    if (c->rope_dims == 0)
        return;
    struct llm_rope_choice tables = llm_rope_choose(c, l);
    struct llm_op_rope rope = {.q = a->q,
                               .k = a->k,
                               .heads = g->own[OUT_HEADS].count,
                               .kv_heads = g->own[OUT_KV].count / c->head_dim,
                               .head_dim = c->head_dim,
                               .q_table = tables.q,
                               .k_table = tables.k,
                               .neox = c->rope_is_neox};
    g->backend->ops->rope(g->backend, &rope);
}

/* The residual stream as a layer's half reads it: some models have norms only behind it. */
static struct llm_place normed(struct llm_graph *g, uint32_t rows, struct llm_place weight,
                               struct llm_place bias)
{
    if (!weight.buffer)
        return g->acts.x;
    norm(g, g->acts.x, g->acts.h, rows, weight, bias);
    return g->acts.h;
}

static void attention(struct llm_graph *g, struct llm_kv_memory *kv, uint32_t l,
                      const struct llm_batch *batch, struct llm_place in)
{
    const struct llm_backend_ops *ops = g->backend->ops;
    const struct llm_config *c = g->config;
    const struct layer *layer = &g->layers[l];
    const struct acts *a = &g->acts;
    struct llm_op_matmul qkv = {
        .in = in,
        .rows = batch->rows,
        .part_count = 3,
        .parts = {{.weight = layer->q, .bias = layer->q_bias, .out = a->q},
                  {.weight = layer->k, .bias = layer->k_bias, .out = a->k},
                  {.weight = layer->v, .bias = layer->v_bias, .out = a->v}}};
    ops->matmul(g->backend, &qkv);
    turn(g, l, batch);
    uint32_t list = l - g->page_layer;
    struct llm_op_append append = {.kv = kv, .layer = list, .k = a->k, .v = a->v};
    ops->append(g->backend, &append);
    struct llm_op_attend attend = {.kv = kv,
                                   .layer = list,
                                   .q = a->q,
                                   .out = a->att,
                                   .heads = g->own[OUT_HEADS].count,
                                   .kv_heads = g->own[OUT_KV].count / c->head_dim,
                                   .head_dim = c->head_dim,
                                   .scale = c->attend_scale,
                                   .cap = c->attend_cap,
                                   .window = llm_layer_slides(c, l) ? c->window : 0,
                                   .sinks = layer->sinks};
    ops->attend(g->backend, &attend);
    gather(g, a->att, batch->rows, OUT_Q);
}

static void activate(struct llm_graph *g, enum llm_activation kind, struct llm_place x,
                     uint32_t rows, uint32_t width)
{
    struct llm_op_activate op = {
        .kind = kind, .x = x, .gate_by = g->acts.up, .rows = rows, .width = width};
    g->backend->ops->activate(g->backend, &op);
}

/* gate or up of `rows` rows, with the activation: where it can be found. */
static struct llm_place half_feed_forward(struct llm_graph *g, const struct layer *layer,
                                          uint32_t rows, struct llm_place in,
                                          struct llm_experts experts)
{
    const struct llm_config *c = g->config;
    const struct acts *a = &g->acts;
    struct llm_op_matmul up = {
        .in = in,
        .rows = rows,
        .part_count = c->ffn_is_gated ? 2 : 1,
        .parts = {{.weight = layer->up, .bias = layer->up_bias, .out = a->up},
                  {.weight = layer->gate, .bias = layer->gate_bias, .out = a->gate}},
        .experts = experts};
    g->backend->ops->matmul(g->backend, &up);
    struct llm_place out = c->ffn_is_gated ? a->gate : a->up;
    activate(g, c->activation, out, rows, g->own[OUT_FFN].count);
    gather(g, out, rows, OUT_FFN);
    return out;
}

/* The expert that all rows meet, after the others: it uses their room.  A file with a router for it
 * weighs it by the sigmoid of that product. */
static void shared_feed_forward(struct llm_graph *g, const struct layer *layer, uint32_t rows,
                                struct llm_place in)
{
    const struct llm_config *c = g->config;
    const struct acts *a = &g->acts;
    struct llm_op_matmul up = {.in = in,
                               .rows = rows,
                               .part_count = 2,
                               .parts = {{.weight = layer->shared_up, .out = a->up},
                                         {.weight = layer->shared_gate, .out = a->gate}}};
    g->backend->ops->matmul(g->backend, &up);
    activate(g, c->activation, a->gate, rows, g->own[OUT_SHARED].count);
    gather(g, a->gate, rows, OUT_SHARED);
    multiply(g, rows, a->gate,
             (struct llm_matmul_part){.weight = layer->shared_down, .out = a->parts});
    gather(g, a->parts, rows, OUT_WIDTH);
    struct llm_op_add add = {
        .x = a->x, .y = a->parts, .terms = 1, .width = c->width, .scale = c->residual_scale};
    if (layer->shared_router) {
        multiply(g, rows, in,
                 (struct llm_matmul_part){.weight = layer->shared_router, .out = a->shares});
        activate(g, LLM_SIGMOID, a->shares, rows, 1);
        add.weights = a->shares;
    }
    g->backend->ops->add(g->backend, &add);
}

static void expert_feed_forward(struct llm_graph *g, const struct layer *layer, uint32_t rows,
                                struct llm_place in)
{
    const struct llm_backend_ops *ops = g->backend->ops;
    const struct llm_config *c = g->config;
    const struct acts *a = &g->acts;
    multiply(g, rows, in,
             (struct llm_matmul_part){
                 .weight = layer->router, .bias = layer->router_bias, .out = a->routes});
    struct llm_op_route route = {.logits = a->routes,
                                 .chosen = a->chosen,
                                 .weights = a->shares,
                                 .experts = c->experts,
                                 .used = c->experts_used,
                                 .normed = c->experts_normed,
                                 .scale = c->experts_scale};
    ops->route(g->backend, &route);
    uint32_t all = rows * c->experts_used;
    struct llm_experts experts = {
        .chosen = a->chosen, .count = c->experts, .share = c->experts_used};
    struct llm_op_matmul down = {
        .in = half_feed_forward(g, layer, all, in, experts),
        .rows = all,
        .part_count = 1,
        .parts = {{.weight = layer->down, .bias = layer->down_bias, .out = a->parts}},
        .experts = {.chosen = a->chosen, .count = c->experts, .share = 1}};
    ops->matmul(g->backend, &down);
    gather(g, a->parts, all, OUT_WIDTH);
    struct llm_op_add add = {.x = a->x,
                             .y = a->parts,
                             .weights = a->shares,
                             .terms = c->experts_used,
                             .width = c->width,
                             .scale = c->residual_scale};
    ops->add(g->backend, &add);
    if (layer->shared_down)
        shared_feed_forward(g, layer, rows, in);
}

static void feed_forward(struct llm_graph *g, uint32_t l, uint32_t rows, struct llm_place in)
{
    const struct layer *layer = &g->layers[l];
    /* Which matrices a row meets is known only when it is computed: other ops, not other data. */
    if (layer->router) {
        expert_feed_forward(g, layer, rows, in);
        return;
    }
    struct llm_place out = half_feed_forward(g, layer, rows, in, (struct llm_experts){0});
    add_product(g, rows, out, layer->down, layer->down_bias, layer->ffn_post_norm);
}

static void outputs(struct llm_graph *g, uint32_t picks)
{
    const struct llm_config *c = g->config;
    const struct acts *a = &g->acts;
    struct llm_op_pick pick = {.in = a->x, .out = a->picked, .width = c->width};
    g->backend->ops->pick(g->backend, &pick);
    norm(g, a->picked, a->picked, picks, g->output_norm, g->output_norm_bias);
    multiply(g, picks, a->picked,
             (struct llm_matmul_part){.weight = g->output ? g->output : g->embedding,
                                      .bias = g->output_bias,
                                      .out = a->logits});
    struct llm_op_scale scale = {.x = a->logits,
                                 .rows = picks,
                                 .width = g->own[OUT_VOCAB].count,
                                 .scale = c->logit_scale,
                                 .cap = c->logit_cap};
    if (c->logit_scale != 1 || c->logit_cap != 0)
        g->backend->ops->scale(g->backend, &scale);
    gather(g, a->logits, picks, OUT_VOCAB);
}

static void embed(struct llm_graph *g)
{
    struct llm_op_embed op = {.table = g->embedding,
                              .position_table = g->positions,
                              .out = g->acts.x,
                              .width = g->config->width,
                              .scale = g->config->embed_scale};
    g->backend->ops->embed(g->backend, &op);
}

static void one_layer(struct llm_graph *g, struct llm_kv_memory *kv, uint32_t l,
                      const struct llm_batch *batch)
{
    const struct layer *layer = &g->layers[l];
    const struct acts *a = &g->acts;
    struct llm_place in = normed(g, batch->rows, layer->attn_norm, layer->attn_norm_bias);
    attention(g, kv, l, batch, in);
    add_product(g, batch->rows, a->att, layer->o, layer->o_bias, layer->attn_post_norm);
    if (!g->config->parallel_residual)
        in = normed(g, batch->rows, layer->ffn_norm, layer->ffn_norm_bias);
    feed_forward(g, l, batch->rows, in);
}

static int finish(struct llm_graph *g, uint64_t *kernel_ns, char *why)
{
    uint64_t ns = 0;
    int rc = g->backend->ops->finish(g->backend, &ns, why);
    *kernel_ns += ns;
    return rc ? rc : g->error;
}

/* Another server computes the stage.  After the last one only rows are needed that have an output.
 */
static void pass(struct llm_graph *g, uint32_t stage, const struct llm_batch *batch,
                 bool has_states)
{
    uint32_t all[LLM_GRAPH_ROWS_MAX];
    struct llm_pass op = {
        .stage = stage, .x = g->acts.x, .wanted = batch->picks, .wanted_count = batch->pick_count};
    if (has_states || stage + 1 < g->stages.count) {
        for (uint32_t i = 0; i < batch->rows; i++)
            all[i] = i;
        op.wanted = all;
        op.wanted_count = batch->rows;
    }
    g->error = g->stages.pass(g->stages.user, &op, g->why);
}

static void all_stages(struct llm_graph *g, struct llm_kv_memory *kv, const struct llm_batch *batch,
                       bool has_states)
{
    for (uint32_t i = 0; i < g->stages.count && !g->error; i++) {
        const struct llm_stage_layers *stage = &g->stages.items[i];
        if (!stage->is_local)
            pass(g, i, batch, has_states);
        for (uint32_t l = stage->first; l < stage->end && stage->is_local && !g->error; l++)
            one_layer(g, kv, l, batch);
    }
}

/* After begin; the caller calls finish. */
static void record(struct llm_graph *g, struct llm_kv_memory *kv, const struct llm_batch *batch,
                   bool has_states)
{
    embed(g);
    all_stages(g, kv, batch, has_states);
    if (batch->pick_count > 0 && !g->error)
        outputs(g, batch->pick_count);
}

int llm_graph_pass(struct llm_graph *g, struct llm_kv_memory *kv, const struct llm_batch *batch,
                   float *rows, uint64_t *kernel_ns, char *why)
{
    const struct llm_backend_ops *ops = g->backend->ops;
    uint64_t bytes = (uint64_t)batch->rows * g->config->width * sizeof *rows;
    assert(!g->stages.is_front && batch->rows >= 1 && batch->rows <= LLM_GRAPH_ROWS_MAX);
    *kernel_ns = 0;
    g->error = 0;
    g->why = why;
    int rc = make_room(g, batch->rows, 0, why);
    if (rc == 0)
        rc = ops->upload(g->backend, g->acts.x, rows, bytes, why);
    if (rc == 0)
        rc = ops->begin(g->backend, batch, why);
    if (rc)
        return rc;
    all_stages(g, kv, batch, true);
    rc = finish(g, kernel_ns, why);
    return rc ? rc : ops->download(g->backend, g->acts.x, rows, bytes, why);
}

int llm_graph_run(struct llm_graph *g, struct llm_kv_memory *kv, const struct llm_batch *batch,
                  float *states, uint64_t *kernel_ns, char *why)
{
    const struct llm_backend_ops *ops = g->backend->ops;
    const struct acts *a = &g->acts;
    assert(batch->rows >= 1 && batch->rows <= LLM_GRAPH_ROWS_MAX);
    assert(!states || batch->pick_count == 0);
    *kernel_ns = 0;
    g->error = 0;
    g->why = why;
    int rc = make_room(g, batch->rows, batch->pick_count, why);
    if (rc == 0)
        rc = ops->begin(g->backend, batch, why);
    if (rc)
        return rc;
    record(g, kv, batch, states != NULL);
    if (states && !g->error)
        norm(g, a->x, a->h, batch->rows, g->output_norm, g->output_norm_bias);
    rc = finish(g, kernel_ns, why);
    if (rc == 0 && states)
        rc = ops->download(g->backend, a->h, states,
                           (uint64_t)batch->rows * g->config->width * sizeof(float), why);
    return rc;
}

int llm_graph_logits(struct llm_graph *g, uint32_t picks, float *room, const float **at, char *why)
{
    const struct llm_backend_ops *ops = g->backend->ops;
    uint64_t bytes = (uint64_t)picks * g->config->vocab * sizeof *room;
    const float *there =
        at && ops->view && picks ? ops->view(g->backend, g->acts.logits, bytes) : NULL;
    if (at)
        *at = there ? there : room;
    return there || !picks ? 0 : ops->download(g->backend, g->acts.logits, room, bytes, why);
}

int llm_graph_prepare(struct llm_graph *g, struct llm_kv_memory *kv, const struct llm_batch *batch,
                      char *why)
{
    const struct llm_backend_ops *ops = g->backend->ops;
    if (!ops->prepare)
        return 0;
    int rc = make_room(g, batch->rows, batch->pick_count, why);
    if (rc == 0)
        rc = ops->begin(g->backend, batch, why);
    if (rc)
        return rc;
    record(g, kv, batch, false);
    return ops->prepare(g->backend, why);
}
