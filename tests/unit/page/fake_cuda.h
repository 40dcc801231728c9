/* fake_cuda.h - a CUDA driver of main memory, with the calls that page/backend/cuda.c makes and the
 * strictness of the real one: what is mapped twice, unmapped in part, or touched without access is
 * refused.  Built as a library of its own; a test opens it a second time for the controls below.
 *
 * Threads: any (one lock). */
#ifndef HAWSER_TESTS_UNIT_PAGE_FAKE_CUDA_H
#define HAWSER_TESTS_UNIT_PAGE_FAKE_CUDA_H

#include <stdint.h>

enum { FAKE_CUDA_ERROR = 999 }; /* CUDA_ERROR_UNKNOWN, which made failures answer */

/* Memory calls (create, map, set access, unmap) count from 1; those in [first, last] fail.
 * 0, 0: none. */
typedef void fake_cuda_fail_fn(uint64_t first, uint64_t last);
/* Memory calls since the last fake_cuda_fail. */
typedef uint64_t fake_cuda_calls_fn(void);
/* Bytes of memory that exist, and mappings of them. */
typedef void fake_cuda_live_fn(uint64_t *bytes, uint64_t *mappings);
/* Bytes that may exist; 0: as many as the device says it has. */
typedef void fake_cuda_capacity_fn(uint64_t bytes);
/* cuCtxSynchronize calls. */
typedef uint64_t fake_cuda_syncs_fn(void);

#endif
