/* llm/convert/safetensors.h - private to src/llm: weights as published in safetensors files.
 *
 * A file is 8 bytes of header length, a JSON object {name: {dtype, shape, data_offsets}}, then the
 * data.  A folder has model.safetensors, or model.safetensors.index.json that names several files.
 *
 * Trust: files are hostile.  Lengths and offsets are checked against the file before anything of
 * their size is allocated; tensors lie within their file and have just the bytes of their shape.
 * jansson parses the JSON and nests at most 2048 deep.
 * Threads: one; read-only once it is open: any.  Lifetime: init or open, then fini. */
#ifndef HAWSER_LLM_CONVERT_SAFETENSORS_H
#define HAWSER_LLM_CONVERT_SAFETENSORS_H

#include "base/attr.h"
#include "llm/model/shape.h"

enum {
    LLM_ST_HEADER_MAX = 100 << 20, /* the format's own bound */
    LLM_ST_FILES_MAX = 1024,       /* published models have some 200 */
    LLM_ST_NAME_MAX = 512,
};

/* shape as published: the last dimension is contiguous.  has_dtype: F32, F16 or BF16; a tensor of
 * another type may be there as long as nobody needs it. */
struct llm_st_tensor {
    char *name;
    enum llm_dtype dtype;
    bool has_dtype;
    uint32_t dim_count;
    uint64_t dims[LLM_DIMS_MAX];
    uint64_t bytes;
    const uint8_t *data;
    bool is_used; /* the importer's */
};

struct llm_st {
    struct llm_st_tensor *items; /* sorted by name once open */
    uint32_t count, room;
    struct llm_st_file {
        void *mapping;
        uint64_t size;
    } * files;
    uint32_t file_count;
};

/* Adds the tensors of one file in memory, which outlives st.  0, -EPROTO (why says what and where),
 * -ENOMEM. */
int llm_st_parse(struct llm_st *st, const void *bytes, uint64_t size, char *why) MUST_CHECK;
/* After the last file: sorts.  0; -EPROTO: a name is there twice. */
int llm_st_seal(struct llm_st *st, char *why) MUST_CHECK;

/* Maps all files of a folder.  0; -ENOENT (no weights there), -EPROTO, -ENOMEM and errors of open
 * and mmap.  On an error nothing is held. */
int llm_st_open(struct llm_st *st, const char *folder, char *why) MUST_CHECK;
void llm_st_fini(struct llm_st *st);

/* NULL: there is none. */
struct llm_st_tensor *llm_st_find(const struct llm_st *st, const char *name);

#endif
