/* kv/checksum_impl.h - private to checksum.c: the carry-less way, compiled for CPUs that have it.
 *
 * Threads: any. */
#ifndef HAWSER_KV_CHECKSUM_IMPL_H
#define HAWSER_KV_CHECKSUM_IMPL_H

#include <stddef.h>
#include <stdint.h>

enum {
    KV_FOLD_BYTES = 128, /* at a time: eight vectors, more than the multiplier has under way */
    KV_FOLD_REST = 16    /* what is left of them */
};

/* Folds `len` bytes, a positive multiple of KV_FOLD_BYTES, into 16 whose remainder is the same,
 * when `crc` (as the register holds it) goes before them.  Copies them to `to` on the way unless
 * that is NULL.  Each byte is loaded once. */
void kv_checksum_fold(uint64_t crc, uint8_t *to, const uint8_t *from, size_t len,
                      uint8_t rest[KV_FOLD_REST]);

#endif
