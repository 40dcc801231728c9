/* A peer's packed messages, one after the other, as the lengths in the input cut them. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "venus/common/transfer/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t copy[VN_PACK_MAX];
    struct vn_unpacker *unpacker;
    if (vn_unpacker_create(&unpacker))
        return 0;
    while (size > 2) {
        size_t len = (size_t)(data[0] | data[1] << 8);
        data += 2;
        size -= 2;
        struct vn_bytes in = {data, len < size ? len : size}, out;
        if (vn_unpack(unpacker, &in, &out))
            break;
        if (out.len > VN_PACK_MAX)
            abort();
        memcpy(copy, out.data, out.len);
        data += in.len;
        size -= in.len;
    }
    vn_unpacker_destroy(unpacker);
    return 0;
}
