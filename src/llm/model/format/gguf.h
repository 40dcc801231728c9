/* llm/model/format/gguf.h - the GGUF format: typed metadata and a table of tensors, read in place.
 *
 *   "GGUF", u32 version, u64 tensors, u64 pairs
 *   pairs    key (string), u32 type, value
 *   tensors  name (string), u32 dimensions, u64 each, u32 type, u64 offset
 *   data     at the next multiple of general.alignment (32); offsets count from there
 *
 * A string is a u64 length and its bytes; an array is a u32 type, a u64 count and its elements.
 * All numbers are little-endian.  config.c and vocab.c interpret the pairs.
 *
 * Private to src/llm.  Trust: the bytes are hostile; each count is compared with the bytes
 * that remain before memory is allocated for it.  Keys and names are unique; booleans are 0 or 1;
 * tensors lie within the bytes, aligned, and share none.
 * Threads: any once parsed.  Lifetime: init/fini; strings and arrays point into the bytes, which
 * outlive it. */
#ifndef HAWSER_LLM_MODEL_FORMAT_GGUF_H
#define HAWSER_LLM_MODEL_FORMAT_GGUF_H

#include "llm/model/tensor_table.h"

enum {
    GGUF_VERSION_MIN = 2, /* version 1 had 32-bit counts and is obsolete */
    GGUF_VERSION_MAX = 3,
    GGUF_PAIRS_MAX = 65536,     /* published files have about 40 */
    GGUF_KEY_BYTES_MAX = 65535, /* the format's own bound */
    GGUF_ARRAY_DEPTH_MAX = 4,   /* of nested arrays, skipped by recursion; nobody uses them */
    GGUF_ALIGNMENT = 32,        /* without general.alignment */
    GGUF_ALIGNMENT_MIN = 8,     /* the format's own bound: every number is aligned in the file */
    GGUF_ALIGNMENT_MAX = 1 << 20,
};

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES,
};

/* Bytes in the file, not ended by a 0. */
struct gguf_string {
    const char *text;
    size_t bytes;
};

struct gguf_pair {
    struct gguf_string key;
    enum gguf_type type; /* of the value, or of an array's elements */
    bool is_array;
    uint64_t count;         /* of an array's elements; 1 otherwise */
    const uint8_t *payload; /* the first element */
    size_t payload_bytes;
};

struct gguf {
    uint32_t version;
    uint32_t pair_count;
    struct gguf_pair *pairs; /* sorted by key */
    uint64_t header_bytes;   /* before the data */
    uint64_t end;            /* of the last tensor's data, or of the header */
    struct llm_tensor_table tensors;
};

/* Whether bytes begin with the format's magic. */
bool gguf_is(const void *bytes, uint64_t size);

/* 0; -EPROTO (damaged: why says what); -EOPNOTSUPP (why names the version, byte order or tensor
 * type); -ENOMEM. */
int gguf_init(struct gguf *gguf, const void *bytes, uint64_t size, char *why) MUST_CHECK;
/* The same of a file's begin, without its data: the tensors' data is NULL. */
int gguf_init_header(struct gguf *gguf, const void *bytes, uint64_t size, char *why) MUST_CHECK;
void gguf_fini(struct gguf *gguf);

const struct gguf_pair *gguf_find(const struct gguf *gguf, const char *key); /* or NULL */

/* One value.  0; -ENOENT (no such key: why is not written); -EPROTO (of another type, or out of
 * range: why says so).  Any integer type is taken for a number that it fits, as writers differ. */
int gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *out, char *why) MUST_CHECK;
int gguf_get_f32(const struct gguf *gguf, const char *key, float *out, char *why) MUST_CHECK;
int gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, char *why) MUST_CHECK;
int gguf_get_string(const struct gguf *gguf, const char *key, struct gguf_string *out,
                    char *why) MUST_CHECK;

bool gguf_string_is(struct gguf_string string, const char *text);

/* An array whose elements have that type.  Errors as above. */
int gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_type type,
                   const struct gguf_pair **out, char *why) MUST_CHECK;

/* Walks the strings of an array that gguf_get_array gave: *at begins at 0 and moves on.  At most
 * pair->count calls. */
struct gguf_string gguf_next_string(const struct gguf_pair *pair, size_t *at);

#endif
