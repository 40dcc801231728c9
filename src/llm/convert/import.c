#include "llm/convert/import.h"

#include "base/report/output.h"
#include "base/text/gather.h"
#include "llm/convert/json_file.h"
#include "llm/convert/rope_config.h"
#include "llm/convert/tensor_copy.h"
#include "llm/convert/vocab_json.h"
#include "llm/model/file.h"
#include "llm/model/format/gguf_write.h"
#include "llm/model/model.h"
#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEY_CHARS = 96,
    FROM_CHARS = 128,
    PAIRS_MAX = 64, /* that are written here; checked */
    HEADER_BYTES = 24,
};

struct job {
    const struct llm_import *import;
    const struct llm_pub *pub;
    json_t *config;
    bool is_wrapped; /* the text model of one that also sees: its tensors have a prefix */
    struct llm_st weights;
    struct hw_gathered pairs; /* a header without tensors */
    uint32_t pair_count;
    struct gguf gguf;        /* of the pairs; its tensors are those of the result */
    struct llm_copy *copies; /* of each tensor; no parts: it has data of its own, the factors */
    const struct llm_st_tensor **parts; /* of the copies */
    uint32_t part_count;
    struct llm_config shape;
    struct llm_rope_factors factors;
    uint64_t bytes, done;
};

/* ---- config.json ---- */

/* "a/b" is b of the object a. */
static const json_t *find_path(const json_t *config, const char *path)
{
    char name[KEY_CHARS];
    const char *slash;
    while ((slash = strchr(path, '/'))) {
        snprintf(name, sizeof(name), "%.*s", (int)(slash - path), path);
        config = json_object_get(config, name);
        path = slash + 1;
    }
    return json_object_get(config, path);
}

static const json_t *find_number(const json_t *config, const char *const *names)
{
    for (int i = 0; i < LLM_PUB_ALIASES && names[i]; i++) {
        const json_t *value = find_path(config, names[i]);
        if (json_is_number(value))
            return value;
    }
    return NULL;
}

static double shaped(const json_t *config, enum llm_pub_form form, double value)
{
    const char *const width[LLM_PUB_ALIASES] = {"hidden_size"};
    const char *const heads[LLM_PUB_ALIASES] = {"num_attention_heads"};
    if (form == LLM_PUB_ROOT_INVERSE)
        return 1 / sqrt(value);
    if (form == LLM_PUB_PART_OF_HEAD)
        return floor(floor(value * json_number_value(find_number(config, width))) /
                     json_number_value(find_number(config, heads)));
    return value;
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
    *out = shaped(config, key->form, value ? json_number_value(value) * times : key->otherwise);
    bool whole = key->form == LLM_PUB_WHOLE || key->form == LLM_PUB_PART_OF_HEAD;
    if (!isfinite(*out) || (whole && (*out < 0 || *out > UINT32_MAX || *out != floor(*out))))
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
        if (key->form == LLM_PUB_REAL || key->form == LLM_PUB_ROOT_INVERSE)
            gguf_write_f32(w, name, (float)value);
        else
            gguf_write_u32(w, name, (uint32_t)value);
    }
    return 0;
}

static bool is_value(const json_t *value, const char *text)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return strcmp(json_string_value(value), text) == 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(value) == strtod(text, NULL);
    case JSON_TRUE:
        return strcmp(text, "true") == 0;
    case JSON_FALSE:
        return strcmp(text, "false") == 0;
    case JSON_ARRAY:
        return json_array_size(value) == 0 && strcmp(text, "[]") == 0;
    default:
        return false;
    }
}

static int check_musts(const struct job *j, char *why)
{
    for (const struct llm_pub_must *must = j->pub->musts; must->key; must++) {
        const json_t *value = json_object_get(j->config, must->key);
        bool missing = !value || json_is_null(value);
        if (missing ? !must->required : is_value(value, must->value))
            continue;
        return llm_why(why, -EOPNOTSUPP, "config.json: %s is not %s, and nothing else is computed",
                       must->key, must->value);
    }
    return 0;
}

/* Where config.json lists the layers that slide, they must be those that the engine takes. */
static int check_layers(const struct job *j, char *why)
{
    const json_t *types = json_object_get(j->config, "layer_types");
    for (uint32_t l = 0; json_is_array(types) && l < j->shape.layers; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        const char *made = llm_layer_slides(&j->shape, l) ? "sliding_attention" : "full_attention";
        if (!type || strcmp(type, made) != 0)
            return llm_why(why, -EOPNOTSUPP, "config.json: layer %u is of type %.40s, not %s", l,
                           type ? type : "(none)", made);
    }
    return 0;
}

/* ---- which tensors ---- */

/* %u and %e in a pattern. */
static void name_for(const char *pattern, uint32_t layer, uint32_t expert, char out[FROM_CHARS])
{
    size_t used = 0;
    for (const char *p = pattern; *p && used + 12 < FROM_CHARS;) {
        bool mark = p[0] == '%' && (p[1] == 'u' || p[1] == 'e');
        if (mark)
            used +=
                (size_t)snprintf(out + used, FROM_CHARS - used, "%u", p[1] == 'u' ? layer : expert);
        else
            out[used++] = *p;
        p += mark ? 2 : 1;
    }
    out[used] = 0;
}

/* With the architecture's prefix or without, or within a larger model. */
static struct llm_st_tensor *find_source(const struct job *j, const char *name)
{
    char longer[FROM_CHARS + 32];
    struct llm_st_tensor *found = llm_st_find(&j->weights, name);
    size_t prefix = strlen(j->pub->prefix);
    bool has_prefix = strncmp(name, j->pub->prefix, prefix) == 0;
    if (!found && has_prefix)
        found = llm_st_find(&j->weights, name + prefix);
    if (!found && j->is_wrapped) {
        snprintf(longer, sizeof(longer), "language_model.%s", name);
        found = llm_st_find(&j->weights, longer);
    }
    if (!found && j->is_wrapped && has_prefix) {
        snprintf(longer, sizeof(longer), "model.language_model.%s", name + prefix);
        found = llm_st_find(&j->weights, longer);
    }
    if (found)
        found->is_used = true;
    return found;
}

/* The number of experts that a row stacks; 1 where it stacks none. */
static int count_experts(const struct job *j, const struct llm_pub_tensor *row, uint32_t *out,
                         char *why)
{
    double experts = 1;
    *out = 1;
    if (!strstr(row->from, "%e"))
        return 0;
    for (const struct llm_pub_key *key = j->pub->keys; key->to; key++) {
        int err = strcmp(key->to, "expert_count") ? 0 : number_of(j->config, key, &experts, why);
        if (err)
            return err;
    }
    if (experts < 1 || experts > LLM_EXPERTS_MAX)
        return llm_why(why, -EPROTO, "config.json: %g experts; 1 to %d are possible", experts,
                       LLM_EXPERTS_MAX);
    *out = (uint32_t)experts;
    return 0;
}

/* -ENOENT: the tensor is not there and need not be. */
static int find_parts(struct job *j, const struct llm_pub_tensor *row, uint32_t layer,
                      struct llm_copy *copy, char *why)
{
    char name[FROM_CHARS];
    uint32_t experts;
    int err = count_experts(j, row, &experts, why);
    *copy = (struct llm_copy){.how = row->how, .parts = j->parts + j->part_count};
    for (uint32_t e = 0; e < experts && !err; e++) {
        name_for(row->from, layer, e, name);
        const struct llm_st_tensor *from = find_source(j, name);
        if (!from)
            return row->optional ? -ENOENT
                                 : llm_why(why, -EPROTO, "the weights lack tensor %s", name);
        /* A source is used twice at most: there is room for each of them two times. */
        assert(j->part_count < 2 * j->weights.count);
        j->parts[j->part_count++] = from;
        copy->part_count++;
    }
    char *ending = err ? NULL : strstr(name, "_blocks");
    if (!ending)
        return err;
    memcpy(ending, "_scales", strlen("_scales"));
    copy->scales = find_source(j, name);
    return copy->scales ? 0 : llm_why(why, -EPROTO, "the weights lack tensor %s", name);
}

static int add_tensor(struct job *j, const struct llm_pub_tensor *row, uint32_t layer, char *why)
{
    struct llm_copy copy;
    int err = find_parts(j, row, layer, &copy, why);
    bool tied = json_is_true(json_object_get(j->config, "tie_word_embeddings"));
    if (err || row->how == LLM_PUB_IGNORE ||
        (tied && strcmp(row->to, "output.weight") == 0 && row->optional))
        return err == -ENOENT ? 0 : err;
    struct llm_tensor_table *table = &j->gguf.tensors;
    if (table->count >= LLM_TENSORS_MAX - LLM_ROPE_SETS)
        return llm_why(why, -EPROTO, "more than %d tensors", LLM_TENSORS_MAX);
    struct llm_tensor *to = &table->items[table->count];
    char name[FROM_CHARS];
    name_for(row->to, layer, 0, name);
    snprintf(to->name, sizeof(to->name), "%.*s", LLM_NAME_CHARS - 1, name);
    err = llm_copy_describe(&copy, to, why);
    if (err)
        return err;
    j->copies[table->count++] = copy;
    j->bytes += to->bytes;
    return 0;
}

static void add_rope_factors(struct job *j)
{
    struct llm_tensor_table *table = &j->gguf.tensors;
    for (uint32_t i = 0; i < j->factors.count; i++) {
        struct llm_tensor *to = &table->items[table->count];
        *to = (struct llm_tensor){.dtype = LLM_F32,
                                  .dim_count = 1,
                                  .dims = {j->factors.sets[i].count, 1, 1, 1},
                                  .bytes = j->factors.sets[i].count * sizeof(float),
                                  .data = j->factors.sets[i].values};
        snprintf(to->name, sizeof(to->name), "%s", j->factors.sets[i].name);
        j->copies[table->count++] = (struct llm_copy){0};
    }
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
    uint32_t room = 2 * j->weights.count + LLM_ROPE_SETS; /* a source is used twice at most */
    j->copies = calloc(room, sizeof(*j->copies));
    j->parts = calloc(room, sizeof(*j->parts));
    uint32_t results = room < LLM_TENSORS_MAX ? room : LLM_TENSORS_MAX;
    if (!j->copies || !j->parts || llm_tensor_table_init(&j->gguf.tensors, results))
        return llm_why(why, -ENOMEM, "out of memory for the table of tensors");
    j->gguf.tensors.count = 0; /* counts those that are filled in */
    for (const struct llm_pub_tensor *row = j->pub->tensors; row->from && !err; row++) {
        uint32_t copies = strstr(row->from, "%u") ? (uint32_t)layers : 1;
        for (uint32_t layer = 0; layer < copies && !err; layer++)
            err = add_tensor(j, row, layer, why);
    }
    if (!err)
        add_rope_factors(j);
    return err;
}

/* Of a model that also sees: only its text part is imported. */
static bool is_of_images(const struct job *j, const char *name)
{
    if (strncmp(name, "model.", 6) == 0)
        name += 6;
    return j->is_wrapped &&
           (strncmp(name, "vision_", 7) == 0 || strncmp(name, "multi_modal_projector.", 22) == 0);
}

static int check_all_used(const struct job *j, char *why)
{
    for (uint32_t i = 0; i < j->weights.count; i++) {
        if (!j->weights.items[i].is_used && !is_of_images(j, j->weights.items[i].name))
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
    int err = check_musts(j, why);
    if (!err)
        err = write_keys(j, w, why);
    if (!err)
        err = llm_rope_config_write(w, j->pub->arch, j->config, &j->factors, why);
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
    FILE *out = hw_gather(&j->pairs);
    if (!out)
        return llm_why(why, -ENOMEM, "out of memory");
    gguf_write_begin(&w, out, 0, PAIRS_MAX);
    int err = write_pairs(j, &w, why);
    if (!err && w.error)
        err = llm_why(why, w.error, "out of memory for the metadata");
    j->pair_count = PAIRS_MAX - (uint32_t)w.pairs_left;
    if (hw_gather_end(out, &j->pairs) && !err)
        err = llm_why(why, -ENOMEM, "out of memory for the metadata");
    if (!err)
        wire_store64(j->pairs.text + HEADER_BYTES - sizeof(uint64_t), j->pair_count);
    return err;
}

/* As if the result were opened: before a byte of it is written. */
static int check_result(struct job *j, char *why)
{
    struct llm_tensor_table tensors = j->gguf.tensors;
    struct gguf read;
    int err = gguf_init(&read, j->pairs.text, j->pairs.len, why);
    if (err)
        return err;
    llm_tensor_table_fini(&read.tensors);
    j->gguf = read;
    j->gguf.tensors = tensors;
    err = llm_tensor_table_seal_names(&j->gguf.tensors, why); /* sources may be used twice */
    if (!err)
        err = llm_config_read(&j->gguf, &j->shape, why);
    if (!err)
        err = llm_config_check_tensors(&j->shape, &j->gguf.tensors, why);
    return err ? err : check_layers(j, why);
}

/* ---- weights ---- */

static void count_bytes(void *user, uint64_t bytes)
{
    struct job *j = user;
    j->done += bytes;
    if (j->import->progress)
        j->import->progress(j->import->user, j->done, j->bytes);
}

static int write_tensor(struct job *j, struct gguf_writer *w, uint32_t i, char *why)
{
    const struct llm_tensor *to = &j->gguf.tensors.items[i];
    if (j->copies[i].part_count > 0)
        return llm_copy_write(&j->copies[i], to, j->shape.head_dim, w, count_bytes, j, why);
    gguf_write_data(w, to->data, (size_t)to->bytes);
    return 0;
}

static int write_stream(struct job *j, const struct hw_output *output, char *why)
{
    const struct llm_tensor_table *tensors = &j->gguf.tensors;
    struct gguf_writer w;
    int err = 0;
    gguf_write_begin(&w, output->stream, tensors->count, j->pair_count);
    gguf_write_data(&w, j->pairs.text + HEADER_BYTES, j->pairs.len - HEADER_BYTES);
    w.pairs_left = 0; /* they were written as bytes */
    for (uint32_t i = 0; i < tensors->count; i++)
        gguf_write_tensor(&w, tensors->items[i].name, tensors->items[i].dtype,
                          tensors->items[i].dims, tensors->items[i].dim_count);
    gguf_write_pad(&w);
    for (uint32_t i = 0; i < tensors->count && !err; i++) {
        err = write_tensor(j, &w, i, why);
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
    char known[LLM_WHY_CHARS] = "";
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

/* The text model of one that also sees has a config of its own within the config. */
static int unwrap(struct job *j, char *why)
{
    json_t *text = json_object_get(j->config, "text_config");
    if (!json_is_object(text))
        return 0;
    json_t *both = json_copy(text);
    if (!both || json_object_update_missing(both, j->config))
        return llm_why(why, -ENOMEM, "out of memory");
    json_decref(j->config);
    j->config = both;
    j->is_wrapped = true;
    return 0;
}

static int import(struct job *j, char *why)
{
    if (access(j->import->folder, F_OK))
        return llm_file_missing(j->import->folder, errno, why);
    int err = llm_json_load(j->import->folder, "config.json", &j->config, why);
    if (!err)
        err = unwrap(j, why);
    if (!err)
        err = find_type(j, why);
    if (!err)
        err = llm_st_open(&j->weights, j->import->folder, why);
    if (!err)
        err = make_pairs(j, why);
    if (!err)
        err = check_result(j, why);
    struct hw_output output;
    if (!err)
        err = hw_output_open(&output, j->import->path, j->import->overwrite, j->bytes, why);
    return err ? err : hw_output_finish(&output, write_stream(j, &output, why), why);
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
    free(j.pairs.text);
    free(j.copies);
    free(j.parts);
    llm_rope_factors_fini(&j.factors);
    return err;
}
