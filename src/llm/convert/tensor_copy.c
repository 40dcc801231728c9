#include "llm/convert/tensor_copy.h"

#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 1 << 20, /* of a tensor at a time, at least one row */
    MX_VALUES = 32,        /* of a block */
    MX_BYTES = MX_VALUES / 2,
};

static bool is_mx(enum llm_pub_how how)
{
    return how == LLM_PUB_MX || how == LLM_PUB_MX_EVEN || how == LLM_PUB_MX_ODD;
}

/* Every other row, or every other value. */
static bool is_half(enum llm_pub_how how)
{
    return how == LLM_PUB_EVEN || how == LLM_PUB_ODD || how == LLM_PUB_MX_EVEN ||
           how == LLM_PUB_MX_ODD;
}

static bool is_second_half(enum llm_pub_how how)
{
    return how == LLM_PUB_ODD || how == LLM_PUB_MX_ODD;
}

/* ---- shapes ---- */

static int wrong_dims(const struct llm_st_tensor *from, char *why)
{
    return llm_why(why, -EPROTO, "tensor %.80s has %u dimensions, or sizes that cannot be",
                   from->name, from->dim_count);
}

/* dims as GGUF counts: the contiguous one first. */
static int describe_mx(const struct llm_copy *copy, struct llm_tensor *to, char *why)
{
    const struct llm_st_tensor *from = copy->parts[0], *scales = copy->scales;
    uint32_t halves = is_half(copy->how) ? 2 : 1;
    if (from->dim_count != 4 || from->dims[3] != MX_BYTES || from->dims[1] % halves)
        return wrong_dims(from, why);
    if (scales->dim_count != 3 || memcmp(scales->dims, from->dims, 3 * sizeof(from->dims[0])) != 0)
        return wrong_dims(scales, why);
    /* Both are of one byte a value: the reader holds bytes and shape to each other. */
    if (from->bytes != from->dims[0] * from->dims[1] * from->dims[2] * MX_BYTES ||
        scales->bytes * MX_BYTES != from->bytes)
        return llm_why(why, -EOPNOTSUPP, "tensor %.80s is not of bytes", from->name);
    to->dtype = LLM_MXFP4;
    to->dim_count = 3;
    to->dims[0] = from->dims[2] * MX_VALUES;
    to->dims[1] = from->dims[1] / halves;
    to->dims[2] = from->dims[0];
    return 0;
}

static bool same_shape(const struct llm_st_tensor *a, const struct llm_st_tensor *b)
{
    return a->has_dtype == b->has_dtype && a->dtype == b->dtype && a->dim_count == b->dim_count &&
           memcmp(a->dims, b->dims, sizeof(a->dims)) == 0;
}

static bool is_half_of_rows(enum llm_pub_how how)
{
    return how == LLM_PUB_ROWS_1 || how == LLM_PUB_ROWS_2;
}

/* A stack of matrices in one tensor. */
static int describe_stack(const struct llm_copy *copy, struct llm_tensor *to, char *why)
{
    const struct llm_st_tensor *from = copy->parts[0];
    if (copy->part_count > 1 || (copy->how != LLM_PUB_COPY && !is_half_of_rows(copy->how)))
        return wrong_dims(from, why);
    to->dtype = from->dtype;
    to->dim_count = 3;
    to->dims[0] = from->dims[2];
    to->dims[1] = from->dims[1];
    to->dims[2] = from->dims[0];
    return 0;
}

static int describe_plain(const struct llm_copy *copy, struct llm_tensor *to, char *why)
{
    const struct llm_st_tensor *from = copy->parts[0];
    bool two = from->dim_count == 2, turned = copy->how == LLM_PUB_TRANSPOSE;
    if (!from->has_dtype)
        return llm_why(why, -EOPNOTSUPP,
                       "tensor %.80s is of a type that is not read; F32, F16 and BF16 are",
                       from->name);
    if (from->dim_count == 3)
        return describe_stack(copy, to, why);
    if (from->dim_count == 0 || from->dim_count > 2 ||
        (!two && (turned || copy->part_count > 1 || is_half(copy->how))) ||
        (is_half(copy->how) && from->dims[1] % 2))
        return wrong_dims(from, why);
    for (uint32_t i = 1; i < copy->part_count; i++) {
        if (!same_shape(copy->parts[i], from))
            return llm_why(why, -EPROTO, "tensor %.80s is not like %.80s", copy->parts[i]->name,
                           from->name);
    }
    bool whole = !two || copy->how == LLM_PUB_AS_F32 || is_half(copy->how);
    to->dtype = whole ? LLM_F32 : from->dtype;
    to->dim_count = from->dim_count + (copy->part_count > 1);
    to->dims[0] = turned ? from->dims[0] : from->dims[two];
    to->dims[1] = turned ? from->dims[1] : two ? from->dims[0] : 1;
    to->dims[0] /= is_half(copy->how) ? 2 : 1;
    to->dims[2] = copy->part_count;
    if (whole && to->dims[1] * to->dims[2] == 1) /* a matrix of one row is a vector */
        to->dim_count = 1;
    return 0;
}

int llm_copy_describe(const struct llm_copy *copy, struct llm_tensor *to, char *why)
{
    assert(copy->part_count > 0 && (!is_mx(copy->how) || copy->scales));
    to->dims[3] = 1;
    int err = is_mx(copy->how) ? describe_mx(copy, to, why) : describe_plain(copy, to, why);
    if (!err && is_half_of_rows(copy->how) && (to->dim_count == 1 || to->dims[1] % 2))
        err = wrong_dims(copy->parts[0], why);
    if (err)
        return err;
    to->dims[1] /= is_half_of_rows(copy->how) ? 2 : 1;
    to->bytes = llm_dtype_bytes(to->dtype, to->dims[0] * to->dims[1] * to->dims[2]);
    to->data = copy->parts[0]->data;
    return 0;
}

/* ---- rows ---- */

/* A tensor as rows of one length.  Those of a vector have one value, so that they can be put in
 * another order. */
struct rows {
    const struct llm_copy *copy;
    enum llm_dtype dtype; /* as gathered: the source's, or MXFP4 */
    uint64_t width, count;
    uint64_t each; /* of a part */
    uint64_t of_matrix;
    uint32_t head_dim;
};

static struct rows rows_of(const struct llm_copy *copy, const struct llm_tensor *to,
                           uint32_t head_dim)
{
    struct rows rows = {.copy = copy, .head_dim = head_dim};
    rows.dtype = is_mx(copy->how) ? to->dtype : copy->parts[0]->dtype;
    rows.width = to->dim_count == 1 ? 1 : to->dims[0];
    rows.count = to->dims[0] * to->dims[1] * to->dims[2] / rows.width;
    rows.each = rows.count / copy->part_count;
    rows.of_matrix = to->dims[1];
    return rows;
}

/* The row of the source that becomes row r.  In pairs: in each head, row 2i comes from i, row 2i +
 * 1 from i + half a head. */
static uint64_t source_row(const struct rows *rows, uint64_t r)
{
    if (is_half_of_rows(rows->copy->how))
        return r + (r / rows->of_matrix + (rows->copy->how == LLM_PUB_ROWS_2)) * rows->of_matrix;
    if (rows->copy->how != LLM_PUB_PAIRS_Q && rows->copy->how != LLM_PUB_PAIRS_K)
        return r;
    uint64_t dim = rows->head_dim, within = r % dim;
    return r - within + within / 2 + within % 2 * (dim / 2);
}

/* Every other value of a row. */
static void gather_half(const struct rows *rows, uint64_t r, uint8_t *dst)
{
    uint64_t size = llm_dtype_bytes(rows->dtype, 1);
    const uint8_t *src = rows->copy->parts[0]->data + 2 * r * rows->width * size;
    src += is_second_half(rows->copy->how) ? size : 0;
    for (uint64_t i = 0; i < rows->width; i++)
        memcpy(dst + i * size, src + 2 * i * size, size);
}

/* Published: a byte holds values 2i and 2i + 1.  GGUF: values i and i + 16, after the scale. */
static void gather_mx(const struct rows *rows, uint64_t r, uint8_t *dst)
{
    const struct llm_copy *copy = rows->copy;
    uint64_t blocks = rows->width / MX_VALUES;
    r = is_half(copy->how) ? 2 * r + is_second_half(copy->how) : r;
    for (uint64_t b = r * blocks; b < (r + 1) * blocks; b++, dst += 1 + MX_BYTES) {
        const uint8_t *src = copy->parts[0]->data + b * MX_BYTES;
        dst[0] = copy->scales->data[b];
        for (uint32_t i = 0; i < MX_BYTES; i++) {
            uint32_t low = src[i / 2] >> i % 2 * 4 & 15;
            uint32_t high = src[(i + MX_BYTES) / 2] >> i % 2 * 4 & 15;
            dst[1 + i] = (uint8_t)(low | high << 4);
        }
    }
}

/* Rows of a matrix that is stored the other way round. */
static void gather_turned(const struct rows *rows, uint64_t first, uint64_t some, uint8_t *dst)
{
    uint64_t size = llm_dtype_bytes(rows->dtype, 1);
    for (uint64_t i = 0; i < rows->width; i++) {
        const uint8_t *src = rows->copy->parts[0]->data + (i * rows->count + first) * size;
        for (uint64_t r = 0; r < some; r++)
            memcpy(dst + (r * rows->width + i) * size, src + r * size, size);
    }
}

/* Rows first.. of the result, in rows->dtype. */
static void gather(const struct rows *rows, uint64_t first, uint64_t some, uint8_t *dst)
{
    const struct llm_copy *copy = rows->copy;
    uint64_t bytes = llm_dtype_bytes(rows->dtype, rows->width);
    if (copy->how == LLM_PUB_TRANSPOSE) {
        gather_turned(rows, first, some, dst);
        return;
    }
    for (uint64_t r = first; r < first + some; r++, dst += bytes) {
        if (is_mx(copy->how))
            gather_mx(rows, r, dst);
        else if (is_half(copy->how))
            gather_half(rows, r, dst);
        else
            memcpy(dst,
                   copy->parts[r / rows->each]->data + source_row(rows, r % rows->each) * bytes,
                   bytes);
    }
}

static void write_values(const struct rows *rows, const struct llm_tensor *to, const uint8_t *bytes,
                         float *values, uint64_t count, struct gguf_writer *w)
{
    bool adds = rows->copy->how == LLM_PUB_PLUS_ONE;
    if (to->dtype == rows->dtype && !adds) {
        gguf_write_data(w, bytes, (size_t)llm_dtype_bytes(to->dtype, count));
        return;
    }
    assert(to->dtype == LLM_F32);
    llm_dtype_to_f32(rows->dtype, values, bytes, count);
    for (uint64_t i = 0; i < count && adds; i++)
        values[i] += 1;
    gguf_write_data(w, values, count * sizeof(float));
}

int llm_copy_write(const struct llm_copy *copy, const struct llm_tensor *to, uint32_t head_dim,
                   struct gguf_writer *w, void (*progress)(void *user, uint64_t bytes), void *user,
                   char *why)
{
    const struct rows rows = rows_of(copy, to, head_dim);
    uint64_t bytes = llm_dtype_bytes(rows.dtype, rows.width), each = CHUNK_BYTES / bytes;
    each = each ? each : 1;
    each = each < rows.count ? each : rows.count;
    uint8_t *gathered = malloc(each * bytes);
    float *values = malloc(each * rows.width * sizeof(float));
    int err = gathered && values ? 0 : llm_why(why, -ENOMEM, "out of memory for %s", to->name);
    for (uint64_t first = 0; first < rows.count && !err && !w->error; first += each) {
        uint64_t some = rows.count - first < each ? rows.count - first : each;
        gather(&rows, first, some, gathered);
        write_values(&rows, to, gathered, values, some * rows.width, w);
        progress(user, llm_dtype_bytes(to->dtype, some * rows.width));
    }
    free(gathered);
    free(values);
    return err;
}
