/* The backend `vulkan`: each op is a dispatch of a shader of shaders/llm.
 *
 * The structs below are the shaders' push constants, field by field; `none` fills gaps, so that
 * equal structs have equal bytes. */
#include "llm/model/why.h"
#include "llm/vulkan/step.h"
#include "llm/vulkan/weights.h"

#include "llm/engine/quantise.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUP = 64,         /* threads of the shaders with one value a thread */
    ROUND_COLS_MAX = 2, /* beyond, rounding at each load costs more than a dispatch */
    MUL_THREADS = 128,  /* mul_frame.glsl */
    MUL_LANES_MIN = 32,
    MUL_LOAD_VALUES = 4,    /* of a lane at a time: mul.comp */
    MUL_COLS_MAX = 8,       /* of mul_shapes */
    ATTEND_DIMS = 256,      /* attend.comp */
    ATTEND_CHUNK_PAGES = 2, /* common.glsl, and the next */
    ATTEND_CHUNKS_MAX = 16,
    ATTEND_PARTS_MAX = 16 << 20, /* floats at a time */
    PART_FLOATS = 2,             /* of a chunk, besides its values */
    FLAG_BIAS = 1,               /* common.glsl */
    FLAG_ACCUMULATE = 2,
    FLAG_GELU = 4,
    NORM_THREADS = 256, /* norm.comp */
    NORM_FORM = 1,      /* constant of norm.comp */
    ACTIVATE_FORM = 0,  /* of activate.comp */
    EXPERTS_PART = 2,   /* mul_frame.glsl */
    TILE_SIDE = 16,     /* mul_tile.comp, and the next */
    TILE_DEPTH = 64,
    ATTEND_TILE_DIMS = 128, /* attend_tile.comp: of a head; more do not fit its registers */
    TILE_ROWS_MIN = 16,     /* with fewer, mul.comp is as quick, and exact */
    TILE_ROWS_MIN_QUANTISED = 64,
    /* With 512 an H200 was slower: 0.82 of a prompt of 1,000 (1.1 B), 0.87 (8 B).  2,048 take twice
     * the memory, and gain at most a tenth. */
    BATCH_ROWS = 1024,
};

struct vulkan {
    struct llm_backend base;
    struct llm_vk_device device;
    struct llm_vk_memory memory;
    struct llm_vk_pipelines pipelines;
    struct llm_vk_step step;
    struct llm_vk_weights weights;
    uint64_t round_row_max; /* bytes of a row of activations, rounded for any weight */
    uint64_t bunches_at;    /* in the step's block of rounded rows, behind them */
};

static struct vulkan *self_of(struct llm_backend *b)
{
    return (struct vulkan *)b;
}

/* ---- life ---- */

static void vulkan_close(struct llm_backend *b)
{
    struct vulkan *self = self_of(b);
    llm_vk_step_fini(&self->step);
    llm_vk_memory_fini(&self->memory);
    llm_vk_pipelines_fini(&self->pipelines);
    llm_vk_device_close(&self->device);
    free(self);
}

static int vulkan_open(const struct llm_backend_config *config, struct llm_backend **out, char *why)
{
    struct vulkan *self = calloc(1, sizeof *self);
    if (!self)
        return llm_why(why, -ENOMEM, "no memory for the backend");
    int rc = llm_vk_device_open(&self->device, config->device, config->math == LLM_MATH_FAST, why);
    if (rc == 0)
        rc = llm_vk_pipelines_init(&self->pipelines, &self->device, why);
    if (rc == 0)
        rc = llm_vk_memory_init(&self->memory, &self->pipelines, why);
    if (rc) {
        vulkan_close(&self->base);
        return rc;
    }
    llm_vk_step_init(&self->step, &self->memory);
    TAILQ_INIT(&self->weights);
    self->base.ops = &llm_backend_vulkan;
    snprintf(self->base.device, sizeof self->base.device, "%.110s%s",
             self->device.properties.deviceName, self->device.has_tiles ? ", fast" : "");
    *out = &self->base;
    return 0;
}

/* ---- buffers, weights, KV ---- */

static int vulkan_buffer_create(struct llm_backend *b, uint64_t bytes, struct llm_buffer **out,
                                char *why)
{
    struct vulkan *self = self_of(b);
    uint64_t size = (bytes + LLM_PLACE_ALIGN) / LLM_PLACE_ALIGN * LLM_PLACE_ALIGN;
    struct llm_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return llm_why(why, -ENOMEM, "no memory for a buffer");
    int rc =
        llm_vk_block_create(&self->device, size, LLM_VK_LOCAL, "a buffer", &buffer->block, why);
    if (rc == 0)
        rc = llm_vk_zero(&self->memory, &buffer->block, why);
    if (rc) {
        llm_vk_block_destroy(&self->device, &buffer->block);
        free(buffer);
        return rc;
    }
    *out = buffer;
    return 0;
}

static void vulkan_buffer_destroy(struct llm_backend *b, struct llm_buffer *buffer)
{
    struct vulkan *self = self_of(b);
    if (!buffer)
        return;
    llm_vk_step_forget(&self->step, buffer);
    llm_vk_block_destroy(&self->device, &buffer->block);
    free(buffer);
}

static void check_place(struct llm_place place, uint64_t bytes)
{
    assert(place.offset <= place.buffer->block.bytes);
    assert(bytes <= place.buffer->block.bytes - place.offset);
    (void)place;
    (void)bytes;
}

static int vulkan_upload(struct llm_backend *b, struct llm_place to, const void *src,
                         uint64_t bytes, char *why)
{
    struct vulkan *self = self_of(b);
    check_place(to, bytes);
    self->step.fetched = false;
    return llm_vk_upload(&self->memory, to.buffer->block.buffer, to.offset, bytes, 4,
                         llm_vk_fill_copy, src, why);
}

static const void *vulkan_view(struct llm_backend *b, struct llm_place from, uint64_t bytes)
{
    check_place(from, bytes);
    return llm_vk_step_fetched(&self_of(b)->step, from, bytes);
}

static int vulkan_download(struct llm_backend *b, struct llm_place from, void *dst, uint64_t bytes,
                           char *why)
{
    struct vulkan *self = self_of(b);
    const void *fetched = vulkan_view(b, from, bytes);
    if (fetched) {
        memcpy(dst, fetched, bytes);
        return 0;
    }
    return llm_vk_download(&self->memory, from.buffer->block.buffer, from.offset, bytes, dst, why);
}

static bool is_quantised(enum llm_dtype dtype)
{
    return llm_act_of(dtype) == LLM_ACT_Q32 || llm_act_of(dtype) == LLM_ACT_Q256;
}

/* What a row of activations becomes for a product: rounded.glsl. */
enum act_form {
    FORM_NONE,
    FORM_BITS,   /* binary32 that halves can hold */
    FORM_HALVES, /* for tiles */
    FORM_Q32 = LLM_Q32_VALUES,
    FORM_Q256 = LLM_Q256_VALUES,
};

/* For weights of a type, without tiles. */
static enum act_form form_for(enum llm_dtype dtype)
{
    if (is_quantised(dtype))
        return llm_act_of(dtype) == LLM_ACT_Q32 ? FORM_Q32 : FORM_Q256;
    return dtype == LLM_F16 ? FORM_BITS : FORM_NONE;
}

/* Of a row. */
static uint64_t form_bytes(enum act_form form, uint32_t width)
{
    if (form < FORM_Q32)
        return width * (form == FORM_HALVES ? sizeof(uint16_t) : sizeof(float));
    return width + (width / form * sizeof(float) + 15) / 16 * 16;
}

static int vulkan_weight_create(struct llm_backend *b, const struct llm_tensor *tensor,
                                uint64_t first, uint64_t rows, struct llm_weight **out, char *why)
{
    struct vulkan *self = self_of(b);
    int rc = llm_vk_weight_create(&self->memory, &self->weights, tensor, first, rows, out, why);
    if (rc)
        return rc;
    uint64_t row_bytes = form_bytes(form_for((*out)->dtype), (*out)->width);
    uint64_t halves = self->device.has_tiles ? form_bytes(FORM_HALVES, (*out)->width) : 0;
    row_bytes = row_bytes > halves ? row_bytes : halves;
    self->round_row_max = row_bytes > self->round_row_max ? row_bytes : self->round_row_max;
    return 0;
}

static void vulkan_weight_destroy(struct llm_backend *b, struct llm_weight *weight)
{
    llm_vk_weight_destroy(&self_of(b)->memory, &self_of(b)->weights, weight);
}

static uint64_t vulkan_weights_leave(struct llm_backend *b)
{
    return llm_vk_weights_leave(&self_of(b)->memory, &self_of(b)->weights);
}

static int vulkan_weights_return(struct llm_backend *b, char *why)
{
    return llm_vk_weights_return(&self_of(b)->memory, &self_of(b)->weights, why);
}

static int vulkan_kv_create(struct llm_backend *b, const struct llm_kv_shape *shape,
                            struct llm_kv_memory **out, char *why)
{
    return llm_vk_kv_create(&self_of(b)->memory, shape, out, why);
}

static void vulkan_kv_destroy(struct llm_backend *b, struct llm_kv_memory *kv)
{
    (void)b;
    llm_vk_kv_destroy(kv);
}

/* ---- steps ---- */

static int vulkan_begin(struct llm_backend *b, const struct llm_batch *batch, char *why)
{
    struct vulkan *self = self_of(b);
    uint64_t rows = (uint64_t)batch->rows * (batch->row_copies ? batch->row_copies : 1);
    self->bunches_at = (rows * self->round_row_max + 15) / 16 * 16;
    uint64_t bunches = rows * (MUL_COLS_MAX + 1) * sizeof(uint32_t); /* of one row each, at worst */
    return llm_vk_step_begin(&self->step, batch, self->bunches_at + bunches, why);
}

static int vulkan_finish(struct llm_backend *b, uint64_t *kernel_ns, char *why)
{
    return llm_vk_step_finish(&self_of(b)->step, kernel_ns, why);
}

static int vulkan_prepare(struct llm_backend *b, char *why)
{
    return llm_vk_step_prepare(&self_of(b)->step, why);
}

static void vulkan_traffic(const struct llm_backend *b, uint64_t *sent, uint64_t *received)
{
    const struct llm_vk_device *d = &((const struct vulkan *)b)->device;
    struct hw_driver_counts counts = {0};
    if (d->counts)
        d->counts(d->device, &counts);
    *sent = counts.bytes_sent;
    *received = counts.bytes_received;
}

static uint64_t vulkan_made(const struct llm_backend *b)
{
    return ((const struct vulkan *)b)->device.made;
}

static VkDeviceAddress address(struct llm_place place)
{
    return place.buffer ? place.buffer->block.address + place.offset : 0;
}

static struct llm_vk_use reads(VkDeviceAddress from, uint64_t values)
{
    return (struct llm_vk_use){.from = from, .bytes = values * sizeof(float)};
}

static struct llm_vk_use writes(VkDeviceAddress from, uint64_t values)
{
    return (struct llm_vk_use){.from = from, .bytes = values * sizeof(float), .writes = true};
}

/* So many workgroups, continued in y past the limit of x; shaders skip the surplus. */
static void spread(const struct vulkan *self, uint64_t groups, uint32_t out[3])
{
    uint32_t most = self->device.properties.limits.maxComputeWorkGroupCount[0];
    out[0] = groups < most ? (uint32_t)groups : most;
    out[1] = (uint32_t)((groups + out[0] - 1) / out[0]);
    out[2] = 1;
}

static void set_push(struct llm_vk_dispatch *op, const void *push, uint32_t bytes)
{
    assert(bytes <= sizeof op->push);
    memcpy(op->push, push, bytes);
    op->push_bytes = bytes;
}

/* Notes an op whose shader has one value a thread. */
static void each_value(struct vulkan *self, struct llm_vk_dispatch *op, uint64_t count)
{
    spread(self, (count + GROUP - 1) / GROUP, op->groups);
    llm_vk_step_note(&self->step, op);
}

/* ---- embed and pick ---- */

struct embed_push {
    VkDeviceAddress table, which, values;
    uint32_t width, stride, count, flags;
    float scale;
    uint32_t none;
};

static void embed_table(struct vulkan *self, const struct llm_weight *table, VkDeviceAddress which,
                        const struct llm_op_embed *op, uint32_t flags)
{
    struct embed_push push = {.table = llm_vk_piece_address(&table->piece),
                              .which = which,
                              .values = address(op->out),
                              .width = op->width,
                              .stride = table->stride,
                              .count = self->step.rows * op->width,
                              .flags = flags,
                              .scale = flags & FLAG_ACCUMULATE ? 1 : op->scale};
    struct llm_vk_dispatch dispatch = {.variant = {.shader = LLM_VK_EMBED, .dtype = table->dtype},
                                       .uses = {writes(push.values, push.count)},
                                       .use_count = 1};
    set_push(&dispatch, &push, sizeof push);
    assert(table->width == op->width);
    each_value(self, &dispatch, push.count);
}

static void vulkan_embed(struct llm_backend *b, const struct llm_op_embed *op)
{
    struct vulkan *self = self_of(b);
    embed_table(self, op->table, self->step.inputs.tokens, op, 0);
    if (op->position_table)
        embed_table(self, op->position_table, self->step.inputs.positions, op, FLAG_ACCUMULATE);
}

struct pick_push {
    VkDeviceAddress from, which, values;
    uint32_t width, count;
};

static void vulkan_pick(struct llm_backend *b, const struct llm_op_pick *op)
{
    struct vulkan *self = self_of(b);
    struct pick_push push = {.from = address(op->in),
                             .which = self->step.inputs.picks,
                             .values = address(op->out),
                             .width = op->width,
                             .count = self->step.pick_count * op->width};
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_PICK},
        .uses = {reads(push.from, (uint64_t)self->step.rows * op->width),
                 writes(push.values, push.count)},
        .use_count = 2};
    set_push(&dispatch, &push, sizeof push);
    each_value(self, &dispatch, push.count);
}

/* ---- norm ---- */

struct norm_push {
    VkDeviceAddress from, to, weight, bias;
    uint32_t width, flags, is_rms;
    float eps;
    uint32_t rows, row_words;
    VkDeviceAddress rounded;
};

static void vulkan_norm(struct llm_backend *b, const struct llm_op_norm *op)
{
    struct vulkan *self = self_of(b);
    uint64_t count = (uint64_t)op->rows * op->width;
    struct norm_push push = {.from = address(op->in),
                             .to = address(op->out),
                             .weight = address(op->weight),
                             .bias = address(op->bias),
                             .width = op->width,
                             .flags = op->bias.buffer ? FLAG_BIAS : 0,
                             .is_rms = op->is_rms,
                             .eps = op->eps,
                             .rows = op->rows};
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_NORM,
                    .constants = {op->width % 4 == 0, FORM_NONE,
                                  (op->width + 4 * NORM_THREADS - 1) / (4 * NORM_THREADS)}},
        .uses = {reads(push.from, count), writes(push.to, count)},
        .use_count = 2};
    set_push(&dispatch, &push, sizeof push);
    spread(self, op->rows, dispatch.groups);
    llm_vk_step_note(&self->step, &dispatch);
}

struct activate_push {
    VkDeviceAddress x, gate_by, rounded;
    uint32_t width, row_words, rows, none;
};

/* ---- matmul ---- */

/* Rows of its activations. */
static uint32_t in_rows(const struct llm_op_matmul *op)
{
    return op->experts.chosen.buffer ? op->rows / op->experts.share : op->rows;
}

struct round_push {
    VkDeviceAddress from, to;
    uint32_t width, row_words, rows, none;
};

/* A row's values, 256 a workgroup. */
static void spread_rows(const struct vulkan *self, uint32_t rows, uint32_t width, uint32_t out[3])
{
    spread(self, (uint64_t)rows * ((width + 4 * GROUP - 1) / (4 * GROUP)), out);
}

/* If the op noted last computed these rows, it rounds them, too. */
static bool fuse_rounding(struct vulkan *self, const struct round_push *round, enum act_form form,
                          struct llm_vk_use rounded)
{
    struct llm_vk_dispatch *last = llm_vk_step_last(&self->step);
    struct norm_push norm;
    struct activate_push activate;
    if (!last || round->width % 4)
        return false;
    memcpy(&norm, last->push, sizeof norm);
    memcpy(&activate, last->push, sizeof activate);
    if (last->variant.shader == LLM_VK_NORM && norm.to == round->from && !norm.rounded &&
        norm.rows == round->rows && norm.width == round->width) {
        norm.rounded = round->to;
        norm.row_words = round->row_words;
        last->variant.constants[NORM_FORM] = form;
        set_push(last, &norm, sizeof norm);
    } else if (last->variant.shader == LLM_VK_ACTIVATE && activate.x == round->from &&
               !activate.rounded && activate.rows == round->rows &&
               activate.width == round->width) {
        activate.rounded = round->to;
        activate.row_words = round->row_words;
        last->variant.constants[ACTIVATE_FORM] = form;
        set_push(last, &activate, sizeof activate);
    } else {
        return false;
    }
    last->uses[last->use_count++] = rounded;
    return true;
}

/* Rounds the op's rows.  All forms share one place; barriers separate them. */
static void round_acts(struct vulkan *self, const struct llm_op_matmul *op, enum act_form form)
{
    uint32_t rows = in_rows(op), width = op->parts[0].weight->width;
    uint64_t row_words = form_bytes(form, width) / sizeof(uint32_t);
    struct round_push push = {.from = address(op->in),
                              .to = self->step.round_block.address,
                              .width = width,
                              .row_words = (uint32_t)row_words,
                              .rows = rows};
    struct llm_vk_use rounded = writes(push.to, rows * row_words);
    struct llm_vk_dispatch dispatch = {.variant = {.shader = LLM_VK_ROUND, .constants = {form}},
                                       .uses = {reads(push.from, (uint64_t)rows * width), rounded},
                                       .use_count = 2};
    assert(rounded.bytes <= self->step.round_block.bytes);
    if (fuse_rounding(self, &push, form, rounded))
        return;
    set_push(&dispatch, &push, sizeof push);
    spread_rows(self, rows, width, dispatch.groups);
    llm_vk_step_note(&self->step, &dispatch);
}

struct mul_part {
    VkDeviceAddress weight, bias, values;
    uint32_t count, flags;
};

struct mul_push {
    struct mul_part parts[LLM_MATMUL_PARTS_MAX];
    VkDeviceAddress acts;
    uint32_t width, rows, stride, col_groups, groups, none;
};

/* Rows of the batch and of the weights for a team, and loads of a weight's row under way (8 bytes
 * each, quantised 16).  One row of the batch is bound by memory: many loads.  Many rows are bound
 * by arithmetic: reuse. */
struct mul_shape {
    uint32_t rows_max, weight_rows_max, cols, weight_rows, ahead, ahead_quantised;
};

/* The first is for plain weights and sums of 32 lanes.  Few rows keep a large device busy only when
 * each has its own team: on an H200 1.07 x the tokens a second of GPT-J-6B, 1.08 x those of a model
 * of 1.1 B parameters.  Quantised ones are bound by arithmetic, too: two rows share activations,
 * which is 1.08 x the tokens a second of 8 B parameters as Q4_K. */
static const struct mul_shape mul_shapes[] = {
    {1, 8192, 1, 1, 16, 4},      {1, UINT32_MAX, 1, 2, 8, 4},          {2, UINT32_MAX, 2, 2, 4, 2},
    {4, UINT32_MAX, 4, 4, 2, 1}, {UINT32_MAX, UINT32_MAX, 8, 4, 1, 1},
};

/* Rows that share weights.  Few shapes with experts: the engine's warm-up meets them all. */
static uint32_t sharing_rows(const struct llm_op_matmul *op)
{
    if (!op->experts.chosen.buffer)
        return op->rows;
    uint32_t mean = op->rows / op->experts.count;
    return mean < 2 ? 1 : mean < 4 ? 4 : mean;
}

static uint32_t weight_rows_of(const struct llm_op_matmul *op)
{
    uint32_t rows = 0;
    for (uint32_t p = 0; p < op->part_count; p++)
        rows += op->parts[p].weight->count;
    return rows;
}

/* From so many rows on matrix units multiply. */
static uint32_t tile_rows_min(const struct vulkan *self, const struct llm_op_matmul *op)
{
    const struct llm_weight *weight = op->parts[0].weight;
    if (!self->device.has_tiles || op->experts.chosen.buffer || weight->width % TILE_DEPTH)
        return UINT32_MAX;
    return is_quantised(weight->dtype) ? TILE_ROWS_MIN_QUANTISED
           : weight->dtype == LLM_F16  ? TILE_ROWS_MIN
                                       : UINT32_MAX;
}

/* Lanes of a sum: mul_frame.glsl.  With more of them a large device is busy with fewer rows of
 * weights, but a product of many rows loses up to a third of its speed.  So F16 weights have more
 * where matrix units multiply them by many rows: 1.1 x the tokens a second of one client on an
 * H200, 1.1 B parameters. */
static uint32_t lanes_for(const struct vulkan *self, const struct llm_op_matmul *op)
{
    uint32_t lanes = tile_rows_min(self, op) == TILE_ROWS_MIN ? MUL_THREADS : MUL_LANES_MIN;
    while (lanes > MUL_LANES_MIN && MUL_LOAD_VALUES * lanes > op->parts[0].weight->width)
        lanes /= 2;
    return lanes;
}

static const struct mul_shape *mul_shape_for(const struct llm_op_matmul *op, uint32_t lanes)
{
    const struct mul_shape *shape = mul_shapes;
    uint32_t weight_rows = weight_rows_of(op), rows = sharing_rows(op);
    if (is_quantised(op->parts[0].weight->dtype) || lanes > MUL_LANES_MIN)
        shape++;
    while (shape->rows_max < rows || shape->weight_rows_max < weight_rows)
        shape++;
    return shape;
}

/* At most the loads that a lane has in a row. */
static uint32_t ahead_for(const struct llm_weight *weight, const struct mul_shape *shape,
                          uint32_t lanes)
{
    bool quantised = is_quantised(weight->dtype);
    uint32_t lane_values = !quantised ? MUL_LOAD_VALUES : weight->dtype == LLM_Q8_0 ? 16 : 32;
    uint32_t ahead = quantised ? shape->ahead_quantised : shape->ahead;
    while (ahead > 1 && (ahead - 1) * lane_values * lanes >= weight->width)
        ahead /= 2;
    return ahead;
}

static struct mul_part describe_part(const struct llm_matmul_part *part, uint32_t matrices)
{
    return (struct mul_part){.weight = llm_vk_piece_address(&part->weight->piece),
                             .bias = address(part->bias),
                             .values = address(part->out),
                             .count = part->weight->count / matrices,
                             .flags = (part->bias.buffer ? FLAG_BIAS : 0) |
                                      (part->accumulate ? FLAG_ACCUMULATE : 0)};
}

struct bunch_push {
    VkDeviceAddress chosen, bunches;
    uint32_t rows, cols, bunch_count, none;
};

/* Sorts rows by expert.  Every expert may have a bunch that is not full. */
static struct llm_vk_use make_bunches(struct vulkan *self, const struct llm_op_matmul *op,
                                      uint32_t cols, uint32_t *bunch_count)
{
    uint32_t experts = op->experts.count, parts = op->rows < experts ? op->rows : experts;
    *bunch_count = (uint32_t)((op->rows + (uint64_t)parts * (cols - 1)) / cols);
    struct bunch_push push = {.chosen = address(op->experts.chosen),
                              .bunches = self->step.round_block.address + self->bunches_at,
                              .rows = op->rows,
                              .cols = cols,
                              .bunch_count = *bunch_count};
    uint64_t words = (uint64_t)*bunch_count * (cols + 1);
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_BUNCH},
        .groups = {1, 1, 1},
        .uses = {reads(push.chosen, op->rows), writes(push.bunches, words)},
        .use_count = 2};
    assert(self->bunches_at + words * sizeof(uint32_t) <= self->step.round_block.bytes);
    set_push(&dispatch, &push, sizeof push);
    llm_vk_step_note(&self->step, &dispatch);
    return reads(push.bunches, words);
}

/* Parts of one type in one dispatch, by activations in this form. */
static void mul_parts(struct vulkan *self, const struct llm_op_matmul *op, enum act_form form)
{
    const struct llm_weight *weight = op->parts[0].weight;
    uint32_t lanes = lanes_for(self, op);
    const struct mul_shape *shape = mul_shape_for(op, lanes);
    uint32_t block_rows = MUL_THREADS / lanes * shape->weight_rows;
    bool rounds = weight->dtype == LLM_F16 && form == FORM_NONE;
    bool routed = op->experts.chosen.buffer != NULL;
    struct mul_push push = {.acts = form ? self->step.round_block.address : address(op->in),
                            .width = weight->width,
                            .rows = op->rows,
                            .stride = weight->stride,
                            .col_groups = (op->rows + shape->cols - 1) / shape->cols};
    uint64_t acts = in_rows(op) * form_bytes(form, weight->width) / sizeof(float);
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_MUL,
                    .dtype = weight->dtype,
                    .constants = {shape->cols, shape->weight_rows, weight->width % 4 == 0,
                                  ahead_for(weight, shape, lanes), rounds, routed, lanes}},
        .uses = {reads(push.acts, acts)},
        .use_count = op->part_count + 1};
    if (routed) {
        assert(op->part_count < LLM_MATMUL_PARTS_MAX);
        struct llm_vk_use which = reads(address(op->experts.chosen), op->rows);
        if (shape->cols > 1)
            which = make_bunches(self, op, shape->cols, &push.col_groups);
        push.parts[EXPERTS_PART] =
            (struct mul_part){.weight = which.from, .flags = op->experts.share};
        dispatch.uses[dispatch.use_count++] = which;
    }
    for (uint32_t p = 0; p < op->part_count; p++) {
        push.parts[p] = describe_part(&op->parts[p], routed ? op->experts.count : 1);
        dispatch.uses[p + 1] =
            writes(push.parts[p].values, (uint64_t)op->rows * push.parts[p].count);
        push.groups += (push.parts[p].count + block_rows - 1) / block_rows * push.col_groups;
    }
    set_push(&dispatch, &push, sizeof push);
    spread(self, push.groups, dispatch.groups);
    llm_vk_step_note(&self->step, &dispatch);
}

/* ---- matmul on matrix units ---- */

struct tile_shape {
    uint32_t rows_max, weight_rows_max, groups_min;
    uint32_t row_tiles, col_tiles, row_groups, col_groups, depth;
};

/* Few rows are bound by memory: more of k is loaded at a time.  A large tile reads its operands
 * fewer times from the cache.  But every multiprocessor needs work, so the largest tile is taken of
 * which there are enough: with fewer, an H200, which has 132 multiprocessors, was slower. */
static const struct tile_shape tile_shapes[] = {
    {16, UINT32_MAX, 0, 1, 1, 2, 1, 256},
    {32, UINT32_MAX, 0, 1, 1, 2, 2, 256},
    {64, 8192, 0, 1, 1, 1, 4, 256},
    {64, UINT32_MAX, 0, 1, 2, 2, 2, TILE_DEPTH},
    {UINT32_MAX, UINT32_MAX, 160, 4, 4, 2, 2, TILE_DEPTH},
    {UINT32_MAX, UINT32_MAX, 192, 2, 4, 2, 2, TILE_DEPTH},
    {UINT32_MAX, UINT32_MAX, 0, 2, 2, 2, 2, TILE_DEPTH},
};

static uint32_t tile_rows_of(const struct tile_shape *shape)
{
    return shape->row_tiles * shape->row_groups * TILE_SIDE;
}

static uint32_t tile_cols_of(const struct tile_shape *shape)
{
    return shape->col_tiles * shape->col_groups * TILE_SIDE;
}

static const struct tile_shape *tile_shape_for(const struct llm_op_matmul *op)
{
    const struct tile_shape *shape = tile_shapes;
    uint32_t weight_rows = weight_rows_of(op);
    while (shape->rows_max < op->rows || shape->weight_rows_max < weight_rows ||
           (uint64_t)weight_rows * op->rows <
               (uint64_t)shape->groups_min * tile_rows_of(shape) * tile_cols_of(shape))
        shape++;
    return shape;
}

static void mul_tiles(struct vulkan *self, const struct llm_op_matmul *op)
{
    const struct llm_weight *weight = op->parts[0].weight;
    const struct tile_shape *shape = tile_shape_for(op);
    uint32_t tile_rows = tile_rows_of(shape), tile_cols = tile_cols_of(shape);
    uint32_t depth = shape->depth;
    while (weight->width % depth)
        depth /= 2;
    struct mul_push push = {.acts = self->step.round_block.address,
                            .width = weight->width,
                            .rows = op->rows,
                            .stride = weight->stride,
                            .col_groups = (op->rows + tile_cols - 1) / tile_cols};
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_MUL_TILE,
                    .dtype = weight->dtype,
                    .constants = {shape->row_groups * shape->col_groups * self->device.subgroup,
                                  shape->row_tiles, shape->col_tiles, shape->row_groups,
                                  shape->col_groups, depth}},
        .uses = {reads(push.acts, (uint64_t)op->rows * weight->width / 2)},
        .use_count = op->part_count + 1};
    for (uint32_t p = 0; p < op->part_count; p++) {
        push.parts[p] = describe_part(&op->parts[p], 1);
        dispatch.uses[p + 1] =
            writes(push.parts[p].values, (uint64_t)op->rows * push.parts[p].count);
        push.groups += (push.parts[p].count + tile_rows - 1) / tile_rows * push.col_groups;
    }
    set_push(&dispatch, &push, sizeof push);
    spread(self, push.groups, dispatch.groups);
    llm_vk_step_note(&self->step, &dispatch);
}

/* Notes the parts in runs of one type. */
static void mul_runs(struct vulkan *self, const struct llm_op_matmul *op)
{
    struct llm_op_matmul run = {.in = op->in, .rows = op->rows, .experts = op->experts};
    enum act_form rounded = FORM_NONE; /* by a run before */
    for (uint32_t p = 0; p < op->part_count; p++) {
        enum llm_dtype dtype = op->parts[p].weight->dtype;
        assert(op->parts[p].weight->width == op->parts[0].weight->width);
        run.parts[run.part_count++] = op->parts[p];
        if (p + 1 < op->part_count && op->parts[p + 1].weight->dtype == dtype)
            continue;
        bool tiles = op->rows >= tile_rows_min(self, &run);
        enum act_form form = tiles ? FORM_HALVES : form_for(dtype);
        if (form == FORM_BITS && mul_shape_for(&run, lanes_for(self, &run))->cols <= ROUND_COLS_MAX)
            form = FORM_NONE; /* rounded at each load */
        if (form && form != rounded)
            round_acts(self, &run, rounded = form);
        if (tiles)
            mul_tiles(self, &run);
        else
            mul_parts(self, &run, form);
        run.part_count = 0;
    }
}

static void vulkan_matmul(struct llm_backend *b, const struct llm_op_matmul *op)
{
    struct vulkan *self = self_of(b);
    assert(op->part_count >= 1 && op->part_count <= LLM_MATMUL_PARTS_MAX);
    mul_runs(self, op);
    /* The last product of a step with picks is the logits: downloaded with the step. */
    uint64_t bytes = (uint64_t)op->rows * op->parts[0].weight->count * sizeof(float);
    bool fetch =
        op->part_count == 1 && op->rows == self->step.pick_count && bytes <= LLM_VK_FETCH_MAX;
    self->step.noted.fetch = op->parts[0].out;
    self->step.noted.fetch_bytes = fetch ? bytes : 0;
}

/* ---- rope, append, attend ---- */

struct rope_push {
    VkDeviceAddress q, k, angles;
    uint32_t heads, kv_heads, head_dim, pairs, neox, q_count, q_first, k_first;
};

/* The op's own, and what append.comp adds where it rotates keys and queries, too. */
struct rope_alone_push {
    struct rope_push rope;
    uint32_t k_count, none;
};

static void vulkan_rope(struct llm_backend *b, const struct llm_op_rope *op)
{
    struct vulkan *self = self_of(b);
    uint32_t rows = self->step.rows, pairs = self->step.rope_pairs;
    struct rope_alone_push push = {.rope = {.q = address(op->q),
                                            .k = address(op->k),
                                            .angles = self->step.inputs.rope,
                                            .heads = op->heads,
                                            .kv_heads = op->kv_heads,
                                            .head_dim = op->head_dim,
                                            .pairs = pairs,
                                            .neox = op->neox,
                                            .q_count = rows * op->heads * pairs,
                                            .q_first = op->q_table * rows,
                                            .k_first = op->k_table * rows},
                                   .k_count = rows * op->kv_heads * pairs};
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_ROPE},
        .uses = {writes(push.rope.q, (uint64_t)rows * op->heads * op->head_dim),
                 writes(push.rope.k, (uint64_t)rows * op->kv_heads * op->head_dim)},
        .use_count = 2};
    set_push(&dispatch, &push, sizeof push);
    assert(2 * pairs <= op->head_dim);
    each_value(self, &dispatch, push.rope.q_count + push.k_count);
}

/* The rows of a layer in all pages.  Pages lie anywhere, so a number stands for them; if it happens
 * to equal another address, a needless barrier is recorded. */
static struct llm_vk_use kv_use(const struct llm_kv_memory *kv, uint32_t layer, bool is_write)
{
    return (struct llm_vk_use){
        .from = (VkDeviceAddress)(uintptr_t)kv + layer, .bytes = 1, .writes = is_write};
}

struct append_push {
    struct rope_push rope; /* k, and the rest where it rotates */
    VkDeviceAddress v, positions, page_first, pages;
    uint32_t row_values, row_words, count, k_words, v_words, none;
};

/* If the op noted last rotates these keys, it is taken back: append does it on the way. */
static bool take_rope(struct vulkan *self, struct llm_place k, struct rope_push *out)
{
    const struct llm_vk_dispatch *last = llm_vk_step_last(&self->step);
    struct rope_push rope;
    if (!last || last->variant.shader != LLM_VK_ROPE)
        return false;
    memcpy(&rope, last->push, sizeof rope);
    if (rope.k != address(k))
        return false;
    *out = rope;
    llm_vk_step_drop(&self->step);
    return true;
}

static void vulkan_append(struct llm_backend *b, const struct llm_op_append *op)
{
    struct vulkan *self = self_of(b);
    struct llm_vk_step *step = &self->step;
    llm_vk_step_use_kv(step, op->kv);
    struct append_push push = {.rope = {.k = address(op->k)},
                               .v = address(op->v),
                               .positions = step->inputs.positions,
                               .page_first = step->inputs.page_first,
                               .pages = llm_vk_step_pages(step, op->layer),
                               .row_values = llm_vk_kv_row_values(op->kv),
                               .row_words = llm_vk_kv_row_words(op->kv),
                               .count = 2 * step->rows * llm_vk_kv_row_words(op->kv),
                               .k_words = llm_vk_kv_words(op->kv, 0),
                               .v_words = llm_vk_kv_words(op->kv, 1)};
    bool turns = take_rope(self, op->k, &push.rope);
    uint64_t values = (uint64_t)step->rows * push.row_values;
    uint64_t q_values = (uint64_t)step->rows * push.rope.heads * push.rope.head_dim;
    struct llm_vk_dispatch dispatch = {.variant = {.shader = LLM_VK_APPEND, .constants = {turns}},
                                       .uses = {reads(push.rope.k, values), reads(push.v, values),
                                                kv_use(op->kv, op->layer, true),
                                                writes(push.rope.q, q_values)},
                                       .use_count = turns ? 4 : 3};
    set_push(&dispatch, &push, sizeof push);
    each_value(self, &dispatch, push.count + push.rope.q_count);
}

/* No row with so many positions or fewer has more chunks: chunks_of in common.glsl. */
static uint32_t chunks_most(uint32_t positions)
{
    uint32_t pages = llm_kv_pages_for(positions);
    uint32_t chunks = (pages + ATTEND_CHUNK_PAGES - 1) / ATTEND_CHUNK_PAGES;
    return chunks < ATTEND_CHUNKS_MAX ? chunks : ATTEND_CHUNKS_MAX;
}

/* Positions from the first page that a row sees to the row's own, at most. */
static uint32_t seen_most(uint32_t positions, uint32_t window)
{
    return window && positions > window ? window + LLM_KV_POSITIONS - 1 : positions;
}

/* Rows of the batch that attend together, and where theirs are. */
struct attend_rows {
    uint32_t first, count;
    uint64_t values; /* of q, and of the result */
    VkDeviceAddress q, out, positions, page_first;
};

static struct attend_rows attend_rows(const struct llm_vk_step *step,
                                      const struct llm_op_attend *op, uint32_t first, uint32_t end)
{
    uint64_t row_values = (uint64_t)op->heads * op->head_dim;
    uint64_t bytes = first * row_values * sizeof(float), words = first * sizeof(uint32_t);
    return (struct attend_rows){.first = first,
                                .count = end - first,
                                .values = (end - first) * row_values,
                                .q = address(op->q) + bytes,
                                .out = address(op->out) + bytes,
                                .positions = step->inputs.positions + words,
                                .page_first = step->inputs.page_first + words};
}

struct attend_push {
    VkDeviceAddress q, values, positions, page_first, pages, parts, arrivals;
    uint32_t heads, kv_heads, head_dim, row_words, k_words, v_words;
    float scale;
    uint32_t dim_groups, chunks_max, window;
    float cap;
    uint32_t none;
    VkDeviceAddress sinks;
};

/* Of all parts of a row. */
static uint64_t part_floats(const struct llm_op_attend *op, uint32_t chunks)
{
    return (uint64_t)op->heads * chunks * (op->head_dim + PART_FLOATS);
}

/* Threads that share a score, eight values each. */
static uint32_t score_sharers(uint32_t head_dim)
{
    return head_dim > 64 ? 16 : head_dim > 32 ? 8 : 4;
}

static void attend_together(struct vulkan *self, const struct llm_op_attend *op,
                            const struct attend_rows *rows, uint32_t chunks)
{
    struct llm_vk_step *step = &self->step;
    struct attend_push push = {.q = rows->q,
                               .values = rows->out,
                               .positions = rows->positions,
                               .page_first = rows->page_first,
                               .pages = llm_vk_step_pages(step, op->layer),
                               .heads = op->heads,
                               .kv_heads = op->kv_heads,
                               .head_dim = op->head_dim,
                               .row_words = llm_vk_kv_row_words(op->kv),
                               .k_words = llm_vk_kv_words(op->kv, 0),
                               .v_words = llm_vk_kv_words(op->kv, 1),
                               .scale = op->scale,
                               .dim_groups = (op->head_dim + ATTEND_DIMS - 1) / ATTEND_DIMS,
                               .chunks_max = chunks,
                               .window = op->window,
                               .cap = op->cap,
                               .sinks = address(op->sinks)};
    uint64_t parts = chunks > 1 ? rows->count * part_floats(op, chunks) : 0;
    if (parts) {
        uint64_t counters = (uint64_t)rows->count * op->heads * push.dim_groups;
        push.parts = llm_vk_step_parts(step, parts * sizeof(float));
        push.arrivals = llm_vk_step_arrivals(step, counters);
    }
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_ATTEND,
                    .constants = {op->head_dim % 8 == 0, score_sharers(op->head_dim)}},
        .groups = {op->heads, rows->count, push.dim_groups * chunks},
        .uses = {reads(push.q, rows->values), writes(push.values, rows->values),
                 kv_use(op->kv, op->layer, false), writes(push.parts, parts)},
        .use_count = 4};
    set_push(&dispatch, &push, sizeof push);
    if (op->heads > self->device.properties.limits.maxComputeWorkGroupCount[0])
        step->error = llm_why(step->why, -EIO, "%u heads are too many for this device", op->heads);
    llm_vk_step_note(step, &dispatch);
}

/* As many rows at a time as the memory for their parts allows. */
static void attend_each(struct vulkan *self, const struct llm_op_attend *op, uint32_t first,
                        uint32_t end)
{
    uint32_t chunks = chunks_most(seen_most(self->step.positions_max, op->window));
    uint64_t most = chunks > 1 ? ATTEND_PARTS_MAX / part_floats(op, chunks) : end;
    for (uint32_t stop; first < end; first = stop) {
        stop = most == 0 ? first + 1 : most < end - first ? first + (uint32_t)most : end;
        struct attend_rows rows = attend_rows(&self->step, op, first, stop);
        attend_together(self, op, &rows, chunks);
    }
}

struct attend_tile_push {
    VkDeviceAddress q, values, positions, page_first, pages, sinks;
    uint32_t heads, kv_heads, row_words, k_words, v_words;
    float scale;
    uint32_t window;
    float cap;
    uint32_t rows, none;
};

/* Rows of one sequence. */
static void attend_tiles(struct vulkan *self, const struct llm_op_attend *op,
                         const struct attend_rows *rows)
{
    struct llm_vk_step *step = &self->step;
    uint32_t group = op->heads / op->kv_heads;
    uint32_t heads = group < LLM_VK_TILE_SUBGROUPS ? group : LLM_VK_TILE_SUBGROUPS;
    uint32_t row_tiles = LLM_VK_TILE_SUBGROUPS / heads;
    uint32_t block_rows = row_tiles * TILE_SIDE;
    struct attend_tile_push push = {.q = rows->q,
                                    .values = rows->out,
                                    .positions = rows->positions,
                                    .page_first = rows->page_first,
                                    .pages = llm_vk_step_pages(step, op->layer),
                                    .sinks = address(op->sinks),
                                    .heads = op->heads,
                                    .kv_heads = op->kv_heads,
                                    .row_words = llm_vk_kv_row_words(op->kv),
                                    .k_words = llm_vk_kv_words(op->kv, 0),
                                    .v_words = llm_vk_kv_words(op->kv, 1),
                                    .scale = op->scale,
                                    .window = op->window,
                                    .cap = op->cap,
                                    .rows = rows->count};
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_ATTEND_TILE,
                    .constants = {heads * row_tiles * self->device.subgroup,
                                  op->head_dim / TILE_SIDE, heads, row_tiles}},
        .groups = {op->kv_heads * ((group + heads - 1) / heads),
                   (rows->count + block_rows - 1) / block_rows, 1},
        .uses = {reads(push.q, rows->values), writes(push.values, rows->values),
                 kv_use(op->kv, op->layer, false)},
        .use_count = 3};
    set_push(&dispatch, &push, sizeof push);
    llm_vk_step_note(step, &dispatch);
}

/* Rows in a row of one sequence, a prompt's, have tiles; those between them are computed alone. */
static void vulkan_attend(struct llm_backend *b, const struct llm_op_attend *op)
{
    struct vulkan *self = self_of(b);
    struct llm_vk_step *step = &self->step;
    bool can_tile =
        self->device.has_tiles && op->head_dim % TILE_SIDE == 0 && op->head_dim <= ATTEND_TILE_DIMS;
    uint32_t alone = 0, end;
    llm_vk_step_use_kv(step, op->kv);
    for (uint32_t first = 0; first < step->rows && can_tile; first = end) {
        for (end = first + 1; end < step->rows && step->seqs.at[end] == step->seqs.at[first]; end++)
            ;
        if (end - first < TILE_SIDE)
            continue;
        struct attend_rows tiles = attend_rows(step, op, first, end);
        attend_each(self, op, alone, first);
        attend_tiles(self, op, &tiles);
        alone = end;
    }
    attend_each(self, op, alone, step->rows);
}

/* ---- activate ---- */

/* If x is the only result of the last noted product, that product computes the gelu, too. */
static bool fuse_gelu(struct vulkan *self, const struct llm_op_activate *op)
{
    struct llm_vk_dispatch *last = llm_vk_step_last(&self->step);
    struct mul_push push;
    if (op->kind != LLM_GELU || !last ||
        (last->variant.shader != LLM_VK_MUL && last->variant.shader != LLM_VK_MUL_TILE))
        return false;
    memcpy(&push, last->push, sizeof push);
    if (push.parts[1].count || push.parts[0].values != address(op->x) || push.rows != op->rows ||
        push.parts[0].count != op->width)
        return false;
    push.parts[0].flags |= FLAG_GELU;
    set_push(last, &push, sizeof push);
    return true;
}

static void vulkan_activate(struct llm_backend *b, const struct llm_op_activate *op)
{
    struct vulkan *self = self_of(b);
    if (fuse_gelu(self, op))
        return;
    bool gated = llm_activation_is_gated(op->kind);
    uint64_t values = (uint64_t)op->rows * op->width;
    struct activate_push push = {.x = address(op->x),
                                 .gate_by = gated ? address(op->gate_by) : 0,
                                 .width = op->width,
                                 .rows = op->rows};
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_ACTIVATE,
                    .constants = {FORM_NONE, op->width % 4 == 0, op->kind}},
        .uses = {writes(push.x, values), reads(push.gate_by, values)},
        .use_count = gated ? 2 : 1};
    set_push(&dispatch, &push, sizeof push);
    spread_rows(self, op->rows, op->width, dispatch.groups);
    llm_vk_step_note(&self->step, &dispatch);
}

/* ---- experts, residuals, logits ---- */

struct route_push {
    VkDeviceAddress logits, chosen, weights;
    uint32_t experts, used, normed, rows;
    float scale;
    uint32_t none;
};

static void vulkan_route(struct llm_backend *b, const struct llm_op_route *op)
{
    struct vulkan *self = self_of(b);
    struct route_push push = {.logits = address(op->logits),
                              .chosen = address(op->chosen),
                              .weights = address(op->weights),
                              .experts = op->experts,
                              .used = op->used,
                              .normed = op->normed,
                              .rows = self->step.rows,
                              .scale = op->scale};
    uint64_t chosen = (uint64_t)push.rows * op->used;
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_ROUTE},
        .uses = {reads(push.logits, (uint64_t)push.rows * op->experts), writes(push.chosen, chosen),
                 writes(push.weights, chosen)},
        .use_count = 3};
    assert(op->used >= 1 && op->used <= op->experts && op->experts <= LLM_EXPERTS_MAX);
    set_push(&dispatch, &push, sizeof push);
    spread(self, push.rows, dispatch.groups);
    llm_vk_step_note(&self->step, &dispatch);
}

struct add_push {
    VkDeviceAddress x, y, weights;
    uint32_t width, terms, count;
    float scale;
};

static void vulkan_add(struct llm_backend *b, const struct llm_op_add *op)
{
    struct vulkan *self = self_of(b);
    uint32_t rows = self->step.rows;
    struct add_push push = {.x = address(op->x),
                            .y = address(op->y),
                            .weights = address(op->weights),
                            .width = op->width,
                            .terms = op->terms,
                            .count = rows * op->width,
                            .scale = op->scale};
    struct llm_vk_dispatch dispatch = {.variant = {.shader = LLM_VK_ADD},
                                       .uses = {writes(push.x, push.count),
                                                reads(push.y, (uint64_t)push.count * op->terms),
                                                reads(push.weights, (uint64_t)rows * op->terms)},
                                       .use_count = push.weights ? 3 : 2};
    set_push(&dispatch, &push, sizeof push);
    each_value(self, &dispatch, push.count);
}

struct scale_push {
    VkDeviceAddress x;
    uint32_t count;
    float scale, cap;
    uint32_t none;
};

static void vulkan_scale(struct llm_backend *b, const struct llm_op_scale *op)
{
    struct vulkan *self = self_of(b);
    struct scale_push push = {
        .x = address(op->x), .count = op->rows * op->width, .scale = op->scale, .cap = op->cap};
    struct llm_vk_dispatch dispatch = {
        .variant = {.shader = LLM_VK_SCALE}, .uses = {writes(push.x, push.count)}, .use_count = 1};
    set_push(&dispatch, &push, sizeof push);
    each_value(self, &dispatch, push.count);
}

const struct llm_backend_ops llm_backend_vulkan = {
    .name = "vulkan",
    .open = vulkan_open,
    .close = vulkan_close,
    .buffer_create = vulkan_buffer_create,
    .buffer_destroy = vulkan_buffer_destroy,
    .upload = vulkan_upload,
    .download = vulkan_download,
    .view = vulkan_view,
    .weight_create = vulkan_weight_create,
    .weight_destroy = vulkan_weight_destroy,
    .weights_leave = vulkan_weights_leave,
    .weights_return = vulkan_weights_return,
    .batch_rows = BATCH_ROWS,
    .kv_slab_bytes = LLM_VK_SLAB_BYTES,
    .kv_slabs_max = LLM_VK_SLABS_MAX,
    .kv_create = vulkan_kv_create,
    .kv_destroy = vulkan_kv_destroy,
    .kv_slab = llm_vk_kv_slab,
    .kv_map = llm_vk_kv_map,
    .kv_unmap = llm_vk_kv_unmap,
    .kv_read = llm_vk_kv_read,
    .kv_read_all = llm_vk_kv_read_all,
    .kv_write = llm_vk_kv_write,
    .begin = vulkan_begin,
    .embed = vulkan_embed,
    .pick = vulkan_pick,
    .norm = vulkan_norm,
    .matmul = vulkan_matmul,
    .rope = vulkan_rope,
    .append = vulkan_append,
    .attend = vulkan_attend,
    .activate = vulkan_activate,
    .route = vulkan_route,
    .add = vulkan_add,
    .scale = vulkan_scale,
    .finish = vulkan_finish,
    .prepare = vulkan_prepare,
    .made = vulkan_made,
    .traffic = vulkan_traffic,
};
