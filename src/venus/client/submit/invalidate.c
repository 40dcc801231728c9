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
}

static void read_knobs(void)
{
    (void)hw_env_bool("VENUS_INVALIDATE_ON_WAIT", true, &knobs.on_wait);
    (void)hw_env_size("VENUS_INVALIDATE_MAX_BYTES", UINT64_MAX, 0, UINT64_MAX, &knobs.cap);
    const char *handles = getenv("VENUS_INVALIDATE_HANDLES");
    if (handles && *handles)
        read_handles(handles);
}

static void read_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_knobs);
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

bool vnc_invalidate_includes(const struct vnc_memory *memory)
{
    read_once();
    return knobs.on_wait && memory->size <= knobs.cap && is_listed(memory->object.id);
}

void vnc_invalidate_count(struct vnc_device *device, const struct vnc_ranges *ranges,
                          struct vnc_invalidate_counts *counts)
{
    read_once();
    counts->eligible += ranges->count;
    pthread_mutex_lock(&device->lock);
    for (const struct vnc_memory *m = device->visible; m; m = m->next_visible) {
        bool listed = is_listed(m->object.id), large = m->size > knobs.cap;
        size_t i = m->demand_paged ? vnc_ranges_first(ranges, m->object.id) : ranges->count;
        for (; i < ranges->count && ranges->items[i].memory == m->object.id; i++) {
            counts->skipped_handle += !listed;
            counts->skipped_large += listed && large;
        }
    }
    pthread_mutex_unlock(&device->lock);
}
