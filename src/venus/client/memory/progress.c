/* See progress.h. */
#include "venus/client/memory/progress.h"

#include "base/report/progress.h"
#include "base/units.h"
#include "venus/client/locks.h"

#include <stdatomic.h>

/* Ends an upload.  Between two parts of one a program may wait for the GPU. */
static const uint64_t pause_ns = 2 * HW_SEC;

static pthread_mutex_t lock; /* guards the rest; made with the first look at the knob */
static struct hw_progress line;
static uint64_t sent, last_ns;

static bool enabled;
static _Atomic bool under_way;

static void read_knob(void)
{
    (void)hw_env_bool("VENUS_PROGRESS", false, &enabled);
    vnc_lock_init(&lock);
}

static bool is_on(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_knob);
    return enabled;
}

void vnc_progress_sent(size_t bytes)
{
    if (!is_on())
        return;
    pthread_mutex_lock(&lock);
    if (!atomic_exchange(&under_way, true)) {
        hw_progress_begin(&line, "hawser: MiB sent to the GPU", 0);
        sent = 0;
    }
    sent += bytes;
    last_ns = hw_now_ns();
    hw_progress_update(&line, sent >> 20);
    pthread_mutex_unlock(&lock);
}

static void end_after(uint64_t ns)
{
    if (!atomic_load_explicit(&under_way, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    if (hw_now_ns() - last_ns >= ns) {
        hw_progress_end(&line);
        atomic_store(&under_way, false);
    }
    pthread_mutex_unlock(&lock);
}

void vnc_progress_rest(void)
{
    end_after(pause_ns);
}

void vnc_progress_end(void)
{
    end_after(0);
}
