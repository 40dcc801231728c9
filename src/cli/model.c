/* hawser model - describes a model file, quantises one, or makes one with random weights. */
#include "cli/commands.h"

#include "base/report/out.h"
#include "base/report/progress.h"
#include "base/units.h"
#include "llm/convert/import.h"
#include "llm/convert/quantise.h"
#include "llm/engine/backend.h"
#include "llm/model/synth.h"
#include "llm/tokenizer/vocab.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct model_options {
    bool json;
    const char *tokenizer;
    int arch; /* an enum llm_arch */
    const char *like;
    uint64_t layers, width, heads, kv_heads, ffn, vocab, context, experts, experts_used, window;
    int rope; /* an enum llm_synth_rope */
    uint64_t rope_factor;
    const char *type;
    uint64_t seed;
    const char *output;
    bool force;
    uint64_t threads;
};

static const char *const arch_choices[] = {
    "llama",     "qwen2",      "gptj",  "gpt2",     "qwen3",    "qwen3moe",   "gemma2",
    "gemma3",    "phi3",       "olmoe", "mistral3", "granite",  "starcoder2", "gpt-oss",
    "qwen2moe",  "granitemoe", "gemma", "glm4",     "seed_oss", "exaone",     "smollm3",
    "internlm2", "ernie4_5",   "olmo2", "exaone4",  "cohere2",  "command-r",  NULL};
_Static_assert(ARRAY_LEN(arch_choices) == LLM_ARCHS + 1, "in the order of enum llm_arch");

static const char *const rope_choices[] = {"none", "linear", "yarn", "llama3", "longrope", NULL};

#define SHAPE(option, member, most, text)                                                          \
    {                                                                                              \
        option, 0, CMD_U64, offsetof(struct model_options, member), "synth: " text, "N", NULL, 0,  \
            most                                                                                   \
    }

#define AT(field) offsetof(struct model_options, field)
static const struct cmd_option options[] = {
    {"json", 'j', CMD_FLAG, AT(json), "info: one JSON object"},
    {"tokenizer", 0, CMD_STRING, AT(tokenizer),
     "info: tokenizer.bin of a model in llama2.c's format", "FILE"},
    {"arch", 'a', CMD_CHOICE, AT(arch), "synth: architecture", NULL, "llama", 0, 0, arch_choices},
    {"like", 0, CMD_STRING, AT(like),
     "synth: shape of a published model: gptj 6b; gpt2 124m, 1.5b; llama 134m, 1.1b, 7b, 8b, 8x7b; "
     "qwen2 0.5b, 7b; qwen3 0.6b, 8b; qwen3moe 30b-a3b; gemma2 2b; gemma3 1b; phi3 mini; olmoe 7b; "
     "mistral3 3b; granite 2b; starcoder2 3b; gpt-oss 20b; qwen2moe 14b-a2.7b; granitemoe "
     "3b-a800m; gemma 2b; glm4 9b; seed_oss 36b; exaone 2.4b; smollm3 3b; internlm2 7b; ernie4_5 "
     "0.3b; olmo2 1b; exaone4 32b; cohere2 7b; command-r 35b; tiny of each, llama's "
     "tiny-moe, granitemoe's tiny-shared.  The numbers below "
     "override it",
     "SIZE"},
    SHAPE("layers", layers, LLM_LAYERS_MAX, "blocks"),
    SHAPE("width", width, LLM_WIDTH_MAX, "of the residual stream"),
    SHAPE("heads", heads, LLM_WIDTH_MAX, "of queries"),
    SHAPE("kv-heads", kv_heads, LLM_WIDTH_MAX, "of keys and values [default: heads]"),
    SHAPE("ffn", ffn, LLM_WIDTH_MAX, "feed-forward width [default: 4 x width]"),
    SHAPE("vocab", vocab, LLM_VOCAB_MAX, "tokens, 257 or more [default: 512]"),
    SHAPE("context", context, LLM_CONTEXT_MAX, "positions [default: 2048]"),
    SHAPE("experts", experts, LLM_EXPERTS_MAX, "of a layer [default: 8 where there are any]"),
    SHAPE("experts-used", experts_used, LLM_EXPERTS_USED_MAX, "of a row [default: 2]"),
    SHAPE("window", window, LLM_CONTEXT_MAX, "positions that a row sees in sliding layers"),
    {"rope", 0, CMD_CHOICE, AT(rope), "synth: how positions were stretched", NULL, "none", 0, 0,
     rope_choices},
    {"rope-factor", 0, CMD_U64, AT(rope_factor),
     "synth: from the Nth part of the context, with --rope", "N", "4", 1, 1024},
    {"type", 't', CMD_STRING, AT(type),
     "of the matrices; synth [default: F16]: F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, "
     "Q4_1, Q4_0, IQ4_XS, IQ4_NL, MXFP4, Q3_K or Q2_K; quantise: one of these, or a mixture: "
     "Q5_K_M, Q5_K_S, Q4_K_M, Q4_K_S, Q3_K_M",
     "TYPE"},
    {"seed", 's', CMD_U64, AT(seed), "synth: the same seed gives the same file on every machine",
     "N", "1"},
    {"output", 'o', CMD_STRING, AT(output), "synth: where to", "FILE"},
    {"force", 'f', CMD_FLAG, AT(force), "quantise, import: replace what is there"},
    {"threads", 0, CMD_U64, AT(threads), "quantise: [default: the cores there are]", "N", NULL, 0,
     LLM_THREADS_MAX},
    {NULL},
};

/* ---- info ---- */

struct by_type {
    enum llm_dtype dtype;
    uint64_t tensors, values, bytes;
};

struct summary {
    struct by_type types[LLM_DTYPES];
    size_t type_count;
    uint64_t values, bytes;
    uint64_t kv_bytes; /* of one position */
};

static struct by_type *type_entry(struct summary *summary, enum llm_dtype dtype)
{
    for (size_t i = 0; i < summary->type_count; i++) {
        if (summary->types[i].dtype == dtype)
            return &summary->types[i];
    }
    summary->types[summary->type_count] = (struct by_type){.dtype = dtype};
    return &summary->types[summary->type_count++];
}

static struct summary summarise(const struct llm_file *file)
{
    struct summary summary = {0};
    for (uint32_t i = 0; i < llm_file_tensor_count(file); i++) {
        const struct llm_tensor *tensor = llm_file_tensor(file, i);
        struct by_type *entry = type_entry(&summary, tensor->dtype);
        uint64_t values = tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
        entry->tensors++;
        entry->values += values;
        entry->bytes += tensor->bytes;
        summary.values += values;
        summary.bytes += tensor->bytes;
    }
    const struct llm_config *c = llm_file_config(file);
    summary.kv_bytes = (uint64_t)c->layers * 2 * c->kv_heads * c->head_dim * sizeof(uint16_t);
    return summary;
}

static const char *rope_scaling(const struct llm_file *file)
{
    const struct llm_config *c = llm_file_config(file);
    if (llm_file_find(file, "rope_factors_long.weight"))
        return "longrope";
    if (llm_file_find(file, "rope_freqs.weight"))
        return "llama3";
    if (c->rope_is_yarn)
        return "yarn";
    return c->rope_scale != 1 ? "linear" : "none";
}

static void print_positions(const struct llm_file *file)
{
    const struct llm_config *c = llm_file_config(file);
    if (c->rope_dims == 0) {
        printf("positions    learned\n");
        return;
    }
    printf("positions    rotary, %u of %u dimensions, %s pairs, base %g", c->rope_dims, c->head_dim,
           c->rope_is_neox ? "half-apart" : "adjacent", (double)c->rope_base);
    const char *scaling = rope_scaling(file);
    if (strcmp(scaling, "none") != 0)
        printf(", %s scaling", scaling);
    if (c->rope_original != c->context)
        printf(" from %u", c->rope_original);
    if (c->rope_skip)
        printf("; not in every %uth layer", c->rope_skip);
    printf("\n");
    if (c->window && c->window_period)
        printf("window       %u positions; every %uth layer sees all\n", c->window,
               c->window_period);
    else if (c->window)
        printf("window       %u positions\n", c->window);
}

static void print_shape(const struct llm_file *file)
{
    const struct llm_config *c = llm_file_config(file);
    printf("layers       %u\nwidth        %u, feed-forward %u%s\n", c->layers, c->width, c->ffn,
           c->ffn_is_gated ? " (gated)" : "");
    if (c->experts)
        printf("experts      %u, %u for each row%s\n", c->experts, c->experts_used,
               c->shared_ffn ? ", and a shared one" : "");
    printf("heads        %u of %u, %u for keys and values\nvocabulary   %u%s\ncontext      %u\n",
           c->heads, c->head_dim, c->kv_heads, c->vocab,
           c->tied_output ? ", output tied to the embedding" : "", c->context);
    print_positions(file);
}

static enum cmd_exit print_types(const struct summary *summary)
{
    char text[HW_FORMAT_CHARS];
    struct hw_table *table = hw_table_create();
    if (!table)
        return cmd_fail(CMD_FAILED, "out of memory");
    hw_table_head(table, "type\ttensors\tvalues\tbytes");
    for (size_t i = 0; i < summary->type_count; i++) {
        const struct by_type *entry = &summary->types[i];
        hw_table_cell(table, "%s", llm_dtype_name(entry->dtype));
        hw_table_cell(table, "%" PRIu64, entry->tensors);
        hw_table_cell(table, "%" PRIu64, entry->values);
        hw_table_cell(table, "%s", hw_format_size(text, entry->bytes));
    }
    int err = hw_table_print(table, stdout);
    hw_table_destroy(table);
    return err ? cmd_output_lost(err) : CMD_DONE;
}

static enum cmd_exit print_info(const struct llm_file *file, const char *path,
                                const struct summary *summary, const char *tokenizer)
{
    const struct llm_config *c = llm_file_config(file);
    char weights[HW_FORMAT_CHARS], position[HW_FORMAT_CHARS], all[HW_FORMAT_CHARS];
    printf("%s: %s, %s%s%s\n", path, llm_file_format(file), llm_arch_name(c->arch),
           *llm_file_name(file) ? ", " : "", llm_file_name(file));
    print_shape(file);
    printf("tokenizer    %s\n", tokenizer);
    printf("parameters   %" PRIu64 " in %u tensors, %s\n", summary->values,
           llm_file_tensor_count(file), hw_format_size(weights, summary->bytes));
    printf("KV cache     %s a position\n", hw_format_size(position, summary->kv_bytes));
    printf("memory       %s with one sequence of full context\n\n",
           hw_format_size(all, summary->bytes + summary->kv_bytes * c->context));
    return print_types(summary);
}

static void json_shape(struct hw_json *json, const struct llm_file *file)
{
    const struct llm_config *c = llm_file_config(file);
    hw_json_put_u64(json, "layers", c->layers);
    hw_json_put_u64(json, "width", c->width);
    hw_json_put_u64(json, "heads", c->heads);
    hw_json_put_u64(json, "kv_heads", c->kv_heads);
    hw_json_put_u64(json, "head_dim", c->head_dim);
    hw_json_put_u64(json, "ffn", c->ffn);
    hw_json_put_u64(json, "vocab", c->vocab);
    hw_json_put_u64(json, "context", c->context);
    hw_json_put_u64(json, "rope_dims", c->rope_dims);
    hw_json_put_double(json, "rope_base", (double)c->rope_base);
    hw_json_put_double(json, "rope_scale", (double)c->rope_scale);
    hw_json_put_string(json, "rope_scaling", rope_scaling(file));
    hw_json_put_u64(json, "rope_original", c->rope_original);
    hw_json_put_u64(json, "window", c->window);
    hw_json_put_u64(json, "window_period", c->window_period);
    hw_json_put_u64(json, "experts", c->experts);
    hw_json_put_u64(json, "experts_used", c->experts_used);
    hw_json_put_u64(json, "shared_ffn", c->shared_ffn);
    hw_json_put_bool(json, "tied_output", c->tied_output);
}

static enum cmd_exit json_info(const struct llm_file *file, const struct summary *summary,
                               const char *tokenizer)
{
    const struct llm_config *c = llm_file_config(file);
    struct hw_json json;
    hw_json_begin(&json, stdout);
    hw_json_object_begin(&json);
    hw_json_put_string(&json, "format", llm_file_format(file));
    hw_json_put_string(&json, "arch", llm_arch_name(c->arch));
    hw_json_put_string(&json, "name", llm_file_name(file));
    json_shape(&json, file);
    hw_json_put_string(&json, "tokenizer", tokenizer);
    hw_json_put_u64(&json, "tensors", llm_file_tensor_count(file));
    hw_json_put_u64(&json, "parameters", summary->values);
    hw_json_put_u64(&json, "weight_bytes", summary->bytes);
    hw_json_put_u64(&json, "kv_bytes_per_position", summary->kv_bytes);
    hw_json_put_u64(&json, "memory_bytes", summary->bytes + summary->kv_bytes * c->context);
    hw_json_object_at(&json, "types");
    for (size_t i = 0; i < summary->type_count; i++) {
        hw_json_object_at(&json, llm_dtype_name(summary->types[i].dtype));
        hw_json_put_u64(&json, "tensors", summary->types[i].tensors);
        hw_json_put_u64(&json, "values", summary->types[i].values);
        hw_json_put_u64(&json, "bytes", summary->types[i].bytes);
        hw_json_object_end(&json);
    }
    hw_json_object_end(&json);
    hw_json_object_end(&json);
    int err = hw_json_finish(&json);
    return err ? cmd_output_lost(err) : CMD_DONE;
}

/* A file whose vocabulary cannot be used still runs on token numbers: described, not an error. */
static int describe_tokenizer(const struct llm_file *file, const char *path,
                              char text[LLM_WHY_CHARS])
{
    struct llm_vocab *vocab;
    char kind[LLM_NAME_CHARS];
    int err = llm_vocab_create(file, path, &vocab, text);
    if (err == -EOPNOTSUPP || (err == -ENOENT && !path))
        return 0;
    if (err)
        return err;
    llm_vocab_describe(vocab, kind);
    snprintf(text, LLM_WHY_CHARS, "%s, %u tokens", kind, llm_vocab_size(vocab));
    llm_vocab_destroy(vocab);
    return 0;
}

static enum cmd_exit info(const struct model_options *o, const char *path)
{
    char why[LLM_WHY_CHARS];
    struct llm_file *file;
    if (llm_file_open(path, &file, why))
        return cmd_fail(CMD_FAILED, "%s", why);
    enum cmd_exit code;
    if (describe_tokenizer(file, o->tokenizer, why)) {
        code = cmd_fail(CMD_FAILED, "%s: %s", path, why);
    } else {
        struct summary summary = summarise(file);
        code = o->json ? json_info(file, &summary, why) : print_info(file, path, &summary, why);
    }
    llm_file_close(file);
    return code;
}

/* ---- synth ---- */

static enum cmd_exit unknown_like(enum llm_arch arch, const char *like)
{
    char known[128] = "";
    const char *name;
    for (uint32_t i = 0; (name = llm_synth_like_name(arch, i)); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", name);
    }
    return cmd_fail(CMD_USAGE, "model synth: no %s is known as '%s'; there are %s",
                    llm_arch_name(arch), like, known);
}

static void override(uint32_t *field, uint64_t value)
{
    if (value)
        *field = (uint32_t)value; /* the option's own limit is below 2^32 */
}

static void override_shape(const struct model_options *o, struct llm_config *c)
{
    if (o->width || o->heads) /* derived from them: derived again */
        c->head_dim = c->rope_dims = 0;
    if (o->heads && !o->kv_heads)
        c->kv_heads = 0;
    if (o->width && !o->ffn)
        c->ffn = 0;
    override(&c->layers, o->layers);
    override(&c->width, o->width);
    override(&c->heads, o->heads);
    override(&c->kv_heads, o->kv_heads);
    override(&c->ffn, o->ffn);
    override(&c->vocab, o->vocab);
    override(&c->context, o->context);
    if (o->context)
        c->rope_original = 0;
    override(&c->experts, o->experts);
    override(&c->experts_used, o->experts_used);
    if (c->experts && c->experts_used == 0)
        c->experts_used = c->experts < 2 ? c->experts : 2;
    override(&c->window, o->window);
    llm_synth_complete(c);
}

static void draw_progress(void *user, uint64_t done, uint64_t total)
{
    (void)total;
    hw_progress_update(user, done);
}

static enum cmd_exit synth(const struct model_options *o)
{
    char why[LLM_WHY_CHARS], size[HW_FORMAT_CHARS], names[LLM_DTYPE_NAMES_CHARS];
    struct llm_synth s = {.config = {.arch = (enum llm_arch)o->arch}, .seed = o->seed};
    if (!o->output)
        return cmd_fail(CMD_USAGE, "model synth: -o FILE is missing");
    const char *type = o->type ? o->type : "F16";
    if (!llm_dtype_parse(type, &s.dtype))
        return cmd_fail(CMD_USAGE, "model synth: --type %s is not known; %s are", type,
                        llm_dtype_names(names));
    if (o->like && !llm_synth_like(s.config.arch, o->like, &s.config))
        return unknown_like(s.config.arch, o->like);
    if (!o->like && !(o->layers && o->width && o->heads))
        return cmd_fail(CMD_USAGE, "model synth: give --like, or --layers, --width and --heads");
    override_shape(o, &s.config);
    llm_synth_stretch(&s, (enum llm_synth_rope)o->rope, (uint32_t)o->rope_factor);
    struct hw_progress progress;
    hw_progress_begin(&progress, "writing", llm_synth_bytes(&s));
    s.progress = draw_progress;
    s.user = &progress;
    int err = llm_synth_write(&s, o->output, why);
    hw_progress_end(&progress);
    if (err)
        return cmd_fail(err == -EINVAL ? CMD_USAGE : CMD_FAILED, "model synth: %s", why);
    printf("made %s: %s, %s of %s\n", o->output, llm_arch_name(s.config.arch),
           hw_format_size(size, llm_synth_bytes(&s)), llm_dtype_name(s.dtype));
    return CMD_DONE;
}

static enum cmd_exit unknown_type(const char *verb, const char *type)
{
    char known[256] = "";
    const char *name;
    for (size_t i = 0; (name = llm_recipe_name(i)); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", name);
    }
    return cmd_fail(CMD_USAGE, "model %s: --type %s is not known; there are %s", verb, type, known);
}

static enum cmd_exit quantise(const struct model_options *o, const char *from, const char *to)
{
    char why[LLM_WHY_CHARS], size[HW_FORMAT_CHARS];
    if (!o->type)
        return cmd_fail(CMD_USAGE, "model quantise: --type is missing");
    struct llm_quantise q = {.recipe = llm_recipe_find(o->type),
                             .overwrite = o->force,
                             .threads = (unsigned)o->threads,
                             .progress = draw_progress};
    struct llm_file *file;
    if (!q.recipe)
        return unknown_type("quantise", o->type);
    if (llm_file_open(from, &file, why))
        return cmd_fail(CMD_FAILED, "%s", why);
    struct hw_progress progress;
    uint64_t bytes = llm_quantise_bytes(&q, file);
    hw_progress_begin(&progress, "writing", bytes);
    q.user = &progress;
    int err = llm_quantise_write(&q, file, to, why);
    hw_progress_end(&progress);
    llm_file_close(file);
    if (err)
        return cmd_fail(CMD_FAILED, "model quantise: %s", why);
    printf("made %s: %s of %s\n", to, hw_format_size(size, bytes), o->type);
    return CMD_DONE;
}

/* FOLDER.gguf, beside the folder. */
static void name_beside(const char *folder, char path[PATH_MAX])
{
    size_t chars = strlen(folder);
    while (chars > 1 && folder[chars - 1] == '/')
        chars--;
    snprintf(path, PATH_MAX, "%.*s.gguf", (int)chars, folder);
}

static enum cmd_exit import_folder(const struct model_options *o, const char *folder,
                                   const char *to)
{
    char why[LLM_WHY_CHARS], size[HW_FORMAT_CHARS], beside[PATH_MAX];
    struct llm_imported made;
    struct hw_progress progress;
    if (o->type)
        return cmd_fail(CMD_USAGE, "model import: --type is not for import, which keeps the types; "
                                   "quantise the result");
    name_beside(folder, beside);
    struct llm_import import = {.folder = folder,
                                .path = to ? to : beside,
                                .overwrite = o->force,
                                .progress = draw_progress,
                                .user = &progress};
    hw_progress_begin(&progress, "writing", 0);
    int err = llm_import_write(&import, &made, why);
    hw_progress_end(&progress);
    if (err)
        return cmd_fail(CMD_FAILED, "model import: %s", why);
    printf("made %s: %s, %u tensors, %s\n", import.path, made.arch, made.tensors,
           hw_format_size(size, made.bytes));
    return CMD_DONE;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const char *verb = operands->items[0];
    if (strcmp(verb, "info") == 0 && operands->count == 2)
        return info(values, operands->items[1]);
    if (strcmp(verb, "synth") == 0 && operands->count == 1)
        return synth(values);
    bool quantises = strcmp(verb, "quantise") == 0 || strcmp(verb, "quantize") == 0;
    if (quantises && operands->count == 3)
        return quantise(values, operands->items[1], operands->items[2]);
    if (strcmp(verb, "import") == 0 && operands->count >= 2)
        return import_folder(values, operands->items[1],
                             operands->count > 2 ? operands->items[2] : NULL);
    return cmd_fail(CMD_USAGE, "model: use info FILE, synth -o FILE, quantise FROM TO or import "
                               "FOLDER [TO]; see hawser model --help");
}

const struct cmd_command cmd_model = {
    .name = "model",
    .summary = "describe, import or quantise a model file, or make a random one",
    .operands = "info|synth|quantise|import [FILE] [FILE]",
    .operands_min = 1,
    .operands_max = 3,
    .description =
        "info FILE            what it is: architecture, shape, types, tokenizer, memory needed; "
        "GGUF v2 and v3 or llama2.c's format\n"
        "synth                makes a GGUF file of any shape with random weights, for bytes and "
        "times without a download\n"
        "quantise FROM TO     writes a GGUF file again with its matrices in another type; also "
        "spelt quantize\n"
        "import FOLDER [TO]   makes a GGUF file of a model as it is published: config.json, "
        "tokenizer.json and safetensors [default: FOLDER.gguf]",
    .options = options,
    .examples = "hawser model info models/small.gguf\n"
                "hawser model synth --arch gptj --like 6b -o gptj-6b.gguf\n"
                "hawser model synth --layers 12 --width 768 --heads 12 -o random.gguf\n"
                "hawser model quantise model-f16.gguf model-q4.gguf --type Q4_K_M\n"
                "hawser model import gpt-j-6B gpt-j-6b.gguf",
    .values_size = sizeof(struct model_options),
    .run = run,
};
