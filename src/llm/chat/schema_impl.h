/* llm/chat/schema_impl.h - what builds the grammar of a JSON schema, and merges schemas for it.
 *
 * Private to src/llm/chat.  The first error is kept, and later calls do nothing.
 * Threads: one. */
#ifndef HAWSER_LLM_CHAT_SCHEMA_IMPL_H
#define HAWSER_LLM_CHAT_SCHEMA_IMPL_H

#include "llm/chat/schema.h"
#include "llm/chat/schema_text.h"

struct schema_builder {
    const json_t *root;
    json_t *refs; /* "$ref" to the number of its rule */
    struct schema_text out;
    uint32_t rules;
    uint32_t depth;
    const char *merging; /* the keyword whose schemas are merged */
    size_t merged;       /* what was read for that */
    char *why;
    int err;
};

void llm_schema_fail(struct schema_builder *b, int err, const char *keyword, const char *what);

/* What a "$ref" names; NULL after an error. */
const json_t *llm_schema_resolve(struct schema_builder *b, const char *ref);

/* Adds what one part says to *all, and what it refers to. */
void llm_schema_merge(struct schema_builder *b, json_t *all, const json_t *part);
/* Whether two values say the same; what is read for that is bounded, too. */
bool llm_schema_same(struct schema_builder *b, const json_t *x, const json_t *y);

/* Whether a "type" is, or has, that one. */
bool llm_schema_names_type(const json_t *types, const char *name);

#endif
