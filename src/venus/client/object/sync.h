/* venus/client/object/sync.h - fences, semaphores and events.
 *
 * A fence lives here only: it is done when the batch it was submitted with is.  Of a timeline
 * semaphore both ends hold the value; ours follows from batches that are done and from signals
 * that the program made.  Binary semaphores and events live at the server; so do fences that other
 * processes may share, and the values of timelines that they do share (sync_fd.h).
 *
 * Trust: the program's own.  Threads: any, as Vulkan.  Lifetime: of the handle. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_SYNC_H
#define HAWSER_VENUS_CLIENT_OBJECT_SYNC_H

#include "venus/client/icd.h"
#include "venus/client/submit/queue.h"

struct vnc_fence {
    struct vn_object object;
    struct vnc_device *device;
    /* Released by submit, after queue; acquired by waits.  0: not submitted.  UINT64_MAX:
     * signalled.  Submit stores it before it looks at waiters, and a wait raises waiters before it
     * looks at it, all sequentially consistent: one of the two sees the other. */
    _Atomic uint64_t number;
    _Atomic uint32_t waiters;
    struct vnc_queue *queue;
    bool external; /* at the server, which is asked; fixed before it is submitted or waited for */
};

struct vnc_semaphore {
    struct vn_object object;
    struct vnc_device *device;
    _Atomic uint32_t refs; /* the handle, and batches that signal it or wait for it */
    bool timeline;
    bool external;       /* another process may come to share it */
    _Atomic bool shared; /* and does: of a timeline the server is asked.  Relaxed: it is right to */
    /* Of a binary one: how many of its signals are known to be done.  Release by the thread that
     * raises it, acquire by those that read. */
    _Atomic uint64_t value;
    _Atomic uint32_t waiters;
    /* The greatest value that a submitted batch waits for, and the greatest that a batch in the
     * stream or the program signals; of a binary one, how many signals.  Where the first is
     * greater, work is under way that reads mapped memory later than it was submitted
     * (docs/design/mapped-memory.md). */
    _Atomic uint64_t awaited; /* relaxed: a program that needs it has ordered the two submissions */
    _Atomic uint64_t promised; /* relaxed; of a timeline raised with the stream's lock */
};

/* Whether some thread may have begun to wait for the fence before, and not know of the batch.  The
 * fence may be gone when it returns. */
bool vnc_fence_submitted(struct vnc_fence *fence, struct vnc_queue *queue,
                         uint64_t number) MUST_CHECK;
/* Signalled without a batch: by presentation.  Not one that is external. */
void vnc_fence_signal(struct vnc_fence *fence);

struct vnc_semaphore *vnc_semaphore_ref(struct vnc_semaphore *semaphore);
void vnc_semaphore_unref(struct vnc_semaphore *semaphore);
void vnc_semaphore_raise(struct vnc_semaphore *semaphore, uint64_t value);
/* Whether the client knows that the value has been reached. */
bool vnc_semaphore_has(const struct vnc_semaphore *semaphore, uint64_t value);
/* The number of a binary semaphore's next signal, which a batch makes; and of its last. */
uint64_t vnc_semaphore_count(struct vnc_semaphore *semaphore);
uint64_t vnc_semaphore_counted(const struct vnc_semaphore *semaphore);
/* Whether another process has it, too: what is done with it here must have reached the server when
 * the program is told. */
bool vnc_semaphore_is_shared(const struct vnc_semaphore *semaphore);
/* Whether a signal of the value, or what a binary one waits for, is in the stream already. */
bool vnc_semaphore_is_promised(const struct vnc_semaphore *semaphore, uint64_t value);
/* A batch waits for the value. */
void vnc_semaphore_await(struct vnc_semaphore *semaphore, uint64_t value);
/* Whether a signal may release batches that were submitted before it; those of other processes are
 * not known. */
bool vnc_semaphore_releases(const struct vnc_semaphore *semaphore);
/* The stream, whose lock the caller has, now holds a signal of the value. */
void vnc_semaphore_promise(struct vnc_semaphore *semaphore, uint64_t value);

extern const struct vnc_entry vnc_entries_sync[];

#endif
