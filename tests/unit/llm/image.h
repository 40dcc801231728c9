/* tests/unit/llm/image.h - model files made in memory, byte by byte, right or wrong.
 *
 * Lifetime: image_begin/image_end; an image's bytes are freed with image_free. */
#ifndef HAWSER_TESTS_LLM_IMAGE_H
#define HAWSER_TESTS_LLM_IMAGE_H

#include "llm/model/file.h"
#include "llm/model/format/gguf_write.h"
#include "llm/model/synth.h"

struct image {
    char *bytes; /* heap: at a multiple of 16 */
    size_t size;
};

/* A writer into memory. */
struct image_writer {
    struct gguf_writer gguf;
    struct image image;
    FILE *out;
};

void image_begin(struct image_writer *writer, uint64_t tensors, uint64_t pairs);
struct image image_end(struct image_writer *writer);
void image_free(struct image *image);

/* A description as it is given, which gguf_write_tensor would not write. */
void image_raw_tensor(struct image_writer *writer, const char *name, uint32_t dim_count,
                      const uint64_t *dims, uint32_t type, uint64_t offset);
void image_put_u64(struct image_writer *writer, uint64_t value);

/* The smallest sound model of an architecture, written by llm_synth_write. */
struct llm_synth image_tiny(enum llm_arch arch);
struct image image_synth(const struct llm_synth *synth);

/* Overwrites the first place where bytes stand; fails the test when there is none. */
void image_patch(struct image *image, const void *old, const void *new, size_t bytes);

/* The first bytes of an image in memory of just that size, so that a sanitizer sees a read past
 * them. */
struct image image_prefix(const struct image *image, size_t size);

#endif
