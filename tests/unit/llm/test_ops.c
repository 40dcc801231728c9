/* Every op on every backend that opens, against the reference: all types, odd shapes.  Backends in
 * main memory give the same bits; the others are held to the tolerance in the table below. */
#include "unit.h"

#include "base/rng.h"
#include "device.h"
#include "few_shaders.h"
#include "llm/cpu/kernels.h"
#include "llm/engine/arith.h"
#include "llm/engine/backend.h"
#include "llm/engine/quantise.h"
#include "llm/engine/rope.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Differences are measured against the largest magnitude of the reference's output. */
struct subject {
    const struct llm_backend_ops *ops;
    const char *kernels; /* cpu: the set, which may not run here; else NULL */
    unsigned threads;
    double tolerance; /* 0: the same bits */
    enum llm_math math;
};

static const struct subject subjects[] = {
    {&llm_backend_reference, NULL, 1, 0}, {&llm_backend_cpu, "c", 2, 0},
    {&llm_backend_cpu, "neon", 1, 0},     {&llm_backend_cpu, "neon", 3, 0},
    {&llm_backend_cpu, "i8mm", 1, 0},     {&llm_backend_cpu, "i8mm", 3, 0},
    {&llm_backend_cpu, "avx2", 1, 0},     {&llm_backend_cpu, "avx2", 3, 0},
    {&llm_backend_cpu, "avx512", 1, 0},   {&llm_backend_cpu, "avx512", 3, 0},
    {&llm_backend_cpu, "amx", 1, 0},      {&llm_backend_cpu, "amx", 3, 0},
    {&llm_backend_vulkan, NULL, 1, 2e-5},
};

static const char *only; /* a backend's name; without one, those that need no driver */

static bool is_asked_for(const struct subject *s)
{
    return only ? strcmp(s->ops->name, only) == 0 : s->ops != &llm_backend_vulkan;
}

enum {
    ROOM = 20 << 20, /* bytes of each side's buffer */
    ROWS_MAX = 13,
    SIDES = 2, /* the reference and the subject */
    EXPERTS_USED = 3
};

struct duo {
    struct llm_backend *b[SIDES];
    struct llm_buffer *buffer[SIDES];
    uint64_t used;
    double tolerance;
    struct hw_rng rng;
};

static char why[LLM_WHY_CHARS];

static float random_float(struct hw_rng *rng)
{
    return (float)(4 * hw_rng_double(rng) - 2);
}

/* ---- two sides with the same content ---- */

static bool duo_open(struct duo *d, const struct subject *s)
{
    struct llm_backend_config config = {.threads = s->threads};
    struct llm_backend_config own = {.threads = s->threads, .math = s->math};
    *d = (struct duo){.tolerance = s->tolerance};
    hw_rng_seed(&d->rng, 7);
    if (s->kernels && llm_kernels_use(s->kernels) != 0)
        return false;
    assert_int_equal(llm_backend_reference.open(&config, &d->b[0], why), 0);
    int rc = s->ops->open(&own, &d->b[1], why);
    if (rc) { /* no device, or one without matrix units */
        assert_true(rc == -ENODEV || rc == -EOPNOTSUPP);
        print_message("%s does not open: %s\n", s->ops->name, why);
        d->b[0]->ops->close(d->b[0]);
        return false;
    }
    for (int i = 0; i < SIDES; i++)
        assert_int_equal(d->b[i]->ops->buffer_create(d->b[i], ROOM, &d->buffer[i], why), 0);
    return true;
}

static void duo_close(struct duo *d)
{
    for (int i = 0; i < SIDES; i++) {
        d->b[i]->ops->buffer_destroy(d->b[i], d->buffer[i]);
        d->b[i]->ops->close(d->b[i]);
    }
}

static struct llm_place at(const struct duo *d, int side, uint64_t offset)
{
    return (struct llm_place){.buffer = d->buffer[side], .offset = offset};
}

/* Random floats at the same offset on both sides. */
static uint64_t put_random(struct duo *d, size_t count)
{
    float *values = malloc((count + 1) * sizeof *values);
    uint64_t offset = d->used, bytes = count * sizeof *values;
    for (size_t i = 0; i < count; i++)
        values[i] = random_float(&d->rng);
    d->used += (bytes + LLM_PLACE_ALIGN - 1) / LLM_PLACE_ALIGN * LLM_PLACE_ALIGN;
    assert_true(d->used <= ROOM);
    for (int i = 0; i < SIDES; i++)
        assert_int_equal(d->b[i]->ops->upload(d->b[i], at(d, i, offset), values, bytes, why), 0);
    free(values);
    return offset;
}

static void same_floats(const struct duo *d, const float *want, const float *got, size_t count,
                        const char *what)
{
    double largest = 0;
    if (d->tolerance == 0) {
        for (size_t i = 0; i < count; i++) {
            if (memcmp(want + i, got + i, sizeof *want) != 0)
                fail_msg("%s: value %zu is %.9g, not %.9g", what, i, (double)got[i],
                         (double)want[i]);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        double size = fabs((double)want[i]);
        largest = size > largest ? size : largest; /* fmax here makes gcc 12 stumble at -O3 */
    }
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)want[i] - (double)got[i]) <= d->tolerance * largest))
            fail_msg("%s: value %zu is %.9g, not about %.9g", what, i, (double)got[i],
                     (double)want[i]);
    }
}

static void same_place(struct duo *d, uint64_t offset, size_t count, const char *what)
{
    float *values[SIDES];
    for (int i = 0; i < SIDES; i++) {
        values[i] = malloc(count * sizeof(float));
        assert_int_equal(d->b[i]->ops->download(d->b[i], at(d, i, offset), values[i],
                                                count * sizeof(float), why),
                         0);
    }
    same_floats(d, values[0], values[1], count, what);
    free(values[0]);
    free(values[1]);
}

/* ---- tensors ---- */

static struct llm_tensor make_tensor(struct hw_rng *rng, enum llm_dtype dtype, uint64_t width,
                                     uint64_t rows)
{
    struct llm_tensor t = {.name = "test", .dtype = dtype, .dim_count = 2, .dims = {width, rows}};
    float *values = malloc(width * rows * sizeof *values);
    for (uint64_t i = 0; i < width * rows; i++)
        values[i] = random_float(rng);
    t.bytes = llm_dtype_bytes(dtype, width * rows);
    void *data = malloc(t.bytes);
    llm_dtype_from_f32(dtype, data, values, width * rows);
    t.data = data;
    free(values);
    return t;
}

static void bind(struct duo *d, const struct llm_tensor *t, uint64_t first, uint64_t rows,
                 struct llm_weight *w[SIDES])
{
    for (int i = 0; i < SIDES; i++)
        assert_int_equal(d->b[i]->ops->weight_create(d->b[i], t, first, rows, &w[i], why), 0);
}

static void unbind(struct duo *d, struct llm_weight *w[SIDES])
{
    for (int i = 0; i < SIDES; i++)
        d->b[i]->ops->weight_destroy(d->b[i], w[i]);
}

/* ---- a batch of rows that nothing else is asked of ---- */

static uint32_t zeros[512];

static struct llm_batch plain_batch(uint32_t rows)
{
    return (struct llm_batch){.rows = rows,
                              .tokens = zeros,
                              .positions = zeros,
                              .seqs = zeros,
                              .seq_count = 1,
                              .page_first = zeros,
                              .pages = zeros,
                              .row_copies = EXPERTS_USED};
}

static void begin(struct duo *d, int side, const struct llm_batch *batch)
{
    assert_int_equal(d->b[side]->ops->begin(d->b[side], batch, why), 0);
}

static void finish(struct duo *d, int side)
{
    uint64_t kernel_ns;
    assert_int_equal(d->b[side]->ops->finish(d->b[side], &kernel_ns, why), 0);
}

typedef void on_duo(struct duo *d);

static void on_every_backend(on_duo *body)
{
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++) {
        struct duo d;
        if (!is_asked_for(&subjects[i]) || !duo_open(&d, &subjects[i]))
            continue;
        body(&d);
        duo_close(&d);
    }
    assert_int_equal(llm_kernels_use(llm_kernels_get(0)->name), 0);
}

/* ---- embed and pick ---- */

static void embed_one(struct duo *d, enum llm_dtype dtype, bool positions)
{
    static const uint32_t tokens[] = {3, 0, 10, 3, 7}, places[] = {0, 5, 1, 2, 4};
    uint32_t width = 256, rows = 5;
    struct llm_tensor table = make_tensor(&d->rng, dtype, width, 11);
    struct llm_tensor learned = make_tensor(&d->rng, dtype, width, 6);
    struct llm_weight *w[SIDES], *p[SIDES];
    bind(d, &table, 0, 11, w);
    bind(d, &learned, 0, 6, p);
    uint64_t out = put_random(d, (size_t)rows * width);
    struct llm_batch batch = plain_batch(rows);
    batch.tokens = tokens;
    batch.positions = places;
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_embed op = {.table = w[i],
                                  .position_table = positions ? p[i] : NULL,
                                  .out = at(d, i, out),
                                  .width = width,
                                  .scale = positions ? 1 : 16};
        d->b[i]->ops->embed(d->b[i], &op);
        finish(d, i);
    }
    same_place(d, out, (size_t)rows * width, llm_dtype_name(dtype));
    unbind(d, w);
    unbind(d, p);
    free((void *)(uintptr_t)table.data);
    free((void *)(uintptr_t)learned.data);
}

static void embed_all(struct duo *d)
{
    for (size_t t = 0; t < LLM_DTYPES; t++) {
        embed_one(d, llm_dtype_at(t), false);
        embed_one(d, llm_dtype_at(t), true);
    }
}

static void embeds_rows_of_every_type(void **state)
{
    (void)state;
    on_every_backend(embed_all);
}

static void pick_some(struct duo *d)
{
    static const uint32_t picks[] = {1, 4, 12};
    uint32_t width = 37;
    uint64_t in = put_random(d, (size_t)ROWS_MAX * width);
    uint64_t out = put_random(d, (size_t)ROWS_MAX * width);
    struct llm_batch batch = plain_batch(ROWS_MAX);
    batch.picks = picks;
    batch.pick_count = 3;
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_pick op = {.in = at(d, i, in), .out = at(d, i, out), .width = width};
        d->b[i]->ops->pick(d->b[i], &op);
        finish(d, i);
    }
    same_place(d, out, (size_t)ROWS_MAX * width, "pick");
}

static void picks_the_rows_that_are_wanted(void **state)
{
    (void)state;
    on_every_backend(pick_some);
}

/* ---- norm ---- */

static void norm_one(struct duo *d, uint32_t rows, uint32_t width, bool is_rms, bool bias)
{
    uint64_t in = put_random(d, (size_t)rows * width), out = put_random(d, (size_t)rows * width);
    uint64_t weight = put_random(d, width), offset = put_random(d, width);
    struct llm_batch batch = plain_batch(rows);
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_norm op = {.in = at(d, i, in),
                                 .out = at(d, i, out),
                                 .weight = at(d, i, weight),
                                 .rows = rows,
                                 .width = width,
                                 .eps = 1e-5f,
                                 .is_rms = is_rms};
        if (bias)
            op.bias = at(d, i, offset);
        d->b[i]->ops->norm(d->b[i], &op);
        finish(d, i);
    }
    same_place(d, out, (size_t)rows * width, is_rms ? "rms norm" : "layer norm");
}

static void norm_all(struct duo *d)
{
    static const uint32_t widths[] = {1, 7, 8, 64, 100, 769};
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        norm_one(d, 1 + (uint32_t)w, widths[w], true, false);
        norm_one(d, 1 + (uint32_t)w, widths[w], false, true);
    }
}

static void norms_rows_of_any_width(void **state)
{
    (void)state;
    on_every_backend(norm_all);
}

/* ---- matmul ---- */

struct shape {
    uint32_t rows, width, outputs;
};

static void matmul_parts(struct duo *d, struct shape s, const enum llm_dtype types[],
                         uint32_t parts)
{
    struct llm_tensor tensors[LLM_MATMUL_PARTS_MAX];
    struct llm_weight *w[LLM_MATMUL_PARTS_MAX][SIDES];
    uint64_t out[LLM_MATMUL_PARTS_MAX], bias = put_random(d, s.outputs + parts);
    uint64_t in = put_random(d, (size_t)s.rows * s.width);
    for (uint32_t p = 0; p < parts; p++) {
        tensors[p] = make_tensor(&d->rng, types[p], s.width, s.outputs + p + 2);
        bind(d, &tensors[p], 1, s.outputs + p, w[p]); /* neither the first row nor the last */
        out[p] = put_random(d, (size_t)s.rows * (s.outputs + p));
    }
    struct llm_batch batch = plain_batch(s.rows);
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_matmul op = {.in = at(d, i, in), .rows = s.rows, .part_count = parts};
        for (uint32_t p = 0; p < parts; p++) {
            op.parts[p] = (struct llm_matmul_part){
                .weight = w[p][i], .out = at(d, i, out[p]), .accumulate = p == 1};
            if (p != 2)
                op.parts[p].bias = at(d, i, bias);
        }
        d->b[i]->ops->matmul(d->b[i], &op);
        finish(d, i);
    }
    for (uint32_t p = 0; p < parts; p++) {
        char what[96];
        snprintf(what, sizeof what, "%s, %u rows of %u by %u (value = %u row + column), part %u",
                 llm_dtype_name(types[p]), s.rows, s.width, s.outputs + p, s.outputs + p, p);
        same_place(d, out[p], (size_t)s.rows * (s.outputs + p), what);
        unbind(d, w[p]);
        free((void *)(uintptr_t)tensors[p].data);
    }
    d->used = 0;
}

static void matmul_types(struct duo *d)
{
    static const struct shape shapes[] = {{1, 1, 1}, {1, 2, 37}, {2, 3, 5},  {3, 2, 33},
                                          {4, 1, 6}, {5, 1, 70}, {6, 3, 11}, {7, 2, 18},
                                          {8, 2, 4}, {9, 1, 16}, {13, 3, 35}};
    for (size_t t = 0; t < LLM_DTYPES; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            struct shape s = shapes[i];
            uint32_t block = llm_dtype_block(llm_dtype_at(t));
            if (s.rows < 5 && !has_every_shape(llm_dtype_at(t)))
                continue;
            s.width = block > 1 ? s.width * block : 37 * s.width - 30; /* 7, 44, 81 */
            enum llm_dtype types[] = {llm_dtype_at(t), llm_dtype_at(t), llm_dtype_at(t)};
            matmul_parts(d, s, types, 3);
        }
    }
}

static void multiplies_weights_of_every_type(void **state)
{
    (void)state;
    on_every_backend(matmul_types);
}

/* More activations than a cache holds: sets take them in parts. */
static void matmul_wide(struct duo *d)
{
    static const enum llm_dtype types[] = {LLM_F16, LLM_Q8_0, LLM_Q4_K};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        matmul_parts(d, (struct shape){37, 16384, 9}, types + t, 1);
}

static void multiplies_more_than_a_cache_holds(void **state)
{
    (void)state;
    on_every_backend(matmul_wide);
}

/* ---- matmul on matrix units ---- */

/* Halves of weights and activations; the reference rounds activations of quantised types to 8 bits
 * instead. */
static bool open_tiles(struct duo *d)
{
    static const struct subject tiles = {&llm_backend_vulkan, NULL, 1, 0, LLM_MATH_FAST};
    return is_asked_for(&tiles) && duo_open(d, &tiles);
}

static bool has_tiles(enum llm_dtype dtype)
{
    return dtype == LLM_F16 || llm_act_of(dtype) == LLM_ACT_Q32 ||
           llm_act_of(dtype) == LLM_ACT_Q256;
}

static void tiles_are_near_the_reference(void **state)
{
    static const struct shape shapes[] = {{64, 1, 15},  {64, 2, 300},  {65, 1, 256},
                                          {80, 2, 128}, {128, 3, 130}, {150, 3, 257}};
    struct duo d;
    (void)state;
    if (!open_tiles(&d))
        skip();
    for (size_t t = 0; t < LLM_DTYPES; t++) {
        enum llm_dtype type = llm_dtype_at(t), types[] = {type, type, type};
        d.tolerance = type == LLM_F16 ? 2e-3 : 2e-2;
        for (size_t i = 0; has_tiles(type) && i < sizeof shapes / sizeof shapes[0]; i++) {
            struct shape s = shapes[i];
            s.width *= 256;
            matmul_parts(&d, s, types, 3);
        }
    }
    duo_close(&d);
}

/* The first `rows` rows of one product, computed in a batch of so many. */
static float *in_batch(struct duo *d, struct llm_weight *w, uint64_t in, uint64_t out,
                       uint32_t outputs, uint32_t rows, uint32_t batch_rows)
{
    struct llm_batch batch = plain_batch(batch_rows);
    struct llm_op_matmul op = {.in = at(d, 1, in),
                               .rows = batch_rows,
                               .part_count = 1,
                               .parts = {{.weight = w, .out = at(d, 1, out)}}};
    float *values = malloc((size_t)rows * outputs * sizeof *values);
    begin(d, 1, &batch);
    d->b[1]->ops->matmul(d->b[1], &op);
    finish(d, 1);
    assert_int_equal(d->b[1]->ops->download(d->b[1], op.parts[0].out, values,
                                            (uint64_t)rows * outputs * sizeof *values, why),
                     0);
    return values;
}

/* Batches of F16 weights have tiles from 16 rows on, others from 64.  The shapes of tiles depend on
 * rows and outputs. */
static void same_in_batches(struct duo *d, enum llm_dtype type, uint32_t outputs)
{
    static const uint32_t batches[] = {512, 200, 128, 65, 64, 48, 33, 32, 17, 16};
    enum { ROWS = 9, WIDTH = 512 };
    struct llm_tensor tensor = make_tensor(&d->rng, type, WIDTH, outputs);
    struct llm_weight *w[SIDES];
    bind(d, &tensor, 0, outputs, w);
    uint64_t in = put_random(d, (size_t)512 * WIDTH);
    uint64_t out = put_random(d, (size_t)batches[0] * outputs);
    float *want = in_batch(d, w[1], in, out, outputs, ROWS, batches[0]);
    for (size_t i = 1; i < sizeof batches / sizeof batches[0]; i++) {
        if (type != LLM_F16 && batches[i] < 64)
            break;
        float *got = in_batch(d, w[1], in, out, outputs, ROWS, batches[i]);
        if (memcmp(want, got, (size_t)ROWS * outputs * sizeof *got) != 0)
            fail_msg("%s: rows differ in batches of %u and %u", llm_dtype_name(type), batches[0],
                     batches[i]);
        free(got);
    }
    free(want);
    unbind(d, w);
    free((void *)(uintptr_t)tensor.data);
    d->used = 0;
}

static void tiles_of_any_batch_have_the_same_bits(void **state)
{
    struct duo d;
    (void)state;
    if (!open_tiles(&d))
        skip();
    for (size_t t = 0; t < LLM_DTYPES; t++) {
        if (has_tiles(llm_dtype_at(t)))
            same_in_batches(&d, llm_dtype_at(t), 200);
    }
    same_in_batches(&d, LLM_F16, 8256);
    same_in_batches(&d, LLM_Q4_K, 8256);
    duo_close(&d);
}

/* Row i of the weights has 1 at place i and 0 elsewhere: a product shows how one activation was
 * rounded. */
static struct llm_tensor make_unit(enum llm_dtype dtype, uint32_t width)
{
    struct llm_tensor t = {.name = "unit", .dtype = dtype, .dim_count = 2, .dims = {width, width}};
    float *values = calloc((size_t)width * width, sizeof *values);
    for (uint32_t i = 0; i < width; i++)
        values[(size_t)i * width + i] = 1;
    t.bytes = llm_dtype_bytes(dtype, (uint64_t)width * width);
    void *data = malloc(t.bytes);
    llm_dtype_from_f32(dtype, data, values, (size_t)width * width);
    t.data = data;
    free(values);
    return t;
}

/* Most values lie as near to the middle between two steps as a float can: a scale that is off by
 * its last bit rounds them to the other side. */
static void put_middles(struct duo *d, uint64_t in, uint32_t rows, uint32_t width, uint32_t block)
{
    float *x = malloc((size_t)rows * width * sizeof *x), most = 1;
    for (uint32_t i = 0; i < rows * width; i++) {
        if (i % block == 0)
            most = 0.01f + fabsf(random_float(&d->rng));
        float step = (float)hw_rng_below(&d->rng, 253) - 126.5f;
        x[i] = i % block == 0 ? most : most / 127 * step;
    }
    for (int i = 0; i < SIDES; i++)
        assert_int_equal(
            d->b[i]->ops->upload(d->b[i], at(d, i, in), x, (uint64_t)rows * width * sizeof *x, why),
            0);
    free(x);
}

static void same_roundings(struct duo *d, uint64_t in, uint64_t out, uint32_t rows, uint32_t width,
                           const char *what)
{
    size_t count = (size_t)rows * width, wrong = 0;
    float *x = malloc(count * sizeof *x), *y[SIDES];
    assert_int_equal(d->b[0]->ops->download(d->b[0], at(d, 0, in), x, count * sizeof *x, why), 0);
    for (int i = 0; i < SIDES; i++) {
        y[i] = malloc(count * sizeof(float));
        assert_int_equal(
            d->b[i]->ops->download(d->b[i], at(d, i, out), y[i], count * sizeof(float), why), 0);
    }
    for (size_t i = 0; i < count; i++) {
        if (fabsf(y[0][i] - y[1][i]) <= 1e-5f * fabsf(y[0][i]))
            continue;
        if (wrong++ < 4)
            print_message("%s: row %zu, activation %zu: %.9g becomes %.9g, in the reference %.9g\n",
                          what, i / width, i % width, (double)x[i], (double)y[1][i],
                          (double)y[0][i]);
    }
    if (wrong)
        fail_msg("%s: %zu of %zu activations are rounded to another step", what, wrong, count);
    free(x);
    free(y[0]);
    free(y[1]);
}

static void round_all(struct duo *d)
{
    static const enum llm_dtype types[] = {LLM_Q8_0, LLM_Q6_K}; /* blocks of 32 and of 256 */
    enum { ROWS = 13, WIDTH = 512 };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        struct llm_tensor unit = make_unit(types[t], WIDTH);
        struct llm_weight *w[SIDES];
        bind(d, &unit, 0, WIDTH, w);
        uint64_t in = put_random(d, ROWS * WIDTH), out = put_random(d, ROWS * WIDTH);
        put_middles(d, in, ROWS, WIDTH, types[t] == LLM_Q8_0 ? 32 : 256);
        struct llm_batch batch = plain_batch(ROWS);
        for (int i = 0; i < SIDES; i++) {
            begin(d, i, &batch);
            struct llm_op_matmul op = {.in = at(d, i, in),
                                       .rows = ROWS,
                                       .part_count = 1,
                                       .parts = {{.weight = w[i], .out = at(d, i, out)}}};
            d->b[i]->ops->matmul(d->b[i], &op);
            finish(d, i);
        }
        same_roundings(d, in, out, ROWS, WIDTH, llm_dtype_name(types[t]));
        unbind(d, w);
        free((void *)(uintptr_t)unit.data);
    }
}

static void rounds_activations_to_the_same_step(void **state)
{
    (void)state;
    on_every_backend(round_all);
}

static void matmul_mixed(struct duo *d)
{
    static const enum llm_dtype types[] = {LLM_Q4_K, LLM_F16, LLM_Q8_0};
    matmul_parts(d, (struct shape){6, 512, 40}, types, 3);
    matmul_parts(d, (struct shape){1, 256, 17}, types, 2);
}

static void parts_of_one_product_may_have_different_types(void **state)
{
    (void)state;
    on_every_backend(matmul_mixed);
}

/* The reference itself, against the values that the formats define: weights are decoded exactly,
 * activations are within half a step of their block's scale. */
static void the_reference_follows_the_formats(void **state)
{
    (void)state;
    enum { WIDTH = 512 };
    struct hw_rng rng;
    hw_rng_seed(&rng, 11);
    for (size_t t = 0; t < LLM_DTYPES; t++) {
        struct llm_tensor tensor = make_tensor(&rng, llm_dtype_at(t), WIDTH, 1);
        float w[WIDTH], x[WIDTH];
        struct llm_q256 acts[WIDTH / 32]; /* room for either kind */
        llm_dtype_to_f32(llm_dtype_at(t), w, tensor.data, WIDTH);
        double want = 0, slack = 1e-4;
        for (int i = 0; i < WIDTH; i++) {
            x[i] = random_float(&rng);
            want += (double)w[i] * (double)x[i];
            slack += fabs((double)w[i]) * (2.0 / 127 / 2 + 1e-6);
        }
        enum llm_act act = llm_act_of(llm_dtype_at(t));
        if (act == LLM_ACT_F16)
            llm_round_f16((float *)(void *)acts, x, WIDTH);
        else if (act == LLM_ACT_Q32)
            llm_quantise32((struct llm_q32 *)(void *)acts, x, WIDTH);
        else if (act == LLM_ACT_Q256)
            llm_quantise256(acts, x, WIDTH);
        const void *in = act == LLM_ACT_F32 ? (const void *)x : acts;
        double got = (double)llm_dot(llm_dtype_at(t), tensor.data, in, WIDTH);
        double limit = act == LLM_ACT_F32 ? 1e-3 : act == LLM_ACT_F16 ? 0.05 : slack / 8;
        assert_true(fabs(got - want) < limit);
        free((void *)(uintptr_t)tensor.data);
    }
}

/* The high bytes of the binary16 scales of a block; MXFP4 has an exponent instead. */
static void make_scales_ones(enum llm_dtype dtype, uint8_t *block)
{
    static const struct {
        enum llm_dtype dtype;
        int at[2];
    } places[] = {
        {LLM_Q8_0, {1, 1}},   {LLM_Q4_0, {1, 1}},   {LLM_Q4_1, {1, 3}},     {LLM_Q5_0, {1, 1}},
        {LLM_Q5_1, {1, 3}},   {LLM_IQ4_NL, {1, 1}}, {LLM_Q4_K, {1, 3}},     {LLM_Q5_K, {1, 3}},
        {LLM_IQ4_XS, {1, 1}}, {LLM_Q2_K, {81, 83}}, {LLM_Q3_K, {109, 109}}, {LLM_Q6_K, {209, 209}},
    };
    if (dtype == LLM_MXFP4) {
        block[0] = 127;
        return;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i].dtype == dtype) {
            block[places[i].at[0]] = block[places[i].at[1]] = 0x3c;
            return;
        }
    }
    fail_msg("%s has no row in the table", llm_dtype_name(dtype));
}

/* Files may hold any bytes: the extremes of every integer.  All rows of the tensor are multiplied,
 * so that nothing past its last block may be read. */
static void matmul_extremes(struct duo *d, uint32_t rows)
{
    for (size_t t = 0; t < LLM_DTYPES; t++) {
        if (llm_dtype_block(llm_dtype_at(t)) == 1)
            continue;
        struct llm_tensor tensor = make_tensor(&d->rng, llm_dtype_at(t), 256, 8);
        uint8_t *data = (uint8_t *)(uintptr_t)tensor.data;
        uint64_t row_bytes = llm_dtype_bytes(llm_dtype_at(t), 256);
        uint64_t block = llm_dtype_block_bytes(llm_dtype_at(t));
        for (uint64_t i = 0; i < tensor.bytes; i++)
            data[i] = i / row_bytes % 2 ? 0x80 : 0xff;
        for (uint64_t i = 0; i < tensor.bytes; i += block)
            make_scales_ones(llm_dtype_at(t), data + i);
        struct llm_weight *w[SIDES];
        bind(d, &tensor, 0, 8, w);
        uint64_t in = put_random(d, (size_t)rows * 256), out = put_random(d, (size_t)rows * 8);
        struct llm_batch batch = plain_batch(rows);
        for (int i = 0; i < SIDES; i++) {
            begin(d, i, &batch);
            struct llm_op_matmul op = {.in = at(d, i, in),
                                       .rows = rows,
                                       .part_count = 1,
                                       .parts = {{.weight = w[i], .out = at(d, i, out)}}};
            d->b[i]->ops->matmul(d->b[i], &op);
            finish(d, i);
        }
        same_place(d, out, (size_t)rows * 8, llm_dtype_name(llm_dtype_at(t)));
        unbind(d, w);
        free(data);
    }
}

static void matmul_all_extremes(struct duo *d)
{
    static const uint32_t rows[] = {1, 3, 5, 17};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        matmul_extremes(d, rows[i]);
}

static void extreme_weights_do_not_overflow(void **state)
{
    (void)state;
    on_every_backend(matmul_all_extremes);
}

/* ---- rope ---- */

static void rope_one(struct duo *d, uint32_t rope_dims, bool neox)
{
    static const uint32_t positions[] = {0, 1, 77, 100000};
    struct llm_config config = {.rope_dims = rope_dims,
                                .rope_base = 10000,
                                .rope_base_window = 100,
                                .rope_scale = 2,
                                .rope_scale_window = 1,
                                .rope_magnitude = 1,
                                .window = 8};
    struct llm_rope *rope;
    float angles[2 * 4 * 64], factors[32];
    uint32_t heads = 3, kv_heads = 1, dim = 24, rows = 4;
    for (uint32_t i = 0; i < 32; i++)
        factors[i] = 1 + (float)i;
    assert_int_equal(llm_rope_create(&config, factors, &rope), 0);
    assert_int_equal(llm_rope_tables(rope), 2);
    for (uint32_t r = 0; r < 2 * rows; r++)
        llm_rope_angles(rope, r / rows, positions[r % rows], angles + r * rope_dims);
    uint64_t q = put_random(d, (size_t)rows * heads * dim);
    uint64_t k = put_random(d, (size_t)rows * kv_heads * dim);
    struct llm_batch batch = plain_batch(rows);
    batch.positions = positions;
    batch.rope = angles;
    batch.rope_pairs = llm_rope_pairs(rope);
    batch.rope_tables = 2;
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_rope op = {.q = at(d, i, q),
                                 .k = at(d, i, k),
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = dim,
                                 .q_table = !neox,
                                 .k_table = 1,
                                 .neox = neox};
        d->b[i]->ops->rope(d->b[i], &op);
        finish(d, i);
    }
    same_place(d, q, (size_t)rows * heads * dim, "rope q");
    same_place(d, k, (size_t)rows * kv_heads * dim, "rope k");
    llm_rope_destroy(rope);
}

static void rope_all(struct duo *d)
{
    for (int neox = 0; neox < 2; neox++) {
        rope_one(d, 24, neox);
        rope_one(d, 10, neox); /* only the first part of a head turns */
    }
}

static void turns_pairs_of_both_kinds(void **state)
{
    (void)state;
    on_every_backend(rope_all);
}

static struct llm_config rope_config(void)
{
    return (struct llm_config){.rope_dims = 4,
                               .head_dim = 4,
                               .rope_base = 100,
                               .rope_base_window = 100,
                               .rope_scale = 1,
                               .rope_scale_window = 1,
                               .rope_magnitude = 1,
                               .rope_original = 64};
}

static void check_angles(const struct llm_config *config, const float *factors, uint32_t table,
                         uint32_t position, double first, double second, double magnitude)
{
    struct llm_rope *rope;
    float angles[4];
    assert_int_equal(llm_rope_create(config, factors, &rope), 0);
    llm_rope_angles(rope, table, position, angles);
    assert_true(fabs((double)angles[0] - magnitude * cos(first)) < 1e-6);
    assert_true(fabs((double)angles[1] - magnitude * sin(first)) < 1e-6);
    assert_true(fabs((double)angles[2] - magnitude * cos(second)) < 1e-6);
    assert_true(fabs((double)angles[3] - magnitude * sin(second)) < 1e-6);
    llm_rope_destroy(rope);
}

/* By hand: pairs turn by position and by position / 10. */
static void rope_follows_its_definition(void **state)
{
    (void)state;
    static const float factors[] = {2, 5};
    struct llm_config c = rope_config();
    check_angles(&c, NULL, 0, 3, 3, 0.3, 1);
    check_angles(&c, factors, 0, 3, 1.5, 0.06, 1);
    c.rope_magnitude = 1.25f;
    c.rope_scale = 3;
    check_angles(&c, NULL, 0, 3, 1, 0.1, 1.25);
}

/* Within 64 positions the first pair turns 10.2 times and the second 1.02 times.  YaRN leaves pairs
 * of 8 turns and more alone, and stretches those of 1 turn and fewer: from the floor of pair 0.10
 * to the ceiling of pair 1.008, the half between. */
static void yarn_stretches_slow_pairs_only(void **state)
{
    (void)state;
    struct llm_config c = rope_config();
    c.rope_scale = 4;
    c.rope_is_yarn = true;
    c.yarn_fast = 8;
    c.yarn_slow = 1;
    double magnitude = 1 + 0.1 * log(4);
    check_angles(&c, NULL, 0, 3, 3, 0.3 * (0.5 + 0.5 / 4), magnitude);
    c.yarn_log = 1;
    check_angles(&c, NULL, 0, 3, 3, 0.3 * (0.5 + 0.5 / 4), 1);
}

/* Beyond the original positions queries are longer; keys are not. */
static void queries_grow_with_a_temperature(void **state)
{
    (void)state;
    struct llm_config c = rope_config();
    c.temperature = 0.5f;
    struct llm_rope_choice tables = llm_rope_choose(&c, 0);
    check_angles(&c, NULL, tables.q, 63, 63, 6.3, 1);
    check_angles(&c, NULL, tables.q, 128, 128, 12.8, 1 + 0.5 * log(3));
    check_angles(&c, NULL, tables.k, 128, 128, 12.8, 1);
}

/* ---- append and attend ---- */

enum { PAGES = 9, LAYERS = 2 };

struct heads {
    uint32_t heads, kv_heads, dim;
};

/* Rows of three sequences, the first of which already has many positions. */
static void fill_kv(struct duo *d, struct llm_kv_memory *kv[SIDES], uint32_t values)
{
    uint16_t *rows = malloc((size_t)LLM_KV_POSITIONS * values * sizeof *rows);
    for (uint32_t page = 0; page < PAGES; page++) {
        for (unsigned v = 0; v < 2; v++) {
            for (uint32_t i = 0; i < LLM_KV_POSITIONS * values; i++)
                rows[i] = (uint16_t)(hw_rng_below(&d->rng, 0x3e00) | hw_rng_below(&d->rng, 2)
                                                                         << 15); /* within 1.5 */
            struct llm_kv_rows where = {.v = v, .page = page, .count = LLM_KV_POSITIONS};
            for (int i = 0; i < SIDES; i++)
                assert_int_equal(d->b[i]->ops->kv_write(kv[i], &where, rows, why), 0);
        }
    }
    free(rows);
}

static void make_kv(struct duo *d, struct llm_kv_memory *kv[SIDES], uint32_t values)
{
    static const uint32_t ids[PAGES] = {4, 0, 8, 1, 7, 2, 6, 3, 5};
    struct llm_kv_shape shape = {.row_values = values, .pages = PAGES, .run = 1};
    for (int i = 0; i < SIDES; i++) {
        assert_int_equal(d->b[i]->ops->kv_create(d->b[i], &shape, &kv[i], why), 0);
        assert_int_equal(d->b[i]->ops->kv_map(kv[i], ids, PAGES, why), 0);
    }
    fill_kv(d, kv, values);
}

static void same_kv(struct duo *d, struct llm_kv_memory *kv[SIDES], uint32_t values)
{
    size_t bytes = (size_t)LLM_KV_POSITIONS * values * sizeof(uint16_t);
    uint8_t *rows[SIDES] = {malloc(bytes), malloc(bytes)};
    for (uint32_t page = 0; page < PAGES; page++) {
        for (unsigned v = 0; v < 2; v++) {
            struct llm_kv_rows where = {.v = v, .page = page, .count = LLM_KV_POSITIONS};
            for (int i = 0; i < SIDES; i++)
                assert_int_equal(d->b[i]->ops->kv_read(kv[i], &where, rows[i], why), 0);
            assert_memory_equal(rows[0], rows[1], bytes);
        }
    }
    free(rows[0]);
    free(rows[1]);
}

/* What an architecture may add to attention. */
struct extras {
    uint32_t window;
    float cap;
    bool sinks;
    float scale; /* attend_far; 0: 0.25 */
};

static void attend_batch(struct duo *d, struct heads h, struct extras extras, uint32_t rows,
                         const uint32_t positions[], const uint32_t seqs[])
{
    static const uint32_t page_first[] = {0, 5, 6};
    static const uint32_t pages[LAYERS * PAGES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, /* not this one's */
                                                   3, 8, 0, 5, 1, 7, 4, 2, 6};
    uint32_t values = h.kv_heads * h.dim;
    struct llm_kv_memory *kv[SIDES];
    make_kv(d, kv, values);
    uint64_t q = put_random(d, (size_t)rows * h.heads * h.dim);
    uint64_t k = put_random(d, (size_t)rows * values), v = put_random(d, (size_t)rows * values);
    uint64_t out = put_random(d, (size_t)rows * h.heads * h.dim), sinks = put_random(d, h.heads);
    struct llm_batch batch = {.rows = rows,
                              .tokens = zeros,
                              .positions = positions,
                              .seqs = seqs,
                              .seq_count = 3,
                              .page_first = page_first,
                              .pages = pages,
                              .page_count = PAGES,
                              .layers = LAYERS};
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_append append = {.kv = kv[i], .layer = 1, .k = at(d, i, k), .v = at(d, i, v)};
        d->b[i]->ops->append(d->b[i], &append);
        struct llm_op_attend attend = {.kv = kv[i],
                                       .layer = 1,
                                       .q = at(d, i, q),
                                       .out = at(d, i, out),
                                       .heads = h.heads,
                                       .kv_heads = h.kv_heads,
                                       .head_dim = h.dim,
                                       .scale = 0.25f,
                                       .cap = extras.cap,
                                       .window = extras.window};
        if (extras.sinks)
            attend.sinks = at(d, i, sinks);
        d->b[i]->ops->attend(d->b[i], &attend);
        finish(d, i);
    }
    same_kv(d, kv, values);
    same_place(d, out, (size_t)rows * h.heads * h.dim, "attention");
    for (int i = 0; i < SIDES; i++)
        d->b[i]->ops->kv_destroy(d->b[i], kv[i]);
    d->used = 0;
}

static void attend_one(struct duo *d, struct heads h, struct extras extras)
{
    static const uint32_t positions[] = {300, 0, 1, 2, 3, 4, 130, 301};
    static const uint32_t seqs[] = {0, 1, 1, 1, 1, 1, 2, 0};
    attend_batch(d, h, extras, 8, positions, seqs);
}

/* A prompt: rows of one sequence, which the cpu backend computes in blocks, over the end of a page
 * and of a window; then another sequence's. */
static void attend_run(struct duo *d, struct heads h, struct extras extras)
{
    enum { RUN = 29, ROWS = RUN + 2 };
    uint32_t positions[ROWS], seqs[ROWS] = {0};
    for (uint32_t i = 0; i < ROWS; i++)
        positions[i] = i < RUN ? 50 + i : i - RUN;
    seqs[RUN] = seqs[RUN + 1] = 1;
    attend_batch(d, h, extras, ROWS, positions, seqs);
}

static void attend_all(struct duo *d)
{
    static const struct heads shapes[] = {{1, 1, 8},  {4, 4, 64}, {6, 2, 20}, {4, 1, 128},
                                          {3, 3, 35}, {9, 1, 16}, {2, 1, 300}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        attend_one(d, shapes[i], (struct extras){0});
    attend_run(d, (struct heads){4, 4, 64}, (struct extras){0});
    attend_run(d, (struct heads){6, 3, 104}, (struct extras){0});
}

/* Windows within a page, over one, over many, of one position. */
static void attend_extras(struct duo *d)
{
    static const struct extras extras[] = {{.window = 1},   {.window = 3},   {.window = 70},
                                           {.window = 290}, {.window = 400}, {.cap = 1.5f},
                                           {.sinks = true}, {70, 1.5f, true}};
    for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++) {
        attend_one(d, (struct heads){6, 2, 20}, extras[i]);
        attend_one(d, (struct heads){4, 1, 64}, extras[i]);
        attend_run(d, (struct heads){6, 2, 20}, extras[i]);
    }
}

static void attends_with_windows_caps_and_sinks(void **state)
{
    (void)state;
    on_every_backend(attend_extras);
}

enum { LONG_PAGES = 65, TILE_ROWS = 16 };

/* A row has the same bits in any batch: the rows from TILE_ROWS to twice that, without the others.
 */
static void attend_between(struct duo *d, struct llm_op_attend attend, struct llm_batch batch,
                           uint64_t out)
{
    size_t count = (size_t)TILE_ROWS * attend.heads * attend.head_dim,
           bytes = count * sizeof(float);
    uint64_t alone = put_random(d, count);
    float *values[2] = {malloc(bytes), malloc(bytes)};
    attend.q.offset += bytes;
    attend.out = at(d, 1, alone);
    batch.rows = TILE_ROWS;
    batch.positions += TILE_ROWS;
    begin(d, 1, &batch);
    d->b[1]->ops->attend(d->b[1], &attend);
    finish(d, 1);
    assert_int_equal(d->b[1]->ops->download(d->b[1], at(d, 1, alone), values[0], bytes, why), 0);
    assert_int_equal(d->b[1]->ops->download(d->b[1], at(d, 1, out + bytes), values[1], bytes, why),
                     0);
    assert_memory_equal(values[0], values[1], bytes);
    free(values[0]);
    free(values[1]);
}

/* Rows of one sequence, at any positions. */
static void attend_far(struct duo *d, struct heads h, struct extras extras, uint32_t rows,
                       const uint32_t positions[])
{
    uint32_t ids[LONG_PAGES], values = h.kv_heads * h.dim;
    struct llm_kv_shape shape = {.row_values = values, .pages = LONG_PAGES, .run = 1};
    struct llm_kv_memory *kv[SIDES];
    size_t halves = (size_t)LLM_KV_POSITIONS * values, count = (size_t)rows * h.heads * h.dim;
    uint16_t *page_rows = malloc(halves * sizeof *page_rows);
    for (uint32_t i = 0; i < LONG_PAGES; i++)
        ids[i] = i;
    for (int i = 0; i < SIDES; i++) {
        assert_int_equal(d->b[i]->ops->kv_create(d->b[i], &shape, &kv[i], why), 0);
        assert_int_equal(d->b[i]->ops->kv_map(kv[i], ids, LONG_PAGES, why), 0);
    }
    for (uint32_t page = 0; page < 2 * LONG_PAGES; page++) {
        for (size_t i = 0; i < halves; i++)
            page_rows[i] =
                (uint16_t)(hw_rng_below(&d->rng, 0x3e00) | hw_rng_below(&d->rng, 2) << 15);
        struct llm_kv_rows where = {.v = page % 2, .page = page / 2, .count = LLM_KV_POSITIONS};
        for (int i = 0; i < SIDES; i++)
            assert_int_equal(d->b[i]->ops->kv_write(kv[i], &where, page_rows, why), 0);
    }
    uint64_t q = put_random(d, count), out = put_random(d, count), sinks = put_random(d, h.heads);
    struct llm_batch batch = {.rows = rows,
                              .tokens = zeros,
                              .positions = positions,
                              .seqs = zeros,
                              .seq_count = 1,
                              .page_first = zeros,
                              .pages = ids,
                              .page_count = LONG_PAGES,
                              .layers = 1};
    struct llm_op_attend attend = {.heads = h.heads,
                                   .kv_heads = h.kv_heads,
                                   .head_dim = h.dim,
                                   .scale = extras.scale != 0 ? extras.scale : 0.25f,
                                   .cap = extras.cap,
                                   .window = extras.window};
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        attend.kv = kv[i];
        attend.q = at(d, i, q);
        attend.out = at(d, i, out);
        if (extras.sinks)
            attend.sinks = at(d, i, sinks);
        d->b[i]->ops->attend(d->b[i], &attend);
        finish(d, i);
    }
    same_place(d, out, count, "long attention");
    if (rows > 2 * TILE_ROWS)
        attend_between(d, attend, batch, out);
    for (int i = 0; i < SIDES; i++)
        d->b[i]->ops->kv_destroy(d->b[i], kv[i]);
    free(page_rows);
    d->used = 0;
}

/* Vulkan divides rows of 64 pages into more chunks than rows of 65, in one batch. */
static void attend_long(struct duo *d)
{
    static const uint32_t positions[] = {64 * 64 - 1, 64 * 64, 64 * LONG_PAGES - 1, 5};
    attend_far(d, (struct heads){2, 1, 8}, (struct extras){0}, 4, positions);
}

static void rows_of_any_length_share_a_batch(void **state)
{
    (void)state;
    on_every_backend(attend_long);
}

/* One head of one value over positions 0 to 3, whose scores and values are known. */
static double attend_by_hand(struct extras extras, uint32_t position)
{
    static const double k[] = {1, -2, 0.5, 3}, v[] = {4, -1, 2, 0.25};
    double sum = 0, total = extras.sinks ? exp(0.75) : 0;
    for (uint32_t j = 0; j <= position; j++) {
        double score = 0.5 * k[j];
        if (extras.cap != 0)
            score = (double)extras.cap * tanh(score / (double)extras.cap);
        if (extras.window && position - j >= extras.window)
            continue;
        sum += exp(score) * v[j];
        total += exp(score);
    }
    return sum / total;
}

static void attention_follows_its_definition(void **state)
{
    (void)state;
    static const struct extras extras[] = {
        {0}, {.window = 2}, {.cap = 0.75f}, {.sinks = true}, {3, 0.75f, true}};
    static const uint32_t positions[] = {0, 1, 2, 3};
    static const float k[] = {1, -2, 0.5f, 3}, v[] = {4, -1, 2, 0.25f};
    static const float q[] = {1, 1, 1, 1}, sink = 0.75f;
    struct llm_backend_config config = {.threads = 1};
    const struct llm_backend_ops *ops = &llm_backend_reference;
    struct llm_kv_shape shape = {.row_values = 1, .pages = 1, .run = 1};
    struct llm_backend *b;
    struct llm_buffer *buffer;
    struct llm_kv_memory *kv;
    assert_int_equal(ops->open(&config, &b, why), 0);
    assert_int_equal(ops->buffer_create(b, 5 * LLM_PLACE_ALIGN, &buffer, why), 0);
    assert_int_equal(ops->kv_create(b, &shape, &kv, why), 0);
    assert_int_equal(ops->kv_map(kv, zeros, 1, why), 0);
    const struct {
        const float *values;
        size_t bytes;
    } parts[] = {{k, sizeof k}, {v, sizeof v}, {q, sizeof q}, {&sink, sizeof sink}};
    struct llm_place places[5];
    for (uint64_t i = 0; i < 5; i++) {
        places[i] = (struct llm_place){.buffer = buffer, .offset = i * LLM_PLACE_ALIGN};
        if (i < 4)
            assert_int_equal(ops->upload(b, places[i], parts[i].values, parts[i].bytes, why), 0);
    }
    struct llm_batch batch = plain_batch(4);
    batch.positions = positions;
    batch.page_count = batch.layers = 1;
    for (size_t e = 0; e < sizeof extras / sizeof extras[0]; e++) {
        float out[4];
        uint64_t kernel_ns;
        assert_int_equal(ops->begin(b, &batch, why), 0);
        struct llm_op_append append = {.kv = kv, .k = places[0], .v = places[1]};
        ops->append(b, &append);
        struct llm_op_attend attend = {.kv = kv,
                                       .q = places[2],
                                       .out = places[4],
                                       .heads = 1,
                                       .kv_heads = 1,
                                       .head_dim = 1,
                                       .scale = 0.5f,
                                       .cap = extras[e].cap,
                                       .window = extras[e].window,
                                       .sinks =
                                           extras[e].sinks ? places[3] : (struct llm_place){0}};
        ops->attend(b, &attend);
        assert_int_equal(ops->finish(b, &kernel_ns, why), 0);
        assert_int_equal(ops->download(b, places[4], out, sizeof out, why), 0);
        for (uint32_t r = 0; r < 4; r++)
            assert_true(fabs((double)out[r] - attend_by_hand(extras[e], r)) < 1e-5);
    }
    ops->kv_destroy(b, kv);
    ops->buffer_destroy(b, buffer);
    ops->close(b);
}

/* Two prompts between rows that decode. */
static void tiles_attend_near_the_reference(void **state)
{
    static const struct heads shapes[] = {
        {8, 1, 64}, {4, 4, 128}, {7, 1, 32}, {12, 1, 16}, {6, 2, 80}};
    static const struct extras extras[] = {{0},           {.window = 3},   {.window = 70},
                                           {.cap = 1.5f}, {.sinks = true}, {70, 1.5f, true}};
    enum { FIRST = 40, SECOND = 18, ROWS = FIRST + SECOND + 2 };
    uint32_t positions[ROWS] = {300}, seqs[ROWS] = {0};
    struct duo d;
    (void)state;
    if (!open_tiles(&d))
        skip();
    for (uint32_t i = 0; i < FIRST; i++) {
        positions[1 + i] = 100 + i;
        seqs[1 + i] = 2;
    }
    for (uint32_t i = 0; i < SECOND; i++) {
        positions[1 + FIRST + i] = i;
        seqs[1 + FIRST + i] = 1;
    }
    positions[ROWS - 1] = 301;
    d.tolerance = 4e-3; /* q and the weights of V are halves */
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t e = 0; e < sizeof extras / sizeof extras[0]; e++)
            attend_batch(&d, shapes[s], extras[e], ROWS, positions, seqs);
    duo_close(&d);
}

/* Rows whose largest score comes late, so that their sums are scaled again and again. */
static void tiles_attend_to_scores_of_any_size(void **state)
{
    static const struct heads shapes[] = {{8, 1, 64}, {4, 2, 128}, {3, 1, 16}};
    static const struct extras extras[] = {
        {.scale = 2}, {.scale = 2, .sinks = true}, {.scale = 2, .cap = 30, .window = 900}};
    enum { ROWS = 50 };
    uint32_t positions[ROWS];
    struct duo d;
    (void)state;
    if (!open_tiles(&d))
        skip();
    for (uint32_t i = 0; i < ROWS; i++)
        positions[i] = LLM_KV_POSITIONS * LONG_PAGES - ROWS - 7 + i;
    d.tolerance = 2e-2; /* of scores near 20, in halves */
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t e = 0; e < sizeof extras / sizeof extras[0]; e++)
            attend_far(&d, shapes[s], extras[e], ROWS, positions);
    duo_close(&d);
}

static void attends_to_pages_of_several_sequences(void **state)
{
    (void)state;
    on_every_backend(attend_all);
}

/* ---- activate ---- */

static void activate_one(struct duo *d, enum llm_activation kind, uint32_t rows, uint32_t width)
{
    uint64_t x = put_random(d, (size_t)rows * width), gate = put_random(d, (size_t)rows * width);
    struct llm_batch batch = plain_batch(rows);
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_activate op = {.kind = kind,
                                     .x = at(d, i, x),
                                     .gate_by = at(d, i, gate),
                                     .rows = rows,
                                     .width = width};
        d->b[i]->ops->activate(d->b[i], &op);
        finish(d, i);
    }
    same_place(d, x, (size_t)rows * width, "activation");
}

static void activate_all(struct duo *d)
{
    activate_one(d, LLM_GELU, 1, 1);
    activate_one(d, LLM_GELU, 3, 1001);
    activate_one(d, LLM_SILU_GATED, 1, 3);
    activate_one(d, LLM_SILU_GATED, 13, 2048);
    activate_one(d, LLM_GELU_GATED, 3, 1001);
    activate_one(d, LLM_SILU_CLAMPED, 3, 1001);
    activate_one(d, LLM_SIGMOID, 13, 1);
}

static void activates_values_of_every_kind(void **state)
{
    (void)state;
    on_every_backend(activate_all);
}

static bool near(float got, double want)
{
    return fabs((double)got - want) <= 2e-6 * (1 + fabs(want));
}

static void activations_follow_their_definitions(void **state)
{
    (void)state;
    static const float xs[] = {-9, -1.5f, -0.01f, 0, 0.3f, 2, 8.5f};
    for (size_t i = 0; i < sizeof xs / sizeof xs[0]; i++) {
        double x = (double)xs[i], y = x < 7 ? x : 7;
        double u = sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x);
        assert_true(near(llm_silu(xs[i]), x / (1 + exp(-x))));
        assert_true(near(llm_sigmoid(xs[i]), 1 / (1 + exp(-x))));
        assert_true(near(llm_gelu(xs[i]), x / 2 * (1 + tanh(u))));
        assert_true(near(llm_silu_clamped(xs[i], 20), y / (1 + exp(-1.702 * y)) * 8));
        assert_true(near(llm_silu_clamped(xs[i], -0.5f), y / (1 + exp(-1.702 * y)) * 0.5));
        assert_true(near(llm_soft_cap(xs[i], 3), 3 * tanh(x / 3)));
        assert_true(llm_soft_cap(xs[i], 0) == xs[i]);
    }
}

/* ---- ops that a backend may join ---- */

/* In the same step as the op before it, or in a step of its own. */
static void begin_anew(struct duo *d, int side, const struct llm_batch *batch, bool apart)
{
    if (!apart)
        return;
    finish(d, side);
    begin(d, side, batch);
}

static void same_bits(struct duo *d, int side, const uint64_t places[2], size_t count,
                      const char *what)
{
    float *values[2];
    for (int i = 0; i < 2; i++) {
        values[i] = malloc(count * sizeof(float));
        assert_int_equal(d->b[side]->ops->download(d->b[side], at(d, side, places[i]), values[i],
                                                   count * sizeof(float), why),
                         0);
    }
    if (memcmp(values[0], values[1], count * sizeof(float)) != 0)
        fail_msg("%s: other bits where the ops are in one step", what);
    free(values[0]);
    free(values[1]);
}

/* A norm or an activation, then a product of its rows, whose activations are rounded. */
static void join_product(struct duo *d, enum llm_dtype dtype, uint32_t rows, bool norms)
{
    enum { WIDTH = 768, OUTPUTS = 20 };
    struct llm_tensor t = make_tensor(&d->rng, dtype, WIDTH, OUTPUTS);
    struct llm_weight *w[SIDES];
    uint64_t x[2], h[2], out[2], by = put_random(d, (size_t)rows * WIDTH);
    bind(d, &t, 0, OUTPUTS, w);
    struct llm_batch batch = plain_batch(rows);
    for (int apart = 0; apart < 2; apart++) {
        struct hw_rng rng = d->rng;
        x[apart] = put_random(d, (size_t)rows * WIDTH);
        h[apart] = put_random(d, (size_t)rows * WIDTH);
        out[apart] = put_random(d, (size_t)rows * OUTPUTS);
        for (int i = 0; i < SIDES; i++) {
            struct llm_op_norm norm = {.in = at(d, i, x[apart]),
                                       .out = at(d, i, h[apart]),
                                       .weight = at(d, i, by),
                                       .rows = rows,
                                       .width = WIDTH,
                                       .eps = 1e-5f,
                                       .is_rms = true};
            struct llm_op_activate activate = {.kind = LLM_SILU_GATED,
                                               .x = at(d, i, h[apart]),
                                               .gate_by = at(d, i, by),
                                               .rows = rows,
                                               .width = WIDTH};
            struct llm_op_matmul product = {
                .in = at(d, i, h[apart]),
                .rows = rows,
                .part_count = 1,
                .parts = {{.weight = w[i], .out = at(d, i, out[apart])}}};
            begin(d, i, &batch);
            if (norms)
                d->b[i]->ops->norm(d->b[i], &norm);
            else
                d->b[i]->ops->activate(d->b[i], &activate);
            begin_anew(d, i, &batch, apart);
            d->b[i]->ops->matmul(d->b[i], &product);
            finish(d, i);
        }
        if (!apart)
            d->rng = rng; /* the same numbers again */
    }
    for (int i = 0; i < SIDES; i++) {
        same_bits(d, i, h, (size_t)rows * WIDTH, norms ? "norm" : "activation");
        same_bits(d, i, out, (size_t)rows * OUTPUTS, llm_dtype_name(dtype));
    }
    same_place(d, out[0], (size_t)rows * OUTPUTS, llm_dtype_name(dtype));
    unbind(d, w);
    free((void *)(uintptr_t)t.data);
    d->used = 0;
}

static void join_products(struct duo *d)
{
    static const enum llm_dtype types[] = {LLM_F32, LLM_F16, LLM_Q8_0, LLM_Q4_K};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (uint32_t rows = 1; rows < 10; rows += 4) {
            join_product(d, types[i], rows, true);
            join_product(d, types[i], rows, false);
        }
    }
}

static void the_op_before_a_product_may_round_for_it(void **state)
{
    (void)state;
    on_every_backend(join_products);
}

/* Turned keys and queries, then appended: in one step and in two. */
static void join_append(struct duo *d, struct heads h, uint32_t rope_dims, bool neox)
{
    static const uint32_t positions[] = {300, 0, 130}, seqs[] = {0, 1, 2};
    static const uint32_t page_first[] = {0, 5, 6}, pages[PAGES] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    struct llm_config config = rope_config();
    float angles[3 * 64];
    uint32_t rows = 3, values = h.kv_heads * h.dim;
    struct llm_rope *rope;
    struct llm_kv_memory *kv[2][SIDES];
    uint64_t q[2];
    config.rope_dims = rope_dims;
    config.head_dim = h.dim;
    assert_int_equal(llm_rope_create(&config, NULL, &rope), 0);
    for (uint32_t r = 0; r < rows; r++)
        llm_rope_angles(rope, 0, positions[r], angles + r * rope_dims);
    struct llm_batch batch = {.rows = rows,
                              .tokens = zeros,
                              .positions = positions,
                              .seqs = seqs,
                              .seq_count = 3,
                              .page_first = page_first,
                              .pages = pages,
                              .page_count = PAGES,
                              .layers = 1,
                              .rope = angles,
                              .rope_pairs = rope_dims / 2,
                              .rope_tables = 1};
    for (int apart = 0; apart < 2; apart++) {
        struct hw_rng rng = d->rng;
        make_kv(d, kv[apart], values);
        q[apart] = put_random(d, (size_t)rows * h.heads * h.dim);
        uint64_t k = put_random(d, (size_t)rows * values), v = put_random(d, (size_t)rows * values);
        for (int i = 0; i < SIDES; i++) {
            struct llm_op_rope turn = {.q = at(d, i, q[apart]),
                                       .k = at(d, i, k),
                                       .heads = h.heads,
                                       .kv_heads = h.kv_heads,
                                       .head_dim = h.dim,
                                       .neox = neox};
            struct llm_op_append append = {.kv = kv[apart][i], .k = at(d, i, k), .v = at(d, i, v)};
            begin(d, i, &batch);
            d->b[i]->ops->rope(d->b[i], &turn);
            begin_anew(d, i, &batch, apart);
            d->b[i]->ops->append(d->b[i], &append);
            finish(d, i);
        }
        if (!apart)
            d->rng = rng;
    }
    same_place(d, q[0], (size_t)rows * h.heads * h.dim, "turned q");
    for (int i = 0; i < SIDES; i++)
        same_bits(d, i, q, (size_t)rows * h.heads * h.dim, "turned q");
    struct duo side = {.b = {d->b[1], d->b[1]}};
    struct llm_kv_memory *both[SIDES] = {kv[0][1], kv[1][1]};
    same_kv(&side, both, values);
    for (int i = 0; i < 2 * SIDES; i++)
        d->b[i % 2]->ops->kv_destroy(d->b[i % 2], kv[i / 2][i % 2]);
    llm_rope_destroy(rope);
    d->used = 0;
}

static void join_appends(struct duo *d)
{
    for (int neox = 0; neox < 2; neox++) {
        join_append(d, (struct heads){6, 2, 20}, 20, neox);
        join_append(d, (struct heads){4, 4, 64}, 32, neox);
        join_append(d, (struct heads){3, 3, 35}, 6, neox);
    }
}

static void keys_may_turn_as_they_are_appended(void **state)
{
    (void)state;
    on_every_backend(join_appends);
}

/* ---- experts ---- */

static void route_one(struct duo *d, uint32_t rows, uint32_t experts, bool normed)
{
    uint64_t logits = put_random(d, (size_t)rows * experts);
    uint64_t chosen = put_random(d, (size_t)rows * EXPERTS_USED);
    uint64_t weights = put_random(d, (size_t)rows * EXPERTS_USED);
    struct llm_batch batch = plain_batch(rows);
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_route op = {.logits = at(d, i, logits),
                                  .chosen = at(d, i, chosen),
                                  .weights = at(d, i, weights),
                                  .experts = experts,
                                  .used = EXPERTS_USED,
                                  .normed = normed,
                                  .scale = 1.5f};
        d->b[i]->ops->route(d->b[i], &op);
        finish(d, i);
    }
    double tolerance = d->tolerance;
    d->tolerance = 0; /* numbers are equal on every device */
    same_place(d, chosen, (size_t)rows * EXPERTS_USED, "chosen experts");
    d->tolerance = tolerance;
    same_place(d, weights, (size_t)rows * EXPERTS_USED, "weights of experts");
    d->used = 0;
}

static void route_all(struct duo *d)
{
    route_one(d, 1, 3, true);
    route_one(d, 5, 8, false);
    route_one(d, 13, 64, true);
    route_one(d, 7, 1000, false);
}

static void chooses_the_same_experts_everywhere(void **state)
{
    (void)state;
    on_every_backend(route_all);
}

/* A tie, and logits whose softmax is known. */
static void routing_follows_its_definition(void **state)
{
    (void)state;
    static const float logits[] = {0, 1, 2, 1, -1};
    static const uint32_t want[EXPERTS_USED] = {2, 1, 3};
    const struct llm_backend_ops *ops = &llm_backend_reference;
    struct llm_backend_config config = {.threads = 1};
    struct llm_backend *b;
    struct llm_buffer *buffer;
    assert_int_equal(ops->open(&config, &b, why), 0);
    assert_int_equal(ops->buffer_create(b, 3 * LLM_PLACE_ALIGN, &buffer, why), 0);
    struct llm_op_route op = {.logits = {.buffer = buffer},
                              .chosen = {.buffer = buffer, .offset = LLM_PLACE_ALIGN},
                              .weights = {.buffer = buffer, .offset = 2 * LLM_PLACE_ALIGN},
                              .experts = 5,
                              .used = EXPERTS_USED,
                              .scale = 2};
    assert_int_equal(ops->upload(b, op.logits, logits, sizeof logits, why), 0);
    struct llm_batch batch = plain_batch(1);
    for (int normed = 0; normed < 2; normed++) {
        float weights[EXPERTS_USED];
        uint32_t chosen[EXPERTS_USED];
        uint64_t kernel_ns;
        op.normed = normed;
        assert_int_equal(ops->begin(b, &batch, why), 0);
        ops->route(b, &op);
        assert_int_equal(ops->finish(b, &kernel_ns, why), 0);
        assert_int_equal(ops->download(b, op.chosen, chosen, sizeof chosen, why), 0);
        assert_int_equal(ops->download(b, op.weights, weights, sizeof weights, why), 0);
        double all = normed ? 0 : exp(0) + exp(-1);
        all += exp(2) + 2 * exp(1);
        assert_memory_equal(chosen, want, sizeof want);
        assert_true(near(weights[0], 2 * exp(2) / all) && near(weights[1], 2 * exp(1) / all));
        assert_true(weights[1] == weights[2]);
    }
    ops->buffer_destroy(b, buffer);
    ops->close(b);
}

/* Both products of a feed-forward with experts, and the sum of what they yield. */
static void experts_one(struct duo *d, enum llm_dtype dtype, uint32_t rows, uint32_t experts)
{
    enum { WIDTH = 256, OUT = 37 };
    uint32_t all = rows * EXPERTS_USED;
    struct llm_tensor tensors[2];
    struct llm_weight *w[2][SIDES];
    uint64_t logits = put_random(d, (size_t)rows * experts), chosen = put_random(d, all);
    uint64_t weights = put_random(d, all), in = put_random(d, (size_t)rows * WIDTH);
    uint64_t out[2], bias = put_random(d, (size_t)experts * OUT);
    uint64_t x = put_random(d, (size_t)rows * OUT);
    for (int p = 0; p < 2; p++) {
        tensors[p] = make_tensor(&d->rng, dtype, WIDTH, (uint64_t)experts * OUT);
        bind(d, &tensors[p], 0, (uint64_t)experts * OUT, w[p]);
        out[p] = put_random(d, (size_t)all * OUT);
    }
    uint64_t wide = put_random(d, (size_t)all * WIDTH), down = put_random(d, (size_t)all * OUT);
    struct llm_batch batch = plain_batch(rows);
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_route route = {.logits = at(d, i, logits),
                                     .chosen = at(d, i, chosen),
                                     .weights = at(d, i, weights),
                                     .experts = experts,
                                     .used = EXPERTS_USED,
                                     .normed = true,
                                     .scale = 1};
        d->b[i]->ops->route(d->b[i], &route);
        struct llm_op_matmul up = {
            .in = at(d, i, in),
            .rows = all,
            .part_count = 2,
            .parts = {{.weight = w[0][i], .bias = at(d, i, bias), .out = at(d, i, out[0])},
                      {.weight = w[1][i], .out = at(d, i, out[1])}},
            .experts = {.chosen = at(d, i, chosen), .count = experts, .share = EXPERTS_USED}};
        d->b[i]->ops->matmul(d->b[i], &up);
        struct llm_op_matmul back = {
            .in = at(d, i, wide),
            .rows = all,
            .part_count = 1,
            .parts = {{.weight = w[0][i], .bias = at(d, i, bias), .out = at(d, i, down)}},
            .experts = {.chosen = at(d, i, chosen), .count = experts, .share = 1}};
        d->b[i]->ops->matmul(d->b[i], &back);
        struct llm_op_add add = {.x = at(d, i, x),
                                 .y = at(d, i, down),
                                 .weights = at(d, i, weights),
                                 .terms = EXPERTS_USED,
                                 .width = OUT,
                                 .scale = 0.5f};
        d->b[i]->ops->add(d->b[i], &add);
        finish(d, i);
    }
    same_place(d, out[0], (size_t)all * OUT, "experts, first part");
    same_place(d, out[1], (size_t)all * OUT, "experts, second part");
    same_place(d, down, (size_t)all * OUT, "experts, own inputs");
    same_place(d, x, (size_t)rows * OUT, "sum of experts");
    for (int p = 0; p < 2; p++) {
        unbind(d, w[p]);
        free((void *)(uintptr_t)tensors[p].data);
    }
    d->used = 0;
}

static void experts_all(struct duo *d)
{
    static const enum llm_dtype some[] = {LLM_F32, LLM_Q8_0, LLM_Q4_K, LLM_MXFP4};
    for (size_t t = 0; t < sizeof some / sizeof some[0]; t++) {
        experts_one(d, some[t], 1, 8);
        experts_one(d, some[t], 13, 4);
    }
    experts_one(d, LLM_F16, 5, 50);
    experts_one(d, LLM_F16, 13, 14); /* few rows share an expert, and some experts have none */
    experts_one(d, LLM_Q8_0, 300, 9);
}

static void each_row_meets_its_own_experts(void **state)
{
    (void)state;
    on_every_backend(experts_all);
}

/* ---- residuals and logits ---- */

static void add_and_scale(struct duo *d)
{
    uint32_t rows = 5, width = 77;
    size_t count = (size_t)rows * width;
    uint64_t x = put_random(d, count), y = put_random(d, count), z = put_random(d, count);
    struct llm_batch batch = plain_batch(rows);
    for (int i = 0; i < SIDES; i++) {
        begin(d, i, &batch);
        struct llm_op_add add = {
            .x = at(d, i, x), .y = at(d, i, y), .terms = 1, .width = width, .scale = 0.22f};
        d->b[i]->ops->add(d->b[i], &add);
        struct llm_op_scale scale = {
            .x = at(d, i, y), .rows = rows, .width = width, .scale = 0.125f};
        d->b[i]->ops->scale(d->b[i], &scale);
        struct llm_op_scale cap = {
            .x = at(d, i, z), .rows = rows, .width = width, .scale = 3, .cap = 2};
        d->b[i]->ops->scale(d->b[i], &cap);
        finish(d, i);
    }
    same_place(d, x, count, "add");
    same_place(d, y, count, "scale");
    same_place(d, z, count, "soft cap");
}

static void adds_and_scales(void **state)
{
    (void)state;
    on_every_backend(add_and_scale);
}

/* test-llm-ops [BACKEND [few-shaders]] */
static void tell_what_does_not_run(void)
{
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++) {
        const struct subject *s = &subjects[i];
        if (is_asked_for(s) && s->kernels && llm_kernels_use(s->kernels) != 0)
            print_message("kernels of the set %s do not run on this CPU\n", s->kernels);
    }
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    tell_what_does_not_run();
    read_few_shaders(argc, argv);
    int status = only ? try_device(only) : 0;
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeds_rows_of_every_type),
        cmocka_unit_test(picks_the_rows_that_are_wanted),
        cmocka_unit_test(norms_rows_of_any_width),
        cmocka_unit_test(the_reference_follows_the_formats),
        cmocka_unit_test(rounds_activations_to_the_same_step),
        cmocka_unit_test(multiplies_weights_of_every_type),
        cmocka_unit_test(multiplies_more_than_a_cache_holds),
        cmocka_unit_test(tiles_are_near_the_reference),
        cmocka_unit_test(tiles_of_any_batch_have_the_same_bits),
        cmocka_unit_test(tiles_attend_near_the_reference),
        cmocka_unit_test(tiles_attend_to_scores_of_any_size),
        cmocka_unit_test(parts_of_one_product_may_have_different_types),
        cmocka_unit_test(extreme_weights_do_not_overflow),
        cmocka_unit_test(turns_pairs_of_both_kinds),
        cmocka_unit_test(rope_follows_its_definition),
        cmocka_unit_test(yarn_stretches_slow_pairs_only),
        cmocka_unit_test(queries_grow_with_a_temperature),
        cmocka_unit_test(attends_to_pages_of_several_sequences),
        cmocka_unit_test(attends_with_windows_caps_and_sinks),
        cmocka_unit_test(rows_of_any_length_share_a_batch),
        cmocka_unit_test(attention_follows_its_definition),
        cmocka_unit_test(activates_values_of_every_kind),
        cmocka_unit_test(activations_follow_their_definitions),
        cmocka_unit_test(the_op_before_a_product_may_round_for_it),
        cmocka_unit_test(keys_may_turn_as_they_are_appended),
        cmocka_unit_test(chooses_the_same_experts_everywhere),
        cmocka_unit_test(routing_follows_its_definition),
        cmocka_unit_test(each_row_meets_its_own_experts),
        cmocka_unit_test(adds_and_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
