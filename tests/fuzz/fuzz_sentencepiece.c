/* Any bytes as a tokenizer.model: texts end, scores are numbers, ids are within the pieces. */
#include "fuzz.h"

#include "llm/convert/sentencepiece.h"
#include "llm/model/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void use(const struct llm_sp *sp)
{
    for (uint32_t i = 0; i < sp->count; i++) {
        const struct llm_sp_piece *piece = &sp->pieces[i];
        if (strlen(piece->text) == 0 || !isfinite(piece->score) || piece->type < 1 ||
            piece->type > 6)
            abort();
    }
    const int32_t ids[] = {sp->unknown, sp->bos, sp->eos};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        if (ids[i] < -1 || (ids[i] >= 0 && (uint32_t)ids[i] >= sp->count))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[LLM_WHY_CHARS];
    struct llm_sp sp = {0};
    uint8_t *copy = malloc(size ? size : 1); /* of just that size */
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (llm_sp_parse(&sp, copy, size, why) == 0)
        use(&sp);
    llm_sp_fini(&sp);
    free(copy);
    return 0;
}
