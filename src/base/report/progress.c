#include "base/report/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool hw_is_screen(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

void hw_progress_begin_at(struct hw_progress *progress, int fd, const char *label, uint64_t total,
                          uint64_t now_ns)
{
    *progress = (struct hw_progress){
        .label = label,
        .total = total,
        .start_ns = now_ns,
        .next_ns = hw_is_screen(fd) ? now_ns + HW_PROGRESS_WAIT_NS : HW_NEVER,
        .fd = fd,
    };
}

void hw_progress_begin(struct hw_progress *progress, const char *label, uint64_t total)
{
    hw_progress_begin_at(progress, STDERR_FILENO, label, total, hw_now_ns());
}

/* What the terminal does not take is lost: the next line replaces it anyway. */
static void put(const struct hw_progress *progress, const char *text)
{
    ssize_t wrote = write(progress->fd, text, strlen(text));
    (void)wrote;
}

void hw_progress_draw(struct hw_progress *progress, uint64_t done, uint64_t now_ns)
{
    if (now_ns < progress->next_ns || progress->next_ns == HW_NEVER)
        return;
    char line[160];
    uint64_t so_far = now_ns - progress->start_ns;
    if (done > progress->total && progress->total)
        done = progress->total;
    if (progress->total == 0 || done == 0) {
        snprintf(line, sizeof line, "\r%.80s  %" PRIu64 "  %" PRIu64 "s\033[K", progress->label,
                 done, so_far / HW_SEC);
    } else {
        double left = (double)so_far / (double)done * (double)(progress->total - done);
        snprintf(line, sizeof line, "\r%.80s  %d%%  %" PRIu64 "/%" PRIu64 "  %.0fs left\033[K",
                 progress->label, (int)(100.0 * (double)done / (double)progress->total), done,
                 progress->total, left / HW_SEC);
    }
    put(progress, line);
    progress->shown = true;
    progress->next_ns = now_ns + HW_PROGRESS_REDRAW_NS;
}

void hw_progress_end(struct hw_progress *progress)
{
    if (progress->shown)
        put(progress, "\r\033[K");
    progress->shown = false;
    progress->next_ns = HW_NEVER;
}
