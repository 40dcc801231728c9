/* Tensor-parallel workers: the same bits as one worker, for every architecture that can be split
 * and any number of workers; KV as bytes; layers that are restored in a step; a worker killed
 * between steps, in a step and in a broadcast; a limit on KV memory.  `test-llm-tp vulkan`: on a
 * GPU. */
#include "bits.h"

#include "llm/engine/split.h"
#include "llm/tp/command.h"
#include "llm/tp/rank.h"
#include "llm/tp/tp.h"
#include "page/limit.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 4 };

static struct llm_engine *engine_open(const struct model *m, uint32_t ranks,
                                      struct page_limit *limit)
{
    struct llm_engine_options options = {.backend = backend,
                                         .threads = 1,
                                         .kv_bytes = 1 << 20,
                                         .kv_limit = limit,
                                         .tp = ranks,
                                         .path = m->path,
                                         .keep_prefixes = true};
    struct llm_engine *engine;
    if (llm_engine_create(m->file, &options, &engine, why))
        fail_msg("%u ranks: %s", ranks, why);
    return engine;
}

/* ---- the same bits ---- */

/* What rank 0 of two gave is half of what the arithmetic says, and its logits. */
static void check_bytes(const struct model *m, const struct llm_engine *engine)
{
    const struct llm_config *c = llm_file_config(m->file);
    uint64_t rows = PROMPT + 2 * DECODED, half = llm_tp_layer_cost(c).values / 2;
    uint32_t logits = llm_share_of(c->vocab, LLM_SPLIT_UNIT, 0, 2).count;
    struct llm_tp_stats stats;
    llm_engine_tp_stats(engine, &stats);
    assert_int_equal(stats.bytes, rows * (c->layers * half + logits) * sizeof(float));
}

static void same_bits_of(enum llm_arch arch, enum llm_dtype dtype, uint32_t most)
{
    struct model m;
    model_open(&m, arch, dtype);
    struct llm_engine *alone = engine_open(&m, 0, NULL);
    char text[LLM_ARITHMETIC_CHARS], same[LLM_ARITHMETIC_CHARS];
    forget(&wanted);
    compute(alone, &wanted);
    llm_engine_arithmetic(alone, text);
    llm_engine_destroy(alone);
    for (uint32_t ranks = 2; ranks <= most; ranks++) {
        struct llm_engine *engine = engine_open(&m, ranks, NULL);
        forget(&got);
        compute(engine, &got);
        llm_engine_arithmetic(engine, same);
        if (ranks == 2)
            check_bytes(&m, engine);
        llm_engine_destroy(engine);
        assert_string_equal(text, same);
        if (memcmp(&wanted, &got, sizeof got) != 0)
            fail_msg("%s: %u workers compute other bits", llm_arch_name(arch), ranks);
    }
    model_close(&m);
}

static void any_number_of_workers_computes_the_same_bits(void **state)
{
    (void)state;
    same_bits_of(LLM_LLAMA, LLM_Q8_0, strcmp(backend, "cpu") == 0 ? RANKS_MAX : 2);
}

/* Biases, post norms, windows, soft caps, joined tensors, tied outputs, parallel residuals, norms
 * of heads, learned positions; experts, with biases, and one that all rows meet. */
static void every_architecture_can_be_split(void **state)
{
    static const enum llm_arch archs[] = {LLM_QWEN2MOE, LLM_GPT_OSS, LLM_QWEN2,      LLM_QWEN3,
                                          LLM_GEMMA2,   LLM_GEMMA3,  LLM_PHI3,       LLM_GPT2,
                                          LLM_GPTJ,     LLM_GRANITE, LLM_STARCODER2, LLM_QWEN3MOE};
    size_t count = ONLY_THREADS ? 1 : SANITIZED ? 2 : sizeof archs / sizeof archs[0];
    (void)state;
    for (size_t i = 0; i < count; i++)
        same_bits_of(archs[i], i % 2 ? LLM_F16 : LLM_Q4_K, 2);
}

/* ---- layers that are restored in a step ---- */

static bool is_child(const char *number)
{
    char path[64], line[256];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%.20s/status", number);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "PPid: %d", &parent) != 1)
        parent = 0;
    if (f)
        fclose(f);
    return parent == getpid();
}

static pid_t child(void)
{
    DIR *all = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *e; all && (e = readdir(all));) {
        int pid = atoi(e->d_name);
        if (pid > 0 && is_child(e->d_name))
            found = pid;
    }
    closedir(all);
    assert_true(found > 0);
    return found;
}

/* ---- a worker dies ---- */

static void check_lost(const struct llm_seq *seq, uint32_t length)
{
    struct llm_layers missing = llm_seq_missing(seq);
    assert_int_equal(llm_seq_length(seq), length);
    assert_int_equal(llm_layers_count(&missing), LAYERS);
}

static void compute_again(struct llm_engine *engine, struct llm_seq *seq)
{
    forget(&got);
    llm_seq_truncate(seq, 0);
    assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
    assert_memory_equal(wanted.logits, got.logits, sizeof(float) * PROMPT * VOCAB);
}

static void a_worker_that_dies_between_steps_loses_kv_and_no_bits(void **state)
{
    struct model m;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    struct llm_engine *engine = engine_open(&m, 3, NULL);
    struct llm_seq *seq = seq_open(engine), *idle = seq_open(engine), *fresh = seq_open(engine);
    assert_int_equal(feed(engine, seq, 0, PROMPT, wanted.logits), 0);
    assert_int_equal(feed(engine, idle, 0, 5, got.logits), 0);
    kill(child(), SIGKILL);
    assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
    assert_non_null(strstr(why, "died"));
    check_lost(seq, PROMPT);
    check_lost(idle, 5);
    assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
    assert_int_equal(llm_seq_adopt(fresh, (uint32_t[LLM_KV_POSITIONS]){0}, LLM_KV_POSITIONS), 0);
    compute_again(engine, seq);
    /* Noticed by reading, by reserving, and by giving pages back. */
    kill(child(), SIGKILL);
    assert_int_equal(llm_seq_read_kv(seq, 0, 1, 0, PROMPT, got.kv[0]), -EOWNERDEAD);
    assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
    compute_again(engine, seq);
    kill(child(), SIGKILL);
    assert_int_equal(llm_seq_reserve(idle, CONTEXT, why), 0);
    check_lost(seq, PROMPT);
    compute_again(engine, seq);
    kill(child(), SIGKILL);
    llm_seq_destroy(idle);
    llm_engine_kv_trim(engine);
    assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
    compute_again(engine, seq);
    llm_seq_destroy(seq);
    llm_seq_destroy(fresh);
    llm_engine_destroy(engine);
    model_close(&m);
}

/* The first thread waits for the worker, which is stopped. */
static bool first_thread_sleeps(void)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    FILE *f = fopen(path, "re");
    bool read = f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
    if (f)
        fclose(f);
    return read && state == 'S';
}

static void *kill_then(void *pid)
{
    while (!first_thread_sleeps())
        sched_yield();
    kill(*(pid_t *)pid, SIGKILL);
    return NULL;
}

static void a_worker_that_dies_in_a_step_ends_it(void **state)
{
    struct model m;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    struct llm_engine *engine = engine_open(&m, 2, NULL);
    struct llm_seq *seq = seq_open(engine);
    assert_int_equal(feed(engine, seq, 0, PROMPT, wanted.logits), 0);
    for (int broadcast = 0; broadcast < 2; broadcast++) {
        pid_t pid = child();
        pthread_t killer;
        kill(pid, SIGSTOP);
        assert_int_equal(pthread_create(&killer, NULL, kill_then, &pid), 0);
        if (broadcast) /* the mapping is waiting for the worker; then it is started again */
            assert_int_equal(llm_seq_reserve(seq, CONTEXT, why), 0);
        assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
        pthread_join(killer, NULL);
        check_lost(seq, PROMPT);
        compute_again(engine, seq);
    }
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
    model_close(&m);
}

/* On a busy machine a worker that runs may be late as well: then it is computed once more. */
static void compute_until_done(struct llm_engine *engine, struct llm_seq *seq)
{
    int rc = -ENODATA;
    forget(&got);
    for (int i = 0; i < 20 && rc == -ENODATA; i++) {
        llm_seq_truncate(seq, 0);
        rc = feed(engine, seq, 0, PROMPT, got.logits);
    }
    assert_int_equal(rc, 0);
    assert_memory_equal(wanted.logits, got.logits, sizeof(float) * PROMPT * VOCAB);
}

static uint64_t losses(const struct llm_engine *engine)
{
    struct llm_tp_stats stats;
    llm_engine_tp_stats(engine, &stats);
    return stats.losses;
}

/* Sequences take memory until some has to be mapped, which finds the worker silent. */
static void reserve_until_loss(struct llm_engine *engine, uint64_t before)
{
    struct llm_seq *seqs[20];
    uint32_t count = 0;
    while (count < 20 && losses(engine) == before) {
        seqs[count] = seq_open(engine);
        assert_int_equal(llm_seq_reserve(seqs[count++], CONTEXT, why), 0);
    }
    while (count > 0)
        llm_seq_destroy(seqs[--count]);
}

static pid_t hung;

/* A stopped worker would outlive a test that fails. */
static int kill_hung(void **state)
{
    (void)state;
    if (hung)
        kill(hung, SIGKILL);
    return 0;
}

static void a_worker_that_hangs_is_replaced(void **state)
{
    struct model m;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    struct llm_engine *alone = engine_open(&m, 0, NULL);
    struct llm_seq *seq = seq_open(alone);
    assert_int_equal(feed(alone, seq, 0, PROMPT, wanted.logits), 0);
    llm_seq_destroy(seq);
    llm_engine_destroy(alone);
    setenv("HAWSER_TP_TIMEOUT_S", "1", 1);
    struct llm_engine *engine = engine_open(&m, 3, NULL);
    unsetenv("HAWSER_TP_TIMEOUT_S");
    seq = seq_open(engine);
    compute_until_done(engine, seq);
    for (uint64_t round = 0; round < 2; round++) {
        uint64_t before = losses(engine);
        llm_engine_kv_trim(engine);
        hung = child();
        kill(hung, SIGSTOP);
        if (round == 0) { /* in a step */
            assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
            assert_non_null(strstr(why, "did not answer for 1s (HAWSER_TP_TIMEOUT_S)"));
        } else { /* in a broadcast, which is repeated */
            reserve_until_loss(engine, before);
        }
        assert_true(losses(engine) > before);
        assert_int_equal(kill(hung, 0), -1); /* it does not stay behind */
        hung = 0;
        check_lost(seq, PROMPT);
        compute_until_done(engine, seq);
    }
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
    model_close(&m);
}

static void a_file_that_was_replaced_yields_no_tokens(void **state)
{
    struct model m, other;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    model_open(&other, LLM_LLAMA, LLM_F16);
    struct llm_engine *engine = engine_open(&m, 2, NULL);
    struct llm_seq *seq = seq_open(engine);
    assert_int_equal(feed(engine, seq, 0, 5, wanted.logits), 0);
    assert_int_equal(rename(other.path, m.path), 0);
    kill(child(), SIGKILL);
    assert_int_equal(feed(engine, seq, 5, 6, got.logits), -ENODATA);
    llm_seq_truncate(seq, 0);
    assert_int_equal(feed(engine, seq, 0, 5, got.logits), -ESTALE);
    assert_non_null(strstr(why, "has changed"));
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
    model_close(&other);
    model_close(&m);
}

/* ---- memory ---- */

static void the_limit_counts_the_memory_of_all_workers(void **state)
{
    struct model m;
    struct page_limit *limit;
    struct page_error error;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    assert_int_equal(page_limit_open(NULL, &limit, &error), 0);
    assert_int_equal(page_limit_claim(limit, 0, &error), 0);
    struct llm_engine *engine = engine_open(&m, 2, limit);
    struct llm_seq *seqs[3];
    uint32_t used, all;
    for (int i = 0; i < 3; i++)
        seqs[i] = seq_open(engine);
    assert_int_equal(feed(engine, seqs[0], 0, PROMPT, wanted.logits), 0);
    uint64_t one = page_limit_charged(limit);
    assert_true(one >= PROMPT * LAYERS * llm_kv_row_bytes(engine));
    /* Room for one more such text. */
    page_limit_set(limit, 2 * one);
    assert_int_equal(feed(engine, seqs[1], 0, PROMPT, got.logits), 0);
    assert_int_equal(feed(engine, seqs[2], 0, PROMPT, got.logits), -ENOSPC);
    assert_true(page_limit_charged(limit) <= 2 * one);
    llm_seq_destroy(seqs[1]);
    assert_int_equal(feed(engine, seqs[2], 0, PROMPT, got.logits), 0);
    assert_memory_equal(wanted.logits, got.logits, sizeof(float) * PROMPT * VOCAB);
    llm_seq_destroy(seqs[0]);
    llm_seq_destroy(seqs[2]);
    while (llm_engine_kv_drop(engine))
        ;
    llm_engine_kv_trim(engine);
    llm_engine_kv_pages(engine, &used, &all);
    assert_int_equal(used, 0);
    assert_int_equal(page_limit_charged(limit), 0);
    llm_engine_destroy(engine);
    page_limit_close(limit);
    model_close(&m);
}

/* ---- what cannot be split ---- */

static int refused(const struct model *m, uint32_t ranks, const char *path)
{
    struct llm_engine_options options = {
        .backend = backend, .threads = 1, .tp = ranks, .path = path};
    struct llm_engine *engine;
    return llm_engine_create(m->file, &options, &engine, why);
}

static void what_cannot_be_split_is_refused(void **state)
{
    struct model m;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    assert_int_equal(refused(&m, 5, m.path), -EINVAL);
    assert_non_null(strstr(why, "--tp 4 or less"));
    assert_int_equal(refused(&m, PAGE_RANKS_MAX + 1, m.path), -EINVAL);
    assert_int_equal(refused(&m, 2, "/nowhere"), -ENOENT);
    model_close(&m);
    model_open(&m, LLM_OLMOE, LLM_Q8_0);
    assert_int_equal(refused(&m, 2, m.path), -EOPNOTSUPP);
    assert_non_null(strstr(why, "norms the queries of all heads together"));
    model_close(&m);
}

/* Each worker has at least one unit of the rows of every matrix. */
static void too_many_workers_for_few_rows_are_refused(void **state)
{
    enum {
        RANKS = 18,
        FEW = (RANKS - 1) * LLM_SPLIT_UNIT,
        ENOUGH = FEW + 1,
        WIDE = RANKS * LLM_SPLIT_UNIT
    };
    static const struct {
        uint32_t width, ffn, vocab;
        int status;
    } cases[] = {{WIDE, ENOUGH, ENOUGH, 0},
                 {WIDE - RANKS, ENOUGH, ENOUGH, -EINVAL},
                 {WIDE, FEW, ENOUGH, -EINVAL},
                 {WIDE, ENOUGH, FEW, -EINVAL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct llm_synth synth = {.config = {.arch = LLM_LLAMA,
                                             .layers = 1,
                                             .width = cases[i].width,
                                             .heads = RANKS,
                                             .kv_heads = RANKS,
                                             .head_dim = 8,
                                             .ffn = cases[i].ffn,
                                             .vocab = cases[i].vocab,
                                             .context = 64},
                                  .dtype = LLM_F16};
        struct model m;
        synth_open(&m, &synth);
        assert_int_equal(llm_tp_check(m.file, RANKS, why), cases[i].status);
        if (cases[i].status)
            assert_non_null(strstr(why, "--tp 17 or less"));
        model_close(&m);
    }
}

static unsigned cores; /* 0: those there are */

unsigned __real_hw_cores(void);
unsigned __wrap_hw_cores(void);
unsigned __wrap_hw_cores(void)
{
    return cores ? cores : __real_hw_cores();
}

static void a_machine_may_have_more_cores_than_the_workers_threads(void **state)
{
    (void)state;
    struct model m;
    struct llm_backend *b;
    const struct llm_backend_config config = {.device = 0};
    model_open(&m, LLM_LLAMA, LLM_F16);
    const struct llm_tp_config tp = {.file = m.file, .path = m.path, .ranks = 2};
    cores = 2 * LLM_THREADS_MAX + 2;
    if (llm_tp_open(llm_backend_find("cpu"), &config, &tp, &b, why))
        fail_msg("%s", why);
    b->ops->close(b);
    cores = 0;
    model_close(&m);
}

/* ---- what is written for the others ---- */

static void a_step_is_checked(void **state)
{
    static uint32_t memory[4096];
    uint32_t tokens[] = {1, 2, 3}, positions[] = {0, 1, 64}, seqs[] = {0, 0, 1};
    uint32_t page_first[] = {0, 1}, pages[2 * 3] = {0, 1, 2, 3, 4, 5}, picks[] = {2};
    float rope[3 * 2 * 2] = {1, 2, 3, 4};
    struct llm_batch b, batch = {.rows = 3,
                                 .tokens = tokens,
                                 .positions = positions,
                                 .seqs = seqs,
                                 .seq_count = 2,
                                 .page_first = page_first,
                                 .pages = pages,
                                 .page_count = 3,
                                 .layers = 2,
                                 .picks = picks,
                                 .pick_count = 1,
                                 .rope = rope,
                                 .rope_pairs = 2,
                                 .rope_tables = 1};
    struct llm_tp_limits limits = {.vocab = 4, .layers = 2, .pages = 6, .context = 65};
    struct llm_tp_command *c = (struct llm_tp_command *)(void *)memory;
    (void)state;
    assert_int_equal(llm_tp_step_encode(&batch, c, sizeof *c + 16), -E2BIG);
    assert_int_equal(llm_tp_step_encode(&batch, c, sizeof memory), 0);
    uint32_t words = c->step.words;
    assert_int_equal(llm_tp_step_decode(c, sizeof memory, &limits, &b), 0);
    assert_int_equal(b.rows, 3);
    assert_memory_equal(b.pages, pages, sizeof pages);
    assert_memory_equal(b.rope, rope, sizeof rope);
    /* No index may lead out of what is there. */
    uint32_t *at = (uint32_t *)(void *)(c + 1);
    for (uint32_t i = 0; i < words; i++) {
        bool is_rope = i >= 12 && i < 24;
        uint32_t before = at[i];
        at[i] = UINT32_MAX;
        assert_int_equal(llm_tp_step_decode(c, sizeof memory, &limits, &b), is_rope ? 0 : -EPROTO);
        at[i] = before;
    }
    assert_int_equal(llm_tp_step_decode(c, sizeof *c + 4 * (words - 1), &limits, &b), -EPROTO);
    c->step.rows = 4;
    assert_int_equal(llm_tp_step_decode(c, sizeof memory, &limits, &b), -EPROTO);
}

int main(int argc, char **argv)
{
    if (llm_tp_is_rank(argc, argv))
        return llm_tp_rank_main(argv);
    if (argc == 2)
        backend = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_workers_computes_the_same_bits),
        cmocka_unit_test(every_architecture_can_be_split),
        cmocka_unit_test(a_worker_that_dies_between_steps_loses_kv_and_no_bits),
        cmocka_unit_test(a_worker_that_dies_in_a_step_ends_it),
        cmocka_unit_test_teardown(a_worker_that_hangs_is_replaced, kill_hung),
        cmocka_unit_test(a_file_that_was_replaced_yields_no_tokens),
        cmocka_unit_test(the_limit_counts_the_memory_of_all_workers),
        cmocka_unit_test(what_cannot_be_split_is_refused),
        cmocka_unit_test(too_many_workers_for_few_rows_are_refused),
        cmocka_unit_test(a_machine_may_have_more_cores_than_the_workers_threads),
        cmocka_unit_test(a_step_is_checked),
    };
    /* A GPU's workers compile their programs, which takes seconds: the rest is the same there. */
    const struct CMUnitTest on_gpu[] = {
        cmocka_unit_test(any_number_of_workers_computes_the_same_bits),
    };
    return argc == 2 ? cmocka_run_group_tests(on_gpu, NULL, NULL)
                     : cmocka_run_group_tests(tests, NULL, NULL);
}
