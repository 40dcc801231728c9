/* The backend `cpu`: the reference's results, computed with threads and vector kernels.
 *
 * Every op is cut into pieces with separate outputs: neither the number of threads nor which thread
 * computes a piece changes the results. */
#include "llm/cpu/kernels.h"
#include "llm/cpu/pool.h"
#include "llm/cpu/ram.h"
#include "llm/model/why.h"

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

enum {
    AREA_ACTS, /* one for each kind */
    AREA_PANELS = AREA_ACTS + LLM_ACTS,
    AREA_SCORES,
    AREA_PLAN, /* of attention; of experts, and the next two */
    AREA_INPUTS,
    AREA_RESULTS,
    AREAS
};

struct cpu {
    struct llm_ram ram;
    const struct llm_kernels *kernels;
    struct llm_pool *pool;
    struct area areas[AREAS];
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
        self->ram.error = -ENOMEM;
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

static void add_row(void *user, uint32_t row, unsigned thread)
{
    (void)thread;
    const struct row_job *job = user;
    llm_ram_add(job->op, row);
}

static void cpu_add(struct llm_backend *b, const struct llm_op_add *op)
{
    each_row(b, add_row, op);
}

static void scale_row(void *user, uint32_t row, unsigned thread)
{
    (void)thread;
    llm_ram_scale(user, row);
}

static void cpu_scale(struct llm_backend *b, const struct llm_op_scale *op)
{
    struct llm_op_scale copy = *op;
    llm_pool_run(self_of(b)->pool, op->rows, scale_row, &copy);
}

static void route_row(void *user, uint32_t row, unsigned thread)
{
    (void)thread;
    const struct row_job *job = user;
    llm_ram_route(job->op, row);
}

static void cpu_route(struct llm_backend *b, const struct llm_op_route *op)
{
    each_row(b, route_row, op);
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

/* One matrix times rows of activations. */
struct mul_part {
    struct llm_mul mul;
    uint32_t first_piece; /* of the op's */
};

struct mul_job {
    const struct llm_kernels *kernels;
    struct mul_part *parts;
    uint32_t part_count;
    uint32_t piece_rows, pieces;
    uint8_t *panels;
    uint64_t panel_bytes;
};

/* The last part that begins at the piece or before. */
static const struct mul_part *part_of(const struct mul_job *job, uint32_t piece)
{
    uint32_t low = 0, high = job->part_count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (job->parts[middle].first_piece <= piece)
            low = middle;
        else
            high = middle;
    }
    return &job->parts[low];
}

static void mul_piece(void *user, uint32_t piece, unsigned thread)
{
    const struct mul_job *job = user;
    const struct mul_part *part = part_of(job, piece);
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
                                 .bias = llm_ram_maybe(from->bias),
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

/* A multiple of 16, for kernels that take 4, 8 or 16 rows. */
static uint32_t piece_rows(const struct cpu *self, uint64_t rows)
{
    uint64_t pieces = (uint64_t)llm_pool_threads(self->pool) * PIECES_PER_THREAD;
    uint64_t each = rows / pieces / 16 * 16;
    return each < PIECE_ROWS_MIN   ? PIECE_ROWS_MIN
           : each > PIECE_ROWS_MAX ? PIECE_ROWS_MAX
                                   : (uint32_t)each;
}

/* Cuts the parts into pieces and finds memory for the threads.  false without. */
static bool cut(struct cpu *self, struct mul_job *job, uint32_t width)
{
    uint64_t rows = 0;
    for (uint32_t p = 0; p < job->part_count; p++)
        rows += job->parts[p].mul.rows;
    job->kernels = self->kernels;
    job->piece_rows = piece_rows(self, rows);
    job->pieces = 0;
    for (uint32_t p = 0; p < job->part_count; p++) {
        assert(job->parts[p].mul.width == width);
        job->parts[p].first_piece = job->pieces;
        job->pieces += (job->parts[p].mul.rows + job->piece_rows - 1) / job->piece_rows;
    }
    job->panel_bytes = (llm_panel_bytes(width) + HW_CACHE_LINE - 1) / HW_CACHE_LINE * HW_CACHE_LINE;
    job->panels = area(self, AREA_PANELS, job->panel_bytes * llm_pool_threads(self->pool));
    return job->panels != NULL;
}

/* ---- matmul with experts ----
 *
 * Rows are sorted by expert, so that those of one expert share its weights.  A bunch has the rows
 * of one expert; it begins at a whole group of activations. */

struct bunch {
    uint32_t expert, count;
    uint32_t first_group;
};

struct expert_job {
    const struct llm_kernels *kernels;
    const struct llm_op_matmul *op;
    uint32_t width;
    struct mul_part *parts;
    struct bunch *bunches;
    uint32_t *places; /* of each row among the sorted */
    uint32_t *group_bunch;
    uint32_t bunch_count, groups;
    float *inputs, *results;
    size_t results_at[LLM_MATMUL_PARTS_MAX]; /* of each part */
    uint8_t *acts;
    enum llm_act act;
    uint64_t group_bytes;
};

static uint32_t part_rows(const struct llm_op_matmul *op, uint32_t p)
{
    return op->parts[p].weight->count / op->experts.count;
}

/* Finds the bunches and the rows' places.  false without memory. */
static bool sort_rows(struct cpu *self, struct expert_job *job)
{
    const struct llm_op_matmul *op = job->op;
    const uint32_t *chosen = llm_ram_words(op->experts.chosen);
    uint32_t experts = op->experts.count;
    uint64_t most = op->rows < experts ? op->rows : experts; /* bunches, and groups not full */
    uint64_t groups_most = op->rows / LLM_GROUP + most;
    uint64_t bytes = most * op->part_count * sizeof *job->parts + most * sizeof *job->bunches +
                     (op->rows + groups_most + 2 * (uint64_t)experts) * sizeof(uint32_t);
    uint8_t *memory = area(self, AREA_PLAN, bytes);
    if (!memory)
        return false;
    job->parts = (struct mul_part *)(void *)memory;
    job->bunches = (struct bunch *)(void *)(job->parts + most * op->part_count);
    job->places = (uint32_t *)(void *)(job->bunches + most);
    job->group_bunch = job->places + op->rows;
    uint32_t *counts = job->group_bunch + groups_most, *next = counts + experts;
    memset(counts, 0, experts * sizeof *counts);
    for (uint32_t r = 0; r < op->rows; r++) {
        assert(chosen[r] < experts);
        counts[chosen[r]]++;
    }
    for (uint32_t e = 0; e < experts; e++) {
        uint32_t groups = (counts[e] + LLM_GROUP - 1) / LLM_GROUP;
        next[e] = job->groups * LLM_GROUP;
        for (uint32_t i = 0; i < groups; i++)
            job->group_bunch[job->groups + i] = job->bunch_count;
        if (counts[e])
            job->bunches[job->bunch_count++] =
                (struct bunch){.expert = e, .count = counts[e], .first_group = job->groups};
        job->groups += groups;
    }
    for (uint32_t r = 0; r < op->rows; r++)
        job->places[r] = next[chosen[r]]++;
    return true;
}

static void gather_row(void *user, uint32_t row, unsigned thread)
{
    (void)thread;
    const struct expert_job *job = user;
    const float *in = llm_ram_floats(job->op->in);
    memcpy(job->inputs + (size_t)job->places[row] * job->width,
           in + (size_t)(row / job->op->experts.share) * job->width,
           job->width * sizeof *job->inputs);
}

static void scatter_row(void *user, uint32_t row, unsigned thread)
{
    (void)thread;
    const struct expert_job *job = user;
    for (uint32_t p = 0; p < job->op->part_count; p++) {
        uint32_t count = part_rows(job->op, p);
        memcpy(llm_ram_floats(job->op->parts[p].out) + (size_t)row * count,
               job->results + job->results_at[p] + (size_t)job->places[row] * count,
               count * sizeof(float));
    }
}

static void prepare_expert_group(void *user, uint32_t group, unsigned thread)
{
    (void)thread;
    const struct expert_job *job = user;
    const struct bunch *bunch = &job->bunches[job->group_bunch[group]];
    uint32_t rest = bunch->count - (group - bunch->first_group) * LLM_GROUP;
    job->kernels->prepare(job->act, job->acts + group * job->group_bytes,
                          job->inputs + (size_t)group * LLM_GROUP * job->width, job->width,
                          rest < LLM_GROUP ? rest : LLM_GROUP, bunch->count);
}

/* The sorted activations in the form that weights of a part need; NULL without memory. */
static const uint8_t *prepare_expert_acts(struct cpu *self, struct expert_job *job, uint32_t p)
{
    job->act = llm_act_of(job->op->parts[p].weight->dtype);
    job->group_bytes = LLM_GROUP * llm_act_bytes(job->act, job->width);
    if (job->act == LLM_ACT_F32)
        return (const uint8_t *)(const void *)job->inputs;
    job->acts = area(self, AREA_ACTS + (int)job->act, job->groups * job->group_bytes);
    if (job->acts)
        llm_pool_run(self->pool, job->groups, prepare_expert_group, job);
    return job->acts;
}

static struct llm_mul describe_bunch(const struct expert_job *job, const struct bunch *bunch,
                                     uint32_t p, const uint8_t *acts)
{
    const struct llm_op_matmul *op = job->op;
    const struct llm_weight *w = op->parts[p].weight;
    const float *bias = llm_ram_maybe(op->parts[p].bias);
    uint32_t count = part_rows(op, p), first = bunch->expert * count;
    size_t first_row = (size_t)bunch->first_group * LLM_GROUP;
    assert(!op->parts[p].accumulate);
    return (struct llm_mul){.dtype = w->dtype,
                            .weight = llm_ram_row(w, first),
                            .row_bytes = w->row_bytes,
                            .rows = count,
                            .width = w->width,
                            .acts = acts + bunch->first_group * job->group_bytes,
                            .group_bytes = job->group_bytes,
                            .count = bunch->count,
                            .out = job->results + job->results_at[p] + first_row * count,
                            .out_width = count,
                            .bias = bias ? bias + first : NULL};
}

static void multiply_experts(struct cpu *self, const struct llm_op_matmul *op)
{
    struct expert_job job = {
        .kernels = self->kernels, .op = op, .width = op->parts[0].weight->width};
    if (!sort_rows(self, &job))
        return;
    size_t rows = (size_t)job.groups * LLM_GROUP, results = 0;
    for (uint32_t p = 0; p < op->part_count; p++) {
        job.results_at[p] = results;
        results += rows * part_rows(op, p);
    }
    job.inputs = area(self, AREA_INPUTS, rows * job.width * sizeof(float));
    job.results = area(self, AREA_RESULTS, results * sizeof(float));
    if (!job.inputs || !job.results)
        return;
    llm_pool_run(self->pool, op->rows, gather_row, &job);
    struct mul_job mul = {.parts = job.parts};
    for (uint32_t p = 0; p < op->part_count; p++) {
        const uint8_t *acts = prepare_expert_acts(self, &job, p);
        for (uint32_t i = 0; i < job.bunch_count && acts; i++)
            job.parts[mul.part_count++].mul = describe_bunch(&job, &job.bunches[i], p, acts);
    }
    if (mul.part_count < job.bunch_count * op->part_count || !cut(self, &mul, job.width))
        return;
    llm_pool_run(self->pool, mul.pieces, mul_piece, &mul);
    llm_pool_run(self->pool, op->rows, scatter_row, &job);
}

static void cpu_matmul(struct llm_backend *b, const struct llm_op_matmul *op)
{
    struct cpu *self = self_of(b);
    struct mul_part parts[LLM_MATMUL_PARTS_MAX];
    struct mul_job job = {.parts = parts, .part_count = op->part_count};
    assert(op->part_count >= 1 && op->part_count <= LLM_MATMUL_PARTS_MAX);
    if (op->experts.chosen.buffer) {
        multiply_experts(self, op);
        return;
    }
    for (uint32_t p = 0; p < op->part_count; p++)
        describe_part(&parts[p], op, p);
    if (cut(self, &job, parts[0].mul.width) && prepare_all(self, op, &job))
        llm_pool_run(self->pool, job.pieces, mul_piece, &job);
}

/* ---- attention ----
 *
 * Rows of one sequence, such as those of a prompt, see nearly the same keys and values: a block of
 * them shares each that is read. */

struct attend_job {
    const struct llm_kernels *kernels;
    const struct llm_batch *batch;
    const struct llm_op_attend *op;
    uint32_t *blocks; /* first rows, and the end of the last */
    uint32_t block_count;
    float *scratch;
    uint64_t scratch_each; /* thread: a head's panel, queries, then scores */
    uint64_t query_floats;
};

static uint64_t panel_floats(const struct llm_op_attend *op)
{
    return llm_panel_bytes(op->head_dim) / sizeof(float);
}

static uint32_t block_rows_max(const struct attend_job *job)
{
    uint32_t rows = job->kernels->queries / (job->op->heads / job->op->kv_heads);
    return rows ? rows : 1;
}

/* Whether a row is the next one of its sequence, and sees from the same position on. */
static bool follows(const struct attend_job *job, uint32_t row)
{
    const struct llm_batch *batch = job->batch;
    uint32_t position = batch->positions[row];
    return batch->seqs[row] == batch->seqs[row - 1] && position == batch->positions[row - 1] + 1 &&
           llm_ram_first(job->op, position) == llm_ram_first(job->op, position - 1);
}

static void find_blocks(struct attend_job *job)
{
    uint32_t most = block_rows_max(job), rows = 0;
    for (uint32_t row = 0; row < job->batch->rows; row++, rows++) {
        if (row == 0 || rows == most || !follows(job, row)) {
            job->blocks[job->block_count++] = row;
            rows = 0;
        }
    }
    job->blocks[job->block_count] = job->batch->rows;
}

/* A block of rows of one KV head. */
static void attend_piece(void *user, uint32_t piece, unsigned thread)
{
    const struct attend_job *job = user;
    const struct llm_op_attend *op = job->op;
    uint32_t block = piece / op->kv_heads, kv_head = piece % op->kv_heads;
    uint32_t row = job->blocks[block], group = op->heads / op->kv_heads;
    size_t at = ((size_t)row * op->heads + (size_t)kv_head * group) * op->head_dim;
    size_t in_row = (size_t)kv_head * op->head_dim * sizeof(uint16_t);
    uint32_t position = job->batch->positions[row], seen = llm_ram_first(op, position);
    const float *sinks = llm_ram_maybe(op->sinks);
    float *scratch = job->scratch + thread * job->scratch_each;
    struct llm_attention a = {.k = llm_ram_kv(op->kv, 0, 0, 0) + in_row,
                              .v = llm_ram_kv(op->kv, 1, 0, 0) + in_row,
                              .page_stride = llm_ram_kv_page_stride(op->kv),
                              .row_stride = (uint64_t)llm_ram_kv_values(op->kv) * sizeof(uint16_t),
                              .pages = llm_ram_pages(job->batch, op->layer, row),
                              .first = seen,
                              .positions = position + 1 - seen,
                              .rows = job->blocks[block + 1] - row,
                              .q = llm_ram_floats(op->q) + at,
                              .out = llm_ram_floats(op->out) + at,
                              .q_width = op->heads * op->head_dim,
                              .group = group,
                              .head_dim = op->head_dim,
                              .scale = op->scale,
                              .cap = op->cap,
                              .sinks = sinks ? sinks + (size_t)kv_head * group : NULL,
                              .panel = scratch,
                              .queries = scratch + panel_floats(op),
                              .scores = scratch + panel_floats(op) + job->query_floats};
    job->kernels->attend(&a);
}

static void cpu_attend(struct llm_backend *b, const struct llm_op_attend *op)
{
    struct cpu *self = self_of(b);
    const struct llm_batch *batch = batch_of(b);
    uint32_t most = 0;
    for (uint32_t r = 0; r < batch->rows; r++)
        most = batch->positions[r] > most ? batch->positions[r] : most;
    struct attend_job job = {.kernels = self->kernels, .batch = batch, .op = op};
    uint32_t queries = block_rows_max(&job) * (op->heads / op->kv_heads);
    job.query_floats = (uint64_t)queries * op->head_dim;
    uint64_t floats = panel_floats(op) + job.query_floats + ((uint64_t)most + 1) * queries;
    job.scratch_each = (floats + HW_CACHE_LINE) / 16 * 16;
    uint64_t bytes = job.scratch_each * sizeof(float) * llm_pool_threads(self->pool);
    job.scratch = area(self, AREA_SCORES, bytes);
    job.blocks = area(self, AREA_PLAN, (batch->rows + (uint64_t)1) * sizeof *job.blocks);
    if (!job.scratch || !job.blocks)
        return;
    find_blocks(&job);
    llm_pool_run(self->pool, job.block_count * op->kv_heads, attend_piece, &job);
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
    const float *gate_by =
        llm_activation_is_gated(job->op->kind) ? llm_ram_floats(job->op->gate_by) : NULL;
    job->kernels->activate(job->op->kind, x, gate_by ? gate_by + first : NULL, count);
}

static void cpu_activate(struct llm_backend *b, const struct llm_op_activate *op)
{
    struct activate_job job = {
        .kernels = self_of(b)->kernels, .op = op, .count = (uint64_t)op->rows * op->width};
    uint64_t pieces = (job.count + PIECE_VALUES - 1) / PIECE_VALUES;
    llm_pool_run(self_of(b)->pool, (uint32_t)pieces, activate_piece, &job);
}

const struct llm_backend_ops llm_backend_cpu = {
    .name = "cpu",
    .exact = true,
    .open = cpu_open,
    .close = cpu_close,
    LLM_RAM_CALLS,
    .embed = cpu_embed,
    .pick = cpu_pick,
    .norm = cpu_norm,
    .matmul = cpu_matmul,
    .rope = cpu_rope,
    .append = cpu_append,
    .attend = cpu_attend,
    .activate = cpu_activate,
    .route = cpu_route,
    .add = cpu_add,
    .scale = cpu_scale,
};
