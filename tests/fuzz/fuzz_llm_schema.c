/* A JSON schema that a client sends: its grammar is one that we take, unless it is too large or
 * left-recursive by its references. */
#include "fuzz.h"

#include "llm/chat/grammar.h"
#include "llm/chat/schema.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[LLM_WHY_CHARS], *text;
    size_t bytes;
    struct llm_grammar *g;
    json_t *schema = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
    if (schema && !llm_schema_grammar(schema, &text, &bytes, why)) {
        int err = llm_grammar_parse(text, bytes, &g, why);
        require(!err || err == -E2BIG || err == -EINVAL);
        if (!err)
            llm_grammar_destroy(g);
        free(text);
    }
    json_decref(schema);
    return 0;
}
