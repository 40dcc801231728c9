#include "kv/checksum.h"

#include "wire/le.h"

#include <assert.h>

void kv_checksum_begin(struct kv_checksum *sum)
{
    (void)XXH3_64bits_reset(&sum->pieces);
}

void kv_checksum_piece(struct kv_checksum *sum, const void *data, size_t len)
{
    uint8_t hash[8];
    assert(len <= KV_CHECKSUM_PIECE);
    wire_store64(hash, XXH3_64bits(data, len));
    (void)XXH3_64bits_update(&sum->pieces, hash, sizeof(hash));
}

uint64_t kv_checksum_end(const struct kv_checksum *sum)
{
    return XXH3_64bits_digest(&sum->pieces);
}

uint64_t kv_block_checksum(const void *data, size_t len)
{
    struct kv_checksum sum;
    const uint8_t *from = data;
    kv_checksum_begin(&sum);
    for (size_t at = 0, n; at < len; at += n) {
        n = len - at < KV_CHECKSUM_PIECE ? len - at : KV_CHECKSUM_PIECE;
        kv_checksum_piece(&sum, from + at, n);
    }
    return kv_checksum_end(&sum);
}
