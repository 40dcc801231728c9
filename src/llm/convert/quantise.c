#include "llm/convert/quantise.h"

#include "base/report/output.h"
#include "llm/cpu/pool.h"
#include "llm/model/format/gguf_write.h"
#include "llm/model/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE_VALUES = 1 << 14,   /* of one thread at a time: 64 KiB of floats; a multiple of blocks */
    CHUNK_PIECES = 64,        /* between two writes */
    QUANTISATION_VERSION = 2, /* of ggml's blocks */
};

static enum llm_dtype dtype_for(const struct llm_quantise *q, const struct llm_file *file,
                                const struct llm_tensor *t)
{
    return llm_recipe_dtype(q->recipe, llm_file_config(file), t);
}

static uint64_t values_of(const struct llm_tensor *t)
{
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

uint64_t llm_quantise_bytes(const struct llm_quantise *q, const struct llm_file *file)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < llm_file_tensor_count(file); i++) {
        const struct llm_tensor *t = llm_file_tensor(file, i);
        bytes += llm_dtype_bytes(dtype_for(q, file, t), values_of(t));
    }
    return bytes;
}

/* Q8_0 is near enough to the original to be rounded again. */
static bool is_precise(enum llm_dtype dtype)
{
    return llm_dtype_block(dtype) == 1 || dtype == LLM_Q8_0;
}

static int check_source(const struct llm_quantise *q, const struct llm_file *file, char *why)
{
    if (!llm_file_metadata(file))
        return llm_why(why, -EOPNOTSUPP, "a file in %s's format has no metadata to copy; GGUF has",
                       llm_file_format(file));
    for (uint32_t i = 0; i < llm_file_tensor_count(file); i++) {
        const struct llm_tensor *t = llm_file_tensor(file, i);
        if (dtype_for(q, file, t) != t->dtype && !is_precise(t->dtype))
            return llm_why(why, -EOPNOTSUPP,
                           "tensor %s is %s already; to round it a second time costs much: take a "
                           "file of F32, F16, BF16 or Q8_0",
                           t->name, llm_dtype_name(t->dtype));
    }
    return 0;
}

/* ---- metadata ---- */

/* Keys that say how the source was stored. */
static bool is_copied(const struct gguf_pair *pair)
{
    static const char *const left_out[] = {
        "general.alignment", "general.file_type", "general.quantization_version",
        "split.no",          "split.count",       "split.tensors.count"};
    for (size_t i = 0; i < ARRAY_LEN(left_out); i++) {
        if (gguf_string_is(pair->key, left_out[i]))
            return false;
    }
    return true;
}

static void write_header(const struct llm_quantise *q, const struct llm_file *file,
                         struct gguf_writer *w, FILE *stream)
{
    const struct gguf *from = llm_file_metadata(file);
    uint32_t pairs = 2;
    for (uint32_t i = 0; i < from->pair_count; i++)
        pairs += is_copied(&from->pairs[i]);
    gguf_write_begin(w, stream, llm_file_tensor_count(file), pairs);
    for (uint32_t i = 0; i < from->pair_count; i++) {
        if (is_copied(&from->pairs[i]))
            gguf_write_pair(w, &from->pairs[i]);
    }
    gguf_write_u32(w, "general.file_type", llm_recipe_file_type(q->recipe));
    gguf_write_u32(w, "general.quantization_version", QUANTISATION_VERSION);
    for (uint32_t i = 0; i < llm_file_tensor_count(file); i++) {
        const struct llm_tensor *t = llm_file_tensor(file, i);
        gguf_write_tensor(w, t->name, dtype_for(q, file, t), t->dims, t->dim_count);
    }
    gguf_write_pad(w);
}

/* ---- weights ---- */

struct job {
    struct llm_pool *pool;
    float *values;  /* PIECE_VALUES for each thread */
    uint8_t *bytes; /* of a chunk */
    /* the chunk: */
    const struct llm_tensor *tensor;
    enum llm_dtype dtype;
    uint64_t first, count;  /* values */
    _Atomic(bool) is_wrong; /* relaxed: read after the pool's threads are done */
};

static void convert_piece(void *user, uint32_t piece, unsigned thread)
{
    struct job *job = user;
    uint64_t at = (uint64_t)piece * PIECE_VALUES, rest = job->count - at;
    size_t count = rest < PIECE_VALUES ? (size_t)rest : PIECE_VALUES;
    float *values = job->values + (size_t)thread * PIECE_VALUES;
    const uint8_t *from = job->tensor->data;
    llm_dtype_to_f32(job->tensor->dtype, values,
                     from + llm_dtype_bytes(job->tensor->dtype, job->first + at), count);
    bool wrong = false;
    for (size_t i = 0; i < count; i++)
        wrong |= !isfinite(values[i]);
    if (wrong)
        job->is_wrong = true;
    llm_dtype_fit_f32(job->dtype, job->bytes + llm_dtype_bytes(job->dtype, at), values, count);
}

static int job_init(struct job *job, unsigned threads, char *why)
{
    *job = (struct job){0};
    int err = llm_pool_create(threads, &job->pool);
    if (err)
        return llm_why(why, err, "cannot start %u threads: %s", threads, strerror(-err));
    job->values = malloc(llm_pool_threads(job->pool) * (size_t)PIECE_VALUES * sizeof(float));
    job->bytes = malloc((size_t)CHUNK_PIECES * PIECE_VALUES * sizeof(float)); /* no type is wider */
    return job->values && job->bytes ? 0 : llm_why(why, -ENOMEM, "out of memory");
}

static void job_fini(struct job *job)
{
    llm_pool_destroy(job->pool);
    free(job->values);
    free(job->bytes);
}

static int convert_tensor(const struct llm_quantise *q, struct job *job, struct gguf_writer *w,
                          uint64_t *done, uint64_t total, char *why)
{
    uint64_t values = values_of(job->tensor), chunk = (uint64_t)CHUNK_PIECES * PIECE_VALUES;
    for (job->first = 0; job->first < values && !w->error; job->first += job->count) {
        job->count = values - job->first < chunk ? values - job->first : chunk;
        llm_pool_run(job->pool, (uint32_t)((job->count + PIECE_VALUES - 1) / PIECE_VALUES),
                     convert_piece, job);
        if (job->is_wrong)
            return llm_why(why, -EPROTO, "tensor %s holds a number that is not finite",
                           job->tensor->name);
        uint64_t bytes = llm_dtype_bytes(job->dtype, job->count);
        gguf_write_data(w, job->bytes, (size_t)bytes);
        *done += bytes;
        if (q->progress)
            q->progress(q->user, *done, total);
    }
    gguf_write_pad(w);
    return 0;
}

static int write_weights(const struct llm_quantise *q, const struct llm_file *file, struct job *job,
                         struct gguf_writer *w, char *why)
{
    uint64_t done = 0, total = llm_quantise_bytes(q, file);
    int err = 0;
    for (uint32_t i = 0; i < llm_file_tensor_count(file) && !err; i++) {
        job->tensor = llm_file_tensor(file, i);
        job->dtype = dtype_for(q, file, job->tensor);
        if (job->dtype != job->tensor->dtype) {
            err = convert_tensor(q, job, w, &done, total, why);
            continue;
        }
        gguf_write_data(w, job->tensor->data, (size_t)job->tensor->bytes);
        gguf_write_pad(w);
        done += job->tensor->bytes;
    }
    return err;
}

static int write_stream(const struct llm_quantise *q, const struct llm_file *file,
                        const struct hw_output *output, char *why)
{
    struct gguf_writer w;
    struct job job;
    int err = job_init(&job, q->threads, why);
    if (!err) {
        write_header(q, file, &w, output->stream);
        err = write_weights(q, file, &job, &w, why);
    }
    if (!err) {
        err = gguf_write_end(&w);
        if (err)
            llm_why_set(why, "cannot write %s: %s", output->path, strerror(-err));
    }
    job_fini(&job);
    return err;
}

int llm_quantise_write(const struct llm_quantise *q, const struct llm_file *file, const char *path,
                       char *why)
{
    struct hw_output output;
    int err = check_source(q, file, why);
    if (!err)
        err = hw_output_open(&output, path, q->overwrite, llm_quantise_bytes(q, file), why);
    if (err)
        return err;
    return hw_output_finish(&output, write_stream(q, file, &output, why), why);
}
