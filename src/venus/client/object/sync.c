/* Fences, semaphores and events; see sync.h. */
#include "venus/client/object/sync.h"

#include "base/clock.h"
#include "venus/client/device/physical_device.h"
#include "venus/client/memory/memory.h"
#include "venus/client/object/ask.h"
#include "venus/client/submit/trace.h"
#include "vn_client.gen.h"

#include <assert.h>
#include <stdlib.h>

static const uint64_t signalled = UINT64_MAX;

/* What tells a program how far a device is tells it that what was written so far can be read. */
static VkResult read_so_far(struct vnc_device *device)
{
    return vnc_device_is_busy(device) ? vnc_device_read_back(device) : VK_SUCCESS;
}

/* ---- fences ---- */

bool vnc_fence_submitted(struct vnc_fence *fence, struct vnc_queue *queue, uint64_t number)
{
    fence->queue = queue;
    atomic_store_explicit(&fence->number, number, memory_order_seq_cst);
    return atomic_load_explicit(&fence->waiters, memory_order_seq_cst) > 0;
}

void vnc_fence_signal(struct vnc_fence *fence)
{
    atomic_store_explicit(&fence->number, signalled, memory_order_release);
}

static bool fence_is_signalled(const struct vnc_fence *fence)
{
    uint64_t number = atomic_load_explicit(&fence->number, memory_order_acquire);
    return number == signalled || (number && vnc_queue_has_reported(fence->queue, number));
}

static void look_at_fence(const struct vnc_fence *fence)
{
    uint64_t number = atomic_load_explicit(&fence->number, memory_order_seq_cst);
    if (number && number != signalled)
        vnc_queue_look(fence->queue, number);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_fence(VkDevice device, const VkFenceCreateInfo *info,
                                                   const VkAllocationCallbacks *allocator,
                                                   VkFence *out)
{
    const VkExportFenceCreateInfo *export =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_EXPORT_FENCE_CREATE_INFO);
    if (export && export->handleTypes &&
        vnc_physical_device_has(VNC_OBJECT(vnc_device, device)->physical,
                                VK_KHR_EXTERNAL_FENCE_FD_EXTENSION_NAME)) {
        VkResult result = vn_vkCreateFence(device, info, allocator, out);
        if (result == VK_SUCCESS)
            VNC_OBJECT(vnc_fence, *out)->external = true;
        return result;
    }
    struct vnc_fence *fence =
        vnc_object_create(vnc_link_of(device), VK_OBJECT_TYPE_FENCE, (struct vn_object *)device);
    if (!fence)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    if (info->flags & VK_FENCE_CREATE_SIGNALED_BIT)
        vnc_fence_signal(fence);
    *out = VNC_HANDLE(VkFence, fence);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_fence(VkDevice device, VkFence fence,
                                                const VkAllocationCallbacks *allocator)
{
    if (fence && VNC_OBJECT(vnc_fence, fence)->external)
        vn_vkDestroyFence(device, fence, allocator);
    else
        vnc_object_destroy(VNC_OBJECT(vn_object, fence));
}

static VKAPI_ATTR VkResult VKAPI_CALL reset_fences(VkDevice device, uint32_t count,
                                                   const VkFence *fences)
{
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0; i < count && result == VK_SUCCESS; i++) {
        struct vnc_fence *fence = VNC_OBJECT(vnc_fence, fences[i]);
        atomic_store_explicit(&fence->number, 0, memory_order_relaxed);
        if (fence->external)
            result = vn_vkResetFences(device, 1, &fences[i]);
    }
    return result;
}

struct fence_wait {
    const VkFence *fences;
    uint32_t count;
    bool all;
    struct vnc_device *device;
};

static bool fences_are_signalled(void *user)
{
    struct fence_wait *wait = user;
    uint32_t done = 0;
    for (uint32_t i = 0; i < wait->count; i++)
        done += fence_is_signalled(VNC_OBJECT(vnc_fence, wait->fences[i]));
    return wait->all ? done == wait->count : done > 0;
}

/* A failed device ends waits that nothing else would end. */
static bool fences_are_decided(void *user)
{
    struct fence_wait *wait = user;
    return fences_are_signalled(wait) || vnc_device_status(wait->device) != VK_SUCCESS;
}

static bool some_are_external(const struct fence_wait *wait)
{
    for (uint32_t i = 0; i < wait->count; i++) {
        if (VNC_OBJECT(vnc_fence, wait->fences[i])->external)
            return true;
    }
    return false;
}

/* The same with the server's word for those that are external. */
static VkResult ask_for_fences(void *user)
{
    const struct fence_wait *wait = user;
    uint32_t done = 0;
    for (uint32_t i = 0; i < wait->count; i++) {
        const struct vnc_fence *fence = VNC_OBJECT(vnc_fence, wait->fences[i]);
        VkResult result = VK_NOT_READY;
        if (fence->external)
            result = vn_vkGetFenceStatus(VNC_HANDLE(VkDevice, wait->device), wait->fences[i]);
        if (result < 0)
            return result;
        done += fence->external ? result == VK_SUCCESS : fence_is_signalled(fence);
    }
    bool decided = wait->all ? done == wait->count : done > 0;
    return decided ? read_so_far(wait->device) : VK_NOT_READY;
}

/* Looks in a row before a thread counts as spinning: what is done already is found by the first. */
enum { LOOKS_MAX = 16 };
/* Looks that are further apart are not in a row: the thread does its own work in between, which a
 * rest would hold up. */
static const uint64_t looks_apart_ns = 10 * HW_US;
/* Longer than the connection spins where spinning pays, so that it sleeps where it does not; and
 * short beside the time that the looking has taken so far, since the program may have more than
 * this fence to look at. */
static const uint64_t rest_least_ns = 200 * HW_US, rest_most_ns = 2 * HW_MS;
enum { REST_PART = 8 };

/* Looks of this thread in a row that found nothing. */
static _Thread_local struct {
    uint64_t first_ns, last_ns;
    uint32_t count;
    const struct vnc_semaphore *semaphore; /* and what it was at, if that was looked at last */
    uint64_t value;
} looks;

/* Takes in what has arrived.  A thread that looks again and again takes the core from what it waits
 * for, the driver or the server on a small machine.  So it waits as vkWaitForFences would, for a
 * while. */
static void look_again(struct vnc_device *device, bool (*done)(void *user), void *user)
{
    uint64_t now = hw_now_ns();
    if (looks.count == 0 || now - looks.last_ns >= looks_apart_ns) {
        looks.count = 0;
        looks.first_ns = now;
    }
    vnc_link_poll(vnc_device_link(device));
    if (++looks.count > LOOKS_MAX && !done(user)) {
        uint64_t rest = (now - looks.first_ns) / REST_PART;
        rest = rest < rest_least_ns ? rest_least_ns : rest > rest_most_ns ? rest_most_ns : rest;
        vnc_link_rest(vnc_device_link(device), done, user, rest);
    }
    looks.last_ns = hw_now_ns();
}

/* For who does not wait: VK_SUCCESS or VK_NOT_READY.  Sends nothing. */
static VkResult look(struct vnc_device *device, bool (*done)(void *user), void *user)
{
    if (!done(user))
        look_again(device, done, user);
    if (!done(user))
        return VK_NOT_READY;
    looks.count = 0;
    return VK_SUCCESS;
}

static VkResult look_or_wait(struct vnc_device *device, bool (*done)(void *user), void *user,
                             uint64_t timeout)
{
    /* What is done already, and what counts as done, has nothing to send: the early report is for
     * what follows, and leaves with it. */
    if (timeout == 0 || done(user))
        return look(device, done, user);
    return vnc_link_wait(vnc_device_link(device), done, user, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_fence_status(VkDevice handle, VkFence fence)
{
    struct fence_wait wait = {&fence, 1, true, VNC_OBJECT(vnc_device, handle)};
    const struct vnc_fence *f = VNC_OBJECT(vnc_fence, fence);
    if (f->external)
        return vnc_ask(wait.device, ask_for_fences, &wait, 0);
    look_at_fence(f);
    VkResult result = look(wait.device, fences_are_decided, &wait);
    VkResult status = vnc_device_status(wait.device);
    return status == VK_SUCCESS ? result : status;
}

static void count_fence_waiters(const struct fence_wait *wait, uint32_t by)
{
    for (uint32_t i = 0; i < wait->count; i++)
        atomic_fetch_add_explicit(&VNC_OBJECT(vnc_fence, wait->fences[i])->waiters, by,
                                  memory_order_seq_cst);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_for_fences(VkDevice handle, uint32_t count,
                                                      const VkFence *fences, VkBool32 all,
                                                      uint64_t timeout)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    struct fence_wait wait = {fences, count, all, device};
    uint64_t start = hw_now_ns();
    count_fence_waiters(&wait, 1); /* one may be submitted while this thread sleeps */
    for (uint32_t i = 0; i < count; i++)
        look_at_fence(VNC_OBJECT(vnc_fence, fences[i]));
    VkResult result = some_are_external(&wait)
                          ? vnc_ask(device, ask_for_fences, &wait, timeout)
                          : look_or_wait(device, fences_are_decided, &wait, timeout);
    result = result == VK_NOT_READY ? VK_TIMEOUT : result;
    vnc_trace_wait(hw_now_ns() - start);
    count_fence_waiters(&wait, UINT32_MAX);
    VkResult status = vnc_device_status(device);
    return status == VK_SUCCESS ? result : status;
}

/* ---- semaphores ---- */

struct vnc_semaphore *vnc_semaphore_ref(struct vnc_semaphore *semaphore)
{
    atomic_fetch_add_explicit(&semaphore->refs, 1, memory_order_relaxed);
    return semaphore;
}

void vnc_semaphore_unref(struct vnc_semaphore *semaphore)
{
    /* Release and acquire: the last one frees after all others are finished with it. */
    if (atomic_fetch_sub_explicit(&semaphore->refs, 1, memory_order_acq_rel) == 1)
        free(semaphore);
}

static void raise_to(_Atomic uint64_t *at, uint64_t value)
{
    uint64_t old = atomic_load_explicit(at, memory_order_relaxed);
    while (old < value && !atomic_compare_exchange_weak_explicit(
                              at, &old, value, memory_order_release, memory_order_relaxed))
        ;
}

void vnc_semaphore_raise(struct vnc_semaphore *semaphore, uint64_t value)
{
    raise_to(&semaphore->value, value);
}

void vnc_semaphore_await(struct vnc_semaphore *semaphore, uint64_t value)
{
    raise_to(&semaphore->awaited, value);
}

bool vnc_semaphore_is_shared(const struct vnc_semaphore *semaphore)
{
    return atomic_load_explicit(&semaphore->shared, memory_order_relaxed);
}

bool vnc_semaphore_releases(const struct vnc_semaphore *semaphore)
{
    return semaphore->timeline &&
           (vnc_semaphore_is_shared(semaphore) ||
            atomic_load_explicit(&semaphore->awaited, memory_order_relaxed) >
                atomic_load_explicit(&semaphore->promised, memory_order_relaxed));
}

bool vnc_semaphore_is_promised(const struct vnc_semaphore *semaphore, uint64_t value)
{
    return !semaphore->timeline ||
           atomic_load_explicit(&semaphore->promised, memory_order_relaxed) >= value;
}

void vnc_semaphore_promise(struct vnc_semaphore *semaphore, uint64_t value)
{
    raise_to(&semaphore->promised, value);
}

static uint64_t semaphore_value(const struct vnc_semaphore *semaphore)
{
    return atomic_load_explicit(&semaphore->value, memory_order_acquire);
}

bool vnc_semaphore_has(const struct vnc_semaphore *semaphore, uint64_t value)
{
    return semaphore_value(semaphore) >= value;
}

uint64_t vnc_semaphore_counted(const struct vnc_semaphore *semaphore)
{
    assert(!semaphore->timeline);
    return atomic_load_explicit(&semaphore->promised, memory_order_relaxed);
}

/* The program lets nobody else use the semaphore meanwhile. */
uint64_t vnc_semaphore_count(struct vnc_semaphore *semaphore)
{
    uint64_t number = vnc_semaphore_counted(semaphore) + 1;
    vnc_semaphore_promise(semaphore, number);
    return number;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice device,
                                                       const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkSemaphore *out)
{
    const VkSemaphoreTypeCreateInfo *type =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
    const VkExportSemaphoreCreateInfo *export =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO);
    VkResult result = vn_vkCreateSemaphore(device, info, allocator, out);
    if (result == VK_SUCCESS)
        VNC_OBJECT(vnc_semaphore, *out)->external = export && export->handleTypes;
    if (result == VK_SUCCESS && type && type->semaphoreType == VK_SEMAPHORE_TYPE_TIMELINE) {
        struct vnc_semaphore *semaphore = VNC_OBJECT(vnc_semaphore, *out);
        semaphore->timeline = true;
        semaphore->value = semaphore->promised = type->initialValue;
    }
    return result;
}

struct counter_look {
    struct vnc_semaphore *semaphore;
    struct vnc_device *device;
    uint64_t before;
};

static bool counter_has_moved(void *user)
{
    const struct counter_look *look = user;
    return semaphore_value(look->semaphore) != look->before ||
           vnc_device_status(look->device) != VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_semaphore_counter_value(VkDevice handle,
                                                                  VkSemaphore semaphore,
                                                                  uint64_t *value)
{
    struct counter_look look = {VNC_OBJECT(vnc_semaphore, semaphore),
                                VNC_OBJECT(vnc_device, handle), looks.value};
    if (vnc_semaphore_is_shared(look.semaphore)) {
        VkResult result = vn_vkGetSemaphoreCounterValue(handle, semaphore, value);
        return result == VK_SUCCESS ? read_so_far(look.device) : result;
    }
    uint64_t promised = atomic_load_explicit(&look.semaphore->promised, memory_order_relaxed);
    if (looks.semaphore != look.semaphore) {
        looks.count = 0;
        look.before = semaphore_value(look.semaphore);
    }
    if (semaphore_value(look.semaphore) >= promised || counter_has_moved(&look))
        looks.count = 0;
    else
        look_again(look.device, counter_has_moved, &look);
    VkResult status = vnc_device_status(look.device);
    if (status != VK_SUCCESS)
        return status;
    *value = semaphore_value(look.semaphore);
    looks.semaphore = look.semaphore;
    looks.value = *value;
    return VK_SUCCESS;
}

struct semaphore_wait {
    const VkSemaphoreWaitInfo *info;
    struct vnc_device *device;
};

static bool semaphores_are_decided(void *user)
{
    struct semaphore_wait *wait = user;
    const VkSemaphoreWaitInfo *info = wait->info;
    uint32_t done = 0;
    for (uint32_t i = 0; i < info->semaphoreCount; i++)
        done +=
            semaphore_value(VNC_OBJECT(vnc_semaphore, info->pSemaphores[i])) >= info->pValues[i];
    bool reached =
        info->flags & VK_SEMAPHORE_WAIT_ANY_BIT ? done > 0 : done == info->semaphoreCount;
    return reached || vnc_device_status(wait->device) != VK_SUCCESS;
}

static bool some_are_shared(const VkSemaphoreWaitInfo *info)
{
    for (uint32_t i = 0; i < info->semaphoreCount; i++) {
        if (vnc_semaphore_is_shared(VNC_OBJECT(vnc_semaphore, info->pSemaphores[i])))
            return true;
    }
    return false;
}

/* The same with the server's word for those that are shared. */
static VkResult ask_for_semaphores(void *user)
{
    const struct semaphore_wait *wait = user;
    const VkSemaphoreWaitInfo *info = wait->info;
    uint32_t done = 0;
    for (uint32_t i = 0; i < info->semaphoreCount; i++) {
        const struct vnc_semaphore *semaphore = VNC_OBJECT(vnc_semaphore, info->pSemaphores[i]);
        uint64_t value = semaphore_value(semaphore);
        VkResult result = VK_SUCCESS;
        if (vnc_semaphore_is_shared(semaphore))
            result = vn_vkGetSemaphoreCounterValue(VNC_HANDLE(VkDevice, wait->device),
                                                   info->pSemaphores[i], &value);
        if (result < 0)
            return result;
        done += value >= info->pValues[i];
    }
    bool any = info->flags & VK_SEMAPHORE_WAIT_ANY_BIT;
    bool reached = any ? done > 0 : done == info->semaphoreCount;
    return reached ? read_so_far(wait->device) : VK_NOT_READY;
}

static void look_at_semaphores(const struct vnc_device *device, const VkSemaphoreWaitInfo *info)
{
    for (uint32_t i = 0; i < info->semaphoreCount; i++) {
        const struct vnc_semaphore *semaphore = VNC_OBJECT(vnc_semaphore, info->pSemaphores[i]);
        for (uint32_t q = 0; q < device->queue_count; q++) {
            if (semaphore_value(semaphore) < info->pValues[i])
                vnc_queue_look_for(device->queues[q], semaphore, info->pValues[i]);
        }
    }
}

static void count_waiters(const VkSemaphoreWaitInfo *info, uint32_t by)
{
    for (uint32_t i = 0; i < info->semaphoreCount; i++)
        atomic_fetch_add_explicit(&VNC_OBJECT(vnc_semaphore, info->pSemaphores[i])->waiters, by,
                                  memory_order_seq_cst);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice handle,
                                                      const VkSemaphoreWaitInfo *info,
                                                      uint64_t timeout)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    struct semaphore_wait wait = {info, device};
    count_waiters(info, 1);
    uint64_t start = hw_now_ns();
    if (timeout > 0) /* as with counters, who only looks is not told early */
        look_at_semaphores(device, info);
    VkResult result = some_are_shared(info)
                          ? vnc_ask(device, ask_for_semaphores, &wait, timeout)
                          : look_or_wait(device, semaphores_are_decided, &wait, timeout);
    result = result == VK_NOT_READY ? VK_TIMEOUT : result;
    vnc_trace_wait(hw_now_ns() - start);
    count_waiters(info, UINT32_MAX);
    VkResult status = vnc_device_status(device);
    return status == VK_SUCCESS ? result : status;
}

/* Sends one command behind what the program wrote into mapped memory, which work that waits for
 * this signal may read.  The host sees such work: with none under way the next submission is early
 * enough for both.  `answered`: an answer comes, and wakes whoever waits here; other processes then
 * know of it when this returns. */
static VkResult send_signal(struct vnc_device *device,
                            void (*put)(struct wire_enc *e, const void *), const void *args,
                            bool answered)
{
    struct vnc_link *link = vnc_device_link(device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    answered |= vnc_link_client(link)->sync;
    /* Under the stream's lock: a submission is all before this, and then known, or all behind. */
    bool urgent = answered || vnc_device_is_watched(device);
    VkResult result = urgent ? vnc_memory_put_deltas(device, NULL, e) : VK_SUCCESS;
    if (result != VK_SUCCESS) {
        vnc_link_cancel(link);
        return result;
    }
    put(e, args);
    if (!answered)
        return urgent ? vnc_link_send(link) : vnc_link_post(link);
    struct vn_decoder reply;
    result = vnc_link_call(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    VkResult answer = (VkResult)wire_get_u32(&reply.in);
    return vnc_link_finish(link, &reply) == VK_SUCCESS ? answer : VK_ERROR_DEVICE_LOST;
}

struct semaphore_signal {
    VkDevice device;
    const VkSemaphoreSignalInfo *info;
};

static void put_semaphore_signal(struct wire_enc *e, const void *args)
{
    const struct semaphore_signal *s = args;
    vn_enc_cmd_vkSignalSemaphore(e, s->device, s->info);
    vnc_semaphore_promise(VNC_OBJECT(vnc_semaphore, s->info->semaphore), s->info->value);
}

static VKAPI_ATTR VkResult VKAPI_CALL signal_semaphore(VkDevice handle,
                                                       const VkSemaphoreSignalInfo *info)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    struct vnc_semaphore *semaphore = VNC_OBJECT(vnc_semaphore, info->semaphore);
    VkResult status = vnc_device_status(device);
    if (status != VK_SUCCESS)
        return status;
    /* Raised before waiters are counted, and they count themselves before they look: one of the
     * two sees the other. */
    vnc_semaphore_raise(semaphore, info->value);
    bool waited = atomic_load_explicit(&semaphore->waiters, memory_order_seq_cst) > 0 ||
                  vnc_semaphore_is_shared(semaphore);
    struct semaphore_signal args = {handle, info};
    return send_signal(device, put_semaphore_signal, &args, waited);
}

/* ---- events ---- */

struct event_args {
    VkDevice device;
    VkEvent event;
};

static void put_set_event(struct wire_enc *e, const void *args)
{
    const struct event_args *a = args;
    vn_enc_cmd_vkSetEvent(e, a->device, a->event);
}

static VKAPI_ATTR VkResult VKAPI_CALL set_event(VkDevice device, VkEvent event)
{
    struct event_args args = {device, event};
    return send_signal(VNC_OBJECT(vnc_device, device), put_set_event, &args, false);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_event_status(VkDevice handle, VkEvent event)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    VkResult status = vnc_device_status(device);
    if (status != VK_SUCCESS)
        return status;
    VkResult result = vn_vkGetEventStatus(handle, event);
    VkResult read = result == VK_EVENT_SET ? read_so_far(device) : VK_SUCCESS;
    return read == VK_SUCCESS ? result : read;
}

const struct vnc_entry vnc_entries_sync[] = {
    VNC_ENTRY(vkCreateFence, create_fence),
    VNC_ENTRY(vkDestroyFence, destroy_fence),
    VNC_ENTRY(vkResetFences, reset_fences),
    VNC_ENTRY(vkGetFenceStatus, get_fence_status),
    VNC_ENTRY(vkWaitForFences, wait_for_fences),
    VNC_ENTRY(vkCreateSemaphore, create_semaphore),
    VNC_ENTRY(vkGetSemaphoreCounterValue, get_semaphore_counter_value),
    VNC_ENTRY(vkWaitSemaphores, wait_semaphores),
    VNC_ENTRY(vkSignalSemaphore, signal_semaphore),
    VNC_ENTRY(vkSetEvent, set_event),
    VNC_ENTRY(vkGetEventStatus, get_event_status),
    {NULL, NULL},
};
