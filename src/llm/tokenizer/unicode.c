#include "llm/tokenizer/unicode.h"

#include "base/attr.h"

#include <stddef.h>

struct range {
    uint32_t first, last;
    uint8_t class;
};

static const struct range ranges[] = {
#include "unicode_classes.inc"
};

enum llm_char llm_char_class(uint32_t code)
{
    size_t low = 0, high = ARRAY_LEN(ranges);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else if (code < ranges[middle].first)
            high = middle;
        else
            return (enum llm_char)ranges[middle].class;
    }
    return LLM_CHAR_OTHER;
}
