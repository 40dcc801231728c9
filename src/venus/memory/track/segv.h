/* venus/memory/track/segv.h - one SIGSEGV handler for all protected areas, on top of the program's
 * own.
 *
 * A fault in no area goes to the program's handler.  vn_segv_check finds a handler that the program
 * has installed since, and puts ours back on top.  Between the program's sigaction and the next
 * check its handler gets our faults too; docs/design/mapped-memory.md says what follows from that.
 *
 * Trust: none needed.
 * Threads: any.  One spin lock, taken with all signals blocked, guards the list and whatever the
 * areas protect; a fault handler runs under it and must be async-signal-safe.
 * Lifetime: the handler is there while any area is. */
#ifndef HAWSER_VENUS_MEMORY_TRACK_SEGV_H
#define HAWSER_VENUS_MEMORY_TRACK_SEGV_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

struct vn_segv_area {
    uintptr_t start;
    uintptr_t end;
    /* An access at addr was refused.  True: allowed now, try again.  Called under the lock. */
    bool (*fault)(struct vn_segv_area *area, uintptr_t addr);
};

/* Areas do not overlap.  0, -ENOMEM, or the errno of sigaction. */
int vn_segv_add(struct vn_segv_area *area) MUST_CHECK;
void vn_segv_remove(struct vn_segv_area *area);

/* Puts our handler back on top where the program has installed another.  0 or a negative errno. */
int vn_segv_check(void) MUST_CHECK;

/* To be held shortly; the holder touches no protected memory. */
void vn_segv_lock(sigset_t *saved);
void vn_segv_unlock(const sigset_t *saved);

#endif
