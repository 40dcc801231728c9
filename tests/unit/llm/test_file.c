/* Model files as the engine sees them: every architecture, llama2.c's format, every refusal. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/attr.h"
#include "image.h"
#include "wire/le.h"

static char why[LLM_WHY_CHARS];

static int allocations_left = -1; /* negative: no limit */

static bool allocation_fails(void)
{
    if (allocations_left > 0)
        allocations_left--;
    return allocations_left == 0;
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}

static struct llm_file *accept(const struct image *image)
{
    struct llm_file *file;
    if (llm_file_parse(image->bytes, image->size, &file, why))
        fail_msg("%s", why);
    return file;
}

static void refuse(struct image image, int expected, const char *phrase)
{
    struct llm_file *file = NULL;
    why[0] = 0;
    int err = llm_file_parse(image.bytes, image.size, &file, why);
    llm_file_close(file);
    if (err != expected || !strstr(why, phrase))
        fail_msg("got %d '%s'; expected %d '%s'", err, why, expected, phrase);
    image_free(&image);
}

static struct image tiny(enum llm_arch arch)
{
    struct llm_synth synth = image_tiny(arch);
    return image_synth(&synth);
}

static void expect_config(const struct llm_config *got, const struct llm_config *want)
{
    assert_int_equal(got->arch, want->arch);
    assert_int_equal(got->layers, want->layers);
    assert_int_equal(got->width, want->width);
    assert_int_equal(got->heads, want->heads);
    assert_int_equal(got->kv_heads, want->kv_heads);
    assert_int_equal(got->head_dim, want->head_dim);
    assert_int_equal(got->ffn, want->ffn);
    assert_int_equal(got->vocab, want->vocab);
    assert_int_equal(got->context, want->context);
    assert_int_equal(got->rope_dims, want->rope_dims);
    assert_true(got->rope_base == want->rope_base && got->rope_scale == want->rope_scale);
    assert_true(got->norm_eps == want->norm_eps);
    assert_int_equal(got->norm_is_rms, want->norm_is_rms);
    assert_int_equal(got->rope_is_neox, want->rope_is_neox);
    assert_int_equal(got->ffn_is_gated, want->ffn_is_gated);
    assert_int_equal(got->parallel_residual, want->parallel_residual);
    assert_int_equal(got->tied_output, want->tied_output);
    assert_int_equal(got->activation, want->activation);
    assert_int_equal(got->experts, want->experts);
    assert_int_equal(got->experts_used, want->experts_used);
    assert_int_equal(got->experts_normed, want->experts_normed);
    assert_int_equal(got->shared_ffn, want->shared_ffn);
    assert_int_equal(got->window, want->window);
    assert_int_equal(got->window_period, want->window_period);
    assert_int_equal(got->rope_original, want->rope_original);
    assert_true(got->rope_base_window == want->rope_base_window);
    assert_true(got->attend_scale == want->attend_scale && got->attend_cap == want->attend_cap);
    assert_true(got->embed_scale == want->embed_scale && got->logit_cap == want->logit_cap);
    assert_true(got->residual_scale == want->residual_scale);
    assert_true(got->logit_scale == want->logit_scale && got->temperature == want->temperature);
}

static void every_architecture_opens(void **state)
{
    (void)state;
    for (int arch = 0; arch < LLM_ARCHS; arch++) {
        struct llm_synth synth = image_tiny((enum llm_arch)arch);
        struct image image = image_synth(&synth);
        struct llm_file *file = accept(&image);
        expect_config(llm_file_config(file), &synth.config);
        assert_string_equal(llm_file_format(file), "GGUF v3");
        assert_non_null(strstr(llm_file_name(file), "random"));
        assert_non_null(llm_file_find(file, "token_embd.weight"));
        assert_null(llm_file_find(file, "blk.1.attn_norm.weight"));
        uint64_t size;
        assert_ptr_equal(llm_file_bytes(file, &size), image.bytes);
        assert_int_equal(size, image.size);
        llm_file_close(file);
        image_free(&image);
    }
}

static void shapes_of_published_models_are_possible(void **state)
{
    (void)state;
    for (int arch = 0; arch < LLM_ARCHS; arch++) {
        const char *name;
        for (uint32_t i = 0; (name = llm_synth_like_name((enum llm_arch)arch, i)); i++) {
            struct llm_synth synth = {.dtype = LLM_Q8_0};
            assert_true(llm_synth_like((enum llm_arch)arch, name, &synth.config));
            assert_true(llm_synth_bytes(&synth) > 0);
        }
    }
    struct llm_synth gptj = {.dtype = LLM_F16};
    assert_true(llm_synth_like(LLM_GPTJ, "6b", &gptj.config));
    assert_in_range(llm_synth_bytes(&gptj), 12000000000, 12200000000); /* 6.05 G parameters */
    assert_false(llm_synth_like(LLM_GPTJ, "7b", &gptj.config));
}

/* Where the last tensor's bytes end: what follows is padding, which a file may lack. */
static size_t needed_bytes(const struct image *image)
{
    struct llm_file *file = accept(image);
    size_t needed = 0;
    for (uint32_t i = 0; i < llm_file_tensor_count(file); i++) {
        const struct llm_tensor *t = llm_file_tensor(file, i);
        size_t end = (size_t)((const char *)t->data - image->bytes) + (size_t)t->bytes;
        needed = end > needed ? end : needed;
    }
    llm_file_close(file);
    return needed;
}

static void every_truncation_is_an_error(void **state)
{
    (void)state;
    struct image image = tiny(LLM_LLAMA);
    size_t needed = needed_bytes(&image);
    for (size_t size = 0; size < needed; size++) {
        struct image cut = image_prefix(&image, size);
        struct llm_file *file;
        why[0] = 0;
        assert_int_equal(llm_file_parse(cut.bytes, cut.size, &file, why), -EPROTO);
        assert_int_not_equal(why[0], 0);
        image_free(&cut);
    }
    image_free(&image);
}

static void every_failed_allocation_is_told_and_leaks_nothing(void **state)
{
    (void)state;
    struct image image = tiny(LLM_QWEN2);
    for (int n = 1;; n++) {
        struct llm_file *file;
        allocations_left = n;
        int err = llm_file_parse(image.bytes, image.size, &file, why);
        allocations_left = -1;
        if (err == 0) {
            llm_file_close(file);
            assert_in_range(n, 3, 20);
            break;
        }
        assert_int_equal(err, -ENOMEM);
    }
    image_free(&image);
}

/* ---- metadata that does not fit ---- */

/* Replaces the u32 that follows a key and its type. */
static void set_number(struct image *image, const char *key, uint32_t value)
{
    char *at = memmem(image->bytes, image->size, key, strlen(key));
    assert_non_null(at);
    wire_store32(at + strlen(key) + 4, value);
}

static void set_type(struct image *image, const char *key, uint32_t type)
{
    char *at = memmem(image->bytes, image->size, key, strlen(key));
    assert_non_null(at);
    wire_store32(at + strlen(key), type);
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *key;
        uint32_t value;
        const char *phrase;
    } bad[] = {
        {"llama.block_count", 0, "block_count"},
        {"llama.block_count", LLM_LAYERS_MAX + 1, "block_count"},
        {"llama.block_count", 2, "blk.1."},
        {"llama.embedding_length", 0, "embedding_length"},
        {"llama.embedding_length", LLM_WIDTH_MAX + 1, "embedding_length"},
        {"llama.embedding_length", 16, "token_embd.weight"},
        {"llama.feed_forward_length", 5, "ffn_"},
        {"llama.context_length", 0, "context_length"},
        {"llama.context_length", UINT32_MAX, "context_length"},
        {"llama.attention.head_count", 0, "head_count"},
        {"llama.attention.head_count", 9, "head_count"},
        {"llama.attention.head_count", 3, "do not divide"},
        {"llama.attention.key_length", 3, "value"},
        {"llama.attention.key_length", UINT32_MAX, "key_length"},
        {"llama.rope.dimension_count", 3, "pairs"},
        {"llama.rope.dimension_count", 6, "dimension_count"},
        {"llama.rope.freq_base", 0, "freq_base"},
        {"llama.rope.freq_base", 0x7f800000, "finite"},
        {"llama.attention.layer_norm_rms_epsilon", 0xbf800000, "positive"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct image image = tiny(LLM_LLAMA);
        set_number(&image, bad[i].key, bad[i].value);
        struct llm_file *file = NULL;
        int err = llm_file_parse(image.bytes, image.size, &file, why);
        llm_file_close(file);
        if ((err != -EPROTO && err != -EOPNOTSUPP) || !strstr(why, bad[i].phrase))
            fail_msg("%s = %u: %d '%s', not '%s'", bad[i].key, bad[i].value, err, why,
                     bad[i].phrase);
        image_free(&image);
    }
}

static void numbers_of_another_type_are_refused(void **state)
{
    (void)state;
    struct image image = tiny(LLM_LLAMA);
    set_type(&image, "llama.block_count", GGUF_F32);
    refuse(image, -EPROTO, "block_count");
    image = tiny(LLM_LLAMA);
    set_type(&image, "llama.rope.freq_base", GGUF_U32);
    refuse(image, -EPROTO, "freq_base");
}

static void missing_keys_are_named(void **state)
{
    (void)state;
    struct image image = tiny(LLM_LLAMA);
    image_patch(&image, "llama.block_count", "llama.block_xount", 17);
    refuse(image, -EPROTO, "block_count");
    image = tiny(LLM_LLAMA);
    image_patch(&image, "general.architecture", "general.architectura", 20);
    refuse(image, -EPROTO, "general.architecture");
}

static void other_architectures_are_named(void **state)
{
    (void)state;
    struct image image = tiny(LLM_LLAMA);
    char *at = memmem(image.bytes, image.size, "general.architecture", 20);
    assert_non_null(at);
    memcpy(at + 20 + 4 + 8, "mamba", 5);
    refuse(image, -EOPNOTSUPP, "'mamba'");
}

static void missing_and_unknown_tensors_are_named(void **state)
{
    (void)state;
    struct image image = tiny(LLM_LLAMA);
    image_patch(&image, "blk.0.ffn_down.weight", "blk.0.ffn_dowm.weight", 21);
    refuse(image, -EOPNOTSUPP, "ffn_dowm");
    image = tiny(LLM_LLAMA);
    image_patch(&image, "blk.0.ffn_down.weight", "blk.1.ffn_down.weight", 21);
    refuse(image, -EOPNOTSUPP, "blk.1.ffn_down");
    image = tiny(LLM_GPTJ);
    image_patch(&image, "blk.0.ffn_down.weight", "blk.00.fn_down.weight", 21);
    refuse(image, -EOPNOTSUPP, "blk.00.");
}

/* ---- features, by way of one more pair ---- */

/* A llama of the smallest kind whose metadata ends in what add puts. */
static struct image with_pair(void (*add)(struct gguf_writer *w))
{
    static const struct {
        const char *name;
        uint64_t dims[2];
    } tensors[] = {
        {"token_embd.weight", {2, 3}},        {"output_norm.weight", {2, 1}},
        {"blk.0.attn_norm.weight", {2, 1}},   {"blk.0.attn_q.weight", {2, 2}},
        {"blk.0.attn_k.weight", {2, 2}},      {"blk.0.attn_v.weight", {2, 2}},
        {"blk.0.attn_output.weight", {2, 2}}, {"blk.0.ffn_norm.weight", {2, 1}},
        {"blk.0.ffn_gate.weight", {2, 2}},    {"blk.0.ffn_up.weight", {2, 2}},
        {"blk.0.ffn_down.weight", {2, 2}},
    };
    static const char data[ARRAY_LEN(tensors) * GGUF_ALIGNMENT];
    struct image_writer w;
    image_begin(&w, ARRAY_LEN(tensors), add ? 8 : 7);
    gguf_write_string(&w.gguf, "general.architecture", "llama");
    gguf_write_u32(&w.gguf, "llama.block_count", 1);
    gguf_write_u32(&w.gguf, "llama.context_length", 100);
    gguf_write_u32(&w.gguf, "llama.embedding_length", 2);
    gguf_write_u32(&w.gguf, "llama.feed_forward_length", 2);
    gguf_write_u32(&w.gguf, "llama.attention.head_count", 1);
    gguf_write_f32(&w.gguf, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    if (add)
        add(&w.gguf);
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++)
        gguf_write_tensor(&w.gguf, tensors[i].name, LLM_F32, tensors[i].dims,
                          tensors[i].dims[1] > 1 ? 2 : 1);
    gguf_write_pad(&w.gguf);
    gguf_write_data(&w.gguf, data, sizeof(data));
    return image_end(&w);
}

static void defaults_stand_for_absent_keys(void **state)
{
    (void)state;
    struct image image = with_pair(NULL);
    struct llm_file *file = accept(&image);
    const struct llm_config *c = llm_file_config(file);
    assert_int_equal(c->kv_heads, 1);
    assert_int_equal(c->head_dim, 2);
    assert_int_equal(c->rope_dims, 2);
    assert_int_equal(c->vocab, 3);
    assert_int_equal(c->context, 100);
    assert_true(c->rope_base == 10000 && c->rope_scale == 1);
    assert_true(c->tied_output && c->norm_is_rms && c->ffn_is_gated && !c->rope_is_neox);
    assert_string_equal(llm_file_name(file), "");
    llm_file_close(file);
    image_free(&image);
}

static void add_linear(struct gguf_writer *w)
{
    gguf_write_f32(w, "llama.rope.scaling.factor", 4);
}

static void add_window(struct gguf_writer *w)
{
    gguf_write_u32(w, "llama.attention.sliding_window", 30);
}

static void add_no_experts(struct gguf_writer *w)
{
    gguf_write_u32(w, "llama.expert_count", 0);
}

static void scaling_and_windows_are_taken_into_account(void **state)
{
    (void)state;
    struct image image = with_pair(add_linear);
    struct llm_file *file = accept(&image);
    assert_true(llm_file_config(file)->rope_scale == 4);
    llm_file_close(file);
    image_free(&image);
    image = with_pair(add_window);
    file = accept(&image);
    assert_int_equal(llm_file_config(file)->window, 30);
    assert_int_equal(llm_file_config(file)->window_period, 0);
    llm_file_close(file);
    image_free(&image);
    image = with_pair(add_no_experts);
    llm_file_close(accept(&image));
    image_free(&image);
}

static void add_other_scaling(struct gguf_writer *w)
{
    gguf_write_string(w, "llama.rope.scaling.type", "twisted");
}

static void add_shared_expert(struct gguf_writer *w)
{
    gguf_write_u32(w, "llama.expert_shared_count", 1);
}

static void add_many_experts(struct gguf_writer *w)
{
    gguf_write_u32(w, "llama.expert_count", LLM_EXPERTS_MAX + 1);
}

static void add_negative_cap(struct gguf_writer *w)
{
    gguf_write_f32(w, "llama.attention.scale", -1);
}

static void add_endless_scale(struct gguf_writer *w)
{
    gguf_write_f32(w, "llama.rope.scaling.factor", INFINITY);
}

static void add_wide_pattern(struct gguf_writer *w)
{
    gguf_write_u32(w, "llama.attention.sliding_window_pattern", UINT32_MAX);
}

static void add_short_pattern(struct gguf_writer *w)
{
    gguf_write_array(w, "llama.attention.sliding_window_pattern", GGUF_BOOL, 0);
}

static void add_softcap(struct gguf_writer *w)
{
    gguf_write_f32(w, "llama.final_logit_softcapping", 30);
}

static void add_two_way(struct gguf_writer *w)
{
    gguf_write_bool(w, "llama.attention.causal", false);
}

static void add_split(struct gguf_writer *w)
{
    gguf_write_u32(w, "split.count", 3);
}

static void add_head_list(struct gguf_writer *w)
{
    gguf_write_array(w, "llama.attention.head_count_kv", GGUF_U32, 1);
    gguf_put_u32(w, 1);
}

static void what_the_engine_does_not_compute_is_named(void **state)
{
    (void)state;
    refuse(with_pair(add_other_scaling), -EOPNOTSUPP, "twisted");
    refuse(with_pair(add_shared_expert), -EOPNOTSUPP, "expert_shared_count");
    refuse(with_pair(add_many_experts), -EPROTO, "expert_count");
    refuse(with_pair(add_negative_cap), -EPROTO, "attention.scale");
    refuse(with_pair(add_endless_scale), -EPROTO, "rope.scaling.factor");
    refuse(with_pair(add_wide_pattern), -EPROTO, "sliding_window_pattern");
    refuse(with_pair(add_short_pattern), -EPROTO, "0 entries for 1 layers");
    refuse(with_pair(add_softcap), -EOPNOTSUPP, "softcapping");
    refuse(with_pair(add_two_way), -EOPNOTSUPP, "ahead");
    refuse(with_pair(add_split), -EPROTO, "split.no");
    refuse(with_pair(add_head_list), -EPROTO, "array");
}

static void norms_are_f32(void **state)
{
    (void)state;
    struct image image = with_pair(NULL);
    char *at = memmem(image.bytes, image.size, "output_norm.weight", 18);
    assert_non_null(at);
    wire_store32(at + 18 + 4 + 8, LLM_F16);
    refuse(image, -EOPNOTSUPP, "F32 only");
}

/* ---- llama2.c ---- */

static struct image llama2c(int32_t vocab)
{
    const int32_t header[7] = {4, 6, 2, 2, 1, vocab, 5};
    uint64_t rows = (uint64_t)abs(vocab);
    uint64_t layer = 4 + 16 + 8 + 8 + 16 + 4 + 24 + 24 + 24; /* heads of 2; one for keys, values */
    uint64_t floats = rows * 4 + 2 * layer + 4 + 2 * 5 + (vocab < 0 ? rows * 4 : 0);
    struct image image = {.size = sizeof(header) + (size_t)floats * 4};
    image.bytes = calloc(1, image.size);
    assert_non_null(image.bytes);
    for (size_t i = 0; i < 7; i++)
        wire_store32(image.bytes + 4 * i, (uint32_t)header[i]);
    for (uint32_t i = 0; i < floats; i++) { /* each float is its own number */
        float value = (float)i;
        memcpy(image.bytes + sizeof(header) + 4 * (size_t)i, &value, 4);
    }
    return image;
}

static float first_value(const struct llm_file *file, const char *name)
{
    const struct llm_tensor *tensor = llm_file_find(file, name);
    assert_non_null(tensor);
    float value;
    memcpy(&value, tensor->data, sizeof(value));
    return value;
}

static void llama2c_files_open_under_gguf_names(void **state)
{
    (void)state;
    struct image image = llama2c(3);
    struct llm_file *file = accept(&image);
    const struct llm_config *c = llm_file_config(file);
    assert_int_equal(c->head_dim, 2);
    assert_int_equal(c->rope_dims, 2);
    assert_true(c->tied_output);
    assert_string_equal(llm_file_format(file), "llama2.c");
    assert_int_equal(llm_file_tensor_count(file), 2 + 2 * 9);
    assert_true(first_value(file, "blk.0.attn_norm.weight") == 12);
    assert_true(first_value(file, "blk.1.attn_norm.weight") == 16);
    assert_true(first_value(file, "blk.0.attn_q.weight") == 20);
    assert_true(first_value(file, "blk.0.attn_k.weight") == 52);
    assert_true(first_value(file, "blk.0.ffn_gate.weight") == 12 + 8 + 32 + 16 + 16 + 32 + 8);
    assert_null(llm_file_find(file, "output.weight"));
    llm_file_close(file);
    image_free(&image);

    image = llama2c(-3);
    file = accept(&image);
    assert_false(llm_file_config(file)->tied_output);
    assert_int_equal(llm_file_config(file)->vocab, 3);
    const struct llm_tensor *output = llm_file_find(file, "output.weight");
    assert_non_null(output);
    assert_ptr_equal((const char *)output->data + output->bytes, image.bytes + image.size);
    llm_file_close(file);
    image_free(&image);
}

static void llama2c_files_have_just_their_size(void **state)
{
    (void)state;
    struct image image = llama2c(3);
    for (size_t size = 0; size < image.size; size++)
        refuse(image_prefix(&image, size), -EPROTO, "not a model");
    image_free(&image);
    const uint32_t bad[] = {0, (uint32_t)INT32_MIN, INT32_MAX, 7777777};
    for (size_t field = 0; field < 7; field++) {
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            image = llama2c(3);
            wire_store32(image.bytes + 4 * field, bad[i]);
            struct llm_file *file;
            assert_int_equal(llm_file_parse(image.bytes, image.size, &file, why), -EPROTO);
            image_free(&image);
        }
    }
}

/* ---- files ---- */

static void paths_that_are_no_models_are_named(void **state)
{
    (void)state;
    char folder[] = "/tmp/hawser-test-llm-XXXXXX", path[64];
    struct llm_file *file;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/x", folder);
    assert_int_equal(llm_file_open(path, &file, why), -ENOENT);
    assert_non_null(strstr(why, path));
    assert_int_equal(llm_file_open(folder, &file, why), -EPROTO);
    assert_non_null(strstr(why, "a folder"));
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(llm_file_open(path, &file, why), -EPROTO);
    assert_non_null(strstr(why, "empty"));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(llm_file_open(path, &file, why), -EPROTO);
    unlink(path);
    rmdir(folder);
}

static void a_file_opens_as_its_bytes_parse(void **state)
{
    (void)state;
    char folder[] = "/tmp/hawser-test-llm-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/model", folder);
    struct llm_synth synth = image_tiny(LLM_GPT2);
    struct llm_file *file;
    assert_int_equal(llm_synth_write(&synth, path, why), 0);
    assert_int_equal(llm_file_open(path, &file, why), 0);
    expect_config(llm_file_config(file), &synth.config);
    llm_file_close(file);
    unlink(path);
    rmdir(folder);
    llm_file_close(NULL);
}

static void a_model_must_be_aligned(void **state)
{
    (void)state;
    struct image image = tiny(LLM_LLAMA);
    struct llm_file *file;
    char *moved = malloc(image.size + 8);
    assert_non_null(moved);
    memcpy(moved + 4, image.bytes, image.size);
    assert_int_equal(llm_file_parse(moved + 4, image.size, &file, why), -EINVAL);
    free(moved);
    image_free(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_opens),
        cmocka_unit_test(shapes_of_published_models_are_possible),
        cmocka_unit_test(every_truncation_is_an_error),
        cmocka_unit_test(every_failed_allocation_is_told_and_leaks_nothing),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(numbers_of_another_type_are_refused),
        cmocka_unit_test(missing_keys_are_named),
        cmocka_unit_test(other_architectures_are_named),
        cmocka_unit_test(missing_and_unknown_tensors_are_named),
        cmocka_unit_test(defaults_stand_for_absent_keys),
        cmocka_unit_test(scaling_and_windows_are_taken_into_account),
        cmocka_unit_test(what_the_engine_does_not_compute_is_named),
        cmocka_unit_test(norms_are_f32),
        cmocka_unit_test(llama2c_files_open_under_gguf_names),
        cmocka_unit_test(llama2c_files_have_just_their_size),
        cmocka_unit_test(paths_that_are_no_models_are_named),
        cmocka_unit_test(a_file_opens_as_its_bytes_parse),
        cmocka_unit_test(a_model_must_be_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
