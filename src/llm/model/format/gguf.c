#include "llm/model/format/gguf.h"

#include "llm/model/why.h"
#include "wire/dec.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const char magic[4] = {'G', 'G', 'U', 'F'};

enum {
    HEADER_BYTES = 24,
    PAIR_BYTES_MIN = 8 + 1 + 4 + 1,           /* a key of one byte, a value of one */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* a name of one byte, one dimension */
};

struct span {
    const uint8_t *bytes;
    uint64_t size;
};

/* Elements of one tensor: 2^48 of 4 bytes exceed any address space. */
#define ELEMENTS_MAX (UINT64_C(1) << 48)

/* Bytes of one value; 0 for those of variable length. */
static size_t type_bytes(enum gguf_type type)
{
    static const uint8_t bytes[GGUF_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_BOOL] = 1, [GGUF_U16] = 2,
        [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,  [GGUF_F32] = 4,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return bytes[type];
}

static const char *type_name(enum gguf_type type)
{
    static const char *const names[GGUF_TYPES] = {
        [GGUF_U8] = "u8",       [GGUF_I8] = "i8",   [GGUF_BOOL] = "bool", [GGUF_U16] = "u16",
        [GGUF_I16] = "i16",     [GGUF_U32] = "u32", [GGUF_I32] = "i32",   [GGUF_F32] = "f32",
        [GGUF_U64] = "u64",     [GGUF_I64] = "i64", [GGUF_F64] = "f64",   [GGUF_STRING] = "string",
        [GGUF_ARRAY] = "array",
    };
    return names[type];
}

/* A length past the input's end fails the decoder. */
static struct gguf_string get_string(struct wire_dec *d)
{
    uint64_t bytes = wire_get_u64(d);
    if (bytes > wire_dec_left(d)) {
        wire_dec_fail(d, -EPROTO);
        return (struct gguf_string){0};
    }
    const uint8_t *text = wire_get_bytes(d, (size_t)bytes);
    return (struct gguf_string){.text = (const char *)text, .bytes = text ? (size_t)bytes : 0};
}

static enum gguf_type get_type(struct wire_dec *d)
{
    uint32_t type = wire_get_u32(d);
    if (type >= GGUF_TYPES) {
        wire_dec_fail(d, -EPROTO);
        return GGUF_U8;
    }
    return (enum gguf_type)type;
}

static void skip_scalars(struct wire_dec *d, enum gguf_type type, uint64_t count)
{
    size_t each = type_bytes(type);
    if (count > wire_dec_left(d) / each) {
        wire_dec_fail(d, -EPROTO);
        return;
    }
    const uint8_t *values = wire_get_bytes(d, (size_t)count * each);
    for (uint64_t i = 0; type == GGUF_BOOL && values && i < count; i++) {
        if (values[i] > 1)
            wire_dec_fail(d, -EPROTO);
    }
}

/* Every element of variable length takes at least the bytes of its length: a count that is too
 * large ends at the end of the input. */
static void skip_values(struct wire_dec *d, enum gguf_type type, uint64_t count, int depth)
{
    if (depth > GGUF_ARRAY_DEPTH_MAX)
        wire_dec_fail(d, -EPROTO);
    if (type_bytes(type)) {
        skip_scalars(d, type, count);
        return;
    }
    for (uint64_t i = 0; i < count && !wire_dec_error(d); i++) {
        if (type == GGUF_STRING) {
            (void)get_string(d);
        } else {
            enum gguf_type inner = get_type(d);
            skip_values(d, inner, wire_get_u64(d), depth + 1);
        }
    }
}

static struct gguf_pair get_pair(struct wire_dec *d)
{
    struct gguf_pair pair = {.key = get_string(d), .type = get_type(d), .count = 1};
    if (pair.key.bytes == 0 || pair.key.bytes > GGUF_KEY_BYTES_MAX)
        wire_dec_fail(d, -EPROTO);
    if (pair.type == GGUF_ARRAY) {
        pair.is_array = true;
        pair.type = get_type(d);
        pair.count = wire_get_u64(d);
    }
    pair.payload = wire_get_bytes(d, 0);
    size_t left = wire_dec_left(d);
    skip_values(d, pair.type, pair.count, pair.is_array ? 1 : 0);
    pair.payload_bytes = left - wire_dec_left(d);
    return pair;
}

static int compare_strings(struct gguf_string a, struct gguf_string b)
{
    size_t common = a.bytes < b.bytes ? a.bytes : b.bytes;
    int order = memcmp(a.text, b.text, common);
    return order ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static int compare_pairs(const void *a, const void *b)
{
    const struct gguf_pair *x = a, *y = b;
    return compare_strings(x->key, y->key);
}

static int key_chars(struct gguf_string key)
{
    return key.bytes < 80 ? (int)key.bytes : 80; /* enough to recognise it */
}

static int read_pairs(struct gguf *gguf, struct wire_dec *d, uint64_t count, char *why)
{
    if (count > GGUF_PAIRS_MAX || count > wire_dec_left(d) / PAIR_BYTES_MIN)
        return llm_why(why, -EPROTO,
                       "%" PRIu64 " metadata pairs: more than the file holds; a cut-off download?",
                       count);
    gguf->pairs = calloc(count ? count : 1, sizeof(*gguf->pairs));
    if (!gguf->pairs)
        return llm_why(why, -ENOMEM, "out of memory for the metadata");
    for (uint32_t i = 0; i < count; i++) {
        gguf->pairs[i] = get_pair(d);
        if (wire_dec_error(d))
            return llm_why(why, -EPROTO,
                           "metadata pair %u of %" PRIu64 " (%.*s) is damaged; a cut-off download?",
                           i + 1, count, key_chars(gguf->pairs[i].key),
                           gguf->pairs[i].key.bytes ? gguf->pairs[i].key.text : "");
    }
    gguf->pair_count = (uint32_t)count;
    qsort(gguf->pairs, gguf->pair_count, sizeof(*gguf->pairs), compare_pairs);
    for (uint32_t i = 1; i < gguf->pair_count; i++) {
        if (compare_pairs(&gguf->pairs[i - 1], &gguf->pairs[i]) == 0)
            return llm_why(why, -EPROTO, "metadata key %.*s is there twice",
                           key_chars(gguf->pairs[i].key), gguf->pairs[i].key.text);
    }
    return 0;
}

static int read_alignment(const struct gguf *gguf, uint32_t *out, char *why)
{
    uint32_t alignment = GGUF_ALIGNMENT;
    int err = gguf_get_u32(gguf, "general.alignment", &alignment, why);
    if (err && err != -ENOENT)
        return err;
    if (alignment < GGUF_ALIGNMENT_MIN || alignment > GGUF_ALIGNMENT_MAX ||
        (alignment & (alignment - 1)))
        return llm_why(why, -EPROTO, "general.alignment is %u; it must be a power of two, %d to %d",
                       alignment, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
    *out = alignment;
    return 0;
}

static int get_name(struct wire_dec *d, struct llm_tensor *tensor, uint32_t index, char *why)
{
    struct gguf_string name = get_string(d);
    if (wire_dec_error(d) || name.bytes == 0 || name.bytes >= LLM_NAME_CHARS ||
        memchr(name.text, 0, name.bytes))
        return llm_why(why, -EPROTO, "tensor %u has no usable name (1 to %d bytes, none of them 0)",
                       index + 1, LLM_NAME_CHARS - 1);
    memcpy(tensor->name, name.text, name.bytes);
    return 0;
}

/* The product of the dimensions; 0 when out of bounds. */
static uint64_t get_dims(struct wire_dec *d, struct llm_tensor *tensor)
{
    tensor->dim_count = wire_get_u32(d);
    if (tensor->dim_count == 0 || tensor->dim_count > LLM_DIMS_MAX)
        return 0;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < LLM_DIMS_MAX; i++) {
        tensor->dims[i] = i < tensor->dim_count ? wire_get_u64(d) : 1;
        if (tensor->dims[i] == 0 || tensor->dims[i] > ELEMENTS_MAX / elements)
            return 0;
        elements *= tensor->dims[i];
    }
    return elements;
}

/* For messages: types of the format that the engine has no kernels for. */
static const char *foreign_type(uint32_t number)
{
    static const char *const names[] = {
        [9] = "Q8_1",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS",
        [19] = "IQ1_S", [21] = "IQ3_S", [22] = "IQ2_S",   [24] = "I8",     [25] = "I16",
        [26] = "I32",   [27] = "I64",   [28] = "F64",     [29] = "IQ1_M",  [34] = "TQ1_0",
        [35] = "TQ2_0", [40] = "NVFP4",
    };
    return number < ARRAY_LEN(names) && names[number] ? names[number] : "unknown";
}

/* *offset: relative to the data, whose begin is known only after the last tensor. */
static int get_tensor(struct wire_dec *d, uint32_t index, struct llm_tensor *tensor,
                      uint64_t *offset, char *why)
{
    char names[LLM_DTYPE_NAMES_CHARS];
    int err = get_name(d, tensor, index, why);
    if (err)
        return err;
    uint64_t elements = get_dims(d, tensor);
    if (elements == 0)
        return llm_why(why, -EPROTO, "tensor %s: its dimensions are damaged or out of bounds",
                       tensor->name);
    uint32_t type = wire_get_u32(d);
    *offset = wire_get_u64(d);
    if (wire_dec_error(d))
        return llm_why(why, -EPROTO, "the file ends in the description of tensor %s", tensor->name);
    if (!llm_dtype_known(type))
        return llm_why(why, -EOPNOTSUPP,
                       "tensor %s has type %s (%u), which the engine does not compute with; take "
                       "a file of %s",
                       tensor->name, foreign_type(type), type, llm_dtype_names(names));
    tensor->dtype = (enum llm_dtype)type;
    if (tensor->dims[0] % llm_dtype_block(tensor->dtype))
        return llm_why(why, -EPROTO,
                       "tensor %s: a row of %" PRIu64 " is no whole number of %s blocks",
                       tensor->name, tensor->dims[0], llm_dtype_name(tensor->dtype));
    tensor->bytes = llm_dtype_bytes(tensor->dtype, elements);
    return 0;
}

/* The data begins where the descriptions end, aligned. */
static int place_tensors(struct gguf *gguf, const struct span *file, uint64_t begin,
                         const uint64_t *offsets, bool has_data, char *why)
{
    uint32_t alignment;
    int err = read_alignment(gguf, &alignment, why);
    if (err)
        return err;
    const uint64_t size = file->size;
    gguf->end = begin;
    begin = (begin + alignment - 1) & ~(uint64_t)(alignment - 1);
    gguf->header_bytes = begin < size ? begin : size;
    for (uint32_t i = 0; i < gguf->tensors.count; i++) {
        struct llm_tensor *tensor = &gguf->tensors.items[i];
        if (offsets[i] % alignment)
            return llm_why(why, -EPROTO, "tensor %s: offset %" PRIu64 " is no multiple of %u",
                           tensor->name, offsets[i], alignment);
        if (!has_data)
            continue;
        if (begin > size || offsets[i] > size - begin || tensor->bytes > size - begin - offsets[i])
            return llm_why(why, -EPROTO,
                           "tensor %s ends past the file (%" PRIu64 " bytes at %" PRIu64
                           " of the data, %" PRIu64 " bytes in the file): a cut-off download?",
                           tensor->name, tensor->bytes, offsets[i], size);
        tensor->data = file->bytes + begin + offsets[i];
        if (begin + offsets[i] + tensor->bytes > gguf->end)
            gguf->end = begin + offsets[i] + tensor->bytes;
    }
    return has_data ? llm_tensor_table_seal(&gguf->tensors, why)
                    : llm_tensor_table_seal_names(&gguf->tensors, why);
}

static int read_tensors(struct gguf *gguf, const struct span *file, struct wire_dec *d,
                        uint64_t count, bool has_data, char *why)
{
    if (count > LLM_TENSORS_MAX || count > wire_dec_left(d) / TENSOR_BYTES_MIN)
        return llm_why(why, -EPROTO,
                       "%" PRIu64 " tensors: more than the file holds; a cut-off download?", count);
    uint64_t *offsets = calloc(count ? count : 1, sizeof(*offsets));
    int err = offsets ? llm_tensor_table_init(&gguf->tensors, (uint32_t)count) : -ENOMEM;
    if (err)
        llm_why_set(why, "out of memory for the table of tensors");
    for (uint32_t i = 0; i < count && !err; i++)
        err = get_tensor(d, i, &gguf->tensors.items[i], &offsets[i], why);
    if (!err)
        err = place_tensors(gguf, file, file->size - wire_dec_left(d), offsets, has_data, why);
    free(offsets);
    return err;
}

bool gguf_is(const void *bytes, uint64_t size)
{
    return size >= sizeof(magic) && memcmp(bytes, magic, sizeof(magic)) == 0;
}

static int check_version(uint32_t version, char *why)
{
    if (version >= GGUF_VERSION_MIN && version <= GGUF_VERSION_MAX)
        return 0;
    if (version && (version & 0xffff) == 0)
        return llm_why(why, -EOPNOTSUPP, "a big-endian GGUF file; only little-endian is read");
    return llm_why(why, -EOPNOTSUPP, "GGUF version %u; versions %d to %d are read", version,
                   GGUF_VERSION_MIN, GGUF_VERSION_MAX);
}

static int parse(struct gguf *gguf, const void *bytes, uint64_t size, bool has_data, char *why)
{
    if (!gguf_is(bytes, size))
        return llm_why(why, -EPROTO, "not a GGUF file: it does not begin with \"GGUF\"");
    if (size < HEADER_BYTES || size > SIZE_MAX / 2)
        return llm_why(why, -EPROTO, "the file ends in its header; a cut-off download?");
    struct wire_dec d;
    wire_dec_init(&d, bytes, (size_t)size);
    (void)wire_get_bytes(&d, sizeof(magic));
    struct gguf made = {.version = wire_get_u32(&d)};
    uint64_t tensors = wire_get_u64(&d), pairs = wire_get_u64(&d);
    int err = check_version(made.version, why);
    if (!err)
        err = read_pairs(&made, &d, pairs, why);
    if (!err)
        err = read_tensors(&made, &(struct span){bytes, size}, &d, tensors, has_data, why);
    if (err) {
        gguf_fini(&made);
        return err;
    }
    *gguf = made;
    return 0;
}

int gguf_init(struct gguf *gguf, const void *bytes, uint64_t size, char *why)
{
    return parse(gguf, bytes, size, true, why);
}

int gguf_init_header(struct gguf *gguf, const void *bytes, uint64_t size, char *why)
{
    return parse(gguf, bytes, size, false, why);
}

void gguf_fini(struct gguf *gguf)
{
    free(gguf->pairs);
    llm_tensor_table_fini(&gguf->tensors);
    *gguf = (struct gguf){0};
}

bool gguf_string_is(struct gguf_string string, const char *text)
{
    return string.bytes == strlen(text) && memcmp(string.text, text, string.bytes) == 0;
}

const struct gguf_pair *gguf_find(const struct gguf *gguf, const char *key)
{
    struct gguf_pair wanted = {.key = {.text = key, .bytes = strlen(key)}};
    return bsearch(&wanted, gguf->pairs, gguf->pair_count, sizeof(*gguf->pairs), compare_pairs);
}

static int find_scalar(const struct gguf *gguf, const char *key, const char *wanted,
                       const struct gguf_pair **out, char *why)
{
    const struct gguf_pair *pair = gguf_find(gguf, key);
    if (!pair)
        return -ENOENT;
    if (pair->is_array)
        return llm_why(why, -EPROTO, "%s is an array of %s; %s was expected", key,
                       type_name(pair->type), wanted);
    *out = pair;
    return 0;
}

static int wrong_type(const struct gguf_pair *pair, const char *key, const char *wanted, char *why)
{
    return llm_why(why, -EPROTO, "%s is of type %s; %s was expected", key, type_name(pair->type),
                   wanted);
}

/* An integer of any type as i64; one past its range reads as -1, which no caller accepts. */
static bool load_integer(const struct gguf_pair *pair, int64_t *out)
{
    const uint8_t *p = pair->payload;
    uint64_t wide;
    switch (pair->type) {
    case GGUF_U8:
        *out = *p;
        return true;
    case GGUF_I8:
        *out = (int8_t)*p;
        return true;
    case GGUF_U16:
        *out = wire_load16(p);
        return true;
    case GGUF_I16:
        *out = (int16_t)wire_load16(p);
        return true;
    case GGUF_U32:
        *out = wire_load32(p);
        return true;
    case GGUF_I32:
        *out = (int32_t)wire_load32(p);
        return true;
    case GGUF_I64:
    case GGUF_U64:
        wide = wire_load64(p);
        *out = wide > INT64_MAX ? -1 : (int64_t)wide;
        return true;
    default:
        return false;
    }
}

int gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *out, char *why)
{
    const struct gguf_pair *pair;
    int err = find_scalar(gguf, key, "a number", &pair, why);
    if (err)
        return err;
    int64_t value;
    if (!load_integer(pair, &value))
        return wrong_type(pair, key, "a number", why);
    if (value < 0 || value > UINT32_MAX)
        return llm_why(why, -EPROTO, "%s is out of range", key);
    *out = (uint32_t)value;
    return 0;
}

int gguf_get_f32(const struct gguf *gguf, const char *key, float *out, char *why)
{
    const struct gguf_pair *pair;
    int err = find_scalar(gguf, key, "a real number", &pair, why);
    if (err)
        return err;
    struct wire_dec d;
    wire_dec_init(&d, pair->payload, pair->payload_bytes);
    double value;
    if (pair->type == GGUF_F32)
        value = wire_get_f32(&d);
    else if (pair->type == GGUF_F64)
        value = wire_get_f64(&d);
    else
        return wrong_type(pair, key, "a real number", why);
    if (!isfinite(value) || fabs(value) > FLT_MAX)
        return llm_why(why, -EPROTO, "%s is not a finite number", key);
    *out = (float)value;
    return 0;
}

int gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, char *why)
{
    const struct gguf_pair *pair;
    int err = find_scalar(gguf, key, "a boolean", &pair, why);
    if (err)
        return err;
    if (pair->type != GGUF_BOOL)
        return wrong_type(pair, key, "a boolean", why);
    *out = *pair->payload != 0;
    return 0;
}

int gguf_get_string(const struct gguf *gguf, const char *key, struct gguf_string *out, char *why)
{
    const struct gguf_pair *pair;
    int err = find_scalar(gguf, key, "a string", &pair, why);
    if (err)
        return err;
    if (pair->type != GGUF_STRING)
        return wrong_type(pair, key, "a string", why);
    size_t at = 0;
    *out = gguf_next_string(pair, &at);
    return 0;
}

int gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_type type,
                   const struct gguf_pair **out, char *why)
{
    const struct gguf_pair *pair = gguf_find(gguf, key);
    if (!pair)
        return -ENOENT;
    if (!pair->is_array || pair->type != type)
        return llm_why(why, -EPROTO, "%s is %s of %s; an array of %s was expected", key,
                       pair->is_array ? "an array" : "one value", type_name(pair->type),
                       type_name(type));
    *out = pair;
    return 0;
}

struct gguf_string gguf_next_string(const struct gguf_pair *pair, size_t *at)
{
    assert(pair->type == GGUF_STRING && *at < pair->payload_bytes);
    struct wire_dec d;
    wire_dec_init(&d, pair->payload + *at, pair->payload_bytes - *at);
    struct gguf_string string = get_string(&d);
    assert(!wire_dec_error(&d)); /* gguf_init walked the same bytes */
    *at += sizeof(uint64_t) + string.bytes;
    return string;
}
