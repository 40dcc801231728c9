/* venus/server/submit/queue.h - a queue's batches: numbered, submitted, counted, reported.
 *
 * Each batch has a number, from 1 on without gaps.  A timeline semaphore of ours reaches the number
 * when the batch is done; a thread of the queue, started with the first submission, waits for it,
 * pushes what the batch wrote of mapped memory, and then that it is done.  What was written on
 * other queues is pushed before that, too: the batch may have waited for it.  Batches that nobody
 * waits for are cheaper: they wake no thread, are reported with the next one that somebody waits
 * for, and signal nothing unless the executor may have to wait for them, which it does only where
 * the program was told too early (vns_queue_drain).
 *
 * A program that waits for short work sends nothing meanwhile, and waking the thread would cost
 * more than the work.  So the executor first waits itself, as long as nothing arrives, and leaves
 * the batch to the thread when something does or the work is long (vns_queue_report_held).
 *
 * A submission that failed or was skipped, and a device that is lost, end the queue: its batches,
 * and all later ones, are reported with the result, after those before them.
 *
 * Trust: numbers and ranges are a peer's.
 * Threads: the executor calls; one thread a queue reports, one of a device at a time.
 * Lifetime: create/destroy; destroy waits for the work. */
#ifndef HAWSER_VENUS_SERVER_SUBMIT_QUEUE_H
#define HAWSER_VENUS_SERVER_SUBMIT_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/wait.h"
#include "venus/server/memory/memory.h"
#include "venus/server/slice/slice.h"
#include "venus/server/submit/results.h"
#include "venus/server/submit/submit.h"
#include "venus/server/submit/update.h"

enum {
    /* Ranges of all batches that are not done: 24 bytes each that a client makes us hold. */
    VNS_PENDING_RANGES_MAX = 1 << 20,
    /* Batches that were reported early and that others wait for at the device.  A step of
     * llama.cpp has some three. */
    VNS_EARLY_MAX = 8,
};

enum vns_batch_kind {
    VNS_BATCH_REPORTED,
    VNS_BATCH_SIGNALLED, /* VN_BATCH_UNTOLD on the wire */
    VNS_BATCH_SILENT,    /* VN_BATCH_QUIET */
};

struct vns_batch {
    struct vns_batch *next;
    uint64_t number;
    enum vns_batch_kind kind;
    VkResult result; /* negative: was not submitted */
    struct vns_range *ranges;
    uint32_t range_count;
};

/* Batches, oldest first. */
struct vns_batch_list {
    struct vns_batch *first, *last;
    uint32_t count;
};

struct vns_queue;

/* What all queues of a session share. */
struct vns_reports {
    struct vns_channel *channel;
    struct vns_memories *memories;
    uint64_t max_pending;
    _Atomic uint64_t pending; /* batches not reported yet */
    struct vns_slice *slice;  /* NULL: nothing is sliced */

    /* The executor's. */
    struct hw_wait wait;
    bool holds;             /* it waits for batches itself first */
    struct vns_queue *held; /* the queue with such a batch */
    uint64_t held_until_ns; /* at most, by naps; 0: it still spins */
};

struct vns_queue {
    VkQueue handle;
    uint64_t id;
    uint32_t family;
    struct vns_device *device;
    struct vns_reports *reports;
    VkSemaphore timeline; /* reaches a batch's number after all that the batch signals */
    VkSemaphore written;  /* the same before, where it signals something */
    uint64_t next_number;
    uint64_t signalled;               /* the highest value that was submitted; the executor's */
    struct vns_batch_list submitting; /* by the command under way */
    VkResult ended;                   /* negative: no more submissions; the executor's */
    uint64_t early;   /* the program was told that batches up to here are done; the executor's */
    uint64_t drained; /* and they are, up to here; likewise */
    uint64_t reached; /* by the semaphore, when the executor last looked */
    uint64_t plain;   /* the last batch that is neither empty nor an update; likewise */
    uint64_t updated; /* the last update; likewise */
    struct vns_updater *updater;  /* from the first one on */
    struct vns_queue *awaited_by; /* whose later batches wait for ours up to `awaited`; likewise */
    uint64_t awaited;
    uint64_t early_awaited[VNS_EARLY_MAX]; /* a ring of the last such batches; likewise */
    uint32_t early_next;
    uint32_t depth; /* batches that may be under way where the GPU is sliced; likewise */

    pthread_mutex_t lock; /* guards the rest; taken after the channel's or alone */
    pthread_cond_t work;
    struct vns_batch_list running;
    struct vns_questions questions;
    VkResult lost;  /* found by who waited */
    bool held;      /* the executor reports; the thread does not look */
    bool reporting; /* the thread has found work, and looks for more before it sleeps */
    bool stop, started;
    pthread_t thread;
    struct hw_wait wait;    /* the thread's */
    struct vns_queue *next; /* of the device */
};

/* For who waits for a device: it spins only where that leaves cores to all others. */
void vns_wait_init(struct hw_wait *w);

/* VK_SUCCESS and *out, linked into the device until destroy; or what the driver said. */
VkResult vns_queue_create(struct vns_device *device, VkQueue handle, uint64_t id,
                          struct vns_reports *reports, struct vns_queue **out) MUST_CHECK;
void vns_queue_destroy(struct vns_queue *queue);

/* Takes the batches of a SUBMIT: u64 first, u32 count, batches; its command follows.  0; -EPROTO
 * for numbers out of order; -EDQUOT over the limits; or what the decoder found. */
int vns_queue_begin_submit(struct vns_queue *queue, struct wire_dec *d) MUST_CHECK;

/* Waits until the session may submit these batches, where the GPU is sliced. */
void vns_queue_enter(struct vns_queue *queue);
/* Has the last batch reported, though nobody waits for it, so that the queue is known to have
 * drained. */
void vns_queue_watch(struct vns_queue *queue);

/* Whether there are batches for so many infos. */
bool vns_queue_expects(const struct vns_queue *queue, uint32_t infos);
/* Whether there is one for an update. */
bool vns_queue_expects_update(const struct vns_queue *queue);
/* The signals for these batches; without values when the arena is full. */
struct vns_signal vns_queue_signals(const struct vns_queue *queue, struct hw_arena *arena);
/* The batches were submitted with this result, which counts when negative; the second for
 * one that is empty. */
void vns_queue_submitted(struct vns_queue *queue, VkResult result);
void vns_queue_submitted_nothing(struct vns_queue *queue, VkResult result);

/* While reports->held is set and nothing has arrived: waits for its batch for a short while, and
 * reports it or, when that takes long, leaves it to the thread. */
void vns_queue_report_held(struct vns_reports *reports);
/* Something has arrived, or the queue ends: leaves the batch, if there is one, to the thread. */
void vns_queue_hand_over(struct vns_reports *reports);

/* The program was told that batches up to this number are done.  0, or -EPROTO when there is no
 * such batch. */
int vns_queue_report_early(struct vns_queue *queue, uint64_t number) MUST_CHECK;
/* Waits until what the program was told is true.  Natively the program itself would have waited
 * there, for the same batches.  VNS_DRAIN_PLAIN: not for updates behind all other batches, for
 * what follows touches nothing of theirs.  True when such are left. */
enum vns_drain_what { VNS_DRAIN_PLAIN, VNS_DRAIN_ALL };
bool vns_queue_drain(struct vns_queue *queue, enum vns_drain_what what);
/* The same for batches up to this number.  0, or -EPROTO when there is no such batch. */
int vns_queue_drain_to(struct vns_queue *queue, uint64_t number) MUST_CHECK;

/* Takes updates for the one batch, which is not silent; the second submits those
 * that nobody waits for yet. */
VkResult vns_queue_update(struct vns_queue *queue, const struct vns_update *updates,
                          uint32_t count);
void vns_queue_submit_updates(struct vns_queue *queue);
/* Has what is submitted to this queue from now on wait, at the device, for what the program was
 * told is done: on all queues of the device, or for a batch that begins with a barrier on the
 * others.  Does not wait here unless VNS_EARLY_MAX such batches are under way. */
enum vns_following { VNS_FOLLOW_ALL, VNS_FOLLOW_OTHERS };
void vns_queue_follow(struct vns_queue *queue, enum vns_following what);
/* Somebody waits for a batch that was to be told to nobody.  0, or -EPROTO when there is no such
 * batch. */
int vns_queue_ask(struct vns_queue *queue, uint64_t number) MUST_CHECK;

/* The executor waits until the semaphore has reached this number, which was submitted. */
VkResult vns_queue_wait(struct vns_queue *queue, uint64_t number);

/* Whether batches up to that number are known to be done. */
bool vns_queue_has_reached(struct vns_queue *queue, uint64_t number);
/* Whether all that was submitted is. */
bool vns_queue_is_idle(struct vns_queue *queue);

/* Tells the client that batches up to this number are done.  0, or what ended the connection. */
int vns_report_done(struct vns_channel *channel, uint64_t queue, uint64_t number, VkResult result);

#endif
