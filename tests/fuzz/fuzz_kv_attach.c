/* Attach messages of a hostile client or daemon: refused, or encoded to the same bytes again.  The
 * first byte says which of the two messages the rest is. */
#include "fuzz.h"
#include "kv/common/attach.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct kv_region_shape shape;
    struct kv_offer offer;
    uint8_t again[KV_OFFER_BYTES];
    if (data[0] % 2 == 0) {
        if (kv_attach_decode(data + 1, size - 1, &shape) == 0) {
            require(kv_region_slots_bytes(&shape) <= KV_REGION_BYTES_MAX);
            require(shape.staging_bytes <= KV_STAGING_MAX);
            kv_attach_encode(&shape, again);
            require(size - 1 == KV_ATTACH_BYTES && memcmp(data + 1, again, size - 1) == 0);
        }
    } else if (kv_offer_decode(data + 1, size - 1, &offer) == 0) {
        kv_offer_encode(&offer, again);
        require(size - 1 == KV_OFFER_BYTES && memcmp(data + 1, again, size - 1) == 0);
    }
    return 0;
}
