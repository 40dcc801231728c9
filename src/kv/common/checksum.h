/* kv/common/checksum.h - the checksum of a block: CRC-64/NVME, alone or in the same pass as a copy.
 *
 * A CRC, because CPUs multiply without carries quicker than memory delivers: a copy that is checked
 * costs little more than one that is not (docs/blocks.md has the figures).  It finds every burst of
 * up to 64 bits, and misses other damage once in 2^64 times.  It is no secret and no signature: who
 * wants to can make bytes of any checksum.
 *
 *   polynomial   0xad93d23594c93659, bits reflected; begins and ends inverted
 *   check value  0xae8b14860a799888 of "123456789"
 *
 * The first use takes the best way that this CPU has.  "c" is the portable one: what the others are
 * compared with, and the way to turn them off.
 *
 * Trust: none needed.  Threads: any; kv_checksum_use acts on calls that begin after it. */
#ifndef HAWSER_KV_COMMON_CHECKSUM_H
#define HAWSER_KV_COMMON_CHECKSUM_H

#include "base/attr.h"

#include <stddef.h>
#include <stdint.h>

/* `sum` of the bytes so far, 0 of none; returns that of them and these. */
uint64_t kv_checksum_add(uint64_t sum, const void *data, size_t len);
/* The same while it copies.  What it counts is what it writes, whatever happens to `from`
 * meanwhile. They do not overlap. */
uint64_t kv_checksum_copy(uint64_t sum, void *to, const void *from, size_t len);

/* The name of the i-th way that this CPU has, best first and "c" last; NULL past the end. */
const char *kv_checksum_way(size_t i);
/* 0, or -ENOENT when there is no such way here. */
int kv_checksum_use(const char *name) MUST_CHECK;

#endif
