/* rig.h - the client's half with two queues and no driver, against a server that takes what comes
 * and does nothing until it is told to.
 *
 * Threads: one at a time.  Lifetime: rig_start and rig_end are a test's setup and teardown. */
#ifndef HAWSER_TESTS_UNIT_VENUS_CLIENT_RIG_H
#define HAWSER_TESTS_UNIT_VENUS_CLIENT_RIG_H

#include "unit.h"

#include <pthread.h>

#include "base/driver_counts.h"
#include "rpc/transport/net.h"
#include "venus/client/device/device.h"
#include "venus/client/memory/memory.h"
#include "venus/client/object/sync.h"
#include "venus/client/record/command.h"
#include "venus/client/submit/queue.h"

enum { RIG_QUEUES = 2, RIG_PATIENCE_MS = 240000, RIG_HOLD_MAX = 16, RIG_HOLD_MS = 5000 };

struct rig_server {
    struct rpc_listener *listener;
    pthread_t thread;
    struct rpc_ep *ep;
    pthread_mutex_t lock; /* guards the rest */
    bool stop;
    uint64_t queue, number; /* to report; number 0: nothing */
    uint64_t compiled;      /* a pipeline to report; 0: none */
    bool babbles;           /* it is to say what cannot be read */
    uint8_t asked[256];     /* the last call */
    size_t asked_len;
    bool told;             /* a message of the stream has come */
    uint8_t streamed[256]; /* the last message of the stream, if it is small */
    size_t streamed_len;
    uint8_t answer[8]; /* to calls; without it they fail */
    size_t answer_len;
    bool answers_nothing; /* but succeed then */
    /* The first answers are held back until so many calls wait for one, or for some time. */
    uint32_t hold;
    uint32_t held_most; /* that did */
};

struct rig {
    struct rig_server server;
    struct vnc_link *link;
    struct vnc_pushes *pushes;
    struct vnc_physical_device physical;
    struct vnc_device *device;
    struct vnc_queue *queues[RIG_QUEUES];
    struct vnc_fence *fence;
    struct vnc_semaphore *timeline, *binary;
    PFN_vkQueueSubmit submit;
    PFN_vkQueueWaitIdle wait_idle;
    PFN_vkGetFenceStatus status;
    PFN_vkWaitForFences wait;
};

int rig_start(void **state);
int rig_end(void **state);

PFN_vkVoidFunction rig_entry(const struct vnc_entry *table, const char *name);
#define RIG_COMMAND(name) ((PFN_##name)rig_entry(vnc_entries_command, #name))

/* One batch with these commands, or none, on the queue; a timeline's value is 1. */
void rig_submit(struct rig *rig, int queue, struct vnc_command_buffer *commands,
                struct vnc_semaphore *wait, struct vnc_semaphore *signal, struct vnc_fence *fence);
/* The same with these values of timelines. */
struct rig_values {
    uint64_t wait, signal;
};
void rig_submit_values(struct rig *rig, int queue, struct vnc_command_buffer *commands,
                       struct vnc_semaphore *wait, struct vnc_semaphore *signal,
                       struct rig_values of, struct vnc_fence *fence);
/* The server reports the batch, and the client has heard of it. */
void rig_report(struct rig *rig, int queue, uint64_t number);
/* The server reports that the pipeline is compiled. */
void rig_report_compiled(struct rig *rig, uint64_t pipeline);
/* The server says what cannot be read, and the connection lives. */
void rig_babble(struct rig *rig);
/* Whether a message of the stream has come. */
bool rig_was_told(struct rig *rig);
struct hw_driver_counts rig_sent(const struct rig *rig);
/* Whether a call has come since the start or the last rig_forget_asked.  Its answer may have been
 * there before the client waited, and then it counts as no exchange. */
bool rig_was_asked(struct rig *rig);
void rig_forget_asked(struct rig *rig);

/* A recording that copies mapped memory to a buffer that the host cannot see. */
struct rig_copy {
    struct vnc_memory *memory;
    struct vnc_resource *from, *to;
    struct vn_object *pool;
    struct vnc_command_buffer *commands;
};

/* Bytes that travel one by one: no two neighbours are equal, nor are two fills with another seed.
 */
void rig_fill(void *bytes, size_t len, int seed);
void rig_copy_make(struct rig *rig, struct rig_copy *copy, size_t size);
void rig_copy_free(struct rig *rig, struct rig_copy *copy);

#endif
