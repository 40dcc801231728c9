/* The backend `cpu`: the reference's results, computed with threads and vector kernels.
 *
 * Every op is cut into pieces with separate outputs: neither the number of threads nor which thread
 * computes a piece changes the results. */
#include "llm/cpu/kernels.h"
#include "llm/cpu/pool.h"
#include "llm/cpu/ram.h"
#include "llm/model/why.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECES_PER_THREAD = 4, /* of a matrix: an interrupted thread delays a quarter of its share */
    PIECE_ROWS_MIN = 16,   /* of weights: with fewer, taking a piece costs too much */
    PIECE_ROWS_MAX = 512,  /* of weights: their results stay in the L1 cache */
    PIECE_VALUES = 4096,   /* of element-wise ops: a few microseconds */
};

/* Memory that grows to what the largest op so far needed. */
struct area {
    uint8_t *bytes;
    uint64_t size;
};

enum { AREA_ACTS, AREA_PANELS = AREA_ACTS + LLM_ACTS, AREA_SCORES, AREAS }; /* one for each kind */

struct cpu {
    struct llm_ram ram;
    const struct llm_kernels *kernels;
    struct llm_pool *pool;
    struct area areas[AREAS];
    uint64_t began_ns;
    int error; /* of the current step */
};

static struct cpu *self_of(struct llm_backend *b)
{
    return (struct cpu *)b;
}

static const struct llm_batch *batch_of(struct llm_backend *b)
{
    assert(self_of(b)->ram.batch);
    return self_of(b)->ram.batch;
}

static int cpu_open(const struct llm_backend_config *config, struct llm_backend **out, char *why)
{
    struct cpu *self = calloc(1, sizeof *self);
    if (!self)
        return llm_why(why, -ENOMEM, "no memory for the backend");
    int rc = llm_pool_create(config->threads, &self->pool);
    if (rc) {
        free(self);
        return llm_why(why, rc, "cannot start %u threads: %s; at most %d", config->threads,
                       strerror(-rc), LLM_THREADS_MAX);
    }
    self->kernels = llm_kernels();
    self->ram.base.ops = &llm_backend_cpu;
    snprintf(self->ram.base.device, sizeof self->ram.base.device, "%u threads, %s kernels",
             llm_pool_threads(self->pool), self->kernels->name);
    *out = &self->ram.base;
    return 0;
}

static void cpu_close(struct llm_backend *b)
{
    struct cpu *self = self_of(b);
    llm_pool_destroy(self->pool);
    for (int i = 0; i < AREAS; i++)
        free(self->areas[i].bytes);
    free(self);
}

/* NULL without memory: the step then fails. */
static void *area(struct cpu *self, int which, uint64_t bytes)
{
    struct area *a = &self->areas[which];
    if (bytes > a->size) {
        uint64_t size = (bytes + HW_CACHE_LINE - 1) / HW_CACHE_LINE * HW_CACHE_LINE;
        free(a->bytes);
        a->bytes = aligned_alloc(HW_CACHE_LINE, size);
        a->size = a->bytes ? size : 0;
    }
    if (!a->bytes)
        self->error = -ENOMEM;
    return a->bytes;
}

/* ---- a row each ---- */

struct row_job {
    const struct llm_batch *batch;
    const void *op;
};

static void embed_row(void *user, uint32_t row, unsigned thread)
{
    (void)thread;
    const struct row_job *job = user;
    llm_ram_embed(job->batch, job->op, row);
}

static void rope_row(void *user, uint32_t row, unsigned thread)
{
    (void)thread;
    const struct row_job *job = user;
    llm_ram_rope(job->batch, job->op, row);
}

static void append_row(void *user, uint32_t row, unsigned thread)
{
    (void)thread;
    const struct row_job *job = user;
    llm_ram_append(job->batch, job->op, row);
}

static void each_row(struct llm_backend *b, llm_pool_work *work, const void *op)
{
    struct row_job job = {.batch = batch_of(b), .op = op};
    llm_pool_run(self_of(b)->pool, job.batch->rows, work, &job);
}

static void cpu_embed(struct llm_backend *b, const struct llm_op_embed *op)
{
    each_row(b, embed_row, op);
}

static void cpu_rope(struct llm_backend *b, const struct llm_op_rope *op)
{
    each_row(b, rope_row, op);
}

static void cpu_append(struct llm_backend *b, const struct llm_op_append *op)
{
    each_row(b, append_row, op);
}

static void cpu_pick(struct llm_backend *b, const struct llm_op_pick *op)
{
    llm_ram_pick(batch_of(b), op);
}

struct norm_job {
    const struct llm_kernels *kernels;
    const struct llm_op_norm *op;
};

static void norm_row(void *user, uint32_t row, unsigned thread)
{
    (void)thread;
    const struct norm_job *job = user;
    const struct llm_op_norm *op = job->op;
    size_t at = (size_t)row * op->width;
    struct llm_norm norm = {.in = llm_ram_floats(op->in) + at,
                            .out = llm_ram_floats(op->out) + at,
                            .weight = llm_ram_floats(op->weight),
                            .bias = op->bias.buffer ? llm_ram_floats(op->bias) : NULL,
                            .width = op->width,
                            .eps = op->eps,
                            .is_rms = op->is_rms};
    job->kernels->norm(&norm);
}

static void cpu_norm(struct llm_backend *b, const struct llm_op_norm *op)
{
    struct norm_job job = {.kernels = self_of(b)->kernels, .op = op};
    llm_pool_run(self_of(b)->pool, op->rows, norm_row, &job);
}

/* ---- matmul ---- */

struct mul_part {
    struct llm_mul mul;
    uint32_t first_piece; /* of the op's */
};

struct mul_job {
    const struct llm_kernels *kernels;
    struct mul_part parts[LLM_MATMUL_PARTS_MAX];
    uint32_t part_count;
    uint32_t piece_rows;
    uint8_t *panels;
    uint64_t panel_bytes;
};

static void mul_piece(void *user, uint32_t piece, unsigned thread)
{
    const struct mul_job *job = user;
    const struct mul_part *part = &job->parts[job->part_count - 1];
    while (part->first_piece > piece)
        part--;
    struct llm_mul mul = part->mul;
    uint32_t first = (piece - part->first_piece) * job->piece_rows;
    uint32_t rest = mul.rows - first;
    mul.weight += first * mul.row_bytes;
    mul.rows = rest < job->piece_rows ? rest : job->piece_rows;
    mul.out += first;
    mul.bias = mul.bias ? mul.bias + first : NULL;
    mul.panel = job->panels + thread * job->panel_bytes;
    job->kernels->mul(&mul);
}

struct prepare_job {
    const struct llm_kernels *kernels;
    enum llm_act act;
    const float *in;
    uint8_t *out;
    uint64_t group_bytes;
    uint32_t rows, width;
};

static void prepare_group(void *user, uint32_t group, unsigned thread)
{
    (void)thread;
    const struct prepare_job *job = user;
    uint32_t first = group * LLM_GROUP, rest = job->rows - first;
    job->kernels->prepare(job->act, job->out + group * job->group_bytes,
                          job->in + (size_t)first * job->width, job->width,
                          rest < LLM_GROUP ? rest : LLM_GROUP, job->rows);
}

/* The activations in the form that the weights need; NULL without memory. */
static const uint8_t *prepare(struct cpu *self, const struct llm_op_matmul *op, enum llm_act act,
                              uint32_t width)
{
    uint32_t groups = (op->rows + LLM_GROUP - 1) / LLM_GROUP;
    struct prepare_job job = {.kernels = self->kernels,
                              .act = act,
                              .in = llm_ram_floats(op->in),
                              .group_bytes = LLM_GROUP * llm_act_bytes(act, width),
                              .rows = op->rows,
                              .width = width};
    job.out = area(self, AREA_ACTS + (int)act, groups * job.group_bytes);
    if (job.out)
        llm_pool_run(self->pool, groups, prepare_group, &job);
    return job.out;
}

static void describe_part(struct mul_part *part, const struct llm_op_matmul *op, uint32_t p)
{
    const struct llm_matmul_part *from = &op->parts[p];
    const struct llm_weight *w = from->weight;
    enum llm_act act = llm_act_of(w->dtype);
    size_t row_bytes = llm_act_bytes(act, w->width);
    part->mul = (struct llm_mul){.dtype = w->dtype,
                                 .weight = w->rows,
                                 .row_bytes = w->row_bytes,
                                 .rows = w->count,
                                 .width = w->width,
                                 .group_bytes = LLM_GROUP * row_bytes,
                                 .count = op->rows,
                                 .out = llm_ram_floats(from->out),
                                 .out_width = w->count,
                                 .bias = from->bias.buffer ? llm_ram_floats(from->bias) : NULL,
                                 .accumulate = from->accumulate};
}

/* Prepares each form of activations that the parts need, once. */
static bool prepare_all(struct cpu *self, const struct llm_op_matmul *op, struct mul_job *job)
{
    const uint8_t *acts[LLM_ACTS] = {[LLM_ACT_F32] =
                                         (const uint8_t *)(const void *)llm_ram_floats(op->in)};
    for (uint32_t p = 0; p < job->part_count; p++) {
        struct llm_mul *mul = &job->parts[p].mul;
        enum llm_act act = llm_act_of(mul->dtype);
        if (!acts[act])
            acts[act] = prepare(self, op, act, mul->width);
        if (!acts[act])
            return false;
        mul->acts = acts[act];
    }
    return true;
}

/* A multiple of 4, for kernels that take four rows. */
static uint32_t piece_rows(const struct cpu *self, uint32_t rows)
{
    uint32_t pieces = llm_pool_threads(self->pool) * PIECES_PER_THREAD;
    uint32_t each = (rows / pieces + 3) / 4 * 4;
    return each < PIECE_ROWS_MIN ? PIECE_ROWS_MIN : each > PIECE_ROWS_MAX ? PIECE_ROWS_MAX : each;
}

static void cpu_matmul(struct llm_backend *b, const struct llm_op_matmul *op)
{
    struct cpu *self = self_of(b);
    struct mul_job job = {.kernels = self->kernels, .part_count = op->part_count};
    uint32_t rows = 0, pieces = 0, width = op->parts[0].weight->width;
    assert(op->part_count >= 1 && op->part_count <= LLM_MATMUL_PARTS_MAX);
    for (uint32_t p = 0; p < op->part_count; p++)
        rows += op->parts[p].weight->count;
    job.piece_rows = piece_rows(self, rows);
    for (uint32_t p = 0; p < op->part_count; p++) {
        assert(op->parts[p].weight->width == width);
        describe_part(&job.parts[p], op, p);
        job.parts[p].first_piece = pieces;
        pieces += (op->parts[p].weight->count + job.piece_rows - 1) / job.piece_rows;
    }
    job.panel_bytes = (llm_panel_bytes(width) + HW_CACHE_LINE - 1) / HW_CACHE_LINE * HW_CACHE_LINE;
    job.panels = area(self, AREA_PANELS, job.panel_bytes * llm_pool_threads(self->pool));
    if (job.panels && prepare_all(self, op, &job))
        llm_pool_run(self->pool, pieces, mul_piece, &job);
}

/* ---- attention ---- */

struct attend_job {
    const struct llm_kernels *kernels;
    const struct llm_batch *batch;
    const struct llm_op_attend *op;
    float *scores;
    uint64_t scores_each; /* thread */
};

/* A row of one KV head. */
static void attend_piece(void *user, uint32_t piece, unsigned thread)
{
    const struct attend_job *job = user;
    const struct llm_op_attend *op = job->op;
    uint32_t row = piece / op->kv_heads, kv_head = piece % op->kv_heads;
    uint32_t group = op->heads / op->kv_heads;
    size_t at = ((size_t)row * op->heads + (size_t)kv_head * group) * op->head_dim;
    size_t in_row = (size_t)kv_head * op->head_dim * sizeof(uint16_t);
    struct llm_attention a = {.k = llm_ram_kv(op->kv, 0, 0, 0) + in_row,
                              .v = llm_ram_kv(op->kv, 1, 0, 0) + in_row,
                              .page_stride = llm_ram_kv_page_stride(op->kv),
                              .row_stride = (uint64_t)llm_ram_kv_values(op->kv) * sizeof(uint16_t),
                              .pages = llm_ram_pages(job->batch, op->layer, row),
                              .positions = job->batch->positions[row] + 1,
                              .q = llm_ram_floats(op->q) + at,
                              .out = llm_ram_floats(op->out) + at,
                              .group = group,
                              .head_dim = op->head_dim,
                              .scale = op->scale,
                              .scores = job->scores + thread * job->scores_each};
    job->kernels->attend(&a);
}

static void cpu_attend(struct llm_backend *b, const struct llm_op_attend *op)
{
    struct cpu *self = self_of(b);
    const struct llm_batch *batch = batch_of(b);
    uint32_t most = 0;
    for (uint32_t r = 0; r < batch->rows; r++)
        most = batch->positions[r] > most ? batch->positions[r] : most;
    struct attend_job job = {.kernels = self->kernels,
                             .batch = batch,
                             .op = op,
                             .scores_each = ((uint64_t)most + HW_CACHE_LINE) / 16 * 16};
    uint64_t bytes = job.scores_each * sizeof(float) * llm_pool_threads(self->pool);
    job.scores = area(self, AREA_SCORES, bytes);
    if (job.scores)
        llm_pool_run(self->pool, batch->rows * op->kv_heads, attend_piece, &job);
}

/* ---- element by element ---- */

struct activate_job {
    const struct llm_kernels *kernels;
    const struct llm_op_activate *op;
    uint64_t count;
};

static void activate_piece(void *user, uint32_t piece, unsigned thread)
{
    (void)thread;
    const struct activate_job *job = user;
    uint64_t first = (uint64_t)piece * PIECE_VALUES, rest = job->count - first;
    uint64_t count = rest < PIECE_VALUES ? rest : PIECE_VALUES;
    float *x = llm_ram_floats(job->op->x) + first;
    if (job->op->kind == LLM_GELU)
        job->kernels->gelu(x, count);
    else
        job->kernels->silu(x, llm_ram_floats(job->op->gate_by) + first, count);
}

static void cpu_activate(struct llm_backend *b, const struct llm_op_activate *op)
{
    struct activate_job job = {
        .kernels = self_of(b)->kernels, .op = op, .count = (uint64_t)batch_of(b)->rows * op->width};
    uint64_t pieces = (job.count + PIECE_VALUES - 1) / PIECE_VALUES;
    llm_pool_run(self_of(b)->pool, (uint32_t)pieces, activate_piece, &job);
}

/* ---- steps ---- */

static int cpu_begin(struct llm_backend *b, const struct llm_batch *batch, char *why)
{
    self_of(b)->began_ns = hw_now_ns();
    return llm_ram_begin(b, batch, why);
}

static int cpu_finish(struct llm_backend *b, uint64_t *kernel_ns, char *why)
{
    struct cpu *self = self_of(b);
    int rc = self->error;
    self->error = 0;
    self->ram.batch = NULL;
    *kernel_ns = hw_now_ns() - self->began_ns;
    return rc ? llm_why(why, rc, "no memory for a step") : 0;
}

const struct llm_backend_ops llm_backend_cpu = {
    .name = "cpu",
    .exact = true,
    .open = cpu_open,
    .close = cpu_close,
    .buffer_create = llm_ram_buffer_create,
    .buffer_destroy = llm_ram_buffer_destroy,
    .upload = llm_ram_upload,
    .download = llm_ram_download,
    .weight_create = llm_ram_weight_create,
    .weight_destroy = llm_ram_weight_destroy,
    .kv_create = llm_ram_kv_create,
    .kv_destroy = llm_ram_kv_destroy,
    .kv_map = llm_ram_kv_map,
    .kv_unmap = llm_ram_kv_unmap,
    .kv_read = llm_ram_kv_read,
    .kv_write = llm_ram_kv_write,
    .begin = cpu_begin,
    .embed = cpu_embed,
    .pick = cpu_pick,
    .norm = cpu_norm,
    .matmul = cpu_matmul,
    .rope = cpu_rope,
    .append = cpu_append,
    .attend = cpu_attend,
    .activate = cpu_activate,
    .finish = cpu_finish,
};
