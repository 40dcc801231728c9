#include "llm/convert/safetensors.h"

#include "llm/convert/json_file.h"
#include "llm/model/file.h"
#include "llm/model/why.h"
#include "wire/le.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LENGTH_BYTES = 8, NAME_SHOWN = 80 };

/* ---- one file ---- */

struct span {
    const uint8_t *data;
    uint64_t bytes;
};

static uint32_t value_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } sizes[] = {{"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4},     {"I32", 4},
                 {"U32", 4}, {"F16", 2}, {"I16", 2},  {"U16", 2},     {"BF16", 2},
                 {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        if (strcmp(sizes[i].name, dtype) == 0)
            return sizes[i].bytes;
    }
    return 0;
}

/* Values, at most 2^48; 0 and true: more, or out of bounds. */
static bool read_shape(const json_t *shape, struct llm_st_tensor *t, uint64_t *values)
{
    if (!json_is_array(shape) || json_array_size(shape) > LLM_DIMS_MAX)
        return false;
    *values = 1;
    t->dim_count = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < t->dim_count; i++) {
        const json_t *dim = json_array_get(shape, i);
        json_int_t value = json_integer_value(dim);
        if (!json_is_integer(dim) || value <= 0 || (uint64_t)value > (UINT64_C(1) << 48) / *values)
            return false;
        t->dims[i] = (uint64_t)value;
        *values *= t->dims[i];
    }
    return true;
}

static bool read_offsets(const json_t *offsets, uint64_t limit, uint64_t *begin, uint64_t *end)
{
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second) ||
        json_integer_value(first) < 0 || json_integer_value(second) < json_integer_value(first) ||
        (uint64_t)json_integer_value(second) > limit)
        return false;
    *begin = (uint64_t)json_integer_value(first);
    *end = (uint64_t)json_integer_value(second);
    return true;
}

static int read_tensor(const char *name, const json_t *entry, struct span data,
                       struct llm_st_tensor *t, char *why)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    uint64_t values = 0, begin = 0, end = 0;
    if (strlen(name) > LLM_ST_NAME_MAX)
        return llm_why(why, -EPROTO, "a tensor's name has more than %d bytes", LLM_ST_NAME_MAX);
    if (!dtype || value_bytes(dtype) == 0)
        return llm_why(why, -EPROTO, "tensor %.*s: dtype %.20s is not known", NAME_SHOWN, name,
                       dtype ? dtype : "(none)");
    if (!read_shape(json_object_get(entry, "shape"), t, &values))
        return llm_why(why, -EPROTO, "tensor %.*s: its shape is damaged or out of bounds",
                       NAME_SHOWN, name);
    if (!read_offsets(json_object_get(entry, "data_offsets"), data.bytes, &begin, &end))
        return llm_why(why, -EPROTO,
                       "tensor %.*s leaves the file (%" PRIu64 " bytes of data): a cut-off "
                       "download?",
                       NAME_SHOWN, name, data.bytes);
    if (end - begin != values * value_bytes(dtype))
        return llm_why(why, -EPROTO, "tensor %.*s has %" PRIu64 " bytes; its shape makes %" PRIu64,
                       NAME_SHOWN, name, end - begin, values * value_bytes(dtype));
    t->has_dtype = dtype[0] != 'I' && llm_dtype_parse(dtype, &t->dtype);
    t->data = data.data + begin;
    t->bytes = end - begin;
    t->name = strdup(name);
    return t->name ? 0 : llm_why(why, -ENOMEM, "out of memory for the table of tensors");
}

static int make_room(struct llm_st *st, size_t more, char *why)
{
    if (more > LLM_TENSORS_MAX - st->count)
        return llm_why(why, -EPROTO, "more than %d tensors", LLM_TENSORS_MAX);
    struct llm_st_tensor *items = reallocarray(st->items, st->count + more + 1, sizeof(*st->items));
    if (!items)
        return llm_why(why, -ENOMEM, "out of memory for the table of tensors");
    st->items = items;
    st->room = st->count + (uint32_t)more;
    return 0;
}

static int read_header(struct llm_st *st, json_t *root, struct span data, char *why)
{
    const char *name;
    json_t *entry;
    int err = json_is_object(root) ? make_room(st, json_object_size(root), why)
                                   : llm_why(why, -EPROTO, "the header is no JSON object");
    if (err)
        return err;
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        st->items[st->count] = (struct llm_st_tensor){0};
        err = read_tensor(name, entry, data, &st->items[st->count], why);
        if (err)
            return err;
        st->count++;
    }
    return 0;
}

int llm_st_parse(struct llm_st *st, const void *bytes, uint64_t size, char *why)
{
    if (size < LENGTH_BYTES)
        return llm_why(why, -EPROTO, "the file ends in the length of its header");
    uint64_t header = wire_load64(bytes);
    if (header > LLM_ST_HEADER_MAX || header > size - LENGTH_BYTES)
        return llm_why(why, -EPROTO,
                       "a header of %" PRIu64 " bytes: more than the file holds, or than 100 MiB",
                       header);
    const uint8_t *text = (const uint8_t *)bytes + LENGTH_BYTES;
    json_error_t error;
    json_t *root = json_loadb((const char *)text, (size_t)header, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return llm_why(why, -EPROTO, "the header: byte %d: %s", error.position, error.text);
    struct span data = {.data = text + header, .bytes = size - LENGTH_BYTES - header};
    int err = read_header(st, root, data, why);
    json_decref(root);
    return err;
}

static int compare_names(const void *a, const void *b)
{
    const struct llm_st_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

int llm_st_seal(struct llm_st *st, char *why)
{
    if (st->count)
        qsort(st->items, st->count, sizeof(*st->items), compare_names);
    for (uint32_t i = 1; i < st->count; i++) {
        if (compare_names(&st->items[i - 1], &st->items[i]) == 0)
            return llm_why(why, -EPROTO, "tensor %.*s is there twice", NAME_SHOWN,
                           st->items[i].name);
    }
    return 0;
}

static int compare_key(const void *key, const void *item)
{
    const struct llm_st_tensor *tensor = item;
    return strcmp(key, tensor->name);
}

struct llm_st_tensor *llm_st_find(const struct llm_st *st, const char *name)
{
    return st->count ? bsearch(name, st->items, st->count, sizeof(*st->items), compare_key) : NULL;
}

/* ---- a folder ---- */

static int add_file(struct llm_st *st, const char *folder, const char *name, char *why)
{
    char *path, cause[LLM_WHY_CHARS];
    struct llm_st_file *file = &st->files[st->file_count];
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return llm_why(why, -ENOMEM, "out of memory");
    int err = llm_file_map(path, "", &file->mapping, &file->size, why);
    if (!err) {
        st->file_count++;
        err = llm_st_parse(st, file->mapping, file->size, cause);
        if (err)
            llm_why_set(why, "%s: %s", path, cause);
    }
    free(path);
    return err;
}

/* A file's name in an index: of this folder, with nothing that leads out of it. */
static bool is_plain_name(const char *name)
{
    return name && *name && name[0] != '.' && !strchr(name, '/') && strlen(name) < 256;
}

/* Adds each file that the map names, once. */
static int add_indexed(struct llm_st *st, const char *folder, const json_t *map, char *why)
{
    const char *tensor;
    json_t *value;
    json_t *seen = json_object();
    int err = seen ? 0 : llm_why(why, -ENOMEM, "out of memory");
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (err)
            break;
        if (!is_plain_name(name))
            err = llm_why(why, -EPROTO, "%s/model.safetensors.index.json: tensor %.*s has no file",
                          folder, NAME_SHOWN, tensor);
        else if (json_object_get(seen, name))
            continue;
        else if (json_object_size(seen) == LLM_ST_FILES_MAX)
            err = llm_why(why, -EPROTO, "more than %d files", LLM_ST_FILES_MAX);
        else if (json_object_set_new(seen, name, json_true()))
            err = llm_why(why, -ENOMEM, "out of memory");
        else
            err = add_file(st, folder, name, why);
    }
    json_decref(seen);
    return err;
}

static int check_index(const struct llm_st *st, const char *folder, const json_t *map, char *why)
{
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        if (!llm_st_find(st, tensor))
            return llm_why(why, -EPROTO, "%s: tensor %.*s is in the index and in no file", folder,
                           NAME_SHOWN, tensor);
    }
    return 0;
}

static int open_indexed(struct llm_st *st, const char *folder, char *why)
{
    json_t *index;
    int err = llm_json_load(folder, "model.safetensors.index.json", &index, why);
    if (err == -ENOENT)
        return llm_why(why, -ENOENT,
                       "%s has neither model.safetensors nor model.safetensors.index.json", folder);
    if (err)
        return err;
    const json_t *map = json_object_get(index, "weight_map");
    err = json_is_object(map) ? add_indexed(st, folder, map, why)
                              : llm_why(why, -EPROTO, "%s: the index has no weight_map", folder);
    if (!err)
        err = llm_st_seal(st, why);
    if (!err)
        err = check_index(st, folder, map, why);
    json_decref(index);
    return err;
}

int llm_st_open(struct llm_st *st, const char *folder, char *why)
{
    *st = (struct llm_st){.files = calloc(LLM_ST_FILES_MAX, sizeof(*st->files))};
    if (!st->files)
        return llm_why(why, -ENOMEM, "out of memory");
    int err = add_file(st, folder, "model.safetensors", why);
    if (err == -ENOENT && st->file_count == 0)
        err = open_indexed(st, folder, why);
    else if (!err)
        err = llm_st_seal(st, why);
    if (err)
        llm_st_fini(st);
    return err;
}

void llm_st_fini(struct llm_st *st)
{
    for (uint32_t i = 0; i < st->count; i++)
        free(st->items[i].name);
    for (uint32_t i = 0; i < st->file_count; i++)
        munmap(st->files[i].mapping, (size_t)st->files[i].size);
    free(st->items);
    free(st->files);
    *st = (struct llm_st){0};
}
