/* kv/checksum.h - the checksum of a block: XXH3 of the XXH3s (64 bits, little-endian) of its pieces
 * of 64 KiB.
 *
 * In pieces, so that whoever copies a block hashes each piece while the nearest cache has it, and
 * so that a block that arrives bit by bit needs no memory but a small state.
 *
 * Threads: any.  Lifetime: the struct is the caller's; begin/end. */
#ifndef HAWSER_KV_CHECKSUM_H
#define HAWSER_KV_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define XXH_STATIC_LINKING_ONLY /* the size of a hash state, to keep it in our own memory */
#include <xxhash.h>

enum { KV_CHECKSUM_PIECE = 64 << 10 };

struct kv_checksum {
    XXH3_state_t pieces;
};

void kv_checksum_begin(struct kv_checksum *sum);
/* The next piece: KV_CHECKSUM_PIECE bytes, fewer only for the last. */
void kv_checksum_piece(struct kv_checksum *sum, const void *data, size_t len);
uint64_t kv_checksum_end(const struct kv_checksum *sum);

/* Of a whole block. */
uint64_t kv_block_checksum(const void *data, size_t len);

#endif
