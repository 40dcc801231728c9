/* Pieces, their names and proofs; see upload.h. */
#include "venus/common/upload.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <xxhash.h>

size_t vn_piece_end(size_t off, size_t end)
{
    assert(off < end && end - off >= VN_PIECE_MIN);
    size_t next = (off / VN_PIECE_BYTES + 1) * VN_PIECE_BYTES;
    if (next - off < VN_PIECE_MIN)
        next += VN_PIECE_BYTES;
    return next >= end || end - next < VN_PIECE_MIN ? end : next;
}

int vn_piece_name(const void *bytes, size_t len, uint8_t name[VN_NAME_BYTES])
{
    return EVP_Digest(bytes, len, name, NULL, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
}

void vn_piece_proof(uint64_t key, const void *bytes, size_t len, uint8_t proof[VN_PROOF_BYTES])
{
    XXH128_canonical_t canonical;
    static_assert(sizeof(canonical) == VN_PROOF_BYTES, "128 bits");
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_withSeed(bytes, len, key));
    memcpy(proof, &canonical, VN_PROOF_BYTES);
}
