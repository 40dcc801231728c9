/* Switches; see perf.h. */
#include "venus/client/perf.h"

#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[VNC_PERF_COUNT] = {
    [VNC_PERF_COALESCING] = "no_coalescing",
    [VNC_PERF_PIPELINING] = "no_pipelining",
    [VNC_PERF_TRANSPORT_TUNING] = "no_transport_tuning",
    [VNC_PERF_EARLY_FENCES] = "no_early_fences",
    [VNC_PERF_EARLY_RECORDINGS] = "no_early_recordings",
    [VNC_PERF_REFERENCES] = "no_references",
    [VNC_PERF_QUIET_BATCHES] = "no_quiet_batches",
    [VNC_PERF_PACKING] = "no_packing",
    [VNC_PERF_WHOLE_PAGES] = "no_whole_pages",
    [VNC_PERF_SMALL_UPLOADS] = "no_small_uploads",
    [VNC_PERF_STRIPES] = "no_stripes",
    [VNC_PERF_UPLOAD_CACHE] = "no_upload_cache",
    [VNC_PERF_KEPT_BUDGETS] = "no_kept_budgets",
    [VNC_PERF_KEPT_SESSIONS] = "no_kept_sessions",
    [VNC_PERF_QUERY_RESULTS] = "no_query_results",
    [VNC_PERF_RECYCLED_MEMORY] = "no_recycled_memory",
};

static bool off[VNC_PERF_COUNT];

static void turn_off(const char *name, size_t len)
{
    for (size_t i = 0; i < VNC_PERF_COUNT; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            off[i] = true;
            return;
        }
    }
    hw_warn(HW_CAT_VULKAN,
            "VENUS_PERF: '%.*s' is unknown; docs/reference/knobs.md lists the switches", (int)len,
            name);
}

static void read_knob(void)
{
    const char *at = getenv("VENUS_PERF");
    while (at && *at) {
        size_t len = strcspn(at, ",");
        if (len)
            turn_off(at, len);
        at += len + (at[len] == ',');
    }
}

bool vnc_perf(enum vnc_perf which)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_knob);
    return !off[which];
}
