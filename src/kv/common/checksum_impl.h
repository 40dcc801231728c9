/* kv/common/checksum_impl.h - private to checksum.c: folding, compiled once for each kind of CPU.
 *
 * Threads: any.  Lifetime: constants. */
#ifndef HAWSER_KV_COMMON_CHECKSUM_IMPL_H
#define HAWSER_KV_COMMON_CHECKSUM_IMPL_H

#include <stddef.h>
#include <stdint.h>

enum {
    KV_FOLD_REST = 16,      /* what is left of the bytes that are folded */
    KV_FOLD_LONG = 64 << 10 /* a copy from which on an aligned destination may be quicker */
};

struct kv_fold {
    size_t bytes; /* at a time */
    size_t align; /* of `to` in a long copy; anything else is right, too, and slower */
    /* Folds `len` bytes, a positive multiple of `bytes`, into 16 whose remainder is the same, when
     * `crc` (as the register holds it) goes before them.  Copies them to `to` on the way unless
     * that is NULL.  Each byte is loaded once. */
    void (*go)(uint64_t crc, uint8_t *to, const uint8_t *from, size_t len,
               uint8_t rest[KV_FOLD_REST]);
};

/* Vectors of 16 bytes; of 64. */
extern const struct kv_fold kv_fold_narrow, kv_fold_wide;

#endif
