/* llm/model/format/split.h - private to src/llm: a GGUF model in several files, as llama.cpp's
 * gguf-split writes it.
 *
 * Files are named STEM-00001-of-00003.gguf and so on.  Each has the keys split.no, from 0, and
 * split.count; the first has all other metadata.  In memory each part begins at the first multiple
 * of LLM_PART_ALIGN past the part before, so that a split model is one range of bytes like any
 * other: it is hashed, sent and parsed as such.
 *
 * Trust: files and names are hostile.  Threads: any.  Lifetime: the caller's. */
#ifndef HAWSER_LLM_MODEL_FORMAT_SPLIT_H
#define HAWSER_LLM_MODEL_FORMAT_SPLIT_H

#include "llm/model/format/gguf.h"

enum {
    LLM_PARTS_MAX = 1024,     /* published models have some 200 */
    LLM_PART_ALIGN = 1 << 16, /* a multiple of every page size in use */
};

/* Adds the tensors of the other parts, which follow in `size` bytes at `bytes`, to those of the
 * first.  Does nothing where the metadata names no other part.  0; -EPROTO (why says which part and
 * what); -EOPNOTSUPP; -ENOMEM.  On an error the first is unchanged. */
int llm_split_join(struct gguf *first, const void *bytes, uint64_t size, char *why) MUST_CHECK;

/* Whether a path is named as a part; *no counts from 1, *stem is the length of what precedes the
 * number. */
bool llm_split_parse_name(const char *path, uint32_t *no, uint32_t *count, size_t *stem);

/* The path of part `no`, to free; NULL: out of memory. */
char *llm_split_name(const char *path, uint32_t no, uint32_t count, size_t stem);

/* Maps all parts of the model whose first part is at path into one range.  0; errors of open,
 * fstat and mmap; -EPROTO; -ENOMEM.  why names the part. */
int llm_split_map(const char *path, uint32_t count, size_t stem, void **mapping, uint64_t *size,
                  char *why) MUST_CHECK;

#endif
