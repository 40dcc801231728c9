/* kv/common/checksum.h - the checksum of a block: CRC-64/NVME, alone or in the same pass as a copy.
 *
 * CPUs with carry-less multiplication compute a CRC faster than memory delivers, so a copy with a
 * checksum costs little more than one without (docs/design/kv-store.md has the figures).  The CRC
 * finds every error burst of up to 64 bits and misses other damage once in 2^64 times.  It is no
 * signature: anybody can make bytes with a given checksum.
 *
 *   polynomial   0xad93d23594c93659, bits reflected; begins and ends inverted
 *   check value  0xae8b14860a799888 of "123456789"
 *
 * The first call chooses the fastest implementation for this CPU.  "c" is the portable one: the
 * reference, and the way to turn the others off.
 *
 * Trust: none needed.  Threads: any; kv_checksum_use acts on calls that begin after it.  Lifetime:
 * no state. */
#ifndef HAWSER_KV_COMMON_CHECKSUM_H
#define HAWSER_KV_COMMON_CHECKSUM_H

#include "base/attr.h"

#include <stddef.h>
#include <stdint.h>

/* `sum` of the bytes so far, 0 of none; returns that of them and these. */
uint64_t kv_checksum_add(uint64_t sum, const void *data, size_t len);
/* The same while it copies: the checksum of what it writes, even if `from` changes meanwhile.  The
 * two do not overlap. */
uint64_t kv_checksum_copy(uint64_t sum, void *to, const void *from, size_t len);

/* The name of the i-th implementation for this CPU, fastest first and "c" last; NULL past the end.
 */
const char *kv_checksum_way(size_t i);
/* 0, or -ENOENT: this CPU has no such implementation. */
int kv_checksum_use(const char *name) MUST_CHECK;

#endif
