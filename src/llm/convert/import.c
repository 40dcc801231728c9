#include "llm/convert/import.h"

#include "llm/convert/json_file.h"
#include "llm/convert/published.h"
#include "llm/convert/safetensors.h"
#include "llm/convert/vocab_json.h"
#include "llm/model/gguf_write.h"
#include "llm/model/model.h"
#include "llm/model/output.h"
#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 1 << 20, /* of a tensor at a time, at least one row */
    KEY_CHARS = 96,
    FROM_CHARS = 128,
    PAIRS_MAX = 64, /* that are written here; checked */
    HEADER_BYTES = 24,
};

/* A tensor of the result and where it comes from. */
struct item {
    const struct llm_st_tensor *from; /* NULL: the rope factors */
    enum llm_pub_how how;
};

struct job {
    const struct llm_import *import;
    const struct llm_pub *pub;
    json_t *config;
    struct llm_st weights;
    char *pairs; /* a header without tensors */
    size_t pairs_bytes;
    uint32_t pair_count;
    struct gguf gguf; /* of the pairs; its tensors are those of the result */
    struct item *items;
    struct llm_config shape;
    float *rope_factors; /* or NULL */
    uint32_t rope_count;
    uint64_t bytes;
};

/* ---- config.json ---- */

/* A number of config.json, or of its rope_parameters. */
static const json_t *find_number(const json_t *config, const char *const *names)
{
    for (int i = 0; i < LLM_PUB_ALIASES && names[i]; i++) {
        const json_t *value = json_object_get(config, names[i]);
        if (!json_is_number(value))
            value = json_object_get(json_object_get(config, "rope_parameters"), names[i]);
        if (json_is_number(value))
            return value;
    }
    return NULL;
}

/* -ENOENT: there is none and need not be. */
static int number_of(const json_t *config, const struct llm_pub_key *key, double *out, char *why)
{
    const json_t *value = find_number(config, key->from);
    const char *const like[LLM_PUB_ALIASES] = {key->like};
    double times = 1;
    if (!value && key->like) {
        value = find_number(config, like);
        times = key->times;
    }
    if (!value && key->otherwise == 0)
        return key->optional
                   ? -ENOENT
                   : llm_why(why, -EPROTO, "config.json lacks the number %s", key->from[0]);
    *out = value ? json_number_value(value) * times : key->otherwise;
    if (!key->is_real && (*out < 0 || *out > UINT32_MAX || *out != floor(*out)))
        return llm_why(why, -EPROTO, "config.json: %s is %g", key->from[0], *out);
    return 0;
}

static int write_keys(const struct job *j, struct gguf_writer *w, char *why)
{
    for (const struct llm_pub_key *key = j->pub->keys; key->to; key++) {
        char name[KEY_CHARS];
        double value;
        int err = number_of(j->config, key, &value, why);
        if (err == -ENOENT)
            continue;
        if (err)
            return err;
        snprintf(name, sizeof(name), "%s.%s", j->pub->arch, key->to);
        if (key->is_real)
            gguf_write_f32(w, name, (float)value);
        else
            gguf_write_u32(w, name, (uint32_t)value);
    }
    return 0;
}

/* ---- rope scaling ---- */

static double real_in(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

/* Llama 3: pairs that turn slowly are slowed down further by `factor`, fast ones are not, those
 * between in part. */
static int make_llama3_factors(struct job *j, const json_t *scaling, double base, char *why)
{
    double factor = real_in(scaling, "factor", 8), low = real_in(scaling, "low_freq_factor", 1);
    double high = real_in(scaling, "high_freq_factor", 4);
    double old = real_in(scaling, "original_max_position_embeddings", 8192);
    double heads = real_in(j->config, "num_attention_heads", 0);
    double dim = real_in(j->config, "head_dim",
                         heads > 0 ? real_in(j->config, "hidden_size", 0) / heads : 0);
    if (!(factor > 0 && low > 0 && high > low && old > 0 && dim >= 2 && dim <= LLM_WIDTH_MAX))
        return llm_why(why, -EPROTO, "config.json: rope_scaling has numbers out of bounds");
    j->rope_count = (uint32_t)(dim / 2);
    j->rope_factors = calloc(j->rope_count, sizeof(*j->rope_factors));
    if (!j->rope_factors)
        return llm_why(why, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < j->rope_count; i++) {
        double turns = old * pow(base, -2.0 * i / dim) / (2 * M_PI); /* over the old context */
        double part = (turns - low) / (high - low);
        double slow = turns < low ? factor : turns > high ? 1 : 1 / ((1 - part) / factor + part);
        j->rope_factors[i] = (float)slow;
    }
    return 0;
}

static int read_rope_scaling(struct job *j, struct gguf_writer *w, char *why)
{
    const json_t *scaling = json_object_get(j->config, "rope_scaling");
    scaling = json_is_object(scaling) ? scaling : json_object_get(j->config, "rope_parameters");
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    type = type ? type : json_string_value(json_object_get(scaling, "type"));
    char key[KEY_CHARS];
    if (!type || strcmp(type, "default") == 0)
        return 0;
    if (strcmp(type, "llama3") == 0) {
        const char *const theta[LLM_PUB_ALIASES] = {"rope_theta"};
        const json_t *base = find_number(j->config, theta);
        return make_llama3_factors(j, scaling, base ? json_number_value(base) : 10000, why);
    }
    if (strcmp(type, "linear") != 0)
        return llm_why(why, -EOPNOTSUPP,
                       "config.json: rope scaling %.40s; linear and llama3 are "
                       "imported",
                       type);
    snprintf(key, sizeof(key), "%s.rope.scaling.type", j->pub->arch);
    gguf_write_string(w, key, "linear");
    snprintf(key, sizeof(key), "%s.rope.scaling.factor", j->pub->arch);
    gguf_write_f32(w, key, (float)real_in(scaling, "factor", 1));
    return 0;
}

/* ---- which tensors ---- */

static void name_for(const char *pattern, uint32_t layer, char *out, size_t chars)
{
    const char *mark = strstr(pattern, "%u");
    if (mark)
        snprintf(out, chars, "%.*s%u%s", (int)(mark - pattern), pattern, layer, mark + 2);
    else
        snprintf(out, chars, "%s", pattern);
}

/* With the architecture's prefix or without. */
static struct llm_st_tensor *find_source(const struct job *j, const char *name)
{
    struct llm_st_tensor *found = llm_st_find(&j->weights, name);
    size_t prefix = strlen(j->pub->prefix);
    if (!found && strncmp(name, j->pub->prefix, prefix) == 0)
        found = llm_st_find(&j->weights, name + prefix);
    return found;
}

/* dims as GGUF counts: the contiguous one first. */
static int describe(const struct llm_pub_tensor *row, const struct llm_st_tensor *from,
                    struct llm_tensor *to, char *why)
{
    if (!from->has_dtype)
        return llm_why(why, -EOPNOTSUPP,
                       "tensor %.80s is of a type that is not read; F32, F16 and "
                       "BF16 are",
                       from->name);
    if (from->dim_count == 0 || from->dim_count > 2 ||
        (row->how == LLM_PUB_TRANSPOSE && from->dim_count != 2))
        return llm_why(why, -EPROTO, "tensor %.80s has %u dimensions", from->name, from->dim_count);
    bool two = from->dim_count == 2, turned = row->how == LLM_PUB_TRANSPOSE;
    to->dim_count = from->dim_count;
    to->dims[0] = turned ? from->dims[0] : from->dims[two];
    to->dims[1] = turned ? from->dims[1] : two ? from->dims[0] : 1;
    to->dims[2] = to->dims[3] = 1;
    to->dtype = two && row->how != LLM_PUB_AS_F32 ? from->dtype : LLM_F32;
    to->bytes = llm_dtype_bytes(to->dtype, to->dims[0] * to->dims[1]);
    to->data = from->data;
    return 0;
}

static int add_tensor(struct job *j, const struct llm_pub_tensor *row, uint32_t layer, char *why)
{
    char name[FROM_CHARS];
    name_for(row->from, layer, name, sizeof(name));
    struct llm_st_tensor *from = find_source(j, name);
    if (!from)
        return row->optional ? 0 : llm_why(why, -EPROTO, "the weights lack tensor %s", name);
    from->is_used = true;
    bool tied = json_is_true(json_object_get(j->config, "tie_word_embeddings"));
    if (row->how == LLM_PUB_IGNORE ||
        (tied && strcmp(row->to, "output.weight") == 0 && row->optional))
        return 0;
    struct llm_tensor_table *table = &j->gguf.tensors;
    struct llm_tensor *to = &table->items[table->count];
    name_for(row->to, layer, to->name, sizeof(to->name));
    int err = describe(row, from, to, why);
    if (err)
        return err;
    j->items[table->count++] = (struct item){.from = from, .how = row->how};
    j->bytes += to->bytes;
    return 0;
}

static void add_rope_factors(struct job *j)
{
    struct llm_tensor_table *table = &j->gguf.tensors;
    j->items[table->count] = (struct item){0};
    table->items[table->count++] = (struct llm_tensor){.name = "rope_freqs.weight",
                                                       .dtype = LLM_F32,
                                                       .dim_count = 1,
                                                       .dims = {j->rope_count, 1, 1, 1},
                                                       .bytes = j->rope_count * sizeof(float),
                                                       .data = j->rope_factors};
}

static int add_tensors(struct job *j, char *why)
{
    const struct llm_pub_key *layers_key = j->pub->keys;
    double layers = 0;
    assert(strcmp(layers_key->to, "block_count") == 0);
    int err = number_of(j->config, layers_key, &layers, why);
    if (!err && (layers < 1 || layers > LLM_LAYERS_MAX))
        err = llm_why(why, -EPROTO, "config.json: %g layers; 1 to %d are possible", layers,
                      LLM_LAYERS_MAX);
    if (err)
        return err;
    j->items = calloc(j->weights.count + 1, sizeof(*j->items));
    if (!j->items || llm_tensor_table_init(&j->gguf.tensors, j->weights.count + 1))
        return llm_why(why, -ENOMEM, "out of memory for the table of tensors");
    j->gguf.tensors.count = 0; /* counts those that are filled in */
    for (const struct llm_pub_tensor *row = j->pub->tensors; row->from && !err; row++) {
        uint32_t copies = strstr(row->from, "%u") ? (uint32_t)layers : 1;
        for (uint32_t layer = 0; layer < copies && !err; layer++)
            err = add_tensor(j, row, layer, why);
    }
    if (!err && j->rope_factors)
        add_rope_factors(j);
    return err;
}

static int check_all_used(const struct job *j, char *why)
{
    for (uint32_t i = 0; i < j->weights.count; i++) {
        if (!j->weights.items[i].is_used)
            return llm_why(why, -EOPNOTSUPP, "tensor %.80s has no place in a model of type %s",
                           j->weights.items[i].name, j->pub->model_type);
    }
    return 0;
}

/* ---- metadata ---- */

static uint32_t vocab_rows(const struct job *j)
{
    for (uint32_t i = 0; i < j->gguf.tensors.count; i++) {
        if (strcmp(j->gguf.tensors.items[i].name, "token_embd.weight") == 0)
            return (uint32_t)j->gguf.tensors.items[i].dims[1];
    }
    return 0;
}

static int write_pairs(struct job *j, struct gguf_writer *w, char *why)
{
    const char *folder = j->import->folder, *slash = strrchr(folder, '/');
    const char *name = slash && slash[1] ? slash + 1 : folder;
    gguf_write_string(w, "general.architecture", j->pub->arch);
    gguf_write_string(w, "general.name", name);
    int err = write_keys(j, w, why);
    if (!err)
        err = read_rope_scaling(j, w, why);
    if (!err)
        err = add_tensors(j, why);
    if (!err)
        err = check_all_used(j, why);
    uint64_t rows = err ? 0 : vocab_rows(j);
    if (!err && (rows == 0 || rows > LLM_VOCAB_MAX))
        err = llm_why(why, -EPROTO, "a vocabulary of %" PRIu64 "; %d at most", rows, LLM_VOCAB_MAX);
    return err ? err : llm_vocab_json_write(w, folder, j->config, (uint32_t)rows, why);
}

/* The pairs as the header of a file without tensors, which is then read like any other. */
static int make_pairs(struct job *j, char *why)
{
    struct gguf_writer w;
    FILE *out = open_memstream(&j->pairs, &j->pairs_bytes);
    if (!out)
        return llm_why(why, -ENOMEM, "out of memory");
    gguf_write_begin(&w, out, 0, PAIRS_MAX);
    int err = write_pairs(j, &w, why);
    if (!err && w.error)
        err = llm_why(why, w.error, "out of memory for the metadata");
    j->pair_count = PAIRS_MAX - (uint32_t)w.pairs_left;
    if (fclose(out) && !err)
        err = llm_why(why, -ENOMEM, "out of memory for the metadata");
    if (!err)
        wire_store64(j->pairs + HEADER_BYTES - sizeof(uint64_t), j->pair_count);
    return err;
}

/* As if the result were opened: before a byte of it is written. */
static int check_result(struct job *j, char *why)
{
    struct llm_tensor_table tensors = j->gguf.tensors;
    struct gguf read;
    int err = gguf_init(&read, j->pairs, j->pairs_bytes, why);
    if (err)
        return err;
    llm_tensor_table_fini(&read.tensors);
    j->gguf = read;
    j->gguf.tensors = tensors;
    err = llm_tensor_table_seal(&j->gguf.tensors, why);
    if (!err)
        err = llm_config_read(&j->gguf, &j->shape, why);
    return err ? err : llm_config_check_tensors(&j->shape, &j->gguf.tensors, why);
}

/* ---- weights ---- */

/* The row of the source that becomes row r: in each head, row 2i comes from i, row 2i + 1 from
 * i + half a head. */
static uint64_t source_row(const struct job *j, const struct item *item, uint64_t r)
{
    if (item->how != LLM_PUB_PAIRS_Q && item->how != LLM_PUB_PAIRS_K)
        return r;
    uint64_t dim = j->shape.head_dim, within = r % dim;
    return r - within + within / 2 + within % 2 * (dim / 2);
}

/* Rows first.. of the result, in the source's type. */
static void gather(const struct job *j, const struct item *item, const struct llm_tensor *to,
                   uint64_t first, uint64_t rows, uint8_t *dst)
{
    uint64_t size = llm_dtype_bytes(item->from->dtype, 1), width = to->dims[0];
    bool vector = to->dim_count == 1;
    if (item->how == LLM_PUB_TRANSPOSE) {
        for (uint64_t i = 0; i < width; i++) {
            const uint8_t *src = item->from->data + (i * to->dims[1] + first) * size;
            for (uint64_t r = 0; r < rows; r++)
                memcpy(dst + (r * width + i) * size, src + r * size, size);
        }
        return;
    }
    uint64_t row_bytes = (vector ? 1 : width) * size;
    for (uint64_t r = 0; r < rows; r++)
        memcpy(dst + r * row_bytes, item->from->data + source_row(j, item, first + r) * row_bytes,
               row_bytes);
}

struct chunk {
    uint8_t *bytes; /* as the source has them */
    float *values;
};

static int write_tensor(const struct job *j, struct gguf_writer *w, uint32_t i, uint64_t *done,
                        char *why)
{
    const struct llm_tensor *to = &j->gguf.tensors.items[i];
    const struct item *item = &j->items[i];
    if (!item->from) {
        gguf_write_data(w, to->data, (size_t)to->bytes);
        return 0;
    }
    uint64_t size = llm_dtype_bytes(item->from->dtype, 1);
    uint64_t width = to->dim_count == 1 ? 1 : to->dims[0];
    uint64_t rows = to->dims[0] * to->dims[1] / width, each = CHUNK_BYTES / (width * size);
    each = each ? each : 1;
    each = each < rows ? each : rows;
    struct chunk chunk = {.bytes = malloc(each * width * size),
                          .values = malloc(each * width * sizeof(float))};
    int err =
        chunk.bytes && chunk.values ? 0 : llm_why(why, -ENOMEM, "out of memory for %s", to->name);
    for (uint64_t first = 0; first < rows && !err && !w->error; first += each) {
        uint64_t some = rows - first < each ? rows - first : each;
        gather(j, item, to, first, some, chunk.bytes);
        if (to->dtype == item->from->dtype) {
            gguf_write_data(w, chunk.bytes, some * width * size);
        } else {
            assert(to->dtype == LLM_F32);
            llm_dtype_to_f32(item->from->dtype, chunk.values, chunk.bytes, some * width);
            gguf_write_data(w, chunk.values, some * width * sizeof(float));
        }
        *done += some * width * llm_dtype_bytes(to->dtype, 1);
        if (j->import->progress)
            j->import->progress(j->import->user, *done, j->bytes);
    }
    free(chunk.bytes);
    free(chunk.values);
    return err;
}

static int write_stream(const struct job *j, const struct llm_output *output, char *why)
{
    const struct llm_tensor_table *tensors = &j->gguf.tensors;
    struct gguf_writer w;
    uint64_t done = 0;
    int err = 0;
    gguf_write_begin(&w, output->stream, tensors->count, j->pair_count);
    gguf_write_data(&w, j->pairs + HEADER_BYTES, j->pairs_bytes - HEADER_BYTES);
    w.pairs_left = 0; /* they were written as bytes */
    for (uint32_t i = 0; i < tensors->count; i++)
        gguf_write_tensor(&w, tensors->items[i].name, tensors->items[i].dtype,
                          tensors->items[i].dims, tensors->items[i].dim_count);
    gguf_write_pad(&w);
    for (uint32_t i = 0; i < tensors->count && !err; i++) {
        err = write_tensor(j, &w, i, &done, why);
        gguf_write_pad(&w);
    }
    if (!err && (err = gguf_write_end(&w)))
        llm_why_set(why, "cannot write %s: %s", output->path, strerror(-err));
    return err;
}

/* ---- the folder ---- */

static int find_type(struct job *j, char *why)
{
    const char *type = json_string_value(json_object_get(j->config, "model_type"));
    char known[128] = "";
    const struct llm_pub *pub;
    j->pub = type ? llm_pub_find(type) : NULL;
    if (j->pub)
        return 0;
    for (uint32_t i = 0; (pub = llm_pub_at(i)); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", pub->model_type);
    }
    return llm_why(why, -EOPNOTSUPP, "config.json: model_type %.40s is not imported; %s are",
                   type ? type : "(none)", known);
}

static int import(struct job *j, char *why)
{
    int err = llm_json_load(j->import->folder, "config.json", &j->config, why);
    if (!err)
        err = find_type(j, why);
    if (!err)
        err = llm_st_open(&j->weights, j->import->folder, why);
    if (!err)
        err = make_pairs(j, why);
    if (!err)
        err = check_result(j, why);
    struct llm_output output;
    if (!err)
        err = llm_output_open(&output, j->import->path, j->import->overwrite, j->bytes, why);
    return err ? err : llm_output_finish(&output, write_stream(j, &output, why), why);
}

int llm_import_write(const struct llm_import *request, struct llm_imported *out, char *why)
{
    struct job j = {.import = request};
    int err = import(&j, why);
    if (!err)
        *out = (struct llm_imported){
            .arch = j.pub->arch, .bytes = j.bytes, .tensors = j.gguf.tensors.count};
    json_decref(j.config);
    llm_st_fini(&j.weights);
    gguf_fini(&j.gguf);
    free(j.pairs);
    free(j.items);
    free(j.rope_factors);
    return err;
}
