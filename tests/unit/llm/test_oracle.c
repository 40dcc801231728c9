/* Every architecture against llama.cpp: logits that it computed for models that `hawser model
 * synth` makes anywhere alike.  bench/llm/agree found them, and compares all logits, types and
 * backends. */
#include "unit.h"

#include "llm/engine/engine.h"
#include "llm/model/synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As in bench/llm/agree. */
enum { PROMPT = 200, CONTEXT = 256, POSITIONS = 4, TOKENS = 5, STEP = 64 };
static const uint32_t positions[POSITIONS] = {0, 30, 90, 199};
static const uint32_t tokens[TOKENS] = {0, 100, 255, 300, 511};

/* Logits have a mean square of about 1; llama.cpp keeps K and V in binary32, the engine in
 * binary16. Where queries or scores are scaled otherwise than by a true architecture, differences
 * are 0.1 and more. */
#define BOUND 6e-3

struct golden {
    const char *name;
    float logits[POSITIONS][TOKENS];
};

/* clang-format off */
static const struct golden goldens[] = {
#include "oracle_golden.inc"
};
/* clang-format on */

/* The arguments of bench/llm/agree's cases, by name. */
static struct llm_synth synth_for(const char *name)
{
    static const struct {
        const char *name;
        enum llm_arch arch;
        const char *like;
        enum llm_synth_rope rope;
        uint64_t seed;
        uint32_t context;
    } cases[] = {
        {"llama", LLM_LLAMA, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"llama-moe", LLM_LLAMA, "tiny-moe", LLM_SYNTH_ROPE_NONE, 4, 0},
        {"llama-linear", LLM_LLAMA, "tiny", LLM_SYNTH_ROPE_LINEAR, 1, 0},
        {"llama-yarn", LLM_LLAMA, "tiny", LLM_SYNTH_ROPE_YARN, 1, 0},
        {"llama-llama3", LLM_LLAMA, "tiny", LLM_SYNTH_ROPE_LLAMA3, 1, 0},
        {"qwen2", LLM_QWEN2, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"gpt2", LLM_GPT2, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"qwen3", LLM_QWEN3, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"qwen3-yarn", LLM_QWEN3, "tiny", LLM_SYNTH_ROPE_YARN, 1, 0},
        {"qwen3moe", LLM_QWEN3MOE, "tiny", LLM_SYNTH_ROPE_NONE, 6, 0},
        {"gemma2", LLM_GEMMA2, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"gemma3", LLM_GEMMA3, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"gemma3-linear", LLM_GEMMA3, "tiny", LLM_SYNTH_ROPE_LINEAR, 1, 0},
        {"phi3", LLM_PHI3, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"phi3-long", LLM_PHI3, "tiny", LLM_SYNTH_ROPE_LONGROPE, 1, 0},
        {"phi3-short", LLM_PHI3, "tiny", LLM_SYNTH_ROPE_LONGROPE, 1, 4096},
        {"olmoe", LLM_OLMOE, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"mistral3", LLM_MISTRAL3, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"mistral3-yarn", LLM_MISTRAL3, "tiny", LLM_SYNTH_ROPE_YARN, 1, 0},
        {"granite", LLM_GRANITE, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"starcoder2", LLM_STARCODER2, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"gpt-oss", LLM_GPT_OSS, "tiny", LLM_SYNTH_ROPE_NONE, 10, 0},
        {"gpt-oss-yarn", LLM_GPT_OSS, "tiny", LLM_SYNTH_ROPE_YARN, 10, 0},
        {"qwen2moe", LLM_QWEN2MOE, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"granitemoe", LLM_GRANITEMOE, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"granitemoe-shared", LLM_GRANITEMOE, "tiny-shared", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"gemma", LLM_GEMMA, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"glm4", LLM_GLM4, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"seed_oss", LLM_SEED_OSS, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"exaone", LLM_EXAONE, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"smollm3", LLM_SMOLLM3, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"internlm2", LLM_INTERNLM2, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"ernie4_5", LLM_ERNIE4_5, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"olmo2", LLM_OLMO2, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"olmo2-window", LLM_OLMO2, "tiny-window", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"olmo2-yarn", LLM_OLMO2, "tiny-window", LLM_SYNTH_ROPE_YARN, 1, 0},
        {"exaone4", LLM_EXAONE4, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"cohere2", LLM_COHERE2, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
        {"command-r", LLM_COMMAND_R, "tiny", LLM_SYNTH_ROPE_NONE, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct llm_synth s = {.dtype = LLM_F32, .seed = cases[i].seed};
        if (strcmp(name, cases[i].name) != 0)
            continue;
        assert_true(llm_synth_like(cases[i].arch, cases[i].like, &s.config));
        if (cases[i].context)
            s.config.context = s.config.rope_original = cases[i].context;
        llm_synth_stretch(&s, cases[i].rope, 4);
        return s;
    }
    fail_msg("bench/llm/agree has a case %s that this test lacks", name);
    return (struct llm_synth){0};
}

static struct llm_file *open_synth(const struct llm_synth *synth)
{
    char path[] = "/tmp/hawser-oracle-XXXXXX", why[LLM_WHY_CHARS] = "";
    struct llm_file *file = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    int rc = llm_synth_write(synth, path, why);
    if (rc == 0)
        rc = llm_file_open(path, &file, why);
    unlink(path);
    if (rc)
        fail_msg("%s", why);
    return file;
}

static void compute(const struct llm_file *file, float *logits)
{
    char why[LLM_WHY_CHARS] = "";
    struct llm_engine_options options = {.threads = 2, .context = CONTEXT};
    uint32_t vocab = llm_file_config(file)->vocab;
    struct llm_engine *engine;
    struct llm_seq *seq;
    struct llm_row rows[STEP];
    assert_int_equal(llm_engine_create(file, &options, &engine, why), 0);
    assert_int_equal(llm_seq_create(engine, &seq), 0);
    for (uint32_t first = 0; first < PROMPT; first += STEP) {
        uint32_t some = PROMPT - first < STEP ? PROMPT - first : STEP;
        for (uint32_t r = 0; r < some; r++) {
            uint32_t i = first + r;
            rows[r] = (struct llm_row){
                .seq = seq, .token = (i * i * 37 + i * 11 + 5) % vocab, .logits = true};
        }
        assert_int_equal(llm_engine_step(engine, rows, some, logits + (size_t)first * vocab, why),
                         0);
    }
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
}

static void logits_are_those_of_llama_cpp(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        const struct golden *golden = &goldens[i];
        struct llm_synth synth = synth_for(golden->name);
        struct llm_file *file = open_synth(&synth);
        uint32_t vocab = llm_file_config(file)->vocab;
        float *logits = malloc((size_t)PROMPT * vocab * sizeof *logits);
        assert_non_null(logits);
        compute(file, logits);
        for (uint32_t p = 0; p < POSITIONS; p++) {
            for (uint32_t t = 0; t < TOKENS; t++) {
                double got = (double)logits[(size_t)positions[p] * vocab + tokens[t]];
                double want = (double)golden->logits[p][t];
                if (!(fabs(got - want) <= BOUND))
                    fail_msg("%s: position %u, token %u: %.5f, not about %.5f", golden->name,
                             positions[p], tokens[t], got, want);
            }
        }
        free(logits);
        llm_file_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_llama_cpp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
