/* The engine on small random models of every architecture: a row's logits are the same bits alone,
 * in a batch, in a longer prompt, with any number of threads, on every machine; sequences survive
 * errors, also every allocation that can fail; the trained model tells its story. */
#include "unit.h"

#include "failing.h"

#include "llm/cpu/kernels.h"
#include "llm/engine/engine.h"
#include "llm/engine/sampler.h"
#include "llm/tokenizer/vocab.h"
#include "model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- a model and its engine ---- */

enum { VOCAB = MODEL_VOCAB, FFN = 512, CONTEXT = 200, PROMPT = 150 };

static char why[LLM_WHY_CHARS];

struct bench {
    struct llm_file *file;
    struct llm_engine *engine;
    uint32_t prompt[PROMPT];
};

static struct llm_engine *make_engine(const struct llm_file *file, const char *backend,
                                      unsigned threads)
{
    struct llm_engine_options options = {
        .backend = backend, .threads = threads, .kv_bytes = 64 << 20};
    struct llm_engine *engine;
    assert_int_equal(llm_engine_create(file, &options, &engine, why), 0);
    return engine;
}

static void bench_open(struct bench *b, enum llm_arch arch, enum llm_dtype dtype,
                       const char *backend, unsigned threads)
{
    b->file = model_wide(arch, dtype, FFN, CONTEXT);
    b->engine = make_engine(b->file, backend, threads);
    for (uint32_t i = 0; i < PROMPT; i++)
        b->prompt[i] = i * 7919 % VOCAB;
}

static void bench_close(struct bench *b)
{
    llm_engine_destroy(b->engine);
    llm_file_close(b->file);
}

static struct llm_seq *new_seq(struct bench *b)
{
    struct llm_seq *seq;
    assert_int_equal(llm_seq_create(b->engine, &seq), 0);
    return seq;
}

/* Tokens from..to of the prompt in one step; the logits of all of them. */
static void feed(struct bench *b, struct llm_seq *seq, uint32_t from, uint32_t to, float *logits)
{
    struct llm_row rows[PROMPT];
    for (uint32_t i = from; i < to; i++)
        rows[i - from] = (struct llm_row){.seq = seq, .token = b->prompt[i], .logits = true};
    assert_int_equal(llm_engine_step(b->engine, rows, to - from, logits, why), 0);
}

static float *all_logits(void)
{
    return malloc(sizeof(float) * PROMPT * VOCAB);
}

static void same_logits(const float *want, const float *got, uint32_t rows)
{
    assert_memory_equal(want, got, sizeof(float) * rows * VOCAB);
}

/* The whole prompt in one step, on a fresh sequence. */
static void whole(struct bench *b, float *logits)
{
    struct llm_seq *seq = new_seq(b);
    feed(b, seq, 0, PROMPT, logits);
    assert_int_equal(llm_seq_length(seq), PROMPT);
    llm_seq_destroy(seq);
}

/* ---- the same bits ---- */

static void one_token_at_a_time(struct bench *b, const float *want)
{
    float *got = all_logits();
    struct llm_seq *seq = new_seq(b);
    for (uint32_t i = 0; i < PROMPT; i++)
        feed(b, seq, i, i + 1, got + (size_t)i * VOCAB);
    same_logits(want, got, PROMPT);
    llm_seq_destroy(seq);
    free(got);
}

static void uneven_pieces(struct bench *b, const float *want)
{
    static const uint32_t cuts[] = {0, 1, 4, 9, 63, 66, 129, PROMPT};
    float *got = all_logits();
    struct llm_seq *seq = new_seq(b);
    for (size_t i = 0; i + 1 < sizeof cuts / sizeof cuts[0]; i++)
        feed(b, seq, cuts[i], cuts[i + 1], got + (size_t)cuts[i] * VOCAB);
    same_logits(want, got, PROMPT);
    llm_seq_destroy(seq);
    free(got);
}

/* Three sequences at different places in one step after the other. */
static void beside_others(struct bench *b, const float *want)
{
    struct llm_seq *seqs[3] = {new_seq(b), new_seq(b), new_seq(b)};
    float *got = all_logits(), three[3 * VOCAB];
    feed(b, seqs[1], 0, 70, got);
    feed(b, seqs[2], 0, 3, got);
    for (uint32_t i = 0; i < 5; i++) {
        struct llm_row rows[3];
        for (uint32_t s = 0; s < 3; s++)
            rows[s] = (struct llm_row){
                .seq = seqs[s], .token = b->prompt[llm_seq_length(seqs[s])], .logits = true};
        assert_int_equal(llm_engine_step(b->engine, rows, 3, three, why), 0);
        same_logits(want + (size_t)i * VOCAB, three, 1);
        same_logits(want + (size_t)(70 + i) * VOCAB, three + VOCAB, 1);
        same_logits(want + (size_t)(3 + i) * VOCAB, three + 2 * VOCAB, 1);
    }
    for (uint32_t s = 0; s < 3; s++)
        llm_seq_destroy(seqs[s]);
    free(got);
}

static void a_row_does_not_depend_on_its_batch(void **state)
{
    (void)state;
    float *want = all_logits();
    for (int arch = 0; arch < LLM_ARCHS; arch++) {
        for (size_t t = 0; t < LLM_DTYPES; t++) {
            struct bench b;
            enum llm_dtype dtype = llm_dtype_at(t);
            if (arch != LLM_LLAMA && dtype != LLM_F16 && dtype != LLM_Q8_0)
                continue;
            if (arch > LLM_GPT2 && (dtype != LLM_Q8_0 || (SANITIZED && arch != LLM_QWEN3MOE)))
                continue;
            if (ONLY_THREADS && (arch != LLM_LLAMA || dtype != LLM_Q8_0))
                continue;
            /* test_ops has every type. */
            if (SANITIZED && dtype != LLM_F16 && dtype != LLM_Q8_0 && dtype != LLM_Q4_K)
                continue;
            bench_open(&b, (enum llm_arch)arch, dtype, "cpu", 2);
            whole(&b, want);
            one_token_at_a_time(&b, want);
            uneven_pieces(&b, want);
            beside_others(&b, want);
            bench_close(&b);
        }
    }
    free(want);
}

static void threads_and_kernels_do_not_show(void **state)
{
    (void)state;
    static const enum llm_dtype some[] = {LLM_Q4_K, LLM_Q5_1, LLM_Q2_K};
    enum { TYPES = sizeof some / sizeof some[0] };
    float *want = all_logits(), *got = all_logits();
    for (int c = 0; c < TYPES + LLM_ARCHS; c++) {
        enum llm_arch arch = c < TYPES ? LLM_LLAMA : (enum llm_arch)(c - TYPES);
        struct bench b;
        /* The others have the same kernels, which test_ops compares; test_oracle has each. */
        bool known = arch <= LLM_GPT2, another = arch == LLM_GEMMA2 || arch == LLM_GPT_OSS;
        if ((ONLY_THREADS || SANITIZED || (!known && !another)) && c != 0 && arch != LLM_QWEN3MOE)
            continue;
        bench_open(&b, arch, c < TYPES ? some[c] : LLM_F16, ONLY_THREADS ? "cpu" : "reference", 1);
        whole(&b, want);
        const struct llm_kernels *kernels;
        for (size_t i = 0; (kernels = llm_kernels_get(i)); i++) {
            /* ThreadSanitizer watches this set alone: src/llm/meson.build. */
            bool watched = strcmp(kernels->name, "c") == 0;
            if (ONLY_THREADS ? !watched : !known && i)
                continue;
            for (unsigned threads = ONLY_THREADS || SANITIZED || c ? 5 : 1; threads <= 5;
                 threads += 4) {
                assert_int_equal(llm_kernels_use(kernels->name), 0);
                llm_engine_destroy(b.engine);
                b.engine = make_engine(b.file, "cpu", threads);
                whole(&b, got);
                same_logits(want, got, PROMPT);
            }
        }
        bench_close(&b);
    }
    assert_int_equal(llm_kernels_use(llm_kernels_get(0)->name), 0);
    free(want);
    free(got);
}

/* Found once, on arm64 and on x86-64 alike. */
static void every_machine_computes_the_same_logits(void **state)
{
    (void)state;
    static const struct {
        enum llm_arch arch;
        enum llm_dtype dtype;
        uint64_t hash;
    } golden[] = {
        {LLM_LLAMA, LLM_Q4_K, 0xd691ace0f3fbd75b}, {LLM_LLAMA, LLM_Q5_1, 0xdab51eac20796075},
        {LLM_LLAMA, LLM_Q2_K, 0x557833c5ffc4fd5a}, {LLM_LLAMA, LLM_MXFP4, 0xf00e6db888faf075},
        {LLM_QWEN2, LLM_Q8_0, 0x3a7fd1a3991fc825}, {LLM_GPTJ, LLM_F16, 0x6159f9a301c98ef2},
        {LLM_GPT2, LLM_BF16, 0x9fbce75ba4043e3a},
    };
    float *logits = all_logits();
    for (size_t i = 0; i < (ONLY_THREADS ? 1 : sizeof golden / sizeof golden[0]); i++) {
        struct bench b;
        bench_open(&b, golden[i].arch, golden[i].dtype, "cpu", 2);
        whole(&b, logits);
        bench_close(&b);
        assert_int_equal(XXH64(logits, sizeof(float) * PROMPT * VOCAB, 0), golden[i].hash);
    }
    free(logits);
}

/* ---- sequences ---- */

static void kv_travels_as_bytes(void **state)
{
    (void)state;
    struct bench b;
    float *want = all_logits(), got[VOCAB];
    bench_open(&b, LLM_LLAMA, LLM_Q8_0, "cpu", 2);
    whole(&b, want);
    struct llm_seq *from = new_seq(&b), *to = new_seq(&b);
    float *logits = all_logits();
    feed(&b, from, 0, 100, logits);
    uint64_t layer_bytes = 100 * llm_kv_row_bytes(b.engine);
    uint8_t *bytes = malloc(2 * layer_bytes);
    assert_int_equal(llm_seq_read_kv(from, 0, 2, 0, 100, bytes), 0);
    for (uint32_t layer = 0; layer < 2; layer++)
        assert_int_equal(llm_seq_write_kv(to, layer, 0, 100, bytes + layer * layer_bytes), 0);
    assert_int_equal(llm_seq_set_length(to, 100), 0);
    llm_seq_destroy(from);
    feed(&b, to, 100, 101, got);
    same_logits(want + (size_t)100 * VOCAB, got, 1);

    assert_int_equal(llm_seq_read_kv(to, 2, 1, 0, 1, bytes), -EINVAL);
    assert_int_equal(llm_seq_read_kv(to, 1, 2, 0, 1, bytes), -EINVAL);
    assert_int_equal(llm_seq_read_kv(to, 0, 1, 0, 102, bytes), -EINVAL);
    assert_int_equal(llm_seq_write_kv(to, 0, 0, CONTEXT + 1, bytes), -ERANGE);
    assert_int_equal(llm_seq_set_length(to, CONTEXT + 1), -ERANGE);
    llm_seq_destroy(to);
    bench_close(&b);
    free(bytes);
    free(logits);
    free(want);
}

static void what_was_forgotten_can_be_said_again(void **state)
{
    (void)state;
    struct bench b;
    float *want = all_logits(), *got = all_logits();
    bench_open(&b, LLM_GPT2, LLM_Q4_0, "cpu", 1);
    struct llm_seq *seq = new_seq(&b);
    feed(&b, seq, 0, PROMPT, want);
    llm_seq_truncate(seq, 60);
    llm_seq_truncate(seq, 70); /* longer: nothing to forget */
    assert_int_equal(llm_seq_length(seq), 60);
    feed(&b, seq, 60, PROMPT, got);
    same_logits(want + (size_t)60 * VOCAB, got, PROMPT - 60);
    llm_seq_destroy(seq);
    bench_close(&b);
    free(want);
    free(got);
}

/* ---- errors ---- */

static void bad_steps_change_nothing(void **state)
{
    (void)state;
    struct bench b;
    float *want = all_logits(), *got = all_logits();
    bench_open(&b, LLM_QWEN2, LLM_F16, "cpu", 1);
    whole(&b, want);
    struct llm_seq *seq = new_seq(&b);
    feed(&b, seq, 0, 10, got);
    struct llm_row rows[CONTEXT];
    for (uint32_t i = 0; i < CONTEXT; i++)
        rows[i] = (struct llm_row){.seq = seq, .token = 1};
    assert_int_equal(llm_engine_step(b.engine, rows, CONTEXT, got, why), -ERANGE);
    assert_int_equal(llm_engine_step(b.engine, rows, 0, got, why), -EINVAL);
    assert_int_equal(llm_engine_step(b.engine, rows, LLM_ROWS_MAX + 1, got, why), -EINVAL);
    rows[3].token = VOCAB;
    assert_int_equal(llm_engine_step(b.engine, rows, 5, got, why), -EINVAL);
    assert_int_equal(llm_seq_length(seq), 10);
    feed(&b, seq, 10, 20, got);
    same_logits(want + (size_t)10 * VOCAB, got, 10);
    llm_seq_destroy(seq);
    bench_close(&b);
    free(want);
    free(got);
}

static void a_full_cache_is_told_and_freed_pages_serve_again(void **state)
{
    (void)state;
    struct bench b;
    float *want = all_logits(), *got = all_logits();
    bench_open(&b, LLM_LLAMA, LLM_Q8_0, "cpu", 1);
    whole(&b, want);
    llm_engine_destroy(b.engine);
    struct llm_engine_options options = {.threads = 1}; /* one sequence of full context: 4 pages */
    assert_int_equal(llm_engine_create(b.file, &options, &b.engine, why), 0);
    struct llm_seq *first = new_seq(&b), *second = new_seq(&b);
    feed(&b, first, 0, 130, got);
    feed(&b, second, 0, 64, got);
    struct llm_row row = {.seq = second, .token = b.prompt[64], .logits = true};
    assert_int_equal(llm_engine_step(b.engine, &row, 1, got, why), -ENOSPC);
    assert_int_equal(llm_seq_length(second), 64);
    llm_seq_destroy(first);
    assert_int_equal(llm_engine_step(b.engine, &row, 1, got, why), 0);
    same_logits(want + (size_t)64 * VOCAB, got, 1);
    llm_seq_destroy(second);
    bench_close(&b);
    free(want);
    free(got);
}

/* Whatever the slabs are. */
static void memory_for_one_sequence_has_all_its_positions(void **state)
{
    (void)state;
    struct llm_file *file = model_deep(40 * LLM_KV_POSITIONS, 1);
    for (uint32_t pages = 1; pages <= 40; pages++) {
        struct llm_engine_options options = {.threads = 1, .context = pages * LLM_KV_POSITIONS};
        struct bench b = {.file = file};
        assert_int_equal(llm_engine_create(file, &options, &b.engine, why), 0);
        struct llm_seq *seq = new_seq(&b);
        assert_int_equal(llm_seq_reserve(seq, pages * LLM_KV_POSITIONS, why), 0);
        llm_seq_destroy(seq);
        llm_engine_destroy(b.engine);
    }
    llm_file_close(file);
}

/* ---- pages of several sequences ---- */

static uint32_t used_pages(const struct bench *b)
{
    uint32_t used, all;
    llm_engine_kv_pages(b->engine, &used, &all);
    return used;
}

static void open_with_prefixes(struct bench *b, enum llm_arch arch, uint64_t kv_bytes)
{
    bench_open(b, arch, LLM_Q8_0, "cpu", 2);
    llm_engine_destroy(b->engine);
    struct llm_engine_options options = {.threads = 2, .kv_bytes = kv_bytes, .keep_prefixes = true};
    assert_int_equal(llm_engine_create(b->file, &options, &b->engine, why), 0);
}

/* A sequence that adopts what it can, and computes the rest with the same bits. */
static void adopts(struct bench *b, uint32_t rows, const float *want)
{
    float *got = all_logits();
    struct llm_seq *seq = new_seq(b);
    assert_int_equal(llm_seq_adopt(seq, b->prompt, PROMPT - 1), rows);
    assert_int_equal(llm_seq_length(seq), rows);
    feed(b, seq, rows, PROMPT, got);
    same_logits(want + (size_t)rows * VOCAB, got, PROMPT - rows);
    llm_seq_destroy(seq);
    free(got);
}

static void texts_that_begin_alike_share_their_pages(void **state)
{
    (void)state;
    const enum llm_arch archs[] = {LLM_LLAMA, LLM_GPT2, LLM_GEMMA3, LLM_GPT_OSS};
    for (size_t i = 0; i < (ONLY_THREADS ? 1 : sizeof archs / sizeof archs[0]); i++) {
        struct bench b;
        float *want = all_logits(), *got = all_logits();
        open_with_prefixes(&b, archs[i], 64 << 20);
        struct llm_seq *first = new_seq(&b), *second = new_seq(&b);
        assert_int_equal(llm_seq_adopt(first, b.prompt, PROMPT), 0);
        feed(&b, first, 0, PROMPT, want);
        uint32_t alone = used_pages(&b), layers = llm_engine_config(b.engine)->layers;
        assert_int_equal(llm_seq_adopt(second, b.prompt, 63), 0);
        assert_int_equal(llm_seq_adopt(second, b.prompt, PROMPT), 128);
        assert_int_equal(used_pages(&b), alone); /* none was added */
        feed(&b, second, 128, PROMPT, got);
        same_logits(want + (size_t)128 * VOCAB, got, PROMPT - 128);
        assert_int_equal(used_pages(&b), alone + layers);
        struct llm_seq *third = new_seq(&b);
        feed(&b, third, 0, PROMPT, got); /* computes what is there: one copy stays */
        same_logits(want, got, PROMPT);
        assert_int_equal(used_pages(&b), alone + 2 * layers);
        llm_seq_destroy(third);
        llm_seq_destroy(first);
        adopts(&b, 128, want);
        llm_seq_destroy(second);
        assert_int_equal(used_pages(&b), 0);
        adopts(&b, 128, want); /* of a text that is gone */
        b.prompt[70] ^= 1;
        struct llm_seq *other = new_seq(&b);
        assert_int_equal(llm_seq_adopt(other, b.prompt, PROMPT), 64);
        llm_seq_destroy(other);
        bench_close(&b);
        free(want);
        free(got);
    }
}

/* Adopts whole pages and then a part, and computes the rest with the same bits. */
static void adopts_part(struct bench *b, uint32_t whole, uint32_t part, uint32_t count,
                        const float *want)
{
    float *got = all_logits();
    struct llm_seq *seq = new_seq(b);
    assert_int_equal(llm_seq_adopt(seq, b->prompt, count), whole);
    assert_int_equal(llm_seq_adopt_part(seq, b->prompt + whole, count - whole), part);
    assert_int_equal(llm_seq_length(seq), whole + part);
    if (want) {
        feed(b, seq, whole + part, PROMPT, got);
        same_logits(want + (size_t)(whole + part) * VOCAB, got, PROMPT - whole - part);
    }
    llm_seq_destroy(seq);
    free(got);
}

static void a_page_that_begins_alike_gives_its_rows(void **state)
{
    (void)state;
    const enum llm_arch archs[] = {LLM_LLAMA, LLM_GPT2, LLM_GEMMA3, LLM_GPT_OSS};
    for (size_t i = 0; i < (ONLY_THREADS ? 1 : sizeof archs / sizeof archs[0]); i++) {
        struct bench b;
        float *want = all_logits(), *got = all_logits(), *other = all_logits();
        open_with_prefixes(&b, archs[i], 64 << 20);
        uint32_t layers = llm_engine_config(b.engine)->layers;
        struct llm_seq *seq = new_seq(&b);
        feed(&b, seq, 0, PROMPT, want);
        adopts_part(&b, 128, PROMPT - 1 - 128, PROMPT - 1, want); /* of a text that goes on */
        llm_seq_destroy(seq);
        assert_int_equal(used_pages(&b), 0);
        adopts_part(&b, 128, PROMPT - 1 - 128, PROMPT - 1, want); /* of the end of a text */
        adopts_part(&b, 0, 40, 40, want); /* of a page that it does not want whole */
        adopts_part(&b, 0, 0, 7, want);   /* too few */
        uint32_t saved = b.prompt[100];
        b.prompt[100] ^= 1;
        adopts_part(&b, 64, 36, PROMPT - 1, NULL); /* of a page that differs later */
        seq = new_seq(&b);
        feed(&b, seq, 0, PROMPT, other);
        llm_seq_destroy(seq);
        adopts_part(&b, 128, PROMPT - 1 - 128, PROMPT - 1, other);
        b.prompt[100] = saved;
        adopts_part(&b, 128, PROMPT - 1 - 128, PROMPT - 1, want);
        /* A part grows, and does not keep whole pages away. */
        seq = new_seq(&b);
        assert_int_equal(llm_seq_adopt_part(seq, b.prompt, 10), 10);
        assert_int_equal(llm_seq_adopt_part(seq, b.prompt + 10, 7), 0);
        assert_int_equal(llm_seq_adopt_part(seq, b.prompt + 10, 10), 10);
        feed(&b, seq, 20, 22, got);
        same_logits(want + (size_t)20 * VOCAB, got, 2);
        llm_seq_truncate(seq, 0);
        assert_int_equal(llm_seq_adopt_part(seq, b.prompt, 20), 20);
        assert_int_equal(used_pages(&b), layers);
        assert_int_equal(llm_seq_adopt(seq, b.prompt + 20, 43), 0);
        assert_int_equal(llm_seq_adopt(seq, b.prompt + 20, PROMPT - 20), 108);
        assert_int_equal(used_pages(&b), 2 * layers);
        feed(&b, seq, 128, PROMPT, got);
        same_logits(want + (size_t)128 * VOCAB, got, PROMPT - 128);
        llm_seq_destroy(seq);
        bench_close(&b);
        free(want);
        free(got);
        free(other);
    }
}

static void a_part_takes_no_page_that_a_sequence_needs(void **state)
{
    (void)state;
    struct bench b;
    float *want = all_logits(), *got = all_logits();
    open_with_prefixes(&b, LLM_LLAMA, 0); /* 4 pages a layer */
    struct llm_seq *seq = new_seq(&b), *other = new_seq(&b);
    feed(&b, seq, 0, PROMPT, want);
    llm_seq_destroy(seq);
    uint32_t first = b.prompt[0];
    b.prompt[0] ^= 1;
    feed(&b, other, 0, 128, got); /* two pages that are in use, and two of the first text */
    b.prompt[0] = first;
    seq = new_seq(&b);
    assert_int_equal(llm_seq_adopt(seq, b.prompt, PROMPT), 128);
    assert_int_equal(llm_seq_adopt_part(seq, b.prompt + 128, 20), 0); /* all are in use */
    assert_int_equal(llm_seq_length(seq), 128);
    llm_seq_destroy(other);
    feed(&b, seq, 128, PROMPT, got);
    same_logits(want + (size_t)128 * VOCAB, got, PROMPT - 128);
    llm_seq_destroy(seq);
    bench_close(&b);
    free(want);
    free(got);
}

/* What one sequence does with shared pages, others do not see. */
static void shared_pages_do_not_change(void **state)
{
    (void)state;
    struct bench b;
    float *want = all_logits(), *got = all_logits();
    open_with_prefixes(&b, LLM_LLAMA, 64 << 20);
    struct llm_seq *seq = new_seq(&b);
    feed(&b, seq, 0, PROMPT, want);
    llm_seq_truncate(seq, 70); /* within the second page */
    uint32_t saved = b.prompt[70];
    b.prompt[70] = saved ^ 1;
    feed(&b, seq, 70, PROMPT, got);
    b.prompt[70] = saved;
    llm_seq_destroy(seq);
    adopts(&b, 128, want);
    /* Nor what is written over them. */
    seq = new_seq(&b);
    assert_int_equal(llm_seq_adopt(seq, b.prompt, PROMPT), 128);
    uint64_t bytes = llm_kv_row_bytes(b.engine) * 100;
    void *zeros = calloc(1, bytes);
    assert_int_equal(llm_seq_write_kv(seq, 0, 10, 110, zeros), 0);
    assert_int_equal(llm_seq_adopt(seq, b.prompt + 128, 10), 0);
    feed(&b, seq, 128, PROMPT, got); /* not kept: its rows are not those of its tokens */
    llm_seq_destroy(seq);
    adopts(&b, 128, want);
    bench_close(&b);
    free(zeros);
    free(want);
    free(got);
}

static void kept_pages_make_room(void **state)
{
    (void)state;
    struct bench b;
    float *want = all_logits(), *got = all_logits();
    open_with_prefixes(&b, LLM_LLAMA, 0); /* one sequence of full context: 4 pages a layer */
    struct llm_seq *seq = new_seq(&b);
    feed(&b, seq, 0, PROMPT, want);
    llm_seq_destroy(seq);
    uint32_t first = b.prompt[0];
    for (uint32_t i = 1; i <= 5; i++) { /* texts of 3 pages, all different */
        b.prompt[0] = (first + i) % VOCAB;
        seq = new_seq(&b);
        assert_int_equal(llm_seq_adopt(seq, b.prompt, PROMPT), 0);
        feed(&b, seq, 0, PROMPT, got);
        assert_int_equal(used_pages(&b), 3 * llm_engine_config(b.engine)->layers);
        llm_seq_destroy(seq);
    }
    adopts(&b, 128, got); /* the last one is still there */
    b.prompt[0] = first;
    adopts(&b, 0, want); /* the first one is not */
    bench_close(&b);
    free(want);
    free(got);
}

static void a_timed_step_leaves_nothing_behind(void **state)
{
    (void)state;
    struct bench b;
    float *got = all_logits();
    uint64_t ns = 0;
    bench_open(&b, LLM_LLAMA, LLM_Q8_0, "cpu", 1);
    llm_engine_destroy(b.engine);
    struct llm_engine_options options = {.threads = 1}; /* one sequence of full context */
    assert_int_equal(llm_engine_create(b.file, &options, &b.engine, why), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(llm_engine_time(b.engine, CONTEXT, &ns, why), 0);
        assert_true(ns > 0);
    }
    struct llm_seq *seq = new_seq(&b);
    feed(&b, seq, 0, PROMPT, got); /* there is room */
    assert_int_equal(llm_engine_time(b.engine, CONTEXT, &ns, why), 0);
    assert_int_equal(ns, 0); /* there is none */
    assert_int_equal(llm_seq_length(seq), PROMPT);
    llm_seq_destroy(seq);
    bench_close(&b);
    free(got);
}

static void unfit_options_are_refused(void **state)
{
    (void)state;
    struct llm_file *file = model_wide(LLM_GPT2, LLM_F16, FFN, CONTEXT);
    struct llm_engine *engine;
    struct llm_engine_options unknown = {.backend = "abacus"}, longer = {.context = CONTEXT + 1};
    struct llm_engine_options small = {.kv_bytes = 1}, crowd = {.threads = 100000};
    assert_int_equal(llm_engine_create(file, &unknown, &engine, why), -ENODEV);
    assert_int_equal(llm_engine_create(file, &longer, &engine, why), -EINVAL);
    assert_int_equal(llm_engine_create(file, &small, &engine, why), -ENOMEM);
    assert_int_equal(llm_engine_create(file, &crowd, &engine, why), -EINVAL);
    llm_file_close(file);
}

/* One life of an engine, which ends early with -ENOMEM when an allocation fails. */
static int short_life(const struct llm_file *file, float *logits)
{
    struct llm_engine_options options = {.threads = 1};
    struct llm_engine *engine = NULL;
    struct llm_seq *seq = NULL;
    struct llm_row rows[70];
    int rc = llm_engine_create(file, &options, &engine, why);
    if (rc == 0)
        rc = llm_seq_create(engine, &seq);
    for (uint32_t i = 0; i < 70; i++)
        rows[i] = (struct llm_row){.seq = seq, .token = i, .logits = i == 69};
    if (rc == 0) {
        rc = llm_engine_step(engine, rows, 70, logits, why);
        assert_int_equal(llm_seq_length(seq), rc ? 0 : 70);
    }
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
    return rc;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct llm_file *file = model_wide(LLM_LLAMA, LLM_Q4_K, FFN, CONTEXT);
    float logits[VOCAB];
    int rc = -ENOMEM;
    for (long allowed = 0; rc; allowed++) {
        assert_true(allowed < 1000);
        allocations_left = allowed;
        counting = true;
        rc = short_life(file, logits);
        counting = false;
        assert_true(rc == 0 || rc == -ENOMEM);
    }
    llm_file_close(file);
}

/* Whichever allocation of a prompt's step fails, its second page never begins a text. */
static void a_page_is_kept_after_its_prefix_or_not_at_all(void **state)
{
    (void)state;
    float *logits = all_logits();
    bool failed = true;
    for (long allowed = 0; failed; allowed++) {
        struct bench b;
        open_with_prefixes(&b, LLM_LLAMA, 64 << 20);
        struct llm_seq *seq = new_seq(&b), *other = new_seq(&b);
        struct llm_row rows[PROMPT];
        for (uint32_t i = 0; i < PROMPT; i++)
            rows[i] = (struct llm_row){.seq = seq, .token = b.prompt[i]};
        allocations_left = allowed;
        counting = only_one = true;
        int rc = llm_engine_step(b.engine, rows, PROMPT, logits, why);
        failed = !counting;
        counting = only_one = false;
        assert_true(rc == 0 || (failed && rc == -ENOMEM));
        assert_int_equal(llm_seq_adopt(other, b.prompt + 64, 64), 0);
        llm_seq_destroy(other);
        llm_seq_destroy(seq);
        bench_close(&b);
    }
    free(logits);
}

/* ---- the trained model ---- */

static void data_path(char path[512], const char *name)
{
    const char *given = getenv("HAWSER_TEST_DATA");
    snprintf(path, 512, "%s/%s", given ? given : HAWSER_SHARED_DATA, name);
}

/* The model is not part of the tree. */
static bool story_is_there(void)
{
    char model[512], tokenizer[512];
    data_path(model, "stories260K.bin");
    data_path(tokenizer, "tok512.bin");
    return access(model, R_OK) == 0 && access(tokenizer, R_OK) == 0;
}

static void the_small_model_tells_its_story(void **state)
{
    (void)state;
    static const char story[] =
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "park. One day, she saw a big, red ball.";
    char model[512], tokenizer[512], text[1024] = "";
    data_path(model, "stories260K.bin");
    data_path(tokenizer, "tok512.bin");
    struct bench b;
    struct llm_vocab *vocab;
    struct llm_sampler *sampler;
    struct llm_sampling greedy = {.temperature = 0};
    assert_int_equal(llm_file_open(model, &b.file, why), 0);
    assert_int_equal(llm_vocab_create(b.file, tokenizer, &vocab, why), 0);
    b.engine = make_engine(b.file, "cpu", 2);
    assert_int_equal(llm_sampler_create(&greedy, llm_vocab_size(vocab), &sampler), 0);
    struct llm_seq *seq = new_seq(&b);
    float *logits = malloc(sizeof *logits * llm_vocab_size(vocab));
    struct llm_row row = {.seq = seq, .token = (uint32_t)llm_vocab_bos(vocab), .logits = true};
    for (bool first = true; strlen(text) < strlen(story); first = false) {
        assert_int_equal(llm_engine_step(b.engine, &row, 1, logits, why), 0);
        row.token = llm_sampler_next(sampler, logits);
        size_t bytes, used = strlen(text);
        const char *piece = llm_vocab_piece(vocab, row.token, first, &bytes);
        assert_true(bytes > 0 && used + bytes < sizeof text);
        memcpy(text + used, piece, bytes);
        text[used + bytes] = 0;
    }
    text[strlen(story)] = 0;
    assert_string_equal(text, story);
    free(logits);
    llm_seq_destroy(seq);
    llm_sampler_destroy(sampler);
    llm_vocab_destroy(vocab);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_does_not_depend_on_its_batch),
        cmocka_unit_test(threads_and_kernels_do_not_show),
        cmocka_unit_test(every_machine_computes_the_same_logits),
        cmocka_unit_test(kv_travels_as_bytes),
        cmocka_unit_test(what_was_forgotten_can_be_said_again),
        cmocka_unit_test(bad_steps_change_nothing),
        cmocka_unit_test(a_full_cache_is_told_and_freed_pages_serve_again),
        cmocka_unit_test(memory_for_one_sequence_has_all_its_positions),
        cmocka_unit_test(texts_that_begin_alike_share_their_pages),
        cmocka_unit_test(a_page_that_begins_alike_gives_its_rows),
        cmocka_unit_test(a_part_takes_no_page_that_a_sequence_needs),
        cmocka_unit_test(shared_pages_do_not_change),
        cmocka_unit_test(kept_pages_make_room),
        cmocka_unit_test(a_timed_step_leaves_nothing_behind),
        cmocka_unit_test(unfit_options_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_page_is_kept_after_its_prefix_or_not_at_all),
        cmocka_unit_test(the_small_model_tells_its_story),
    };
    size_t count = sizeof tests / sizeof tests[0] - !story_is_there();
    return _cmocka_run_group_tests("engine", tests, count, NULL, NULL);
}
