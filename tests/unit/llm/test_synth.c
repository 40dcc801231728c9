/* Files with random weights: the same everywhere, sound, whole or not there at all. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#include "base/attr.h"
#include "image.h"

static char why[LLM_WHY_CHARS];

static void the_seed_decides_every_byte(void **state)
{
    (void)state;
    struct llm_synth synth = image_tiny(LLM_LLAMA);
    struct image first = image_synth(&synth), again = image_synth(&synth);
    assert_int_equal(first.size, again.size);
    assert_memory_equal(first.bytes, again.bytes, first.size);
    synth.seed = 8;
    struct image other = image_synth(&synth);
    assert_int_equal(other.size, first.size);
    assert_memory_not_equal(first.bytes, other.bytes, first.size);
    /* The same on every machine: this is what each one must write. */
    assert_int_equal(XXH3_64bits(first.bytes, first.size), UINT64_C(0xf3846199c270b28d));
    image_free(&first);
    image_free(&again);
    image_free(&other);
}

static void every_type_and_architecture_is_written(void **state)
{
    (void)state;
    for (int arch = 0; arch < LLM_ARCHS; arch++) {
        for (size_t t = 0; t < LLM_DTYPES; t++) {
            if (arch != LLM_LLAMA && t != (size_t)arch % LLM_DTYPES)
                continue; /* llama has all types, each other one of them */
            struct llm_synth synth = {.dtype = llm_dtype_at(t), .seed = 3};
            assert_true(llm_synth_like((enum llm_arch)arch, "tiny", &synth.config));
            struct image image = image_synth(&synth);
            struct llm_file *file;
            if (llm_file_parse(image.bytes, image.size, &file, why))
                fail_msg("%s", why);
            assert_int_equal(llm_file_find(file, "token_embd.weight")->dtype, llm_dtype_at(t));
            assert_int_equal(llm_file_find(file, "output_norm.weight")->dtype, LLM_F32);
            assert_true(image.size > llm_synth_bytes(&synth));
            llm_file_close(file);
            image_free(&image);
        }
    }
}

static void weights_are_scaled_by_the_rows(void **state)
{
    (void)state;
    struct llm_synth synth = {.dtype = LLM_F32, .seed = 5};
    assert_true(llm_synth_like(LLM_LLAMA, "tiny", &synth.config));
    struct image image = image_synth(&synth);
    struct llm_file *file;
    assert_int_equal(llm_file_parse(image.bytes, image.size, &file, why), 0);
    const struct llm_tensor *tensor = llm_file_find(file, "blk.1.ffn_down.weight");
    assert_non_null(tensor);
    const float *x = tensor->data;
    size_t count = (size_t)(tensor->dims[0] * tensor->dims[1]);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    double deviation = sqrt(squares / (double)count) * sqrt((double)tensor->dims[0]);
    assert_true(fabs(sum / (double)count) < 1e-3);
    assert_true(deviation > 0.98 && deviation < 1.02);
    llm_file_close(file);
    image_free(&image);
}

static void shapes_that_no_file_may_have_are_refused(void **state)
{
    (void)state;
    const struct {
        struct llm_config config;
        enum llm_dtype dtype;
        const char *phrase;
    } bad[] = {
        {{.layers = 0, .width = 8, .heads = 2}, LLM_F32, "layers"},
        {{.layers = LLM_LAYERS_MAX + 1, .width = 8, .heads = 2}, LLM_F32, "layers"},
        {{.layers = 1, .width = 8, .heads = 2, .vocab = 256}, LLM_F32, "vocabulary"},
        {{.layers = 1, .width = 8, .heads = 4, .kv_heads = 3}, LLM_F32, "divide"},
        {{.arch = LLM_GPT2, .layers = 1, .width = 8, .heads = 4, .kv_heads = 2},
         LLM_F32,
         "gpt2 has"},
        {{.layers = 1, .width = 8, .heads = 2, .rope_dims = 3}, LLM_F32, "rotary"},
        {{.layers = 1, .width = 8, .heads = 9}, LLM_F32, "heads"},
        {{.layers = 1, .width = 10, .heads = 4}, LLM_F32, "4 heads do not divide the width of 10"},
        {{.arch = LLM_QWEN3, .layers = 1, .width = 8, .heads = 2, .experts = 2, .experts_used = 1},
         LLM_F32,
         "no experts"},
        {{.arch = LLM_OLMOE, .layers = 1, .width = 8, .heads = 2, .experts = 2, .experts_used = 3},
         LLM_F32,
         "experts of a row"},
        {{.arch = LLM_GPT2, .layers = 1, .width = 8, .heads = 2, .window = 4}, LLM_F32, "window"},
        {{.layers = 1, .width = 40, .heads = 2}, LLM_Q8_0, "blocks"},
        {{.layers = 1, .width = 128, .heads = 2}, LLM_Q4_K, "blocks"},
        {{.layers = LLM_LAYERS_MAX, .width = LLM_WIDTH_MAX, .heads = 1 << 16, .kv_heads = 1},
         LLM_F32,
         "heads"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct llm_synth synth = {.config = bad[i].config, .dtype = bad[i].dtype};
        llm_synth_complete(&synth.config);
        int err = llm_synth_write(&synth, "/nowhere/model", why);
        if (err != -EINVAL || !strstr(why, bad[i].phrase))
            fail_msg("shape %zu: %d '%s', not '%s'", i, err, why, bad[i].phrase);
    }
}

static void a_disk_without_room_is_told_before_it_is_filled(void **state)
{
    (void)state;
    char folder[] = "/tmp/hawser-test-llm-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/model", folder);
    struct llm_synth synth = {.config = {.layers = LLM_LAYERS_MAX,
                                         .width = 1 << 17,
                                         .heads = 1 << 10,
                                         .ffn = LLM_WIDTH_MAX},
                              .dtype = LLM_F32};
    llm_synth_complete(&synth.config);
    assert_int_equal(llm_synth_write(&synth, path, why), -ENOSPC);
    assert_non_null(strstr(why, "TiB"));
    assert_int_equal(rmdir(folder), 0); /* nothing was left */
}

static void a_write_that_fails_leaves_nothing(void **state)
{
    (void)state;
    char folder[] = "/tmp/hawser-test-llm-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/model", folder);
    struct llm_synth synth = image_tiny(LLM_LLAMA);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit small = {.rlim_cur = 1000, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int err = llm_synth_write(&synth, path, why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(err, -EFBIG);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(llm_synth_write(&synth, "/nowhere/model", why), -ENOENT);
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_seed_decides_every_byte),
        cmocka_unit_test(every_type_and_architecture_is_written),
        cmocka_unit_test(weights_are_scaled_by_the_rows),
        cmocka_unit_test(shapes_that_no_file_may_have_are_refused),
        cmocka_unit_test(a_disk_without_room_is_told_before_it_is_filled),
        cmocka_unit_test(a_write_that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
