/* venus/client/record/ranges.h - the parts of host-visible memory that a batch can write.
 *
 * Trust: the program's own.  Threads: one at a time.  Lifetime: init by zeroing, fini. */
#ifndef HAWSER_VENUS_CLIENT_RECORD_RANGES_H
#define HAWSER_VENUS_CLIENT_RECORD_RANGES_H

#include "venus/client/memory/memory.h"

struct vnc_range {
    uint64_t memory;
    uint64_t offset;
    uint64_t bytes;
    bool filled;  /* each byte is written, so the host may write none of them meanwhile */
    bool awaited; /* and its whole pages are not compared: all of them will come */
};

struct vnc_ranges {
    struct vnc_range *items;
    size_t count, cap;
    bool by_address; /* some are what has a device address, of which little may be written */
    bool failed;     /* out of memory */
};

void vnc_ranges_fini(struct vnc_ranges *ranges);

/* [offset, offset + bytes) of a buffer or view, VK_WHOLE_SIZE to its end; nothing when its memory
 * is not host-visible. */
void vnc_ranges_add(struct vnc_ranges *ranges, const struct vnc_resource *resource,
                    VkDeviceSize offset, VkDeviceSize bytes);
/* The same of what a copy or a fill writes, all of it. */
void vnc_ranges_add_filled(struct vnc_ranges *ranges, const struct vnc_resource *resource,
                           VkDeviceSize offset, VkDeviceSize bytes);
/* As it is. */
void vnc_ranges_add_range(struct vnc_ranges *ranges, const struct vnc_range *range);
/* All of an allocation. */
void vnc_ranges_add_memory(struct vnc_ranges *ranges, const struct vnc_memory *memory);
/* Sorts and joins; at most VN_RANGES_MAX remain. */
void vnc_ranges_merge(struct vnc_ranges *ranges);

/* Of merged ranges: the first of an allocation, or where it would be. */
size_t vnc_ranges_first(const struct vnc_ranges *ranges, uint64_t memory);
bool vnc_ranges_has(const struct vnc_ranges *ranges, uint64_t memory);

/* Whether two that are merged have bytes in common. */
bool vnc_ranges_meet(const struct vnc_ranges *a, const struct vnc_ranges *b);

/* The whole pages inside a range; of none the bytes are 0. */
struct vnc_range vnc_range_pages(const struct vnc_range *range);

/* Makes two of a range, the first of so many bytes.  False, and nothing has changed: there would be
 * too many, or there is no memory. */
bool vnc_ranges_split(struct vnc_ranges *ranges, size_t at, uint64_t bytes);

/* Adds what merged ranges have but for pages that are awaited. */
void vnc_ranges_add_compared(struct vnc_ranges *ranges, const struct vnc_ranges *from);

void vnc_ranges_put(const struct vnc_ranges *ranges, struct wire_enc *e);

#endif
