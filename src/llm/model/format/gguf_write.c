#include "llm/model/format/gguf_write.h"

#include "wire/le.h"

#include <assert.h>
#include <errno.h>

void gguf_write_data(struct gguf_writer *w, const void *bytes, size_t count)
{
    if (count > 0 && !w->error && fwrite(bytes, 1, count, w->out) != count)
        w->error = errno ? -errno : -EIO;
    w->at += count;
}

void gguf_put_u32(struct gguf_writer *w, uint32_t value)
{
    uint8_t bytes[4];
    wire_store32(bytes, value);
    gguf_write_data(w, bytes, sizeof(bytes));
}

static void put_u64(struct gguf_writer *w, uint64_t value)
{
    uint8_t bytes[8];
    wire_store64(bytes, value);
    gguf_write_data(w, bytes, sizeof(bytes));
}

void gguf_put_string(struct gguf_writer *w, const char *text, size_t bytes)
{
    put_u64(w, bytes);
    gguf_write_data(w, text, bytes);
}

void gguf_write_begin(struct gguf_writer *w, FILE *out, uint64_t tensors, uint64_t pairs)
{
    *w = (struct gguf_writer){.out = out, .tensors_left = tensors, .pairs_left = pairs};
    gguf_write_data(w, "GGUF", 4);
    gguf_put_u32(w, GGUF_VERSION_MAX);
    put_u64(w, tensors);
    put_u64(w, pairs);
}

static void put_bounded_key(struct gguf_writer *w, struct gguf_string key, enum gguf_type type)
{
    assert(w->pairs_left > 0);
    w->pairs_left--;
    gguf_put_string(w, key.text, key.bytes);
    gguf_put_u32(w, type);
}

static void put_key(struct gguf_writer *w, const char *key, enum gguf_type type)
{
    put_bounded_key(w, (struct gguf_string){.text = key, .bytes = strlen(key)}, type);
}

void gguf_write_pair(struct gguf_writer *w, const struct gguf_pair *pair)
{
    put_bounded_key(w, pair->key, pair->is_array ? GGUF_ARRAY : pair->type);
    if (pair->is_array) {
        gguf_put_u32(w, pair->type);
        put_u64(w, pair->count);
    }
    gguf_write_data(w, pair->payload, pair->payload_bytes);
}

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    put_key(w, key, GGUF_U32);
    gguf_put_u32(w, value);
}

void gguf_write_f32(struct gguf_writer *w, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_key(w, key, GGUF_F32);
    gguf_put_u32(w, bits);
}

void gguf_write_bool(struct gguf_writer *w, const char *key, bool value)
{
    put_key(w, key, GGUF_BOOL);
    gguf_write_data(w, value ? "\1" : "\0", 1);
}

void gguf_write_string(struct gguf_writer *w, const char *key, const char *value)
{
    put_key(w, key, GGUF_STRING);
    gguf_put_string(w, value, strlen(value));
}

void gguf_write_array(struct gguf_writer *w, const char *key, enum gguf_type type, uint64_t count)
{
    put_key(w, key, GGUF_ARRAY);
    gguf_put_u32(w, type);
    put_u64(w, count);
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

void gguf_write_tensor(struct gguf_writer *w, const char *name, enum llm_dtype dtype,
                       const uint64_t *dims, uint32_t dim_count)
{
    assert(w->pairs_left == 0 && w->tensors_left > 0);
    w->tensors_left--;
    uint64_t elements = 1;
    gguf_put_string(w, name, strlen(name));
    gguf_put_u32(w, dim_count);
    for (uint32_t i = 0; i < dim_count; i++) {
        put_u64(w, dims[i]);
        elements *= dims[i];
    }
    gguf_put_u32(w, dtype);
    put_u64(w, w->data_offset);
    w->data_offset += aligned(llm_dtype_bytes(dtype, elements));
}

void gguf_write_pad(struct gguf_writer *w)
{
    static const char zeros[GGUF_ALIGNMENT];
    assert(w->pairs_left == 0 && w->tensors_left == 0);
    gguf_write_data(w, zeros, (size_t)(aligned(w->at) - w->at));
}

int gguf_write_end(struct gguf_writer *w)
{
    assert(w->pairs_left == 0 && w->tensors_left == 0);
    if (fflush(w->out) && !w->error)
        w->error = -errno;
    return w->error;
}
