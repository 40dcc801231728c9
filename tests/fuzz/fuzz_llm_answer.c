/* What a client takes from a worker: pushed tokens, the end of a text, a worker's description,
 * where its KV is.  The first byte says which the rest is.  What was decoded must encode to the
 * same bytes. */
#include "llm/worker/inspect.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool so)
{
    if (!so)
        abort();
}

static void must_encode_to(const struct wire_enc *e, const uint8_t *data, size_t size)
{
    must(wire_enc_error(e) == 0 && wire_enc_len(e) == size);
    must(memcmp(wire_enc_data(e), data, size) == 0);
}

static void try_push(struct wire_dec *d, struct wire_enc *e)
{
    while (wire_dec_left(d) > 0) {
        struct llm_logprob top[LLM_TOP_LOGPROBS_MAX];
        struct llm_generated token;
        struct llm_group g;
        llm_group_get(d, &g);
        llm_group_put(e, g.id, g.tops, g.count);
        for (uint32_t i = 0; i < g.count && wire_dec_error(d) == 0; i++) {
            llm_generated_get(d, g.tops, &token, top);
            llm_generated_put(e, g.tops, &token);
        }
    }
}

static void try_end(struct wire_dec *d, struct wire_enc *e)
{
    struct llm_generate_end end;
    if (llm_end_get(d, &end)) {
        wire_dec_fail(d, -EPROTO);
        return;
    }
    llm_end_put(e, &end);
    llm_end_fini(&end);
}

static void try_served(struct wire_dec *d, struct wire_enc *e)
{
    static struct llm_served served;
    llm_served_get(d, &served);
    llm_served_put(e, &served);
}

static void try_inspection(struct wire_dec *d, struct wire_enc *e)
{
    static struct llm_inspection inspection;
    llm_inspection_get(d, &inspection);
    llm_inspection_put(e, &inspection);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(struct wire_dec *, struct wire_enc *) = {
        try_push, try_end, try_served, try_inspection};
    struct wire_dec d;
    struct wire_enc e;
    if (size == 0)
        return 0;
    wire_dec_init(&d, data + 1, size - 1);
    wire_enc_init(&e, 2 * size + 65536);
    tries[data[0] % 4](&d, &e);
    if (wire_dec_end(&d) == 0)
        must_encode_to(&e, data + 1, size - 1);
    wire_enc_fini(&e);
    return 0;
}
