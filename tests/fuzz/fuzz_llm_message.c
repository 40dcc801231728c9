/* What an LLM worker takes from its clients, and semantic results back.  The first byte says what
 * the rest is: a request of that method, or a result (254, 255).  What was decoded must encode to
 * the same bytes. */
#include "llm/worker/result.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 64, TOP_K = 254, LOGITS = 255, METHODS = LLM_METHOD_LAST - LLM_METHOD_FIRST + 1 };

static void must(bool so)
{
    if (!so)
        abort();
}

static void try_request(uint32_t method, const uint8_t *data, size_t size)
{
    struct llm_request r;
    struct wire_enc e;
    if (llm_request_decode(method, data, size, &r))
        return;
    wire_enc_init(&e, size + 64);
    llm_request_encode(&r, &e);
    must(wire_enc_error(&e) == 0 && wire_enc_len(&e) == size);
    must(memcmp(wire_enc_data(&e), data, size) == 0);
    wire_enc_fini(&e);
    llm_request_fini(&r);
}

static void try_result(enum llm_wish_kind kind, const uint8_t *data, size_t size)
{
    static struct llm_packer packer;
    static float logits[VOCAB];
    struct llm_wish wish = {.kind = kind, .top_k = 3, .lossy = size % 2};
    struct wire_dec d;
    if (!packer.codec)
        must(llm_packer_init(&packer) == 0);
    wire_dec_init(&d, data, size);
    must(llm_result_get(&packer, &wish, &d, logits, VOCAB) <= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] < TOP_K)
        try_request(LLM_METHOD_FIRST + data[0] % METHODS, data + 1, size - 1);
    else
        try_result(data[0] == TOP_K ? LLM_WISH_TOP_K : LLM_WISH_LOGITS, data + 1, size - 1);
    return 0;
}
