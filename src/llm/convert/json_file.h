/* llm/convert/json_file.h - private to src/llm: JSON files of a published model, bounded.
 *
 * Trust: files are hostile; jansson nests at most 2048 deep, the size is limited here.
 * Threads: any.  Lifetime: json_decref the result. */
#ifndef HAWSER_LLM_CONVERT_JSON_FILE_H
#define HAWSER_LLM_CONVERT_JSON_FILE_H

#include "base/attr.h"

#include <jansson.h>
#include <stddef.h>

enum { LLM_JSON_BYTES_MAX = 256 << 20 }; /* tokenizers of 262,144 tokens have 35 MB */

/* folder/name as an object.  0; -ENOENT; -EPROTO (why: what and where); -ENOMEM and errors of open
 * and read. */
int llm_json_load(const char *folder, const char *name, json_t **out, char *why) MUST_CHECK;

/* folder/name as text with a final 0; free it. */
int llm_text_load(const char *folder, const char *name, char **out, size_t *bytes,
                  char *why) MUST_CHECK;

#endif
