/* page/page.h - the words that every part of src/page shares: results, errors, limits.
 *
 * A page id names one place in every K and V tensor of every layer.  Operations take batches of
 * ids, happen whole or not at all, and answer with one code for each id.
 *
 * Threads: any (values).  Lifetime: structs are the caller's. */
#ifndef HAWSER_PAGE_PAGE_H
#define HAWSER_PAGE_PAGE_H

#include "base/attr.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define PAGE_BYTES_DEFAULT (UINT64_C(2) << 20) /* what GPU drivers map at least */
#define PAGE_BYTES_MAX (UINT64_C(1) << 30)

enum {
    PAGE_BATCH_MAX = 4096,       /* ids at once: 512 GiB at 32 layers, more than a GPU has */
    PAGE_COUNT_MAX = 1 << 20,    /* ids of one range: 128 TiB at 32 layers, all a CPU addresses */
    PAGE_LAYERS_MAX = 1024,      /* the deepest published models have some 130 */
    PAGE_PIECES_MAX = 64 << 20,  /* ids times pieces: a handle each, so 512 MiB of handles */
    PAGE_BLOCK_TOKENS_MAX = 256, /* engines use 16 to 128 */
    PAGE_TEXT_CHARS = 192,       /* a sentence: what, why, remedy */
    PAGE_RANKS_MAX = 64          /* one bit a worker in a word; a host has 8 or 16 GPUs */
};

/* What became of one id of a batch. */
enum page_code {
    PAGE_DONE,
    PAGE_SKIPPED, /* would have been done, but another id of the batch could not be */
    PAGE_MAPPED_TWICE,
    PAGE_UNMAPPED_TWICE,
    PAGE_OUT_OF_RANGE,
    PAGE_OUT_OF_MEMORY, /* of the device, of the host, or of the limit that processes share */
    PAGE_DRIVER_ERROR,
    PAGE_CODES
};

/* "mapped twice" and so on; "unknown" for a number that is none. */
const char *page_code_name(unsigned code);

/* Why something failed.  `driver` is the driver's own number, 0 when it was not asked. */
struct page_error {
    int rc; /* negative errno */
    int driver;
    char text[PAGE_TEXT_CHARS];
};

/* Fills *why and returns rc, so that it can stand in a return. */
int page_fail(struct page_error *why, int rc, int driver, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* The outcome of a batch.  rc: 0, -ERANGE, -EEXIST (mapped twice), -ENOENT (unmapped twice),
 * -ENOMEM (device or host), -ENOSPC (the shared limit), -EIO (driver), -E2BIG, -EINVAL (no ids). */
struct page_outcome {
    struct page_error why;         /* rc 0 and "" when all was done */
    uint64_t driver_ns;            /* time inside the backend */
    uint32_t count;                /* of codes */
    uint8_t codes[PAGE_BATCH_MAX]; /* enum page_code, in the order of the ids */
};

/* Time that processes of one host can compare, unlike hw_now_ns. */
static inline uint64_t page_host_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#endif
