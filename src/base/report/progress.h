/* base/report/progress.h - a progress line for what takes more than two seconds, on a terminal
 * only.
 *
 *     label  42%  128/300  6s left
 *
 * Nothing is ever written to a pipe, a file or a dumb terminal.  The line appears after
 * HW_PROGRESS_WAIT_NS, is redrawn at most ten times a second, and is erased by hw_progress_end, so
 * that what stays on the screen is the result.
 *
 * Threads: one at a time.  Lifetime: begin/end; label is borrowed until end. */
#ifndef HAWSER_BASE_REPORT_PROGRESS_H
#define HAWSER_BASE_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define HW_PROGRESS_WAIT_NS (2 * HW_SEC)
#define HW_PROGRESS_REDRAW_NS (100 * HW_MS) /* faster than that only flickers */

/* Whether fd is a terminal that moves its cursor: not one with TERM=dumb. */
bool hw_is_screen(int fd);

struct hw_progress { /* private */
    const char *label;
    uint64_t total;
    uint64_t start_ns;
    uint64_t next_ns; /* the next time a line may be drawn; HW_NEVER off a terminal */
    int fd;
    bool shown;
};

/* On standard error.  total 0: not known, then the line shows the count and the time so far. */
void hw_progress_begin(struct hw_progress *progress, const char *label, uint64_t total);
/* The same on another descriptor, from a given time on. */
void hw_progress_begin_at(struct hw_progress *progress, int fd, const char *label, uint64_t total,
                          uint64_t now_ns);
void hw_progress_end(struct hw_progress *progress);

void hw_progress_draw(struct hw_progress *progress, uint64_t done, uint64_t now_ns);

/* Cheap enough for a loop: a clock read and a comparison when there is nothing to draw. */
static inline void hw_progress_update(struct hw_progress *progress, uint64_t done)
{
    if (progress->next_ns == HW_NEVER)
        return;
    uint64_t now = hw_now_ns();
    if (now >= progress->next_ns)
        hw_progress_draw(progress, done, now);
}

#endif
