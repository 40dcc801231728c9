/* Submissions; see queue.h. */
#include "venus/client/submit/queue.h"

#include "base/clock.h"
#include "base/units.h"
#include "venus/client/locks.h"
#include "venus/client/memory/memory.h"
#include "venus/client/memory/progress.h"
#include "venus/client/object/sync.h"
#include "venus/client/perf.h"
#include "venus/client/record/command.h"
#include "venus/client/record/ranges.h"
#include "venus/client/submit/trace.h"
#include "venus/common/protocol.h"
#include "vn_client.gen.h"

#include <stdlib.h>

/* Batches in a row that the server does not report: both ends hold what they know of them. */
enum { UNTOLD_MAX = 64 };

static bool early_fences;

static void read_knob(void)
{
    (void)hw_env_bool("VENUS_EARLY_FENCE", vnc_perf(VNC_PERF_EARLY_FENCES), &early_fences);
}

struct vnc_point {
    struct vnc_semaphore *semaphore; /* a reference */
    uint64_t value;                  /* of a binary one: how often it was signalled by then */
    /* Where it is awaited: what the signal under way that brings it to the value brings it to. */
    uint64_t brought;
};

struct vnc_batch {
    struct vnc_batch *next;
    uint64_t number;
    int32_t quiet; /* VN_BATCH_QUIET, VN_BATCH_UNTOLD, or 0: the server reports it */
    bool visible;  /* to the host: by memory, a query, an event, another process */
    bool chained;  /* waits for a semaphore that other batches signal */
    bool shared;   /* signals or waits for what another process has, too */
    bool waits;    /* may wait for the host, by a timeline, an event or another process */
    bool raises;   /* a timeline */
    struct vnc_ranges ranges;
    /* Of mapped memory, by this batch and those before it from `reads_from` on; 0: nothing. */
    struct vnc_ranges reads;
    uint64_t reads_from;
    bool reads_all; /* not known */
    uint32_t signal_count, awaited_count;
    struct vnc_point *awaited; /* behind the signals */
    struct vnc_point signals[];
};

/* One call of vkQueueSubmit, vkQueueSubmit2 or vkQueueBindSparse, whichever it is. */
struct submission {
    struct vnc_queue *queue;
    uint32_t count;
    const VkSubmitInfo *submits;
    const VkSubmitInfo2 *submits2;
    const VkBindSparseInfo *binds;
    struct vnc_fence *fence;
    struct vnc_ranges reads; /* of mapped memory; the rest need not be sent yet */
    bool reads_all;          /* not known */
    bool own;                /* ours: the program never sees what it writes */
};

void vnc_queue_init(struct vnc_queue *queue)
{
    vnc_lock_init(&queue->lock);
    queue->last = &queue->first;
}

static void batch_free(struct vnc_batch *batch)
{
    for (uint32_t i = 0; i < batch->signal_count; i++)
        vnc_semaphore_unref(batch->signals[i].semaphore);
    for (uint32_t i = 0; i < batch->awaited_count; i++)
        vnc_semaphore_unref(batch->awaited[i].semaphore);
    vnc_ranges_fini(&batch->ranges);
    vnc_ranges_fini(&batch->reads);
    free(batch);
}

static void batches_free(struct vnc_batch *batch)
{
    while (batch) {
        struct vnc_batch *next = batch->next;
        batch_free(batch);
        batch = next;
    }
}

void vnc_queue_fini(struct vnc_queue *queue)
{
    batches_free(queue->first);
    vnc_lock_fini(&queue->lock);
}

uint64_t vnc_queue_submitted(struct vnc_queue *queue)
{
    if (vnc_link_is_foreign(vnc_device_link(queue->device)))
        return 0; /* the link reports the lost device to the next caller */
    pthread_mutex_lock(&queue->lock);
    uint64_t number = queue->submitted;
    pthread_mutex_unlock(&queue->lock);
    return number;
}

bool vnc_queue_is_working(struct vnc_queue *queue)
{
    if (vnc_link_is_foreign(vnc_device_link(queue->device)))
        return false;
    pthread_mutex_lock(&queue->lock);
    uint64_t number = queue->plain;
    pthread_mutex_unlock(&queue->lock);
    return !vnc_queue_has_done(queue, number);
}

/* ---- done ---- */

/* To what the batch signals, and what it has waited for, perhaps of a queue that is reported later.
 * Who believes it done believes the work done that brings what it waited for; where it is done, the
 * host may have brought less. */
static void raise_semaphores(const struct vnc_batch *batch, bool believed)
{
    for (uint32_t i = 0; i < batch->signal_count; i++)
        vnc_semaphore_raise(batch->signals[i].semaphore, batch->signals[i].value);
    for (uint32_t i = 0; i < batch->awaited_count; i++) {
        const struct vnc_point *point = &batch->awaited[i];
        vnc_semaphore_raise(point->semaphore, believed ? point->brought : point->value);
    }
}

static void take_awaited(const struct vnc_batch *batch,
                         void (*arrived)(void *user, const struct vnc_range *pages), void *user)
{
    for (size_t i = 0; i < batch->ranges.count; i++) {
        struct vnc_range pages = vnc_range_pages(&batch->ranges.items[i]);
        if (pages.awaited)
            arrived(user, &pages);
    }
}

void vnc_queue_done(struct vnc_queue *queue, uint64_t number, VkResult result,
                    void (*arrived)(void *user, const struct vnc_range *pages), void *user)
{
    int32_t none = VK_SUCCESS;
    if (result < 0)
        atomic_compare_exchange_strong_explicit(&queue->result, &none, result, memory_order_relaxed,
                                                memory_order_relaxed);
    pthread_mutex_lock(&queue->lock);
    struct vnc_batch *done = NULL, **end = &queue->first;
    while (*end && (*end)->number <= number) {
        struct vnc_batch *batch = *end;
        take_awaited(batch, arrived, user);
        if (result >= 0)
            raise_semaphores(batch, false);
        end = &batch->next;
    }
    if (end != &queue->first) { /* else the report is of none that is under way */
        done = queue->first;
        queue->first = *end;
        *end = NULL;
    }
    if (!queue->first)
        queue->last = &queue->first;
    if (number > queue->submitted)
        number = queue->submitted;
    if (number > atomic_load_explicit(&queue->done, memory_order_relaxed))
        atomic_store_explicit(&queue->done, number, memory_order_release);
    pthread_mutex_unlock(&queue->lock);
    batches_free(done);
}

/* ---- what a batch signals and writes ---- */

static void note_semaphore(struct vnc_batch *batch, const struct vnc_semaphore *semaphore)
{
    batch->visible |= semaphore->external;
    batch->shared |= vnc_semaphore_is_shared(semaphore);
}

static void note_signal(struct vnc_batch *batch, VkSemaphore handle, uint64_t value)
{
    struct vnc_semaphore *semaphore = VNC_OBJECT(vnc_semaphore, handle);
    if (!semaphore)
        return;
    note_semaphore(batch, semaphore);
    batch->raises |= semaphore->timeline;
    if (!semaphore->timeline)
        value = vnc_semaphore_count(semaphore);
    batch->signals[batch->signal_count++] =
        (struct vnc_point){vnc_semaphore_ref(semaphore), value, value};
}

/* What the first signal under way that brings the timeline to the value brings it to. */
static uint64_t brought_to(const struct vnc_semaphore *semaphore, uint64_t value)
{
    const struct vnc_device *device = semaphore->device;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < device->queue_count; i++) {
        struct vnc_queue *queue = device->queues[i];
        pthread_mutex_lock(&queue->lock);
        for (const struct vnc_batch *b = queue->first; b; b = b->next) {
            for (uint32_t j = 0; j < b->signal_count; j++) {
                const struct vnc_point *signal = &b->signals[j];
                if (signal->semaphore == semaphore && signal->value >= value &&
                    signal->value < least)
                    least = signal->value;
            }
        }
        pthread_mutex_unlock(&queue->lock);
    }
    return least < UINT64_MAX ? least : value;
}

/* What waits for a timeline that nothing in the stream signals so far, or for another process, may
 * wait for the host, which must then be told the truth.  What the program knows to be signalled
 * joins no queues. */
static void note_wait(struct vnc_batch *batch, VkSemaphore handle, uint64_t value)
{
    struct vnc_semaphore *semaphore = VNC_OBJECT(vnc_semaphore, handle);
    if (!semaphore)
        return;
    note_semaphore(batch, semaphore);
    if (semaphore->timeline)
        vnc_semaphore_await(semaphore, value);
    else
        value = vnc_semaphore_counted(semaphore);
    bool waits = semaphore->external || !vnc_semaphore_is_promised(semaphore, value);
    if (!waits && semaphore->timeline && vnc_semaphore_has(semaphore, value))
        return;
    batch->chained |= !waits;
    batch->visible |= waits;
    batch->waits |= waits;
    batch->awaited[batch->awaited_count++] =
        (struct vnc_point){vnc_semaphore_ref(semaphore), value,
                           semaphore->timeline ? brought_to(semaphore, value) : value};
}

static void note_commands(struct submission *s, struct vnc_batch *batch, VkCommandBuffer handle)
{
    const struct vnc_command_buffer *commands = (const struct vnc_command_buffer *)handle;
    if (!s->reads_all && !vnc_command_buffer_reads(commands, &s->reads))
        s->reads_all = true;
    vnc_command_buffer_ranges(commands, &batch->ranges);
    bool watched = vnc_command_buffer_is_watched(commands);
    batch->visible |= watched;
    batch->waits |= watched;
}

static struct vnc_batch *batch_new(uint32_t signals, uint32_t waits)
{
    struct vnc_batch *batch =
        calloc(1, sizeof(*batch) + ((size_t)signals + waits) * sizeof(struct vnc_point));
    if (batch)
        batch->awaited = &batch->signals[signals];
    return batch;
}

/* Semaphores of a VkSubmitInfo or a VkBindSparseInfo. */
struct semaphores {
    uint32_t wait_count, signal_count;
    const VkSemaphore *waits, *signals;
};

static struct vnc_batch *batch_of_semaphores(const void *chain, const struct semaphores *s)
{
    const VkTimelineSemaphoreSubmitInfo *timeline =
        vn_chain_find(chain, VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
    struct vnc_batch *batch = batch_new(s->signal_count, s->wait_count);
    for (uint32_t i = 0; batch && i < s->signal_count; i++) {
        bool valued =
            timeline && i < timeline->signalSemaphoreValueCount && timeline->pSignalSemaphoreValues;
        note_signal(batch, s->signals[i], valued ? timeline->pSignalSemaphoreValues[i] : 0);
    }
    for (uint32_t i = 0; batch && i < s->wait_count; i++) {
        bool valued =
            timeline && i < timeline->waitSemaphoreValueCount && timeline->pWaitSemaphoreValues;
        note_wait(batch, s->waits[i], valued ? timeline->pWaitSemaphoreValues[i] : 0);
    }
    return batch;
}

static struct vnc_batch *batch_of_submit(struct submission *s, const VkSubmitInfo *submit)
{
    struct semaphores semaphores = {submit->waitSemaphoreCount, submit->signalSemaphoreCount,
                                    submit->pWaitSemaphores, submit->pSignalSemaphores};
    struct vnc_batch *batch = batch_of_semaphores(submit->pNext, &semaphores);
    for (uint32_t i = 0; batch && i < submit->commandBufferCount; i++)
        note_commands(s, batch, submit->pCommandBuffers[i]);
    return batch;
}

static struct vnc_batch *batch_of_submit2(struct submission *s, const VkSubmitInfo2 *submit)
{
    struct vnc_batch *batch =
        batch_new(submit->signalSemaphoreInfoCount, submit->waitSemaphoreInfoCount);
    for (uint32_t i = 0; batch && i < submit->signalSemaphoreInfoCount; i++)
        note_signal(batch, submit->pSignalSemaphoreInfos[i].semaphore,
                    submit->pSignalSemaphoreInfos[i].value);
    for (uint32_t i = 0; batch && i < submit->waitSemaphoreInfoCount; i++)
        note_wait(batch, submit->pWaitSemaphoreInfos[i].semaphore,
                  submit->pWaitSemaphoreInfos[i].value);
    for (uint32_t i = 0; batch && i < submit->commandBufferInfoCount; i++)
        note_commands(s, batch, submit->pCommandBufferInfos[i].commandBuffer);
    return batch;
}

static struct vnc_batch *batch_at(struct submission *s, uint32_t i)
{
    if (s->submits)
        return batch_of_submit(s, &s->submits[i]);
    if (s->submits2)
        return batch_of_submit2(s, &s->submits2[i]);
    const VkBindSparseInfo *bind = &s->binds[i];
    struct semaphores semaphores = {bind->waitSemaphoreCount, bind->signalSemaphoreCount,
                                    bind->pWaitSemaphores, bind->pSignalSemaphores};
    struct vnc_batch *batch = batch_of_semaphores(bind->pNext, &semaphores);
    if (batch)
        batch->visible = true; /* page tables: rare, and not looked into */
    return batch;
}

/* What the server is to signal; other fences are the client's own. */
static VkFence external_fence(const struct submission *s)
{
    return s->fence && s->fence->external ? VNC_HANDLE(VkFence, s->fence) : VK_NULL_HANDLE;
}

/* Whether other processes may count on the submission as soon as the program does. */
static bool is_shared(const struct submission *s, const struct vnc_batch *batch)
{
    bool shared = external_fence(s);
    for (; batch; batch = batch->next)
        shared |= batch->shared;
    return shared;
}

/* A list of all batches, not numbered yet; NULL when out of memory. */
static struct vnc_batch *batches_of(struct submission *s, struct vnc_invalidate_counts *counts)
{
    struct vnc_batch *first = NULL, **last = &first;
    uint32_t count = s->count ? s->count : 1;
    for (uint32_t i = 0; i < count; i++) {
        *last = s->count ? batch_at(s, i) : batch_new(0, 0);
        if (!*last || (*last)->ranges.failed) {
            batches_free(first);
            return NULL;
        }
        vnc_ranges_merge(&(*last)->ranges);
        (*last)->visible |=
            ((*last)->ranges.count > 0 && !s->own) || (i == count - 1 && external_fence(s));
        if (vnc_trace_is_on())
            vnc_invalidate_count(s->queue->device, &(*last)->ranges, counts);
        last = &(*last)->next;
    }
    return first;
}

/* ---- submitting ---- */

/* The head of SUBMIT, behind which its command belongs. */
static size_t begin_submit(struct wire_enc *e, const struct vnc_queue *queue,
                           const struct vnc_batch *batch, uint64_t first, uint32_t count)
{
    size_t hole = vn_put_command(e, VN_OP_SUBMIT);
    wire_put_u64(e, queue->object.id);
    wire_put_u64(e, first);
    wire_put_u32(e, count);
    for (; batch; batch = batch->next) {
        if (batch->quiet)
            wire_put_i32(e, batch->quiet);
        else
            vnc_ranges_put(&batch->ranges, e);
    }
    return hole;
}

static void put_submission(struct wire_enc *e, const struct submission *s)
{
    VkQueue queue = VNC_HANDLE(VkQueue, s->queue);
    if (s->submits2)
        vn_enc_cmd_vkQueueSubmit2(e, queue, s->count, s->submits2, external_fence(s));
    else if (s->binds)
        vn_enc_cmd_vkQueueBindSparse(e, queue, s->count, s->binds, external_fence(s));
    else
        vn_enc_cmd_vkQueueSubmit(e, queue, s->count, s->submits, external_fence(s));
}

/* Numbers the batches and makes them known to pushes, which may come before we return. */
static void enlist(struct vnc_queue *queue, struct vnc_batch *batch, bool update)
{
    pthread_mutex_lock(&queue->lock);
    *queue->last = batch;
    for (; batch; batch = batch->next) {
        batch->number = ++queue->submitted;
        if (batch->visible)
            queue->visible = batch->number;
        if (!update)
            queue->plain = batch->number;
        if (batch->chained)
            queue->chained = batch->number;
        if (!batch->quiet)
            queue->told = batch->number;
        if (batch->waits)
            queue->waiting = batch->number;
        queue->last = &batch->next;
    }
    pthread_mutex_unlock(&queue->lock);
}

/* Whether the host could see nothing of what is under way on the queue; *chained: some of it waits
 * for other queues. */
static bool is_invisible(struct vnc_queue *queue, bool *chained)
{
    pthread_mutex_lock(&queue->lock);
    bool invisible = vnc_queue_has_done(queue, queue->visible);
    *chained = !vnc_queue_has_done(queue, queue->chained);
    pthread_mutex_unlock(&queue->lock);
    return invisible;
}

bool vnc_queue_can_write(struct vnc_queue *queue, uint64_t memory)
{
    bool can = false;
    pthread_mutex_lock(&queue->lock);
    for (const struct vnc_batch *b = queue->first; b && !can; b = b->next)
        can = vnc_ranges_has(&b->ranges, memory);
    pthread_mutex_unlock(&queue->lock);
    return can;
}

bool vnc_queue_can_write_in(struct vnc_queue *queue, const struct vnc_ranges *ranges)
{
    bool can = false;
    pthread_mutex_lock(&queue->lock);
    for (const struct vnc_batch *b = queue->first; b && !can; b = b->next)
        can = vnc_ranges_meet(&b->ranges, ranges);
    pthread_mutex_unlock(&queue->lock);
    return can;
}

/* The last batch under way that may read some of the ranges and that the program believes done, or
 * the next behind it whose end the server sees anyway; 0. */
static uint64_t last_reader(struct vnc_queue *queue, const struct vnc_ranges *ranges)
{
    uint64_t number = 0;
    bool seen = true;
    pthread_mutex_lock(&queue->lock);
    uint64_t early = atomic_load_explicit(&queue->early, memory_order_relaxed);
    uint64_t believed = early > queue->raised ? early : queue->raised;
    for (const struct vnc_batch *b = queue->first; b; b = b->next) {
        if (b->reads_from && b->reads_from <= believed &&
            (b->reads_all || ranges->failed || vnc_ranges_meet(&b->reads, ranges)))
            seen = false;
        if (!seen && b->quiet != VN_BATCH_QUIET) {
            number = b->number;
            seen = true;
        }
    }
    pthread_mutex_unlock(&queue->lock);
    return seen && number < believed ? number : believed;
}

bool vnc_queue_has_readers(struct vnc_device *device, const struct vnc_ranges *ranges)
{
    bool has = false;
    for (uint32_t i = 0; i < device->queue_count && !has; i++)
        has = last_reader(device->queues[i], ranges);
    return has;
}

bool vnc_queue_is_watched(struct vnc_queue *queue)
{
    bool chained;
    return !vnc_link_is_foreign(vnc_device_link(queue->device)) && !is_invisible(queue, &chained);
}

/* Whether all batches of the queue, and those to come, may be reported before they are done.  Who
 * waits for one that waited for a semaphore has also waited for what was to signal it, on whichever
 * queue: *chained, all that is under way may be reported then. */
static bool is_early(struct vnc_queue *queue, const struct vnc_batch *to_come, bool *chained)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_knob);
    const struct vnc_device *device = queue->device;
    if (!early_fences || vnc_link_client(vnc_device_link(device))->sync ||
        atomic_load_explicit(&device->shares_memory, memory_order_relaxed))
        return false;
    bool other;
    bool early = is_invisible(queue, chained);
    for (; to_come; to_come = to_come->next) {
        early &= !to_come->visible;
        *chained |= to_come->chained;
    }
    for (uint32_t i = 0; early && *chained && i < device->queue_count; i++)
        early = is_invisible(device->queues[i], &other);
    return early;
}

/* What is_early said, for who asks later.  As it, under the stream's lock. */
static void note_unseen(struct vnc_queue *queue, uint64_t number, bool chained)
{
    const struct vnc_device *device = queue->device;
    atomic_store_explicit(&queue->unseen, number, memory_order_relaxed);
    for (uint32_t i = 0; chained && i < device->queue_count; i++) {
        struct vnc_queue *other = device->queues[i];
        if (other != queue)
            atomic_store_explicit(&other->unseen, vnc_queue_submitted(other), memory_order_relaxed);
    }
}

static void put_about_batch(struct wire_enc *e, uint32_t op, const struct vnc_queue *queue,
                            uint64_t number)
{
    size_t hole = vn_put_command(e, op);
    wire_put_u64(e, queue->object.id);
    wire_put_u64(e, number);
    wire_fill_len(e, hole);
}

void vnc_queue_put_waits(struct vnc_device *device, const struct vnc_ranges *ranges,
                         struct wire_enc *e)
{
    for (uint32_t i = 0; i < device->queue_count; i++) {
        uint64_t number = last_reader(device->queues[i], ranges);
        if (number)
            put_about_batch(e, VN_OP_WAIT, device->queues[i], number);
    }
}

/* With the queue's lock: raises the semaphores of its batches up to number.  Returns whether some
 * of them, that were not looked at before, wait for other queues. */
static bool raise_up_to(struct vnc_queue *queue, uint64_t number)
{
    bool chained = false;
    for (const struct vnc_batch *b = queue->first; b && b->number <= number; b = b->next) {
        if (b->number > queue->raised) {
            raise_semaphores(b, true);
            chained |= b->chained;
        }
    }
    if (number > queue->raised)
        queue->raised = number;
    return chained;
}

static bool has_signalled(const struct vnc_batch *batch)
{
    for (uint32_t i = 0; i < batch->signal_count; i++) {
        if (vnc_semaphore_has(batch->signals[i].semaphore, batch->signals[i].value))
            return true;
    }
    return false;
}

/* A batch is done, and those before it are, if one of its semaphores is known to be signalled. */
static bool raise_known(struct vnc_queue *queue)
{
    uint64_t number = 0;
    pthread_mutex_lock(&queue->lock);
    for (const struct vnc_batch *b = queue->first; b; b = b->next) {
        if (has_signalled(b))
            number = b->number;
    }
    bool chained = raise_up_to(queue, number);
    pthread_mutex_unlock(&queue->lock);
    return chained;
}

/* The program will be told that the batches up to number are done, and so that their timelines have
 * the values that they signal.  The same holds for what they waited for on other queues, of which
 * the server need not hear: it is done before they are. */
static void report_early(struct vnc_queue *queue, uint64_t number, struct wire_enc *e)
{
    const struct vnc_device *device = queue->device;
    if (vnc_queue_has_reported(queue, number))
        return;
    put_about_batch(e, VN_OP_EARLY, queue, number);
    atomic_store_explicit(&queue->early, number, memory_order_relaxed);
    pthread_mutex_lock(&queue->lock);
    bool chained = raise_up_to(queue, number);
    pthread_mutex_unlock(&queue->lock);
    while (chained) {
        chained = false;
        for (uint32_t i = 0; i < device->queue_count; i++)
            chained |= raise_known(device->queues[i]);
    }
}

/* Batches that nobody waits for.  Somebody may still come to (vnc_queue_ask).  By what it signals
 * one can be believed done, and then be waited for (VN_OP_WAIT) while work behind it waits for the
 * host: so the server must be able to tell its end. */
static void choose_quiet(const struct submission *s, struct vnc_batch *batch, uint64_t number,
                         bool early)
{
    pthread_mutex_lock(&s->queue->lock);
    uint64_t told = s->queue->told;
    pthread_mutex_unlock(&s->queue->lock);
    for (; batch; batch = batch->next, number++) {
        bool fence = s->fence && !batch->next;
        if (batch->visible || batch->raises || batch->ranges.count || (fence && !early) ||
            number - told >= UNTOLD_MAX)
            told = number;
        else
            batch->quiet = fence || batch->signal_count ? VN_BATCH_UNTOLD : VN_BATCH_QUIET;
    }
}

/* ---- small copies, whose bytes travel in place of their command buffer ---- */

/* Values of semaphores mean nothing where there are none. */
static bool is_empty_chain(const VkBaseInStructure *chain)
{
    return !chain || (chain->sType == VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO &&
                      is_empty_chain(chain->pNext));
}

/* The one command buffer of a submission that has nothing else; NULL. */
static const struct vnc_command_buffer *only_commands(const struct submission *s)
{
    const VkSubmitInfo *info = s->submits;
    const VkSubmitInfo2 *info2 = s->submits2;
    if (s->count == 1 && info && is_empty_chain(info->pNext) && info->waitSemaphoreCount == 0 &&
        info->signalSemaphoreCount == 0 && info->commandBufferCount == 1)
        return VNC_OBJECT(vnc_command_buffer, info->pCommandBuffers[0]);
    if (s->count == 1 && info2 && !info2->pNext && info2->waitSemaphoreInfoCount == 0 &&
        info2->signalSemaphoreInfoCount == 0 && info2->commandBufferInfoCount == 1 &&
        !info2->pCommandBufferInfos[0].pNext)
        return VNC_OBJECT(vnc_command_buffer, info2->pCommandBufferInfos[0].commandBuffer);
    return NULL;
}

/* Where the bytes of an upload are; NULL where it is none, or they cannot be read now, or a device
 * may be writing them. */
static const uint8_t *source_of(const struct vnc_copy *copy)
{
    const struct vnc_memory *memory = copy->from->memory;
    if (!memory || vnc_memory_is_dead(memory) || !memory->tracked || !vnc_memory_is_still(memory))
        return NULL;
    VkDeviceSize end = copy->from->offset + copy->from_offset + copy->bytes;
    return end <= memory->size && vn_region_has(memory->region, end - copy->bytes, copy->bytes)
               ? (const uint8_t *)vn_region_memory(memory->region) + end - copy->bytes
               : NULL;
}

/* Whether an UPDATE can stand for a submission that the host cannot see: it copies a few bytes that
 * the program wrote, or does nothing. */
static bool is_update(const struct submission *s, const struct vnc_copy **copies, uint32_t *count)
{
    struct vnc_device *device = s->queue->device;
    const struct vnc_command_buffer *commands = only_commands(s);
    *count = commands ? vnc_command_buffer_copies(commands, copies) : 0;
    bool can = vnc_perf(VNC_PERF_SMALL_UPLOADS) && !s->binds && (*count || !s->count);
    pthread_mutex_lock(&device->lock); /* somebody may be mapping what they read */
    for (uint32_t i = 0; i < *count && can; i++)
        can = source_of(&(*copies)[i]) != NULL;
    pthread_mutex_unlock(&device->lock);
    return can;
}

static void put_update(struct wire_enc *e, const struct vnc_copy *copies, uint32_t count)
{
    size_t hole = vn_put_command(e, VN_OP_UPDATE);
    wire_put_u32(e, count);
    for (uint32_t i = 0; i < count; i++) {
        wire_put_u64(e, copies[i].to);
        wire_put_u64(e, copies[i].to_offset);
        wire_put_u32(e, copies[i].bytes);
        wire_put_bytes(e, source_of(&copies[i]), copies[i].bytes);
    }
    wire_fill_len(e, hole);
}

/* Whether work that was submitted before may begin once these batches are done.  It reads what the
 * program has written until now, which its own submission could not send. */
static bool releases_earlier_work(const struct vnc_batch *batch)
{
    for (; batch; batch = batch->next) {
        for (uint32_t i = 0; i < batch->signal_count; i++) {
            if (vnc_semaphore_releases(batch->signals[i].semaphore))
                return true;
        }
    }
    return false;
}

static void promise_signals(const struct vnc_batch *batch)
{
    for (; batch; batch = batch->next) {
        for (uint32_t i = 0; i < batch->signal_count; i++)
            vnc_semaphore_promise(batch->signals[i].semaphore, batch->signals[i].value);
    }
}

/* Whether the host touches nothing that the batches fill before they are done: they, and what is
 * under way, do not wait for it. */
static bool run_by_themselves(const struct vnc_device *device, const struct vnc_batch *batch)
{
    bool waits = false;
    for (; batch && !waits; batch = batch->next)
        waits = batch->waits;
    for (uint32_t i = 0; i < device->queue_count && !waits; i++) {
        struct vnc_queue *queue = device->queues[i];
        pthread_mutex_lock(&queue->lock);
        waits = !vnc_queue_has_done(queue, queue->waiting);
        pthread_mutex_unlock(&queue->lock);
    }
    return !waits;
}

static uint32_t commands_of(const struct submission *s, uint32_t i)
{
    return s->submits    ? s->submits[i].commandBufferCount
           : s->submits2 ? s->submits2[i].commandBufferInfoCount
                         : 0;
}

static struct vnc_command_buffer *commands_at(const struct submission *s, uint32_t i, uint32_t j)
{
    VkCommandBuffer commands = s->submits ? s->submits[i].pCommandBuffers[j]
                                          : s->submits2[i].pCommandBufferInfos[j].commandBuffer;
    return VNC_OBJECT(vnc_command_buffer, commands);
}

/* What was held back, and what the program wrote that the batches, or what they release, can read.
 * Also what they write: bytes that the host left there must not look newer than the device's.  The
 * last batch may await pages, so that none is awaited twice. */
static VkResult put_needs(struct submission *s, struct vnc_batch *batch, struct wire_enc *e)
{
    struct vnc_device *device = s->queue->device;
    bool all = s->reads_all || releases_earlier_work(batch);
    bool may_await = !all && vnc_perf(VNC_PERF_WHOLE_PAGES) && run_by_themselves(device, batch);
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0; i < s->count; i++) {
        for (uint32_t j = 0; result == VK_SUCCESS && j < commands_of(s, i); j++) {
            vnc_command_buffer_put_held(commands_at(s, i, j), e);
            result = vnc_link_checkpoint(vnc_device_link(device));
        }
    }
    if (result != VK_SUCCESS)
        return result;
    for (const struct vnc_batch *b = batch; b; b = b->next)
        vnc_memory_choose_fetched(device, &b->ranges, e);
    for (; batch && result == VK_SUCCESS; batch = batch->next) {
        if (batch->ranges.count)
            result = vnc_memory_expect(device, &batch->ranges, may_await && !batch->next);
        vnc_ranges_add_compared(&s->reads, &batch->ranges);
    }
    vnc_ranges_merge(&s->reads);
    all |= s->reads.failed;
    return result == VK_SUCCESS ? vnc_memory_put_deltas(device, all ? NULL : &s->reads, e) : result;
}

/* For who writes there once these batches, the first of which has this number, are believed done.
 */
static void note_reads(struct submission *s, struct vnc_batch *batch, uint64_t first)
{
    while (batch->next)
        batch = batch->next;
    batch->reads = s->reads;
    batch->reads_all = s->reads_all || s->reads.failed;
    batch->reads_from = batch->reads_all || batch->reads.count ? first : 0;
    s->reads = (struct vnc_ranges){0};
}

/* Nobody waits for updates, and more of them may follow. */
static VkResult finish_submission(struct vnc_link *link, const struct submission *s, bool update,
                                  bool shared)
{
    if (update) {
        atomic_store_explicit(&s->queue->device->updates, true, memory_order_relaxed);
        return vnc_link_post(link);
    }
    if (!shared && !vnc_link_client(link)->sync)
        return vnc_link_send(link);
    struct vn_decoder reply;
    VkResult result = vnc_link_call(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    result =
        vn_dec_reply_vkQueueSubmit(&reply, VNC_HANDLE(VkQueue, s->queue), 0, NULL, VK_NULL_HANDLE);
    return vnc_link_finish(link, &reply) == VK_SUCCESS ? result : VK_ERROR_DEVICE_LOST;
}

static void put_queries(const struct submission *s, uint64_t first, struct wire_enc *e)
{
    for (uint32_t i = 0; i < s->count; i++) {
        for (uint32_t j = 0; j < commands_of(s, i); j++)
            vnc_command_buffer_forget_queries(commands_at(s, i, j), s->queue);
        for (uint32_t j = 0; j < commands_of(s, i); j++)
            vnc_command_buffer_put_queries(commands_at(s, i, j), s->queue, first + i, e);
    }
}

/* Whether the program can ask when the batches are done. */
static bool can_be_looked_at(const struct submission *s, const struct vnc_batch *batch)
{
    bool can = s->fence;
    for (; batch; batch = batch->next)
        can |= batch->raises;
    return can;
}

static VkResult submit_batches(struct submission *s, struct vnc_batch *batches)
{
    struct vnc_device *device = s->queue->device;
    struct vnc_link *link = vnc_device_link(device);
    uint32_t count = s->count ? s->count : 1;
    struct wire_enc *e = vnc_link_begin(link);
    bool chained = false, unseen = e && is_early(s->queue, batches, &chained);
    bool early = unseen && can_be_looked_at(s, batches);
    const struct vnc_copy *copies;
    uint32_t copy_count;
    bool update = unseen && is_update(s, &copies, &copy_count);
    VkResult result = !e ? VK_ERROR_DEVICE_LOST : update ? VK_SUCCESS : put_needs(s, batches, e);
    if (result != VK_SUCCESS) {
        if (e)
            vnc_link_cancel(link);
        batches_free(batches);
        return result;
    }
    atomic_fetch_add_explicit(&device->submissions, 1, memory_order_relaxed);
    /* Numbered under the stream's lock, so that numbers and stream are in one order. */
    uint64_t first = vnc_queue_submitted(s->queue) + 1;
    if (!vnc_link_client(link)->sync && vnc_perf(VNC_PERF_QUIET_BATCHES))
        choose_quiet(s, batches, first, early);
    if (update && batches->quiet)
        batches->quiet = VN_BATCH_UNTOLD;
    if (!update)
        put_queries(s, first, e);
    size_t hole = begin_submit(e, s->queue, batches, first, count);
    if (update)
        put_update(e, copies, copy_count);
    else
        put_submission(e, s);
    wire_fill_len(e, hole);
    if (vnc_link_is_spoilt(link)) {
        vnc_link_cancel(link);
        batches_free(batches);
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    bool shared = is_shared(s, batches);
    promise_signals(batches);
    for (const struct vnc_batch *b = update ? NULL : batches; b; b = b->next) {
        if (b->ranges.count)
            vnc_memory_await(device, &b->ranges);
    }
    if (!update)
        note_reads(s, batches, first);
    enlist(s->queue, batches, update);
    uint64_t last = first + count - 1;
    if (early)
        note_unseen(s->queue, last, chained);
    bool waited_for = s->fence && vnc_fence_submitted(s->fence, s->queue, last);
    result = finish_submission(link, s, update, shared);
    if (waited_for)
        vnc_queue_tell_waiters(s->queue, last);
    return result;
}

static VkResult submit_message(struct submission *s)
{
    VkResult result = vnc_device_status(s->queue->device);
    if (result != VK_SUCCESS)
        return result;
    uint64_t start = hw_now_ns();
    struct vnc_invalidate_counts counts = {0};
    struct vnc_batch *batches = batches_of(s, &counts);
    result = batches ? submit_batches(s, batches) : VK_ERROR_OUT_OF_HOST_MEMORY;
    vnc_ranges_fini(&s->reads);
    vnc_trace_submit(hw_now_ns() - start, &counts);
    vnc_progress_rest();
    return result;
}

/* In as many messages as the batches need; the last has the fence. */
static VkResult submit(const struct submission *s)
{
    for (uint32_t at = 0;; at += VN_BATCHES_MAX) {
        bool last = s->count - at <= VN_BATCHES_MAX;
        VkResult result = submit_message(&(struct submission){
            .queue = s->queue,
            .count = last ? s->count - at : VN_BATCHES_MAX,
            .submits = s->submits ? s->submits + at : NULL,
            .submits2 = s->submits2 ? s->submits2 + at : NULL,
            .binds = s->binds ? s->binds + at : NULL,
            .fence = last ? s->fence : NULL,
            .own = s->own,
        });
        if (result != VK_SUCCESS && at > 0)
            return VK_ERROR_DEVICE_LOST; /* what went before cannot be taken back */
        if (result != VK_SUCCESS || last)
            return result;
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_submit(VkQueue queue, uint32_t count,
                                                   const VkSubmitInfo *submits, VkFence fence)
{
    return submit(&(struct submission){.queue = VNC_OBJECT(vnc_queue, queue),
                                       .count = count,
                                       .submits = submits,
                                       .fence = VNC_OBJECT(vnc_fence, fence)});
}

VkResult vnc_queue_submit_own(struct vnc_queue *queue, const VkSubmitInfo *info)
{
    return submit(&(struct submission){.queue = queue, .count = 1, .submits = info, .own = true});
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_submit2(VkQueue queue, uint32_t count,
                                                    const VkSubmitInfo2 *submits, VkFence fence)
{
    return submit(&(struct submission){.queue = VNC_OBJECT(vnc_queue, queue),
                                       .count = count,
                                       .submits2 = submits,
                                       .fence = VNC_OBJECT(vnc_fence, fence)});
}

/* Memory behind a sparse resource is not followed: what is host-visible counts as written by all.
 */
static void note_sparse_memory(struct vnc_device *device, VkDeviceMemory handle)
{
    struct vnc_memory *memory = VNC_OBJECT(vnc_memory, handle);
    if (memory)
        vnc_memory_share(device, memory);
}

static void note_sparse_binds(struct vnc_device *device, const VkBindSparseInfo *bind)
{
    for (uint32_t i = 0; i < bind->bufferBindCount; i++)
        for (uint32_t j = 0; j < bind->pBufferBinds[i].bindCount; j++)
            note_sparse_memory(device, bind->pBufferBinds[i].pBinds[j].memory);
    for (uint32_t i = 0; i < bind->imageOpaqueBindCount; i++)
        for (uint32_t j = 0; j < bind->pImageOpaqueBinds[i].bindCount; j++)
            note_sparse_memory(device, bind->pImageOpaqueBinds[i].pBinds[j].memory);
    for (uint32_t i = 0; i < bind->imageBindCount; i++)
        for (uint32_t j = 0; j < bind->pImageBinds[i].bindCount; j++)
            note_sparse_memory(device, bind->pImageBinds[i].pBinds[j].memory);
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_bind_sparse(VkQueue queue, uint32_t count,
                                                        const VkBindSparseInfo *binds,
                                                        VkFence fence)
{
    struct vnc_queue *q = VNC_OBJECT(vnc_queue, queue);
    for (uint32_t i = 0; i < count; i++)
        note_sparse_binds(q->device, &binds[i]);
    return submit(&(struct submission){
        .queue = q, .count = count, .binds = binds, .fence = VNC_OBJECT(vnc_fence, fence)});
}

/* ---- waiting until idle ---- */

struct idle_wait {
    struct vnc_link *link;
    struct vnc_queue *const *queues;
    uint32_t count;
    uint64_t *numbers; /* of the last batch of each when the wait began */
};

/* A server that is lost ends waits that nothing else would end. */
static bool is_idle(void *user)
{
    struct idle_wait *wait = user;
    if (vnc_link_is_lost(wait->link))
        return true;
    for (uint32_t i = 0; i < wait->count; i++) {
        if (!vnc_queue_has_reported(wait->queues[i], wait->numbers[i]))
            return false;
    }
    return true;
}

/* No matter if it cannot be said, for then the device is lost. */
void vnc_queue_ask(struct vnc_queue *queue, uint64_t number)
{
    struct vnc_link *link = vnc_device_link(queue->device);
    struct wire_enc *e = vnc_queue_has_done(queue, number) ? NULL : vnc_link_begin(link);
    if (!e)
        return;
    pthread_mutex_lock(&queue->lock);
    bool untold = number > queue->told;
    if (untold)
        queue->told = number;
    pthread_mutex_unlock(&queue->lock);
    if (untold)
        put_about_batch(e, VN_OP_ASK, queue, number);
    (void)!vnc_link_post(link);
}

void vnc_queue_tell_waiters(struct vnc_queue *queue, uint64_t number)
{
    vnc_queue_ask(queue, number);
    (void)vnc_link_flush(vnc_device_link(queue->device)); /* a lost device ends the wait */
}

void vnc_queue_look(struct vnc_queue *queue, uint64_t number)
{
    struct vnc_link *link = vnc_device_link(queue->device);
    if (vnc_queue_has_reported(queue, number) ||
        number > atomic_load_explicit(&queue->unseen, memory_order_relaxed))
        return;
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return; /* the device is lost */
    report_early(queue, number, e);
    (void)!vnc_link_post(link);
}

void vnc_queue_look_for(struct vnc_queue *queue, const struct vnc_semaphore *semaphore,
                        uint64_t value)
{
    uint64_t number = 0;
    if (vnc_link_is_foreign(vnc_device_link(queue->device)))
        return;
    pthread_mutex_lock(&queue->lock);
    for (const struct vnc_batch *b = queue->first; b && !number; b = b->next) {
        for (uint32_t i = 0; i < b->signal_count && !number; i++) {
            if (b->signals[i].semaphore == semaphore && b->signals[i].value >= value)
                number = b->number;
        }
    }
    pthread_mutex_unlock(&queue->lock);
    if (number)
        vnc_queue_look(queue, number);
}

/* Where nothing can be seen of what is under way, it counts as done. */
static void prepare_idle_wait(struct vnc_queue *queue, uint64_t number)
{
    struct vnc_link *link = vnc_device_link(queue->device);
    struct wire_enc *e = vnc_queue_has_reported(queue, number) ? NULL : vnc_link_begin(link);
    bool chained;
    if (!e)
        return;
    if (is_early(queue, NULL, &chained)) {
        note_unseen(queue, vnc_queue_submitted(queue), chained);
        report_early(queue, number, e);
        (void)!vnc_link_post(link);
    } else {
        vnc_link_cancel(link);
    }
    vnc_queue_ask(queue, number); /* a failure of early work is to be told, if later */
}

static VkResult wait_idle(struct vnc_device *device, struct vnc_queue *const *queues,
                          uint32_t count)
{
    uint64_t *numbers = calloc(count ? count : 1, sizeof(*numbers));
    if (!numbers)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        numbers[i] = vnc_queue_submitted(queues[i]);
        prepare_idle_wait(queues[i], numbers[i]);
    }
    struct idle_wait wait = {vnc_device_link(device), queues, count, numbers};
    VkResult result = vnc_device_status(device);
    if (result == VK_SUCCESS)
        result = vnc_link_wait(wait.link, is_idle, &wait, HW_NEVER);
    free(numbers);
    return result == VK_SUCCESS ? vnc_device_status(device) : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_wait_idle(VkQueue queue)
{
    struct vnc_queue *q = VNC_OBJECT(vnc_queue, queue);
    return wait_idle(q->device, &q, 1);
}

static VKAPI_ATTR VkResult VKAPI_CALL device_wait_idle(VkDevice handle)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    return wait_idle(device, device->queues, device->queue_count);
}

/* ---- reading back before a batch is done ---- */

static void put_read(struct wire_enc *e, const struct vnc_ranges *ranges)
{
    size_t hole = vn_put_command(e, VN_OP_READ);
    vnc_ranges_put(ranges, e);
    wire_fill_len(e, hole);
}

static bool append(struct vnc_ranges *to, const struct vnc_ranges *from)
{
    struct vnc_range *items = realloc(to->items, (to->count + from->count) * sizeof(*items));
    if (!items)
        return false;
    to->items = items;
    if (from->count)
        memcpy(items + to->count, from->items, from->count * sizeof(*items));
    to->count += from->count;
    to->cap = to->count;
    return true;
}

/* What all batches write that are not done. */
static bool gather_under_way(struct vnc_device *device, struct vnc_ranges *ranges)
{
    bool ok = true;
    for (uint32_t i = 0; i < device->queue_count; i++) {
        struct vnc_queue *queue = device->queues[i];
        pthread_mutex_lock(&queue->lock);
        for (struct vnc_batch *b = queue->first; ok && b; b = b->next)
            ok = b->ranges.count == 0 || append(ranges, &b->ranges);
        pthread_mutex_unlock(&queue->lock);
    }
    vnc_ranges_merge(ranges);
    for (size_t i = 0; i < ranges->count; i++)
        ranges->items[i].filled = ranges->items[i].awaited = false; /* not yet */
    return ok;
}

VkResult vnc_device_read(struct vnc_device *device, const struct vnc_ranges *ranges)
{
    struct vnc_link *link = vnc_device_link(device);
    if (ranges->count == 0)
        return VK_SUCCESS;
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    put_read(e, ranges);
    struct vn_decoder reply;
    VkResult result = vnc_link_call(link, &reply);
    return result == VK_SUCCESS ? vnc_link_finish(link, &reply) : result;
}

VkResult vnc_device_read_back(struct vnc_device *device)
{
    struct vnc_ranges ranges = {0};
    VkResult result = gather_under_way(device, &ranges) ? vnc_device_read(device, &ranges)
                                                        : VK_ERROR_OUT_OF_HOST_MEMORY;
    vnc_ranges_fini(&ranges);
    return result;
}

const struct vnc_entry vnc_entries_queue[] = {
    VNC_ENTRY(vkQueueSubmit, queue_submit),          VNC_ENTRY(vkQueueSubmit2, queue_submit2),
    VNC_ENTRY(vkQueueBindSparse, queue_bind_sparse), VNC_ENTRY(vkQueueWaitIdle, queue_wait_idle),
    VNC_ENTRY(vkDeviceWaitIdle, device_wait_idle),   {NULL, NULL},
};
