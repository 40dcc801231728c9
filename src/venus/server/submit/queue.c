/* Batches and their reports; see queue.h. */
#include "venus/server/submit/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "venus/common/protocol.h"

static const uint64_t wait_slice_ns = 200 * HW_MS;
/* Of the executor, which looks between two slices whether something has arrived; and of all slices:
 * for longer work the waking of a thread does not matter. */
static const uint64_t held_slice_ns = 50 * HW_US;
static const uint64_t held_most_ns = HW_MS;
/* What a session may have under way at the end of its time slice: enough that the device does not
 * run dry while the executor wakes up, little beside a slice. */
static const uint64_t depth_enough_ns = HW_MS;
static const uint64_t depth_most_ns = 4 * HW_MS;
/* After that a batch may wait for one that is yet to come, and submissions go on. */
static const uint64_t depth_wait_ns = 100 * HW_MS;
enum { DEPTH_LEAST = 2, DEPTH_FIRST = 4, DEPTH_MOST = 1024 };

static void list_add(struct vns_batch_list *list, struct vns_batch *batch)
{
    batch->next = NULL;
    *(list->last ? &list->last->next : &list->first) = batch;
    list->last = batch;
    list->count++;
}

static struct vns_batch *list_take(struct vns_batch_list *list)
{
    struct vns_batch *batch = list->first;
    if (!batch)
        return NULL;
    list->first = batch->next;
    if (!list->first)
        list->last = NULL;
    list->count--;
    return batch;
}

static void ranges_free(struct vns_reports *reports, struct vns_batch *batch)
{
    vns_memories_conceal(reports->memories, batch->range_count);
    free(batch->ranges);
}

static void batch_free(struct vns_reports *reports, struct vns_batch *batch)
{
    ranges_free(reports, batch);
    free(batch);
    atomic_fetch_sub(&reports->pending, 1);
    vns_slice_left(reports->slice, &reports->pending);
}

/* ---- the batches of a submission ---- */

/* A kind that is not the usual one stands where the number of ranges would. */
static enum vns_batch_kind get_kind(struct wire_dec *d)
{
    struct wire_dec ahead = *d;
    int32_t count = wire_get_i32(&ahead);
    if (count != VN_BATCH_QUIET && count != VN_BATCH_UNTOLD)
        return VNS_BATCH_REPORTED;
    *d = ahead;
    return count == VN_BATCH_QUIET ? VNS_BATCH_SILENT : VNS_BATCH_SIGNALLED;
}

static int take_batch(struct vns_queue *q, struct wire_dec *d)
{
    struct vns_reports *reports = q->reports;
    struct vns_batch *batch = malloc(sizeof(*batch));
    if (!batch)
        return -ENOMEM;
    *batch = (struct vns_batch){.number = q->next_number++, .kind = get_kind(d)};
    if (batch->kind == VNS_BATCH_REPORTED)
        batch->ranges = vns_ranges_get(d, &batch->range_count);
    uint64_t ranges = batch->range_count ? vns_memories_expose(reports->memories, batch->ranges,
                                                               batch->range_count)
                                         : 0;
    uint64_t pending = atomic_fetch_add(&reports->pending, 1);
    if (pending == 0)
        vns_slice_began(reports->slice);
    list_add(&q->submitting, batch);
    if (pending >= reports->max_pending || ranges > VNS_PENDING_RANGES_MAX)
        return -EDQUOT;
    return wire_dec_error(d);
}

int vns_queue_begin_submit(struct vns_queue *q, struct wire_dec *d)
{
    uint64_t first = wire_get_u64(d);
    uint32_t count = wire_dec_count(d, sizeof(uint32_t), VN_BATCHES_MAX);
    if (wire_dec_error(d))
        return wire_dec_error(d);
    if (q->submitting.count || count == 0 || first != q->next_number)
        return -EPROTO;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = take_batch(q, d);
    return rc;
}

bool vns_queue_expects(const struct vns_queue *q, uint32_t infos)
{
    return q->submitting.count && q->submitting.count == (infos ? infos : 1);
}

bool vns_queue_expects_update(const struct vns_queue *q)
{
    return vns_queue_expects(q, 1) && q->submitting.first->kind != VNS_BATCH_SILENT;
}

struct vns_signal vns_queue_signals(const struct vns_queue *q, struct hw_arena *arena)
{
    uint64_t *values = hw_arena_calloc(arena, q->submitting.count, sizeof(*values));
    size_t i = 0;
    assert(q->submitting.first);
    for (const struct vns_batch *b = q->submitting.first; values && b; b = b->next, i++)
        values[i] = b->kind == VNS_BATCH_SILENT ? 0 : b->number;
    bool alone = q->device->queues == q && !q->next;
    return (struct vns_signal){alone ? VK_NULL_HANDLE : q->written, q->timeline, values};
}

/* ---- reports, on the queue's thread ---- */

/* The first batch that somebody waits for. */
static const struct vns_batch *first_reported(const struct vns_queue *q)
{
    const struct vns_batch *batch = q->running.first;
    while (batch && batch->kind != VNS_BATCH_REPORTED)
        batch = batch->next;
    return batch;
}

/* Waits for work; false when there is none and never will be. */
static bool wait_for_work(struct vns_queue *q, uint64_t *number, VkResult *result)
{
    const struct vns_batch *batch;
    pthread_mutex_lock(&q->lock);
    q->reporting = false;
    while (((batch = first_reported(q)) == NULL || q->held) && !q->stop)
        pthread_cond_wait(&q->work, &q->lock);
    if (batch) {
        q->reporting = true;
        *number = batch->number;
        *result = q->lost < 0 ? q->lost : batch->result;
    }
    pthread_mutex_unlock(&q->lock);
    return batch != NULL;
}

/* VK_SUCCESS once the semaphore has reached *number, which becomes what it has reached; VK_TIMEOUT.
 */
static VkResult wait_slice(const struct vns_queue *q, uint64_t *number, uint64_t ns)
{
    const struct vns_device *device = q->device;
    VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &q->timeline,
                                .pValues = number};
    VkResult result = device->wait_semaphores(device->handle, &info, ns);
    uint64_t reached = 0;
    if (result == VK_SUCCESS)
        result = device->semaphore_value(device->handle, q->timeline, &reached);
    if (result == VK_SUCCESS && reached > *number)
        *number = reached;
    return result;
}

/* The same without waiting. */
static VkResult look(const struct vns_queue *q, uint64_t *number)
{
    const struct vns_device *device = q->device;
    uint64_t reached = 0;
    VkResult result = device->semaphore_value(device->handle, q->timeline, &reached);
    if (result != VK_SUCCESS)
        return result;
    if (reached < *number)
        return VK_TIMEOUT;
    *number = reached;
    return VK_SUCCESS;
}

static VkResult wait_for_device(const struct vns_queue *q, struct hw_wait *w, uint64_t *number)
{
    VkResult result = look(q, number);
    while (result == VK_TIMEOUT && hw_wait_spin(w, hw_now_ns())) {
        hw_wait_pause(w);
        result = look(q, number);
    }
    while (result == VK_TIMEOUT)
        result = wait_slice(q, number, wait_slice_ns);
    hw_wait_came(w);
    return result;
}

VkResult vns_queue_wait(struct vns_queue *q, uint64_t number)
{
    return wait_for_device(q, &q->reports->wait, &number);
}

static struct vns_batch *take_up_to(struct vns_queue *q, uint64_t number, bool submitted)
{
    pthread_mutex_lock(&q->lock);
    struct vns_batch *first = q->running.first;
    bool fits = first && first->number <= number && (!submitted || first->result >= 0);
    struct vns_batch *batch = fits ? list_take(&q->running) : NULL;
    pthread_mutex_unlock(&q->lock);
    return batch;
}

int vns_report_done(struct vns_channel *channel, uint64_t queue, uint64_t number, VkResult result)
{
    uint8_t payload[8 + 8 + 4];
    struct wire_enc e;
    wire_enc_init_fixed(&e, payload, sizeof(payload));
    wire_put_u64(&e, queue);
    wire_put_u64(&e, number);
    wire_put_i32(&e, result);
    assert(wire_enc_error(&e) == 0);
    return vns_channel_send(channel, VN_PUSH_DONE, payload, sizeof(payload));
}

static bool has_ranges(struct vns_queue *q)
{
    pthread_mutex_lock(&q->lock);
    const struct vns_batch *batch = q->running.first;
    while (batch && batch->range_count == 0)
        batch = batch->next;
    pthread_mutex_unlock(&q->lock);
    return batch != NULL;
}

/* Takes the ranges of the first batch up to the number that still has some. */
static bool take_ranges(struct vns_queue *q, uint64_t number, struct vns_batch *out)
{
    bool found = false;
    pthread_mutex_lock(&q->lock);
    for (struct vns_batch *b = q->running.first; b && b->number <= number && !found; b = b->next) {
        found = b->range_count > 0 && b->result >= 0;
        if (found) {
            *out = *b;
            b->ranges = NULL;
            b->range_count = 0;
        }
    }
    pthread_mutex_unlock(&q->lock);
    return found;
}

/* The last batch of the queue whose commands are known to be done, also where it is yet to signal
 * semaphores. */
static uint64_t written_up_to(const struct vns_queue *q)
{
    const struct vns_device *device = q->device;
    uint64_t done = 0, written = 0;
    if (device->semaphore_value(device->handle, q->timeline, &done) != VK_SUCCESS ||
        device->semaphore_value(device->handle, q->written, &written) != VK_SUCCESS)
        return 0; /* lost: its own thread finds out */
    return done > written ? done : written;
}

/* What is reported may have waited, by a semaphore, for batches of other queues, and who waits for
 * it counts on what those wrote. */
static int read_others(struct vns_queue *q)
{
    struct vns_batch batch;
    int rc = 0;
    for (struct vns_queue *other = q->device->queues; other && rc == 0; other = other->next) {
        if (other == q || !has_ranges(other))
            continue;
        uint64_t number = written_up_to(other);
        while (rc == 0 && take_ranges(other, number, &batch)) {
            rc = vns_memories_read(q->reports->memories, batch.ranges, batch.range_count,
                                   batch.range_count);
            ranges_free(q->reports, &batch);
        }
    }
    return rc;
}

/* All batches up to a number that the device has reached. */
static int report_done(struct vns_queue *q, uint64_t number)
{
    struct vns_batch *batch;
    uint64_t last = 0;
    pthread_mutex_lock(&q->device->reporting);
    int rc = read_others(q);
    while (rc == 0 && (batch = take_up_to(q, number, true)) != NULL) {
        rc = vns_memories_read(q->reports->memories, batch->ranges, batch->range_count,
                               batch->range_count);
        last = batch->number;
        batch_free(q->reports, batch);
    }
    pthread_mutex_unlock(&q->device->reporting);
    if (rc == 0 && last)
        rc = vns_results_push(q, last);
    return rc || last == 0 ? rc : vns_report_done(q->reports->channel, q->id, last, VK_SUCCESS);
}

/* Everything outstanding has failed. */
static int report_lost(struct vns_queue *q, VkResult result)
{
    struct vns_batch *batch;
    uint64_t last = 0;
    pthread_mutex_lock(&q->lock);
    q->lost = result;
    pthread_mutex_unlock(&q->lock);
    while ((batch = take_up_to(q, UINT64_MAX, false)) != NULL) {
        last = batch->number;
        batch_free(q->reports, batch);
    }
    return last ? vns_report_done(q->reports->channel, q->id, last, result) : 0;
}

/* A client that cannot be told would wait for ever, so the connection ends.  0, or its status. */
static int report(struct vns_queue *q, uint64_t number, VkResult result)
{
    int rc = result < 0 ? report_lost(q, result) : report_done(q, number);
    if (rc)
        vns_channel_give_up(q->reports->channel, rc, "a batch cannot be reported");
    return rc;
}

/* Ends with the connection too: there is nobody left to tell. */
static void *report_main(void *arg)
{
    struct vns_queue *q = arg;
    uint64_t number = 0;
    VkResult result = VK_SUCCESS;
    int rc = 0;
    while (rc == 0 && wait_for_work(q, &number, &result)) {
        if (result >= 0)
            result = wait_for_device(q, &q->wait, &number);
        rc = report(q, number, result);
    }
    return NULL;
}

static void start_thread(struct vns_queue *q)
{
    int rc = q->started ? 0 : pthread_create(&q->thread, NULL, report_main, q);
    if (rc)
        vns_channel_give_up(q->reports->channel, -rc, "no thread for a queue");
    else
        q->started = true;
}

/* ---- reports, on the executor ---- */

void vns_queue_hand_over(struct vns_reports *reports)
{
    struct vns_queue *q = reports->held;
    if (!q)
        return;
    hw_wait_stop(&reports->wait);
    reports->held = NULL;
    pthread_mutex_lock(&q->lock);
    q->held = false;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
    start_thread(q);
}

/* Whether the executor waits for what it is about to list, should the thread be idle. */
static bool hold(struct vns_queue *q)
{
    struct vns_reports *reports = q->reports;
    if (reports->held == q)
        return true;
    vns_queue_hand_over(reports);
    if (!reports->holds)
        return false;
    reports->held = q;
    reports->held_until_ns = 0;
    return true;
}

/* Spins while that may pay, and naps from then on. */
static VkResult look_or_nap(struct vns_queue *q, uint64_t *number)
{
    struct vns_reports *reports = q->reports;
    uint64_t now = hw_now_ns();
    if (!reports->held_until_ns && !hw_wait_spin(&reports->wait, now))
        reports->held_until_ns = now + held_most_ns;
    if (reports->held_until_ns)
        return wait_slice(q, number, held_slice_ns);
    hw_wait_pause(&reports->wait);
    return look(q, number);
}

void vns_queue_report_held(struct vns_reports *reports)
{
    struct vns_queue *q = reports->held;
    const struct vns_batch *batch = first_reported(q); /* the thread takes none meanwhile */
    assert(batch);
    uint64_t number = batch->number;
    VkResult result = look_or_nap(q, &number);
    if (result == VK_TIMEOUT) {
        if (reports->held_until_ns && hw_now_ns() >= reports->held_until_ns)
            vns_queue_hand_over(reports);
        return;
    }
    hw_wait_came(&reports->wait);
    /* A connection that has ended is found by the next receive. */
    (void)!report(q, number, result);
    if (first_reported(q))
        return;
    reports->held = NULL;
    pthread_mutex_lock(&q->lock);
    q->held = false;
    pthread_mutex_unlock(&q->lock);
}

/* ---- submissions ---- */

/* Whether somebody waits for one of the batches, whose fate is known now. */
static bool decide_submitting(struct vns_queue *q)
{
    bool told = false;
    for (struct vns_batch *batch = q->submitting.first; batch; batch = batch->next) {
        batch->result = q->ended;
        if (q->ended < 0)
            batch->kind = VNS_BATCH_REPORTED;
        else if (batch->kind != VNS_BATCH_SILENT)
            q->signalled = batch->number;
        told |= batch->kind == VNS_BATCH_REPORTED;
    }
    return told;
}

/* Under the queue's lock: there is something to report.  True when the thread is to do it, and may
 * have to be started. */
static bool needs_thread(struct vns_queue *q, bool held)
{
    q->held = held && !q->reporting;
    if (!q->held && q->reports->held == q)
        q->reports->held = NULL;
    if (q->held || q->reporting)
        return false; /* a thread that reports looks for more before it sleeps */
    pthread_cond_signal(&q->work);
    return true;
}

void vns_queue_submitted_nothing(struct vns_queue *q, VkResult result)
{
    struct vns_batch *batch;
    if (result < 0 && q->ended >= 0)
        q->ended = result;
    q->device->submissions++;
    bool told = decide_submitting(q);
    bool held = told && q->ended >= 0 && hold(q);
    pthread_mutex_lock(&q->lock);
    while ((batch = list_take(&q->submitting)) != NULL)
        list_add(&q->running, batch);
    if (q->lost < 0)
        q->ended = q->lost;
    bool thread = told && needs_thread(q, held);
    pthread_mutex_unlock(&q->lock);
    if (thread)
        start_thread(q);
}

void vns_queue_submitted(struct vns_queue *q, VkResult result)
{
    q->plain = q->next_number - 1;
    vns_queue_submitted_nothing(q, result);
}

/* Makes the semaphore reach a batch that signals nothing itself. */
static void signal_up_to(struct vns_queue *q, uint64_t number)
{
    vns_queue_submit_updates(q);
    const struct vns_batch *next = q->submitting.first;
    uint64_t last = (next ? next->number : q->next_number) - 1; /* that was submitted */
    if (q->signalled >= (number < last ? number : last))
        return;
    VkResult result = vns_submit_own(q->device->driver.vkQueueSubmit, q->handle,
                                     &(struct vns_own_batch){.signal = q->timeline, .value = last});
    if (result < 0)
        q->ended = result;
    else
        q->signalled = last;
}

/* ---- early reports ---- */

int vns_queue_report_early(struct vns_queue *q, uint64_t number)
{
    if (number >= q->next_number || q->submitting.count)
        return -EPROTO;
    if (number > q->early)
        q->early = number;
    return 0;
}

/* Has this batch reported; with a negative result, all that is under way. */
static void tell(struct vns_queue *q, uint64_t number)
{
    bool held = q->ended >= 0 && hold(q), thread = false;
    pthread_mutex_lock(&q->lock);
    struct vns_batch *batch = q->running.first;
    while (batch && batch->number < number)
        batch = batch->next;
    if (batch) {
        batch->kind = VNS_BATCH_REPORTED;
        batch->result = q->ended;
        thread = needs_thread(q, held);
    } else if (held && !q->held) {
        q->reports->held = NULL;
    }
    pthread_mutex_unlock(&q->lock);
    if (thread)
        start_thread(q);
}

/* A device that is lost meanwhile is news, though nobody waits for the batch. */
static void drain_up_to(struct vns_queue *q, uint64_t number)
{
    if (number <= q->drained || q->ended < 0)
        return;
    vns_queue_hand_over(q->reports); /* the wait may be long */
    signal_up_to(q, number);
    VkResult result = q->ended < 0 ? q->ended : wait_for_device(q, &q->reports->wait, &number);
    q->drained = number;
    if (result >= 0)
        return;
    q->ended = result;
    tell(q, number);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

bool vns_queue_drain(struct vns_queue *q, enum vns_drain_what what)
{
    drain_up_to(q, what == VNS_DRAIN_PLAIN ? least(q->plain, q->early) : q->early);
    return q->early > q->drained && q->ended >= 0;
}

int vns_queue_drain_to(struct vns_queue *q, uint64_t number)
{
    if (number == 0 || number >= q->next_number || q->submitting.count)
        return -EPROTO;
    drain_up_to(q, number);
    return 0;
}

/* ---- time slices ---- */

void vns_queue_watch(struct vns_queue *q)
{
    pthread_mutex_lock(&q->lock);
    const struct vns_batch *last = q->running.last;
    uint64_t number = last && last->kind != VNS_BATCH_REPORTED ? last->number : 0;
    pthread_mutex_unlock(&q->lock);
    if (!number || q->ended < 0)
        return;
    signal_up_to(q, number);
    tell(q, number);
}

/* The executor waits until few batches are under way, and finds out how many are few. */
static void limit_depth(struct vns_queue *q)
{
    uint64_t last = q->submitting.first->number - 1, start = hw_now_ns(), took = 0;
    if (last < q->depth || vns_queue_has_reached(q, last + 1 - q->depth) || q->ended < 0)
        return;
    uint64_t number = last - q->depth / 2;
    VkResult result = VK_TIMEOUT;
    vns_queue_hand_over(q->reports);
    signal_up_to(q, number);
    while (q->ended >= 0 && result == VK_TIMEOUT && took < depth_wait_ns) {
        result = wait_slice(q, &number, depth_most_ns);
        took = hw_now_ns() - start;
    }
    if (took < depth_enough_ns && q->depth < DEPTH_MOST)
        q->depth *= 2;
    else if (took > depth_most_ns && q->depth > DEPTH_LEAST)
        q->depth /= 2;
}

void vns_queue_enter(struct vns_queue *q)
{
    struct vns_reports *reports = q->reports;
    unsigned gpu = q->device->gpu;
    assert(q->submitting.first);
    if (!vns_slice_is_on(reports->slice, gpu))
        return;
    for (struct vns_batch *batch = q->submitting.first; batch; batch = batch->next) {
        if (batch->kind == VNS_BATCH_SILENT)
            batch->kind = VNS_BATCH_SIGNALLED; /* so that it is known when it is done */
    }
    limit_depth(q);
    if (!vns_slice_has(reports->slice, gpu)) {
        for (struct vns_queue *other = q->device->queues; other; other = other->next)
            vns_queue_watch(other);
        vns_queue_hand_over(reports); /* the wait may be long */
        vns_slice_enter(reports->slice, gpu, q->submitting.count, &reports->pending);
    }
}

/* ---- updates ---- */

VkResult vns_queue_update(struct vns_queue *q, const struct vns_update *updates, uint32_t count)
{
    assert(vns_queue_expects_update(q));
    uint64_t number = q->submitting.first->number;
    VkResult result = q->ended < 0 ? q->ended : vns_update_add(q, updates, count, number);
    if (result >= 0 && q->submitting.first->kind == VNS_BATCH_REPORTED)
        result = vns_update_submit(q); /* somebody waits as soon as it is listed */
    q->updated = number;
    vns_queue_submitted_nothing(q, result);
    return result;
}

void vns_queue_submit_updates(struct vns_queue *q)
{
    VkResult result = vns_update_submit(q);
    if (result >= 0 || q->ended < 0)
        return;
    q->ended = result;
    tell(q, q->updated);
}

/* ---- waits at the device ---- */

/* One more batch that was reported early is awaited: the first of too many is waited for here. */
static void limit_early(struct vns_queue *q, uint64_t number)
{
    uint64_t *ring = q->early_awaited,
             last = ring[(q->early_next + VNS_EARLY_MAX - 1) % VNS_EARLY_MAX];
    if (number <= last)
        return;
    drain_up_to(q, ring[q->early_next]);
    ring[q->early_next] = number;
    q->early_next = (q->early_next + 1) % VNS_EARLY_MAX;
}

/* A wait is also one of all batches behind it. */
static void await(struct vns_queue *q, struct vns_queue *other, uint64_t number)
{
    limit_early(other, number);
    signal_up_to(other, number);
    if (other->ended < 0 || q->ended < 0)
        return;
    VkResult result =
        vns_submit_own(q->device->driver.vkQueueSubmit, q->handle,
                       &(struct vns_own_batch){.wait = other->timeline, .value = number});
    if (result < 0) {
        q->ended = result;
        return;
    }
    other->awaited_by = q;
    other->awaited = number;
}

void vns_queue_follow(struct vns_queue *q, enum vns_following what)
{
    for (struct vns_queue *other = q->device->queues; other; other = other->next) {
        if (other == q && what == VNS_FOLLOW_OTHERS)
            continue;
        uint64_t number = other == q ? least(other->plain, other->early) : other->early;
        bool known = other->awaited_by == q && other->awaited >= number;
        if (number > other->drained && other->ended >= 0 && !known && q->ended >= 0 &&
            !vns_queue_has_reached(other, number))
            await(q, other, number);
    }
}

/* ---- reports that were not planned ---- */

int vns_queue_ask(struct vns_queue *q, uint64_t number)
{
    if (number == 0 || number >= q->next_number || q->submitting.count)
        return -EPROTO;
    signal_up_to(q, number);
    tell(q, number);
    return 0;
}

bool vns_queue_has_reached(struct vns_queue *q, uint64_t number)
{
    const struct vns_device *device = q->device;
    uint64_t reached = 0;
    if (number > q->reached &&
        device->semaphore_value(device->handle, q->timeline, &reached) == VK_SUCCESS)
        q->reached = reached;
    return number <= q->reached;
}

bool vns_queue_is_idle(struct vns_queue *q)
{
    return !q->submitting.count && q->ended >= 0 && q->signalled == q->next_number - 1 &&
           vns_queue_has_reached(q, q->signalled);
}

/* ---- life ---- */

static VkResult create_timeline(const struct vns_queue *q, VkSemaphore *out)
{
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                      .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    return q->device->driver.vkCreateSemaphore(q->device->handle, &info, NULL, out);
}

void vns_wait_init(struct hw_wait *w)
{
    enum { CORES = 4 }; /* executor, client, what runs the device, and one for the others */
    hw_wait_init(w, hw_cores() >= CORES ? VN_SPIN_NS : 0);
}

VkResult vns_queue_create(struct vns_device *device, VkQueue handle, uint64_t id,
                          struct vns_reports *reports, struct vns_queue **out)
{
    struct vns_queue *q = calloc(1, sizeof(*q));
    if (!q)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    q->handle = handle;
    q->id = id;
    q->device = device;
    q->reports = reports;
    q->next_number = 1;
    q->depth = DEPTH_FIRST;
    VkResult result = create_timeline(q, &q->timeline);
    if (result >= 0)
        result = create_timeline(q, &q->written);
    if (result < 0) {
        if (q->timeline)
            device->driver.vkDestroySemaphore(device->handle, q->timeline, NULL);
        free(q);
        return result;
    }
    vns_wait_init(&q->wait);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_mutex_lock(&device->reporting);
    q->next = device->queues;
    device->queues = q;
    pthread_mutex_unlock(&device->reporting);
    *out = q;
    return VK_SUCCESS;
}

/* Also for batches that nobody waits for: a device in use must not be destroyed.  A failure is
 * nobody's news. */
static void wait_for_all(struct vns_queue *q)
{
    signal_up_to(q, q->next_number - 1);
    if (q->signalled)
        (void)vns_queue_wait(q, q->signalled);
}

static void unlink_queue(struct vns_queue *q)
{
    pthread_mutex_lock(&q->device->reporting);
    struct vns_queue **at = &q->device->queues;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    pthread_mutex_unlock(&q->device->reporting);
}

void vns_queue_destroy(struct vns_queue *q)
{
    struct vns_batch *batch;
    if (q->reports->held == q)
        vns_queue_hand_over(q->reports);
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
    if (q->started)
        pthread_join(q->thread, NULL);
    unlink_queue(q);
    wait_for_all(q);
    while ((batch = list_take(&q->running)) || (batch = list_take(&q->submitting)))
        batch_free(q->reports, batch);
    vns_results_fini(q);
    vns_updater_destroy(q->updater, q);
    q->device->driver.vkDestroySemaphore(q->device->handle, q->written, NULL);
    q->device->driver.vkDestroySemaphore(q->device->handle, q->timeline, NULL);
    pthread_cond_destroy(&q->work);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
