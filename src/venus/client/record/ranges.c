/* See ranges.h. */
#include "venus/client/record/ranges.h"

#include "base/grow.h"
#include "venus/common/protocol.h"

#include <stdlib.h>
#include <string.h>

void vnc_ranges_fini(struct vnc_ranges *ranges)
{
    free(ranges->items);
    *ranges = (struct vnc_ranges){0};
}

static void add(struct vnc_ranges *ranges, struct vnc_range range)
{
    struct vnc_range *last = ranges->count ? &ranges->items[ranges->count - 1] : NULL;
    if (last && last->memory == range.memory && last->offset == range.offset &&
        last->bytes >= range.bytes)
        return; /* one dispatch after another binds the same */
    if (hw_grow(&ranges->items, &ranges->cap, ranges->count + 1, sizeof(*ranges->items)))
        ranges->items[ranges->count++] = range;
    else
        ranges->failed = true;
}

static void add_part(struct vnc_ranges *ranges, const struct vnc_resource *resource,
                     VkDeviceSize offset, VkDeviceSize bytes, bool filled)
{
    const struct vnc_resource *base = resource->base ? resource->base : resource;
    const struct vnc_memory *memory = base->memory;
    if (!memory || vnc_memory_is_dead(memory) || !memory->host_visible || offset >= resource->size)
        return;
    if (bytes > resource->size - offset)
        bytes = resource->size - offset;
    VkDeviceSize at = base->offset + (resource->base ? resource->offset : 0) + offset;
    if (at >= memory->size)
        return;
    if (bytes > memory->size - at)
        bytes = memory->size - at;
    add(ranges, (struct vnc_range){memory->object.id, at, bytes, filled, false});
}

void vnc_ranges_add(struct vnc_ranges *ranges, const struct vnc_resource *resource,
                    VkDeviceSize offset, VkDeviceSize bytes)
{
    add_part(ranges, resource, offset, bytes, false);
}

void vnc_ranges_add_filled(struct vnc_ranges *ranges, const struct vnc_resource *resource,
                           VkDeviceSize offset, VkDeviceSize bytes)
{
    add_part(ranges, resource, offset, bytes, true);
}

void vnc_ranges_add_range(struct vnc_ranges *ranges, const struct vnc_range *range)
{
    add(ranges, *range);
}

void vnc_ranges_add_memory(struct vnc_ranges *ranges, const struct vnc_memory *memory)
{
    if (!vnc_memory_is_dead(memory) && memory->host_visible)
        add(ranges, (struct vnc_range){memory->object.id, 0, memory->size, false, false});
}

static int compare(const void *a, const void *b)
{
    const struct vnc_range *x = a, *y = b;
    if (x->memory != y->memory)
        return x->memory < y->memory ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

struct vnc_range vnc_range_pages(const struct vnc_range *range)
{
    uint64_t first = (range->offset + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES * VN_PAGE_BYTES;
    uint64_t end = (range->offset + range->bytes) / VN_PAGE_BYTES * VN_PAGE_BYTES;
    struct vnc_range pages = *range;
    pages.offset = first;
    pages.bytes = end > first ? end - first : 0;
    return pages;
}

static bool has_filled_pages(const struct vnc_range *range)
{
    return range->filled && vnc_range_pages(range).bytes;
}

/* Whether both together name no page that neither does.  Pages are what both ends look at. */
static bool are_pages_joined(const struct vnc_range *range, const struct vnc_range *next)
{
    uint64_t last = range->bytes ? (range->offset + range->bytes - 1) / VN_PAGE_BYTES
                                 : range->offset / VN_PAGE_BYTES;
    return next->offset / VN_PAGE_BYTES <= last + 1 && !has_filled_pages(range) &&
           !has_filled_pages(next);
}

/* Joins neighbours that touch, or whose pages do, or, with `whole`, all of one allocation. */
static size_t join(struct vnc_range *items, size_t count, bool whole)
{
    size_t kept = 0;
    for (size_t i = 1; i < count; i++) {
        struct vnc_range *last = &items[kept], *next = &items[i];
        uint64_t end = last->offset + last->bytes;
        if (next->memory == last->memory &&
            (whole || next->offset <= end || are_pages_joined(last, next))) {
            uint64_t next_end = next->offset + next->bytes;
            last->filled =
                last->filled && !whole && next->offset <= end && (next->filled || next_end <= end);
            last->bytes = (next_end > end ? next_end : end) - last->offset;
        } else {
            items[++kept] = *next;
        }
    }
    return count ? kept + 1 : 0;
}

void vnc_ranges_merge(struct vnc_ranges *ranges)
{
    if (ranges->count < 2)
        return;
    qsort(ranges->items, ranges->count, sizeof(*ranges->items), compare);
    ranges->count = join(ranges->items, ranges->count, false);
    if (ranges->count > VN_RANGES_MAX)
        ranges->count = join(ranges->items, ranges->count, true);
}

size_t vnc_ranges_first(const struct vnc_ranges *ranges, uint64_t memory)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->items[middle].memory < memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool vnc_ranges_has(const struct vnc_ranges *ranges, uint64_t memory)
{
    size_t i = vnc_ranges_first(ranges, memory);
    return i < ranges->count && ranges->items[i].memory == memory;
}

bool vnc_ranges_meet(const struct vnc_ranges *a, const struct vnc_ranges *b)
{
    for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
        const struct vnc_range *x = &a->items[i], *y = &b->items[j];
        if (x->memory != y->memory) {
            i += x->memory < y->memory;
            j += x->memory > y->memory;
        } else if (x->offset + x->bytes <= y->offset) {
            i++;
        } else if (y->offset + y->bytes <= x->offset) {
            j++;
        } else {
            return true;
        }
    }
    return false;
}

bool vnc_ranges_split(struct vnc_ranges *ranges, size_t at, uint64_t bytes)
{
    if (ranges->count >= VN_RANGES_MAX ||
        !hw_grow(&ranges->items, &ranges->cap, ranges->count + 1, sizeof(*ranges->items)))
        return false;
    struct vnc_range *range = &ranges->items[at];
    memmove(range + 1, range, (ranges->count - at) * sizeof(*range));
    range->bytes = bytes;
    range[1].offset += bytes;
    range[1].bytes -= bytes;
    ranges->count++;
    return true;
}

void vnc_ranges_add_compared(struct vnc_ranges *ranges, const struct vnc_ranges *from)
{
    for (size_t i = 0; i < from->count; i++) {
        struct vnc_range whole = from->items[i], pages = vnc_range_pages(&whole);
        if (!whole.awaited) {
            add(ranges, whole);
            continue;
        }
        uint64_t behind = pages.offset + pages.bytes, end = whole.offset + whole.bytes;
        if (pages.offset > whole.offset)
            add(ranges, (struct vnc_range){whole.memory, whole.offset, pages.offset - whole.offset,
                                           false, false});
        if (end > behind)
            add(ranges, (struct vnc_range){whole.memory, behind, end - behind, false, false});
    }
}

void vnc_ranges_put(const struct vnc_ranges *ranges, struct wire_enc *e)
{
    wire_put_u32(e, (uint32_t)ranges->count);
    for (size_t i = 0; i < ranges->count; i++) {
        wire_put_u64(e, ranges->items[i].memory);
        wire_put_u64(e, ranges->items[i].offset);
        wire_put_u64(e, ranges->items[i].bytes | (ranges->items[i].filled ? VN_RANGE_FILLED : 0) |
                            (ranges->items[i].awaited ? VN_RANGE_AWAITED : 0));
    }
}
