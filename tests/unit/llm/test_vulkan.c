/* The engine on a Vulkan device: logits are those of the cpu backend within a tolerance, a row's
 * logits are the same bits in every batch, KV travels as bytes, pages come and go, every allocation
 * of ours may fail, and a machine without a device is told so. */
#include "unit.h"

#include "failing.h"

#include "device.h"
#include "few_shaders.h"
#include "llm/engine/backend.h"
#include "llm/engine/engine.h"
#include "llm/model/why.h"
#include "llm/vulkan/memory.h"
#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a model on two backends ---- */

/* A prompt of two pages; and one that attention shares out in chunks. */
enum { VOCAB = MODEL_VOCAB, FFN = 256, CONTEXT = 330, PROMPT = 70, LONG = 300 };

static char why[LLM_WHY_CHARS];
static float want[PROMPT * VOCAB], got[PROMPT * VOCAB];

static struct llm_engine *make_engine(const struct llm_file *file, const char *backend)
{
    struct llm_engine_options options = {.backend = backend, .threads = 1, .kv_bytes = 8 << 20};
    struct llm_engine *engine;
    assert_int_equal(llm_engine_create(file, &options, &engine, why), 0);
    return engine;
}

static struct llm_seq *new_seq(struct llm_engine *engine)
{
    struct llm_seq *seq;
    assert_int_equal(llm_seq_create(engine, &seq), 0);
    return seq;
}

static uint32_t token_at(uint32_t position)
{
    return position * 7919 % VOCAB;
}

/* Positions from..to in one step; the logits of all of them, at their places. */
static void feed(struct llm_engine *engine, struct llm_seq *seq, uint32_t from, uint32_t to,
                 float *logits)
{
    struct llm_row rows[PROMPT];
    for (uint32_t i = from; i < to; i++)
        rows[i - from] = (struct llm_row){.seq = seq, .token = token_at(i), .logits = true};
    assert_int_equal(llm_engine_step(engine, rows, to - from, logits + (size_t)from * VOCAB, why),
                     0);
}

static void whole(struct llm_engine *engine, float *logits)
{
    struct llm_seq *seq = new_seq(engine);
    feed(engine, seq, 0, PROMPT, logits);
    llm_seq_destroy(seq);
}

static void whole_on(const struct llm_file *file, const char *backend, float *logits)
{
    struct llm_engine *engine = make_engine(file, backend);
    whole(engine, logits);
    llm_engine_destroy(engine);
}

static void about_the_same(size_t count, double tolerance)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fabs((double)want[i]) > largest ? fabs((double)want[i]) : largest;
    assert_true(largest > 0);
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)want[i] - (double)got[i]) <= tolerance * largest))
            fail_msg("value %zu is %.9g, not about %.9g", i, (double)got[i], (double)want[i]);
    }
}

/* ---- the same logits ---- */

static void logits_are_those_of_the_cpu(void **state)
{
    (void)state;
    /* The tolerance is of the largest logit.  Sums have another order than the cpu's, so values
     * differ in their last bits.  Where that makes one activation round to its neighbour of 11 bits
     * or 8, all that follows differs by what such rounding costs anyway. */
    static const struct {
        enum llm_arch arch;
        enum llm_dtype dtype;
        double tolerance;
    } models[] = {
        {LLM_LLAMA, LLM_F32, 2e-4},  {LLM_GPTJ, LLM_F16, 2e-3},    {LLM_QWEN2, LLM_BF16, 2e-4},
        {LLM_GPT2, LLM_Q8_0, 5e-2},  {LLM_GPTJ, LLM_Q4_0, 5e-2},   {LLM_LLAMA, LLM_Q4_K, 5e-2},
        {LLM_QWEN2, LLM_Q6_K, 5e-2}, {LLM_LLAMA, LLM_Q4_1, 5e-2},  {LLM_GPT2, LLM_Q5_0, 5e-2},
        {LLM_QWEN2, LLM_Q5_1, 5e-2}, {LLM_LLAMA, LLM_Q2_K, 5e-2},  {LLM_GPTJ, LLM_Q3_K, 5e-2},
        {LLM_LLAMA, LLM_Q5_K, 5e-2}, {LLM_GPT2, LLM_IQ4_NL, 5e-2}, {LLM_QWEN2, LLM_IQ4_XS, 5e-2},
        {LLM_LLAMA, LLM_MXFP4, 5e-2}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct llm_file *file = model_wide(models[i].arch, models[i].dtype, FFN, CONTEXT);
        whole_on(file, "cpu", want);
        whole_on(file, "vulkan", got);
        about_the_same(PROMPT * VOCAB, models[i].tolerance);
        llm_file_close(file);
    }
    /* Each feature of the others once; bench/llm/agree has all of them. */
    static const enum llm_arch some[] = {LLM_QWEN3MOE, LLM_GEMMA2,  LLM_GEMMA3,  LLM_PHI3,
                                         LLM_MISTRAL3, LLM_GRANITE, LLM_GPT_OSS, LLM_QWEN2MOE,
                                         LLM_SMOLLM3,  LLM_OLMO2,   LLM_COHERE2};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        struct llm_file *file = model_wide(some[i], LLM_F32, FFN, CONTEXT);
        whole_on(file, "cpu", want);
        whole_on(file, "vulkan", got);
        about_the_same(PROMPT * VOCAB, 2e-4);
        llm_file_close(file);
    }
}

/* Hidden states of all rows, which embeddings are made of; in steps of `each` rows. */
static void states_of(struct llm_engine *engine, uint32_t each, uint32_t width, float *states)
{
    struct llm_seq *seq = new_seq(engine);
    for (uint32_t at = 0; at < PROMPT; at += each) {
        struct llm_row rows[PROMPT];
        for (uint32_t i = 0; i < each; i++)
            rows[i] = (struct llm_row){.seq = seq, .token = token_at(at + i)};
        float *to = states + (size_t)at * width;
        assert_int_equal(llm_engine_step_states(engine, rows, each, to, why), 0);
    }
    llm_seq_destroy(seq);
}

static void hidden_states_are_those_of_the_cpu(void **state)
{
    (void)state;
    struct llm_file *file = model_wide(LLM_QWEN2, LLM_F32, FFN, CONTEXT);
    uint32_t width = llm_file_config(file)->width;
    size_t count = (size_t)PROMPT * width;
    static float pieces[PROMPT * VOCAB];
    assert_true(width <= VOCAB);
    struct llm_engine *cpu = make_engine(file, "cpu"), *vulkan = make_engine(file, "vulkan");
    states_of(cpu, PROMPT, width, want);
    states_of(vulkan, PROMPT, width, got);
    states_of(vulkan, PROMPT / 7, width, pieces);
    about_the_same(count, 2e-4);
    assert_memory_equal(got, pieces, count * sizeof *got);
    llm_engine_destroy(cpu);
    llm_engine_destroy(vulkan);
    llm_file_close(file);
}

/* Cuts of 1, 2, 3, 4, 5, 8 and more rows: every shape of the products. */
static void in_pieces(struct llm_engine *engine)
{
    static const uint32_t cuts[] = {0, 1, 3, 6, 10, 15, 23, 32, 33, 66, PROMPT};
    struct llm_seq *seq = new_seq(engine);
    memset(got, 0, sizeof got);
    for (size_t i = 0; i + 1 < sizeof cuts / sizeof cuts[0]; i++)
        feed(engine, seq, cuts[i], cuts[i + 1], got);
    assert_memory_equal(want, got, sizeof want);
    llm_seq_destroy(seq);
}

static void beside_another(struct llm_engine *engine)
{
    struct llm_seq *seqs[2] = {new_seq(engine), new_seq(engine)};
    feed(engine, seqs[1], 0, 65, got);
    for (uint32_t i = 0; i < 4; i++) {
        struct llm_row rows[2];
        float two[2 * VOCAB];
        for (uint32_t s = 0; s < 2; s++)
            rows[s] = (struct llm_row){
                .seq = seqs[s], .token = token_at(llm_seq_length(seqs[s])), .logits = true};
        assert_int_equal(llm_engine_step(engine, rows, 2, two, why), 0);
        assert_memory_equal(want + (size_t)i * VOCAB, two, sizeof two / 2);
        assert_memory_equal(want + (size_t)(65 + i) * VOCAB, two + VOCAB, sizeof two / 2);
    }
    llm_seq_destroy(seqs[0]);
    llm_seq_destroy(seqs[1]);
}

static void a_row_does_not_depend_on_its_batch(void **state)
{
    (void)state;
    /* Each op of every architecture is among these; test_ops has every type of weights. */
    static const struct {
        enum llm_arch arch;
        enum llm_dtype dtype;
    } cases[] = {{LLM_LLAMA, LLM_F32},     {LLM_GPTJ, LLM_F16},    {LLM_LLAMA, LLM_Q4_K},
                 {LLM_GPTJ, LLM_Q5_1},     {LLM_LLAMA, LLM_Q2_K},  {LLM_GPT2, LLM_IQ4_XS},
                 {LLM_QWEN3MOE, LLM_Q8_0}, {LLM_GEMMA3, LLM_Q8_0}, {LLM_GPT_OSS, LLM_MXFP4},
                 {LLM_PHI3, LLM_F16}};
    for (size_t t = 0; t < sizeof cases / sizeof cases[0]; t++) {
        enum llm_dtype dtype = cases[t].dtype;
        if (!has_every_shape(dtype))
            dtype = LLM_Q8_0;
        struct llm_file *file = model_wide(cases[t].arch, dtype, FFN, CONTEXT);
        struct llm_engine *engine = make_engine(file, "vulkan");
        whole(engine, want);
        in_pieces(engine);
        beside_another(engine);
        llm_engine_destroy(engine);
        llm_file_close(file);
    }
}

/* The last positions of a long prompt, each in a step of `rows_each`. */
static void rows_are_taken_from_a_page_that_begins_alike(void **state)
{
    (void)state;
    struct llm_file *file = model_wide(LLM_GEMMA3, LLM_Q8_0, FFN, CONTEXT);
    struct llm_engine_options options = {
        .backend = "vulkan", .threads = 1, .kv_bytes = 8 << 20, .keep_prefixes = true};
    struct llm_engine *engine;
    uint32_t tokens[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = token_at(i);
    assert_int_equal(llm_engine_create(file, &options, &engine, why), 0);
    whole(engine, want);
    for (uint32_t rows = 9; rows < LLM_KV_POSITIONS; rows += 27) {
        struct llm_seq *seq = new_seq(engine);
        assert_int_equal(llm_seq_adopt_part(seq, tokens, rows), rows);
        memcpy(got, want, sizeof got);
        feed(engine, seq, rows, PROMPT, got);
        assert_memory_equal(want, got, sizeof want);
        llm_seq_destroy(seq);
    }
    llm_engine_destroy(engine);
    llm_file_close(file);
}

static void long_prompt(struct llm_engine *engine, uint32_t rows_each, float *logits)
{
    struct llm_seq *seq = new_seq(engine);
    struct llm_row rows[LONG];
    for (uint32_t i = 0; i < LONG; i++)
        rows[i] = (struct llm_row){.seq = seq, .token = token_at(i), .logits = i >= LONG - 4};
    uint32_t first = LONG - 4;
    if (rows_each == 4)
        assert_int_equal(llm_engine_step(engine, rows, LONG, logits, why), 0);
    else
        assert_int_equal(llm_engine_step(engine, rows, first, logits, why), 0);
    for (uint32_t i = first; rows_each < 4 && i < LONG; i += rows_each)
        assert_int_equal(
            llm_engine_step(engine, rows + i, rows_each, logits + (size_t)(i - first) * VOCAB, why),
            0);
    llm_seq_destroy(seq);
}

static void long_sequences_have_the_same_bits(void **state)
{
    (void)state;
    struct llm_file *file = model_wide(LLM_LLAMA, LLM_F32, FFN, CONTEXT);
    struct llm_engine *engine = make_engine(file, "vulkan"), *cpu = make_engine(file, "cpu");
    long_prompt(engine, 4, want);
    for (uint32_t each = 1; each <= 2; each++) {
        long_prompt(engine, each, got);
        assert_memory_equal(want, got, 4 * VOCAB * sizeof(float));
    }
    long_prompt(cpu, 4, got);
    for (uint32_t i = 0; i < 4 * VOCAB; i++)
        assert_true(fabs((double)want[i] - (double)got[i]) < 1e-2);
    llm_engine_destroy(cpu);
    llm_engine_destroy(engine);
    llm_file_close(file);
}

/* ---- KV ---- */

static void kv_travels_as_bytes(void **state)
{
    (void)state;
    struct llm_file *file = model_wide(LLM_LLAMA, LLM_F16, FFN, CONTEXT);
    struct llm_engine *engine = make_engine(file, "vulkan");
    struct llm_seq *from = new_seq(engine), *to = new_seq(engine);
    uint32_t last = PROMPT - 1;
    uint64_t bytes = last * llm_kv_row_bytes(engine);
    uint8_t *rows = malloc(2 * bytes);
    feed(engine, from, 0, PROMPT, want);
    assert_int_equal(llm_seq_read_kv(from, 0, 2, 0, last, rows), 0);
    for (uint32_t layer = 0; layer < 2; layer++)
        assert_int_equal(llm_seq_write_kv(to, layer, 0, last, rows + layer * bytes), 0);
    assert_int_equal(llm_seq_set_length(to, last), 0);
    feed(engine, to, last, PROMPT, got);
    assert_memory_equal(want + (size_t)last * VOCAB, got + (size_t)last * VOCAB,
                        VOCAB * sizeof(float));
    free(rows);
    llm_seq_destroy(from);
    llm_seq_destroy(to);
    llm_engine_destroy(engine);
    llm_file_close(file);
}

/* More pages than a submission has, and more bytes than both halves of the mapped memory. */
static void many_pages_move_at_once(void **state)
{
    (void)state;
    enum { PAGES = 700, VALUES = 204 };
    struct llm_backend_config config = {0};
    struct llm_kv_shape shape = {.row_values = VALUES, .pages = PAGES, .run = PAGES};
    struct llm_backend *b;
    struct llm_kv_memory *kv;
    const uint32_t slab = 0;
    struct llm_kv_rows rows[PAGES];
    size_t page = (size_t)LLM_KV_POSITIONS * VALUES;
    uint16_t *wrote = malloc(PAGES * page * sizeof *wrote),
             *read = malloc(PAGES * page * sizeof *read);
    assert_int_equal(llm_backend_vulkan.open(&config, &b, why), 0);
    assert_int_equal(b->ops->kv_create(b, &shape, &kv, why), 0);
    assert_int_equal(b->ops->kv_map(kv, &slab, 1, why), 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        rows[i] = (struct llm_kv_rows){.page = i * 37 % PAGES, .count = LLM_KV_POSITIONS};
        for (size_t j = 0; j < page; j++)
            wrote[i * page + j] = (uint16_t)(i * 31 + j);
        assert_int_equal(b->ops->kv_write(kv, &rows[i], wrote + i * page, why), 0);
    }
    assert_int_equal(b->ops->kv_read_all(kv, rows, PAGES, read, why), 0);
    assert_memory_equal(wrote, read, PAGES * page * sizeof *read);
    b->ops->kv_destroy(b, kv);
    b->ops->close(b);
    free(wrote);
    free(read);
}

/* The K of a page travels in one piece. */
static void the_widest_rows_are_moved_and_wider_ones_refused(void **state)
{
    (void)state;
    enum { WIDEST = LLM_VK_MOVED_BYTES / LLM_KV_POSITIONS / sizeof(uint16_t) };
    struct llm_backend_config config = {0};
    struct llm_kv_shape shape = {.row_values = WIDEST, .pages = 1, .run = 1};
    struct llm_kv_rows rows = {.v = 1, .count = LLM_KV_POSITIONS};
    struct llm_backend *b;
    struct llm_kv_memory *kv;
    const uint32_t slab = 0;
    size_t count = (size_t)LLM_KV_POSITIONS * WIDEST;
    uint16_t *wrote = malloc(count * sizeof *wrote), *read = calloc(count, sizeof *read);
    assert_int_equal(llm_backend_vulkan.open(&config, &b, why), 0);
    assert_int_equal(b->ops->kv_create(b, &shape, &kv, why), 0);
    assert_int_equal(b->ops->kv_map(kv, &slab, 1, why), 0);
    for (size_t i = 0; i < count; i++)
        wrote[i] = (uint16_t)(i * 31 + 7);
    assert_int_equal(b->ops->kv_write(kv, &rows, wrote, why), 0);
    assert_int_equal(b->ops->kv_read(kv, &rows, read, why), 0);
    assert_memory_equal(wrote, read, count * sizeof *read);
    b->ops->kv_destroy(b, kv);
    shape.row_values++;
    assert_int_equal(b->ops->kv_create(b, &shape, &kv, why), -ENOMEM);
    assert_non_null(strstr(why, "KV rows of 65537 values are too wide"));
    b->ops->close(b);
    free(wrote);
    free(read);
}

/* Pages of an odd width in slabs, which come and go in any order. */
static void pages_come_and_go(void **state)
{
    (void)state;
    enum { PAGES = 132, RUN = 4, SLABS = 33, VALUES = 5 };
    struct llm_backend_config config = {0};
    struct llm_kv_shape shape = {.row_values = VALUES, .pages = PAGES, .run = RUN};
    struct llm_backend *b;
    struct llm_kv_memory *kv;
    uint32_t slabs[SLABS];
    assert_int_equal(llm_backend_vulkan.open(&config, &b, why), 0);
    assert_int_equal(b->ops->kv_create(b, &shape, &kv, why), 0);
    assert_int_equal(b->ops->kv_slab(kv), RUN * 2 * LLM_KV_POSITIONS * 8 * sizeof(uint16_t));
    for (uint32_t i = 0; i < SLABS; i++)
        slabs[i] = i * 10 % SLABS;
    assert_int_equal(b->ops->kv_map(kv, slabs, SLABS, why), 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        struct llm_kv_rows one = {.v = 1, .page = i, .first = 63, .count = 1};
        uint16_t row[VALUES] = {(uint16_t)i, 1, 2, 3, 4};
        assert_int_equal(b->ops->kv_write(kv, &one, row, why), 0);
    }
    assert_int_equal(b->ops->kv_unmap(kv, slabs, SLABS / 2, why), 0);
    assert_int_equal(b->ops->kv_map(kv, slabs, SLABS / 2, why), 0);
    for (uint32_t i = SLABS / 2; i < SLABS; i++) {
        uint32_t first = slabs[i] * RUN;
        for (uint32_t page = first; page < first + RUN; page++) {
            struct llm_kv_rows one = {.v = 1, .page = page, .first = 63, .count = 1};
            uint16_t row[VALUES], expected[VALUES] = {(uint16_t)page, 1, 2, 3, 4};
            assert_int_equal(b->ops->kv_read(kv, &one, row, why), 0);
            assert_memory_equal(row, expected, sizeof row);
        }
    }
    b->ops->kv_destroy(b, kv);
    b->ops->close(b);
}

/* Writes are queued: the later one of the same rows stays, and more than the queue holds arrives.
 */
static void rows_are_written_in_order(void **state)
{
    (void)state;
    enum { PAGES = 600, VALUES = 5 };
    static struct llm_kv_rows all[PAGES];
    static uint16_t written[PAGES][LLM_KV_POSITIONS][VALUES], back[PAGES][LLM_KV_POSITIONS][VALUES];
    struct llm_backend_config config = {0};
    struct llm_kv_shape shape = {.row_values = VALUES, .pages = PAGES, .run = PAGES};
    struct llm_backend *b;
    struct llm_kv_memory *kv;
    uint32_t slab = 0;
    assert_int_equal(llm_backend_vulkan.open(&config, &b, why), 0);
    assert_int_equal(b->ops->kv_create(b, &shape, &kv, why), 0);
    assert_int_equal(b->ops->kv_map(kv, &slab, 1, why), 0);
    for (uint32_t p = 0; p < PAGES; p++) {
        all[p] = (struct llm_kv_rows){.page = PAGES - 1 - p, .count = LLM_KV_POSITIONS};
        for (uint32_t i = 0; i < LLM_KV_POSITIONS * VALUES; i++)
            written[p][i / VALUES][i % VALUES] = (uint16_t)(p * 31 + i);
    }
    for (uint32_t p = 0; p < PAGES; p++)
        assert_int_equal(b->ops->kv_write(kv, &all[p], written[p], why), 0);
    for (uint32_t p = PAGES - 3; p < PAGES; p++) {
        struct llm_kv_rows some = {.page = all[p].page, .first = 7, .count = 2};
        memset(written[p][7], 0x5a, 2 * sizeof written[p][7]);
        assert_int_equal(b->ops->kv_write(kv, &some, written[p][7], why), 0);
    }
    assert_int_equal(b->ops->kv_read_all(kv, all, PAGES, back, why), 0);
    assert_memory_equal(back, written, sizeof back);
    b->ops->kv_destroy(b, kv);
    b->ops->close(b);
}

/* A step brings its logits along; what else is read or written then must not be taken for them. */
static void logits_are_read_after_other_bytes(void **state)
{
    (void)state;
    static const float row[4] = {1, 2, 3, 4}, other[4] = {9, 9, 9, 9};
    static const uint32_t zero;
    struct llm_tensor t = {
        .name = "t", .dim_count = 2, .dims = {4, 1, 1, 1}, .bytes = sizeof row, .data = row};
    struct llm_backend_config config = {0};
    struct llm_batch batch = {.rows = 1,
                              .tokens = &zero,
                              .positions = &zero,
                              .seqs = &zero,
                              .seq_count = 1,
                              .page_first = &zero,
                              .picks = &zero,
                              .pick_count = 1};
    struct llm_backend *b;
    struct llm_buffer *buffer;
    struct llm_weight *w;
    uint64_t ns;
    float value, values[4];
    assert_int_equal(llm_backend_vulkan.open(&config, &b, why), 0);
    assert_int_equal(b->ops->buffer_create(b, 4096, &buffer, why), 0);
    assert_int_equal(b->ops->weight_create(b, &t, 0, 1, &w, why), 0);
    struct llm_place in = {.buffer = buffer}, out = {.buffer = buffer, .offset = 1024};
    struct llm_op_matmul op = {
        .in = in, .rows = 1, .part_count = 1, .parts = {{.weight = w, .out = out}}};
    assert_int_equal(b->ops->upload(b, in, row, sizeof row, why), 0);
    for (int i = 0; i < 2; i++) { /* recorded, then replayed */
        assert_int_equal(b->ops->begin(b, &batch, why), 0);
        b->ops->matmul(b, &op);
        assert_int_equal(b->ops->finish(b, &ns, why), 0);
        assert_int_equal(b->ops->download(b, in, values, sizeof values, why), 0);
        assert_memory_equal(values, row, sizeof row);
        assert_int_equal(b->ops->download(b, out, &value, sizeof value, why), 0);
        assert_true(value == 30);
    }
    assert_int_equal(b->ops->upload(b, out, other, sizeof other, why), 0);
    assert_int_equal(b->ops->download(b, out, &value, sizeof value, why), 0);
    assert_true(value == 9);
    b->ops->weight_destroy(b, w);
    b->ops->buffer_destroy(b, buffer);
    b->ops->close(b);
}

/* Steps of every shape, until attention is shared out in chunks: what is made meanwhile.  last: the
 * logits of the last row. */
static uint64_t made_in_steps(struct llm_engine *engine, float last[VOCAB])
{
    enum { PICKS = 8 };
    static const uint32_t sizes[] = {PROMPT, 1, 2, 3, 4, 5, PICKS, 200, 1};
    static float logits[PICKS * VOCAB];
    struct llm_row rows[200];
    struct llm_seq *seq = new_seq(engine);
    uint64_t before = llm_engine_made(engine);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (uint32_t r = 0; r < sizes[i]; r++)
            rows[r] =
                (struct llm_row){.seq = seq, .token = token_at(r), .logits = r + PICKS >= sizes[i]};
        assert_int_equal(llm_engine_step(engine, rows, sizes[i], logits, why), 0);
    }
    memcpy(last, logits, VOCAB * sizeof *last);
    llm_seq_destroy(seq);
    return llm_engine_made(engine) - before;
}

static void a_warm_engine_makes_nothing_in_steps(void **state)
{
    (void)state;
    struct llm_file *file = model_wide(LLM_GPTJ, LLM_F16, FFN, CONTEXT);
    struct llm_engine *cold = make_engine(file, "vulkan"), *warm = make_engine(file, "vulkan");
    assert_true(made_in_steps(cold, want) > 0);
    assert_int_equal(llm_engine_warm(warm, why), 0);
    assert_int_equal(made_in_steps(warm, got), 0);
    assert_memory_equal(got, want, VOCAB * sizeof *want);
    llm_engine_destroy(cold);
    llm_engine_destroy(warm);
    llm_file_close(file);
}

/* ---- trouble ---- */

static int try_everything(const struct llm_file *file)
{
    struct llm_engine_options options = {.backend = "vulkan", .kv_bytes = 1 << 20};
    struct llm_engine *engine;
    struct llm_seq *seq;
    int rc = llm_engine_create(file, &options, &engine, why);
    if (rc)
        return rc;
    rc = llm_engine_warm(engine, why);
    if (rc == 0)
        rc = llm_seq_create(engine, &seq);
    if (rc == 0) {
        struct llm_row row = {.seq = seq, .token = 1, .logits = true};
        rc = llm_engine_step(engine, &row, 1, got, why);
        llm_seq_destroy(seq);
    }
    llm_engine_destroy(engine);
    return rc;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct llm_file *file = model_wide(LLM_GPT2, LLM_Q8_0, FFN, CONTEXT);
    int rc = -ENOMEM;
    for (long n = 0; rc; n++) {
        assert_true(n < 1000);
        allocations_left = n;
        counting = true;
        rc = try_everything(file);
        counting = false;
        assert_true(rc == 0 || rc == -ENOMEM);
    }
    llm_file_close(file);
}

static uint32_t zeroed, zeroed_before_failure = UINT32_MAX;

int __real_llm_vk_zero(struct llm_vk_memory *m, const struct llm_vk_block *block, char *cause);
int __wrap_llm_vk_zero(struct llm_vk_memory *m, const struct llm_vk_block *block, char *cause);
int __wrap_llm_vk_zero(struct llm_vk_memory *m, const struct llm_vk_block *block, char *cause)
{
    if (zeroed == zeroed_before_failure) {
        zeroed_before_failure = UINT32_MAX;
        return llm_why(cause, -EIO, "the memory was not zeroed");
    }
    zeroed++;
    return __real_llm_vk_zero(m, block, cause);
}

/* How often memory is zeroed in a step where attention is shared out in chunks, which it counts.
 * fails_at: that time it fails, and the step is repeated. */
static uint32_t zeroed_in_step(const struct llm_file *file, uint32_t fails_at)
{
    struct llm_engine *engine = make_engine(file, "vulkan");
    struct llm_seq *seq = new_seq(engine);
    struct llm_row rows[LONG];
    for (uint32_t i = 0; i < LONG; i++)
        rows[i] = (struct llm_row){.seq = seq, .token = token_at(i)};
    zeroed = 0;
    zeroed_before_failure = fails_at;
    if (fails_at != UINT32_MAX)
        assert_int_equal(llm_engine_step(engine, rows, LONG, NULL, why), -EIO);
    assert_int_equal(llm_engine_step(engine, rows, LONG, NULL, why), 0);
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
    return zeroed;
}

static void memory_that_was_not_zeroed_is_not_used(void **state)
{
    (void)state;
    struct llm_file *file = model_wide(LLM_LLAMA, LLM_F32, FFN, CONTEXT);
    uint32_t count = zeroed_in_step(file, UINT32_MAX);
    assert_true(count > 1);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(zeroed_in_step(file, i), count);
    llm_file_close(file);
}

static void too_large_a_buffer_is_told_with_sizes(void **state)
{
    (void)state;
    struct llm_backend_config config = {.device = 5}; /* modulo those there are */
    struct llm_backend *b;
    struct llm_buffer *buffer;
    assert_int_equal(llm_backend_vulkan.open(&config, &b, why), 0);
    assert_int_equal(b->ops->buffer_create(b, UINT64_C(1) << 60, &buffer, why), -ENOMEM);
    assert_non_null(strstr(why, "1048576TiB"));
    assert_int_equal(b->ops->buffer_create(b, 4096, &buffer, why), 0);
    b->ops->buffer_destroy(b, buffer);
    b->ops->close(b);
}

static void no_device_is_told(void **state)
{
    (void)state;
    struct llm_backend_config config = {0};
    struct llm_backend *b;
    const char *drivers = getenv("VK_DRIVER_FILES"), *icds = getenv("VK_ICD_FILENAMES");
    char *saved[2] = {drivers ? strdup(drivers) : NULL, icds ? strdup(icds) : NULL};
    setenv("VK_DRIVER_FILES", "/dev/null", 1);
    setenv("VK_ICD_FILENAMES", "/dev/null", 1);
    assert_int_equal(llm_backend_vulkan.open(&config, &b, why), -ENODEV);
    assert_non_null(strstr(why, "install"));
    if (saved[0])
        setenv("VK_DRIVER_FILES", saved[0], 1);
    if (saved[1])
        setenv("VK_ICD_FILENAMES", saved[1], 1);
    free(saved[0]);
    free(saved[1]);
}

/* test-llm-vulkan [few-shaders] */
int main(int argc, char **argv)
{
    read_few_shaders(argc, argv);
    int status = try_device("vulkan");
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_cpu),
        cmocka_unit_test(hidden_states_are_those_of_the_cpu),
        cmocka_unit_test(a_row_does_not_depend_on_its_batch),
        cmocka_unit_test(rows_are_taken_from_a_page_that_begins_alike),
        cmocka_unit_test(long_sequences_have_the_same_bits),
        cmocka_unit_test(kv_travels_as_bytes),
        cmocka_unit_test(many_pages_move_at_once),
        cmocka_unit_test(the_widest_rows_are_moved_and_wider_ones_refused),
        cmocka_unit_test(pages_come_and_go),
        cmocka_unit_test(rows_are_written_in_order),
        cmocka_unit_test(logits_are_read_after_other_bytes),
        cmocka_unit_test(a_warm_engine_makes_nothing_in_steps),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(memory_that_was_not_zeroed_is_not_used),
        cmocka_unit_test(too_large_a_buffer_is_told_with_sizes),
        cmocka_unit_test(no_device_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
