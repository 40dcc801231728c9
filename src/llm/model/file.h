/* llm/model/file.h - a model file, opened, checked and described: GGUF v2 and v3, in one file or
 * split into several, and llama2.c's format.
 *
 * Both formats look like GGUF here: tensors by GGUF names ("blk.3.attn_q.weight"), one struct
 * llm_config, one vocabulary (llm/tokenizer/vocab.h).
 *
 * Trust: the file is hostile.  Every count, length, offset, type and dimension is checked before it
 * is used: against its limit, the file's size and the others.  Tensors neither overlap nor leave
 * the file; the tensors of the architecture are there with the right shape.  A file that passes
 * cannot make the engine read outside its mapping.  Nobody may truncate the file while it is open:
 * the mapping is shared. Threads: an open file is read-only; any thread. Lifetime: open/close;
 * names and data live as long as the file. */
#ifndef HAWSER_LLM_MODEL_FILE_H
#define HAWSER_LLM_MODEL_FILE_H

#include "base/attr.h"
#include "llm/model/shape.h"
#include "llm/model/why.h"

struct llm_file;

/* Maps the file read-only; of a split model, name the first file.  0; -ENOENT, -EACCES and the
 * like; -EPROTO (not a model, or damaged; why says what and where); -EOPNOTSUPP (the engine cannot
 * run it: why names the architecture, type or feature); -ENOMEM.  why holds LLM_WHY_CHARS. */
int llm_file_open(const char *path, struct llm_file **out, char *why) MUST_CHECK;

/* The same from memory, which the caller keeps and which outlives the file.  -EINVAL unless it
 * begins at a multiple of 8. */
int llm_file_parse(const void *bytes, uint64_t size, struct llm_file **out, char *why) MUST_CHECK;
/* The same of the begin of a GGUF file, or of a split model's first, up to the tensors' data: name,
 * configuration, vocabulary and metadata are there, weights and the tensors of other files are not.
 * Not for an engine. */
int llm_file_parse_header(const void *bytes, uint64_t size, struct llm_file **out,
                          char *why) MUST_CHECK;
void llm_file_close(struct llm_file *file);
/* Whether an open file still has the bytes that it was opened with, as far as its size and time
 * tell.  One that was removed or replaced has them.  0, or -ESTALE and why. */
int llm_file_check(const struct llm_file *file, char *why) MUST_CHECK;

/* Returns -err, and why the path could not be opened: for a name of a hub, what to download. */
int llm_file_missing(const char *path, int err, char *why);
/* Opens, or maps, a regular file that is not empty; `not` ends the message about another, such as
 * ", not a model".  0, or a negative errno with the cause; outputs are written only on 0. */
int llm_file_open_regular(const char *path, const char * not, int *fd_out, uint64_t *size,
                          char *why) MUST_CHECK;
int llm_file_map(const char *path, const char * not, void **mapping, uint64_t *size_out,
                 char *why) MUST_CHECK;

const struct llm_config *llm_file_config(const struct llm_file *file);
const char *llm_file_name(const struct llm_file *file);   /* general.name, or "" */
const char *llm_file_format(const struct llm_file *file); /* "GGUF v3", "llama2.c" */
/* Bytes before the tensors' data; 0: not a GGUF file. */
uint64_t llm_file_header_bytes(const struct llm_file *file);
bool llm_file_has_weights(const struct llm_file *file);
/* A text of the metadata, not ended by a 0; NULL: there is none. */
const char *llm_file_text(const struct llm_file *file, const char *key, size_t *bytes);

uint32_t llm_file_tensor_count(const struct llm_file *file);
const struct llm_tensor *llm_file_tensor(const struct llm_file *file, uint32_t i);
const struct llm_tensor *llm_file_find(const struct llm_file *file, const char *name); /* or NULL */

/* The whole mapping: what a client uploads and llm_file_parse takes. */
const void *llm_file_bytes(const struct llm_file *file, uint64_t *size);

#endif
