/* What a KV store gives for the record of a sequence.  What was decoded must encode to the same
 * bytes. */
#include "llm/worker/record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct llm_record record;
    struct wire_enc e;
    if (llm_record_decode(data, size, &record))
        return 0;
    wire_enc_init(&e, size + 64);
    llm_record_encode(&record, &e);
    if (wire_enc_error(&e) || wire_enc_len(&e) != size ||
        memcmp(wire_enc_data(&e), data, size) != 0)
        abort();
    wire_enc_fini(&e);
    llm_record_fini(&record);
    return 0;
}
