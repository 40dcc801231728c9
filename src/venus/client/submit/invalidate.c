/* See invalidate.h. */
#include "venus/client/submit/invalidate.h"

#include "base/log.h"
#include "base/units.h"

#include <pthread.h>
#include <stdlib.h>

enum { HANDLES_MAX = 256 }; /* a list that a person wrote */

static struct {
    bool on_wait;
    uint64_t cap;
    bool some; /* only `handles` */
    uint64_t handles[HANDLES_MAX];
    size_t count;
} knobs;

static void warn_stale(const char *name, const char *value)
{
    hw_warn(HW_CAT_MEMORY,
            "%s=%s: mapped memory may be stale until "
            "vkInvalidateMappedMemoryRanges; unset it for exact memory",
            name, value);
}

static void read_handles(const char *text)
{
    const char *at = text;
    while (*at && knobs.count < HANDLES_MAX) {
        char *end;
        uint64_t handle = strtoull(at, &end, 0);
        if (end == at || (*end && *end != ',')) {
            hw_warn(HW_CAT_MEMORY,
                    "VENUS_INVALIDATE_HANDLES=%s: expected handles separated by commas, such as "
                    "0x9,0x11; ignored",
                    text);
            knobs.count = 0;
            return;
        }
        knobs.handles[knobs.count++] = handle;
        at = *end ? end + 1 : end;
    }
    knobs.some = knobs.count > 0;
    if (knobs.some)
        warn_stale("VENUS_INVALIDATE_HANDLES", text);
}

static void read_knobs(void)
{
    (void)hw_env_bool("VENUS_INVALIDATE_ON_WAIT", true, &knobs.on_wait);
    if (!knobs.on_wait)
        warn_stale("VENUS_INVALIDATE_ON_WAIT", "0");
    (void)hw_env_size("VENUS_INVALIDATE_MAX_BYTES", UINT64_MAX, 0, UINT64_MAX, &knobs.cap);
    if (knobs.cap != UINT64_MAX)
        warn_stale("VENUS_INVALIDATE_MAX_BYTES", getenv("VENUS_INVALIDATE_MAX_BYTES"));
    const char *handles = getenv("VENUS_INVALIDATE_HANDLES");
    if (handles && *handles)
        read_handles(handles);
}

static void read_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_knobs);
}

bool vnc_invalidate_is_exact(void)
{
    read_once();
    return knobs.on_wait && knobs.cap == UINT64_MAX && !knobs.some;
}

uint64_t vnc_invalidate_cap(void)
{
    read_once();
    return knobs.cap;
}

static bool is_listed(uint64_t memory)
{
    for (size_t i = 0; i < knobs.count; i++) {
        if (knobs.handles[i] == memory)
            return true;
    }
    return !knobs.some;
}

void vnc_invalidate_choose(struct vnc_ranges *ranges, struct vnc_invalidate_counts *counts)
{
    read_once();
    counts->eligible += ranges->count;
    size_t kept = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        const struct vnc_range *range = &ranges->items[i];
        if (!is_listed(range->memory))
            counts->skipped_handle++;
        else if (range->bytes > knobs.cap)
            counts->skipped_large++;
        else if (knobs.on_wait)
            ranges->items[kept++] = *range;
    }
    ranges->count = kept;
}
