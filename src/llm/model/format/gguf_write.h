/* llm/model/format/gguf_write.h - writes a GGUF v3 file front to back, without holding it in
 * memory.
 *
 * Calls in order: begin with the number of pairs and tensors, the pairs, the tensors' descriptions,
 * then for each tensor, in the same order, its data and gguf_write_pad.  Wrong counts are a
 * caller's bug, found by assertions.  gguf_write_end tells a failed write.
 *
 * Private to src/llm.  Threads: one.  Lifetime: the struct and the stream are the caller's. */
#ifndef HAWSER_LLM_MODEL_FORMAT_GGUF_WRITE_H
#define HAWSER_LLM_MODEL_FORMAT_GGUF_WRITE_H

#include "llm/model/format/gguf.h"

#include <stdio.h>

struct gguf_writer { /* private */
    FILE *out;
    uint64_t at;          /* bytes written */
    uint64_t data_offset; /* of the next tensor's description */
    uint64_t pairs_left, tensors_left;
    int error; /* negative errno of the first failed write */
};

void gguf_write_begin(struct gguf_writer *writer, FILE *out, uint64_t tensors, uint64_t pairs);

void gguf_write_u32(struct gguf_writer *writer, const char *key, uint32_t value);
void gguf_write_f32(struct gguf_writer *writer, const char *key, float value);
void gguf_write_bool(struct gguf_writer *writer, const char *key, bool value);
void gguf_write_string(struct gguf_writer *writer, const char *key, const char *value);

/* A pair of another file, as it is. */
void gguf_write_pair(struct gguf_writer *writer, const struct gguf_pair *pair);

/* The head of an array; count elements follow, put one by one. */
void gguf_write_array(struct gguf_writer *writer, const char *key, enum gguf_type type,
                      uint64_t count);
void gguf_put_string(struct gguf_writer *writer, const char *text, size_t bytes);
void gguf_put_u32(struct gguf_writer *writer, uint32_t value);

/* dims as in llm/model/file.h; dim_count of them. */
void gguf_write_tensor(struct gguf_writer *writer, const char *name, enum llm_dtype dtype,
                       const uint64_t *dims, uint32_t dim_count);

/* After the descriptions, and after each tensor's data: zeros up to the alignment. */
void gguf_write_pad(struct gguf_writer *writer);
void gguf_write_data(struct gguf_writer *writer, const void *bytes, size_t count);

/* Flushes.  0, or the negative errno of the first write that failed. */
int gguf_write_end(struct gguf_writer *writer) MUST_CHECK;

#endif
