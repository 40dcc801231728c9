#include "llm/model/synth.h"

#include "base/rng.h"
#include "base/units.h"
#include "llm/model/arch.h"
#include "llm/model/byte_text.h"
#include "llm/model/gguf_write.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    CHUNK_VALUES = 1 << 18, /* at a time: 1 MiB of floats */
    END_TOKEN = 256,
    VOCAB_BYTES_EACH = 40, /* of one made-up token in the file, at most */
};

/* ---- shapes ---- */

struct preset {
    enum llm_arch arch;
    const char *name;
    uint32_t layers, width, heads, kv_heads, ffn, vocab, context, rope_dims;
    float rope_base;
    bool tied;
};

static const struct preset presets[] = {
    {LLM_GPTJ, "6b", 28, 4096, 16, 16, 16384, 50400, 2048, 64, 10000, false},
    {LLM_GPTJ, "tiny", 2, 256, 4, 4, 512, 512, 256, 32, 10000, false},
    {LLM_GPT2, "124m", 12, 768, 12, 12, 3072, 50257, 1024, 0, 10000, true},
    {LLM_GPT2, "1.5b", 48, 1600, 25, 25, 6400, 50257, 1024, 0, 10000, true},
    {LLM_GPT2, "tiny", 2, 256, 4, 4, 512, 512, 256, 0, 10000, true},
    {LLM_LLAMA, "134m", 12, 768, 12, 12, 2048, 32000, 2048, 64, 10000, false},
    {LLM_LLAMA, "1.1b", 22, 2048, 32, 4, 5632, 32000, 2048, 64, 10000, false},
    {LLM_LLAMA, "7b", 32, 4096, 32, 32, 11008, 32000, 4096, 128, 10000, false},
    {LLM_LLAMA, "8b", 32, 4096, 32, 8, 14336, 128256, 8192, 128, 500000, false},
    {LLM_LLAMA, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 10000, true},
    {LLM_QWEN2, "0.5b", 24, 896, 14, 2, 4864, 151936, 32768, 64, 1000000, true},
    {LLM_QWEN2, "7b", 28, 3584, 28, 4, 18944, 152064, 32768, 128, 1000000, false},
    {LLM_QWEN2, "tiny", 2, 256, 4, 2, 512, 512, 256, 64, 1000000, true},
};

bool llm_synth_like(enum llm_arch arch, const char *like, struct llm_config *out)
{
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        const struct preset *p = &presets[i];
        if (p->arch != arch || strcmp(p->name, like) != 0)
            continue;
        *out = (struct llm_config){
            .arch = arch,
            .layers = p->layers,
            .width = p->width,
            .heads = p->heads,
            .kv_heads = p->kv_heads,
            .ffn = p->ffn,
            .vocab = p->vocab,
            .context = p->context,
            .rope_dims = p->rope_dims,
            .rope_base = p->rope_base,
            .tied_output = p->tied,
        };
        llm_synth_complete(out);
        return true;
    }
    return false;
}

const char *llm_synth_like_name(enum llm_arch arch, uint32_t i)
{
    for (size_t p = 0; p < ARRAY_LEN(presets); p++) {
        if (presets[p].arch == arch && i-- == 0)
            return presets[p].name;
    }
    return NULL;
}

static void default_to(uint32_t *field, uint32_t value)
{
    if (*field == 0)
        *field = value;
}

void llm_synth_complete(struct llm_config *c)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    c->norm_is_rms = info->norm_is_rms;
    c->rope_is_neox = info->rope_is_neox;
    c->ffn_is_gated = info->ffn_is_gated;
    c->parallel_residual = info->parallel_residual;
    default_to(&c->heads, 1);
    default_to(&c->kv_heads, c->heads);
    default_to(&c->head_dim, c->width / c->heads);
    default_to(&c->ffn, 4 * c->width);
    default_to(&c->vocab, 512);
    default_to(&c->context, 2048);
    if (info->learned_positions)
        c->rope_dims = 0;
    else
        default_to(&c->rope_dims, c->head_dim);
    if (c->rope_base == 0)
        c->rope_base = 10000;
    c->rope_scale = 1;
    c->norm_eps = 1e-5f;
    if (c->arch == LLM_GPTJ) /* its output has a bias, so it is not tied */
        c->tied_output = false;
}

static int check_shape(const struct llm_config *c, char *why)
{
    const struct {
        const char *name;
        uint64_t value, min, max;
    } bounds[] = {
        {"layers", c->layers, 1, LLM_LAYERS_MAX},
        {"width", c->width, 2, LLM_WIDTH_MAX},
        {"heads", c->heads, 1, c->width},
        {"kv heads", c->kv_heads, 1, c->heads},
        {"head width", c->head_dim, 2, LLM_WIDTH_MAX},
        {"width of all heads", llm_dim_value(c, LLM_DIM_QKV), 2, LLM_WIDTH_MAX},
        {"feed-forward", c->ffn, 1, LLM_WIDTH_MAX},
        {"vocabulary", c->vocab, LLM_SYNTH_VOCAB_MIN, LLM_VOCAB_MAX},
        {"context", c->context, 1, LLM_CONTEXT_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
        if (bounds[i].value < bounds[i].min || bounds[i].value > bounds[i].max)
            return llm_why(why, -EINVAL,
                           "%s is %" PRIu64 "; %" PRIu64 " to %" PRIu64 " is possible",
                           bounds[i].name, bounds[i].value, bounds[i].min, bounds[i].max);
    }
    if (c->heads % c->kv_heads)
        return llm_why(why, -EINVAL, "%u kv heads do not divide %u heads", c->kv_heads, c->heads);
    if (c->rope_dims % 2 || c->rope_dims > c->head_dim)
        return llm_why(why, -EINVAL, "%u rotary dimensions of a head of %u; an even number of them",
                       c->rope_dims, c->head_dim);
    return 0;
}

/* ---- the tensors that are written ---- */

static bool row_is_written(const struct llm_config *c, const struct llm_arch_tensor *row)
{
    return !row->optional || (!c->tied_output && strcmp(row->name, "output.weight") == 0);
}

static enum llm_dtype row_dtype(const struct llm_synth *s, const struct llm_arch_tensor *row)
{
    return row->rows == LLM_DIM_NONE || row->rows == LLM_DIM_CONTEXT ? LLM_F32 : s->dtype;
}

/* One visit a tensor, in the order of the file.  Stops at an error. */
typedef int (*tensor_fn)(const struct llm_synth *s, const struct llm_arch_tensor *row,
                         const char *name, void *user);

static int each_tensor(const struct llm_synth *s, tensor_fn visit, void *user)
{
    int err = 0;
    for (const struct llm_arch_tensor *row = llm_arch_info(s->config.arch)->tensors; row->name;
         row++) {
        uint32_t copies = row->per_layer ? s->config.layers : 1;
        for (uint32_t layer = 0; row_is_written(&s->config, row) && layer < copies && !err;
             layer++) {
            char name[LLM_NAME_CHARS];
            llm_arch_tensor_name(row, layer, name);
            err = visit(s, row, name, user);
        }
    }
    return err;
}

static uint64_t row_elements(const struct llm_synth *s, const struct llm_arch_tensor *row)
{
    return llm_dim_value(&s->config, row->row) * llm_dim_value(&s->config, row->rows);
}

struct tally {
    uint64_t bytes, tensors;
    char *why;
};

static int add_bytes(const struct llm_synth *s, const struct llm_arch_tensor *row, const char *name,
                     void *user)
{
    struct tally *tally = user;
    enum llm_dtype dtype = row_dtype(s, row);
    uint64_t width = llm_dim_value(&s->config, row->row);
    if (width % llm_dtype_block(dtype))
        return llm_why(tally->why, -EINVAL,
                       "%s: a row of %" PRIu64 " is no whole number of %s blocks of %u", name,
                       width, llm_dtype_name(dtype), llm_dtype_block(dtype));
    uint64_t bytes = llm_dtype_bytes(dtype, row_elements(s, row));
    tally->bytes += (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
    tally->tensors++;
    return 0;
}

uint64_t llm_synth_bytes(const struct llm_synth *s)
{
    char why[LLM_WHY_CHARS];
    struct tally tally = {.why = why};
    return each_tensor(s, add_bytes, &tally) ? 0 : tally.bytes;
}

/* ---- metadata ---- */

static void put_arch_u32(struct gguf_writer *w, const char *arch, const char *name, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof(key), "%s.%s", arch, name);
    gguf_write_u32(w, key, value);
}

static void put_arch_f32(struct gguf_writer *w, const char *arch, const char *name, float value)
{
    char key[96];
    snprintf(key, sizeof(key), "%s.%s", arch, name);
    gguf_write_f32(w, key, value);
}

/* A word of at least two syllables after a blank, different for each number. */
static size_t word_text(uint32_t number, char text[VOCAB_BYTES_EACH])
{
    static const char consonants[] = "bdfgklmnprstvz", vowels[] = "aeiou";
    const uint32_t syllables = (sizeof(consonants) - 1) * (sizeof(vowels) - 1);
    size_t bytes = llm_byte_text(' ', text);
    for (uint32_t i = 0; i < 2 || number > 0; i++) {
        text[bytes++] = consonants[number % syllables / (sizeof(vowels) - 1)];
        text[bytes++] = vowels[number % (sizeof(vowels) - 1)];
        number /= syllables;
    }
    return bytes;
}

static void put_vocab(struct gguf_writer *w, const struct llm_config *c)
{
    static const char end[] = "<|endoftext|>";
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_string(w, "tokenizer.ggml.pre", c->arch == LLM_QWEN2 ? "qwen2" : "gpt-2");
    gguf_write_array(w, "tokenizer.ggml.tokens", GGUF_STRING, c->vocab);
    for (uint32_t id = 0; id < c->vocab; id++) {
        char text[VOCAB_BYTES_EACH];
        if (id == END_TOKEN)
            gguf_put_string(w, end, strlen(end));
        else
            gguf_put_string(w, text,
                            id < 256 ? llm_byte_text((uint8_t)id, text)
                                     : word_text(id - END_TOKEN - 1, text));
    }
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, c->vocab);
    for (uint32_t id = 0; id < c->vocab; id++)
        gguf_put_u32(w, id == END_TOKEN ? 3 : 1); /* control; normal */
    gguf_write_array(w, "tokenizer.ggml.merges", GGUF_STRING, 1);
    gguf_put_string(w, "\xc4\xa0 \xc4\xa0", 5); /* readers need a merge; this one makes no token */
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", END_TOKEN);
    gguf_write_u32(w, "tokenizer.ggml.eos_token_id", END_TOKEN);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", false);
}

enum { VOCAB_PAIRS = 8, SHAPE_PAIRS = 11, ROPE_PAIRS = 2 };

static void put_metadata(struct gguf_writer *w, const struct llm_synth *s)
{
    const struct llm_config *c = &s->config;
    const char *arch = llm_arch_name(c->arch);
    char name[LLM_NAME_CHARS];
    snprintf(name, sizeof(name), "random %s, seed %" PRIu64, arch, s->seed);
    gguf_write_string(w, "general.architecture", arch);
    gguf_write_string(w, "general.name", name);
    put_arch_u32(w, arch, "block_count", c->layers);
    put_arch_u32(w, arch, "context_length", c->context);
    put_arch_u32(w, arch, "embedding_length", c->width);
    put_arch_u32(w, arch, "feed_forward_length", c->ffn);
    put_arch_u32(w, arch, "attention.head_count", c->heads);
    put_arch_u32(w, arch, "attention.head_count_kv", c->kv_heads);
    put_arch_u32(w, arch, "attention.key_length", c->head_dim);
    put_arch_u32(w, arch, "attention.value_length", c->head_dim);
    put_arch_f32(w, arch,
                 c->norm_is_rms ? "attention.layer_norm_rms_epsilon"
                                : "attention.layer_norm_epsilon",
                 c->norm_eps);
    if (c->rope_dims) {
        put_arch_u32(w, arch, "rope.dimension_count", c->rope_dims);
        put_arch_f32(w, arch, "rope.freq_base", c->rope_base);
    }
    put_vocab(w, c);
}

static int put_description(const struct llm_synth *s, const struct llm_arch_tensor *row,
                           const char *name, void *user)
{
    const uint64_t dims[] = {llm_dim_value(&s->config, row->row),
                             llm_dim_value(&s->config, row->rows)};
    gguf_write_tensor(user, name, row_dtype(s, row), dims, row->rows == LLM_DIM_NONE ? 1 : 2);
    return 0;
}

/* ---- weights ---- */

/* The sum of four uniform numbers: about normal, mean 0, deviation 1. */
static float next_normal(struct hw_rng *rng)
{
    uint64_t bits = hw_rng_u64(rng);
    int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) +
                  (int32_t)(bits >> 32 & 0xffff) + (int32_t)(bits >> 48);
    return (float)(sum - 2 * 65535) * (1.0f / 37836.8f); /* sqrt(4 * (65536^2 - 1) / 12) */
}

struct scale {
    float mean, deviation;
};

/* Norms near 1, biases near 0, matrices so that a row's sum of products has deviation 1. */
static struct scale row_scale(const struct llm_synth *s, const struct llm_arch_tensor *row)
{
    const char *ending = strrchr(row->name, '.');
    if (row->rows != LLM_DIM_NONE)
        return (struct scale){0, 1 / sqrtf((float)llm_dim_value(&s->config, row->row))};
    bool bias = ending && strcmp(ending, ".bias") == 0;
    return (struct scale){bias ? 0 : 1, 0.1f};
}

struct weights {
    struct gguf_writer *writer;
    float *values;  /* CHUNK_VALUES */
    uint8_t *bytes; /* the same, encoded */
    uint64_t done, total;
};

static int put_weights(const struct llm_synth *s, const struct llm_arch_tensor *row,
                       const char *name, void *user)
{
    struct weights *weights = user;
    struct scale scale = row_scale(s, row);
    enum llm_dtype dtype = row_dtype(s, row);
    struct hw_rng rng;
    hw_rng_seed(&rng, XXH3_64bits_withSeed(name, strlen(name), s->seed));
    for (uint64_t left = row_elements(s, row); left > 0;) {
        size_t count = left < CHUNK_VALUES ? (size_t)left : CHUNK_VALUES;
        for (size_t i = 0; i < count; i++)
            weights->values[i] = scale.mean + scale.deviation * next_normal(&rng);
        size_t bytes = (size_t)llm_dtype_bytes(dtype, count);
        llm_dtype_from_f32(dtype, weights->bytes, weights->values, count);
        gguf_write_data(weights->writer, weights->bytes, bytes);
        left -= count;
        weights->done += bytes;
        if (s->progress)
            s->progress(s->user, weights->done, weights->total);
        if (weights->writer->error)
            return weights->writer->error;
    }
    gguf_write_pad(weights->writer);
    return 0;
}

static int write_stream(const struct llm_synth *s, FILE *out, const struct tally *tally)
{
    struct gguf_writer writer;
    struct weights weights = {.writer = &writer, .total = tally->bytes};
    weights.values = malloc(CHUNK_VALUES * sizeof(float));
    weights.bytes = malloc(CHUNK_VALUES * sizeof(float)); /* no type is wider */
    int err = weights.values && weights.bytes ? 0 : -ENOMEM;
    if (!err) {
        uint64_t pairs = VOCAB_PAIRS + SHAPE_PAIRS + (s->config.rope_dims ? ROPE_PAIRS : 0);
        gguf_write_begin(&writer, out, tally->tensors, pairs);
        put_metadata(&writer, s);
        err = each_tensor(s, put_description, &writer);
        gguf_write_pad(&writer);
    }
    if (!err)
        err = each_tensor(s, put_weights, &weights);
    if (!err)
        err = gguf_write_end(&writer);
    free(weights.values);
    free(weights.bytes);
    return err;
}

/* ---- the file ---- */

static int check_room(int fd, const char *path, uint64_t needed, char *why)
{
    struct statvfs disk;
    char need[HW_FORMAT_CHARS], have[HW_FORMAT_CHARS];
    if (fstatvfs(fd, &disk))
        return 0; /* the write will tell */
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (needed <= room)
        return 0;
    return llm_why(why, -ENOSPC, "%s needs %s; the disk has %s free", path,
                   hw_format_size(need, needed), hw_format_size(have, room));
}

static int write_part(const struct llm_synth *s, const char *part, const char *path,
                      const struct tally *tally, char *why)
{
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return llm_why(why, -errno, "cannot make %s: %s", part, strerror(errno));
    uint64_t needed = tally->bytes + (uint64_t)s->config.vocab * VOCAB_BYTES_EACH;
    int err = check_room(fd, path, needed, why);
    FILE *out = err ? NULL : fdopen(fd, "wb");
    if (!err && !out)
        err = llm_why(why, -ENOMEM, "out of memory");
    if (out) {
        err = write_stream(s, out, tally);
        if (fclose(out) && !err)
            err = -errno;
        if (err)
            llm_why_set(why, "cannot write %s: %s", part, strerror(-err));
    } else {
        close(fd);
    }
    if (!err && rename(part, path))
        err = llm_why(why, -errno, "cannot name it %s: %s", path, strerror(errno));
    if (err)
        unlink(part);
    return err;
}

int llm_synth_write(const struct llm_synth *s, const char *path, char *why)
{
    struct tally tally = {.why = why};
    int err = check_shape(&s->config, why);
    if (!err)
        err = each_tensor(s, add_bytes, &tally);
    if (err)
        return err;
    if (tally.tensors > LLM_TENSORS_MAX)
        return llm_why(why, -EINVAL, "%" PRIu64 " tensors; %d at most", tally.tensors,
                       LLM_TENSORS_MAX);
    char *part;
    if (asprintf(&part, "%s.%d.part", path, (int)getpid()) < 0)
        return llm_why(why, -ENOMEM, "out of memory");
    err = write_part(s, part, path, &tally, why);
    free(part);
    return err;
}
