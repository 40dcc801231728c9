/* Any bytes as a safetensors file: tensors lie within it. */
#include "fuzz.h"

#include "llm/convert/safetensors.h"
#include "llm/model/why.h"

#include <stdlib.h>
#include <string.h>

static void use(const struct llm_st *st)
{
    unsigned sum = 0;
    for (uint32_t i = 0; i < st->count; i++) {
        const struct llm_st_tensor *t = &st->items[i];
        if (llm_st_find(st, t->name) != t)
            abort();
        if (t->bytes)
            sum += t->data[0] + t->data[t->bytes - 1];
    }
    volatile unsigned keep = sum;
    (void)keep;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[LLM_WHY_CHARS];
    struct llm_st st = {0};
    uint8_t *copy = malloc(size ? size : 1); /* of just that size */
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (llm_st_parse(&st, copy, size, why) == 0 && llm_st_seal(&st, why) == 0)
        use(&st);
    llm_st_fini(&st);
    free(copy);
    return 0;
}
