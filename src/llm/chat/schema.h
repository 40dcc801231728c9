/* llm/chat/schema.h - a JSON schema as a grammar in GBNF.
 *
 * The grammar's texts are JSON that the schema accepts; not every such JSON is in the grammar:
 * members come in the order of the schema, white space is short, and a member that the schema does
 * not name comes only where additionalProperties asks for it.  docs/design/chat.md lists the
 * keywords; one that is not supported is refused by name.
 *
 * Trust: a schema is a client's; its depth and the size of the grammar are bounded.
 * Threads: any.  */
#ifndef HAWSER_LLM_CHAT_SCHEMA_H
#define HAWSER_LLM_CHAT_SCHEMA_H

#include "base/attr.h"
#include "llm/model/why.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    LLM_SCHEMA_DEPTH_MAX = 64,       /* of schemas within schemas */
    LLM_SCHEMA_MERGED_MAX = 1 << 20, /* values that allOf and others read: some 0.1 s */
};

/* schema: NULL for any JSON object.  *gbnf: *bytes bytes and a NUL, to be freed with free().
 * 0; -EOPNOTSUPP or -EINVAL (why names the keyword and its place); -E2BIG; -ENOMEM. */
int llm_schema_grammar(const json_t *schema, char **gbnf, size_t *bytes, char *why) MUST_CHECK;

struct schema_text;
/* The same as rules schema-0, schema-1, ... of one grammar, which has no root yet; *out is the
 * caller's to end and to free.  narrow: without line breaks between the parts of JSON. */
int llm_schema_rules(const json_t *const *schemas, size_t count, bool narrow,
                     struct schema_text *out, char *why) MUST_CHECK;

#endif
