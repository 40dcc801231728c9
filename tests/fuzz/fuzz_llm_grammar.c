/* A grammar that a client sends, and after a NUL a text: it is taken the same at once and byte by
 * byte. */
#include "fuzz.h"

#include "llm/chat/grammar.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[LLM_WHY_CHARS];
    struct llm_grammar *g;
    struct llm_matcher *whole, *bytewise;
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t bytes = nul ? (size_t)(nul - data) : size;
    if (llm_grammar_parse((const char *)data, bytes, &g, why))
        return 0;
    const char *text = nul ? (const char *)nul + 1 : "";
    size_t length = nul ? size - bytes - 1 : 0;
    if (!llm_matcher_create(g, NULL, &whole)) {
        require(!llm_matcher_create(g, NULL, &bytewise));
        bool took = llm_matcher_feed(whole, text, length);
        bool each = !llm_matcher_is_dead(bytewise) || length == 0 || llm_matcher_may_end(bytewise);
        for (size_t i = 0; i < length && each; i++)
            each = llm_matcher_feed(bytewise, text + i, 1);
        require(took == each || length == 0);
        require(llm_matcher_may_end(whole) == llm_matcher_may_end(bytewise) || !took);
        llm_matcher_destroy(whole);
        llm_matcher_destroy(bytewise);
    }
    llm_grammar_destroy(g);
    return 0;
}
