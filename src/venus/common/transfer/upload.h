/* venus/common/transfer/upload.h - large writes as both ends of the upload cache see them.
 *
 * A run of written pages is cut into pieces, at offsets of the memory that are multiples of
 * VN_PIECE_BYTES, so that the same bytes at the same place are the same pieces in any run.  A piece
 * is looked for by its name, an XXH3 of its bytes, and is the right one when the proof agrees: a
 * GMAC of its bytes under a key that the server makes up for each session.  Somebody who stored
 * other bytes under that name did not know the key.  docs/design/upload-cache.md argues it.
 *
 * Trust: names and proofs are a peer's.  Threads: any.  Lifetime: nothing is kept. */
#ifndef HAWSER_VENUS_COMMON_TRANSFER_UPLOAD_H
#define HAWSER_VENUS_COMMON_TRANSFER_UPLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

enum {
    /* Smaller runs are sent as they are: a question costs about as much as their bytes, and they
     * are mostly what changes from one submission to the next. */
    VN_PIECE_MIN = 64 << 10,
    /* A model of 64 GiB is 65,536 pieces; the 36 bytes that stand for each are 1 in 29,000. */
    VN_PIECE_BYTES = 1 << 20,
    /* A rest that is shorter than VN_PIECE_MIN joins its neighbour, at either end. */
    VN_PIECE_MAX = VN_PIECE_BYTES + 2 * VN_PIECE_MIN,

    /* Of one HOLD: what a client can make the server hold for it. */
    VN_HOLD_BYTES_MAX = 32 << 20,
    VN_HOLD_PIECES_MAX = 128,

    VN_PIECE_THREADS_MAX = 3, /* that help: then memory is what is slow */

    VN_NAME_BYTES = 16,
    VN_PROOF_BYTES = 16,
};

/* The end of the piece that begins at off, in a run of at least VN_PIECE_MIN that ends at end. */
size_t vn_piece_end(size_t off, size_t end);

void vn_piece_name(const void *bytes, size_t len, uint8_t name[VN_NAME_BYTES]);
/* 0 or -ENOMEM. */
int vn_piece_proof(uint64_t key, const void *bytes, size_t len,
                   uint8_t proof[VN_PROOF_BYTES]) MUST_CHECK;

/* How many threads may help with so many pieces: none where no cores are to spare. */
unsigned vn_pieces_threads(uint32_t count);
/* Calls one(user, i) for each i below count, in this thread and in up to so many others at the same
 * time; returns when all are done. */
void vn_pieces_each(uint32_t count, unsigned threads, void (*one)(void *user, uint32_t i),
                    void *user);

#endif
