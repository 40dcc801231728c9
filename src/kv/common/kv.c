#include "kv/common/kv.h"

#include <xxhash.h>

const char *kv_result_name(enum kv_result result)
{
    static const char *const names[KV_RESULT_COUNT] = {
        [KV_OK] = "OK",
        [KV_MISS] = "MISS",
        [KV_FULL] = "FULL",
        [KV_TOO_LARGE] = "TOO_LARGE",
        [KV_PEER_LOST] = "PEER_LOST",
        [KV_TIMEOUT] = "TIMEOUT",
        [KV_REFUSED] = "REFUSED",
        [KV_EXPIRED] = "EXPIRED",
        [KV_PUT_EXPIRED] = "PUT_EXPIRED",
        [KV_EXISTS] = "EXISTS",
        [KV_NOT_OWNER] = "NOT_OWNER",
        [KV_TOO_FEW] = "TOO_FEW",
    };
    return (unsigned)result < KV_RESULT_COUNT ? names[result] : "?";
}

struct kv_key kv_key_of(const void *name, size_t len)
{
    XXH128_hash_t hash = XXH3_128bits(name, len);
    return (struct kv_key){.hi = hash.high64, .lo = hash.low64};
}
