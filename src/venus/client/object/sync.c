/* Fences, semaphores and events; see sync.h. */
#include "venus/client/object/sync.h"

#include "base/clock.h"
#include "venus/client/memory/memory.h"
#include "venus/client/submit/trace.h"
#include "vn_client.gen.h"

#include <stdlib.h>

static const uint64_t signalled = UINT64_MAX;

/* ---- fences ---- */

void vn_fence_submitted(struct vn_fence *fence, struct vn_queue *queue, uint64_t number)
{
    fence->queue = queue;
    atomic_store_explicit(&fence->number, number, memory_order_release);
}

void vn_fence_signal(struct vn_fence *fence)
{
    atomic_store_explicit(&fence->number, signalled, memory_order_release);
}

static bool fence_is_signalled(const struct vn_fence *fence)
{
    uint64_t number = atomic_load_explicit(&fence->number, memory_order_acquire);
    return number == signalled || (number && vn_queue_has_reported(fence->queue, number));
}

static void look_at_fence(const struct vn_fence *fence)
{
    uint64_t number = atomic_load_explicit(&fence->number, memory_order_acquire);
    if (number && number != signalled)
        vn_queue_look(fence->queue, number);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_fence(VkDevice device, const VkFenceCreateInfo *info,
                                                   const VkAllocationCallbacks *allocator,
                                                   VkFence *out)
{
    (void)allocator;
    struct vn_fence *fence =
        vn_object_create(vn_link_of(device), VK_OBJECT_TYPE_FENCE, (struct vn_object *)device);
    if (!fence)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    if (info->flags & VK_FENCE_CREATE_SIGNALED_BIT)
        vn_fence_signal(fence);
    *out = VN_HANDLE(VkFence, fence);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_fence(VkDevice device, VkFence fence,
                                                const VkAllocationCallbacks *allocator)
{
    (void)device;
    (void)allocator;
    vn_object_destroy(VN_OBJECT(vn_object, fence));
}

static VKAPI_ATTR VkResult VKAPI_CALL reset_fences(VkDevice device, uint32_t count,
                                                   const VkFence *fences)
{
    (void)device;
    for (uint32_t i = 0; i < count; i++)
        atomic_store_explicit(&VN_OBJECT(vn_fence, fences[i])->number, 0, memory_order_relaxed);
    return VK_SUCCESS;
}

struct fence_wait {
    const VkFence *fences;
    uint32_t count;
    bool all;
    struct vn_device *device;
};

static bool fences_are_signalled(void *user)
{
    struct fence_wait *wait = user;
    uint32_t done = 0;
    for (uint32_t i = 0; i < wait->count; i++)
        done += fence_is_signalled(VN_OBJECT(vn_fence, wait->fences[i]));
    return wait->all ? done == wait->count : done > 0;
}

/* A failed device ends waits that nothing else would end. */
static bool fences_are_decided(void *user)
{
    struct fence_wait *wait = user;
    return fences_are_signalled(wait) || vn_device_status(wait->device) != VK_SUCCESS;
}

/* Looks in a row before a thread counts as spinning: what is done already is found by the first. */
enum { LOOKS_MAX = 16 };
/* Looks that are further apart are not in a row: the thread does something else in between. */
static const uint64_t looks_apart_ns = 100 * HW_US;
/* Longer than the connection spins where spinning pays, so that it sleeps where it does not; and
 * short beside the time that the looking has taken so far, since the program may have more than
 * this fence to look at. */
static const uint64_t rest_least_ns = 200 * HW_US, rest_most_ns = 2 * HW_MS;
enum { REST_PART = 8 };

/* Looks of this thread in a row that found nothing. */
static _Thread_local struct {
    uint64_t first_ns, last_ns;
    uint32_t count;
    const struct vn_semaphore *semaphore; /* and what it was at, if that was looked at last */
    uint64_t value;
} looks;

/* A thread that looks again and again takes the core from whoever it waits for, the driver or the
 * server on a small machine.  So it waits as vkWaitForFences would, for a while. */
static void rest_from_looking(struct vn_device *device, bool (*done)(void *user), void *user)
{
    uint64_t now = hw_now_ns();
    if (looks.count == 0 || now - looks.last_ns >= looks_apart_ns) {
        looks.count = 0;
        looks.first_ns = now;
    }
    if (++looks.count > LOOKS_MAX) {
        uint64_t rest = (now - looks.first_ns) / REST_PART;
        rest = rest < rest_least_ns ? rest_least_ns : rest > rest_most_ns ? rest_most_ns : rest;
        vn_link_rest(vn_device_link(device), done, user, rest);
        now = hw_now_ns();
    }
    looks.last_ns = now;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_fence_status(VkDevice handle, VkFence fence)
{
    struct fence_wait wait = {&fence, 1, true, VN_OBJECT(vn_device, handle)};
    const struct vn_fence *f = VN_OBJECT(vn_fence, fence);
    look_at_fence(f);
    if (!fence_is_signalled(f))
        vn_link_poll(vn_device_link(wait.device));
    if (!fences_are_decided(&wait))
        rest_from_looking(wait.device, fences_are_decided, &wait);
    VkResult status = vn_device_status(wait.device);
    if (status != VK_SUCCESS)
        return status;
    if (!fence_is_signalled(f))
        return VK_NOT_READY;
    looks.count = 0;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_for_fences(VkDevice handle, uint32_t count,
                                                      const VkFence *fences, VkBool32 all,
                                                      uint64_t timeout)
{
    struct vn_device *device = VN_OBJECT(vn_device, handle);
    struct fence_wait wait = {fences, count, all, device};
    uint64_t start = hw_now_ns();
    for (uint32_t i = 0; i < count; i++)
        look_at_fence(VN_OBJECT(vn_fence, fences[i]));
    /* What is done already, and what counts as done, has nothing to send: the early report is for
     * what follows, and leaves with it. */
    VkResult result = VK_SUCCESS;
    if (!fences_are_decided(&wait))
        result = vn_link_wait(vn_device_link(device), fences_are_decided, &wait, timeout);
    vn_trace_wait(hw_now_ns() - start);
    VkResult status = vn_device_status(device);
    return status == VK_SUCCESS ? result : status;
}

/* ---- semaphores ---- */

struct vn_semaphore *vn_semaphore_ref(struct vn_semaphore *semaphore)
{
    atomic_fetch_add_explicit(&semaphore->refs, 1, memory_order_relaxed);
    return semaphore;
}

void vn_semaphore_unref(struct vn_semaphore *semaphore)
{
    /* Release and acquire: the last one frees after all others are finished with it. */
    if (atomic_fetch_sub_explicit(&semaphore->refs, 1, memory_order_acq_rel) == 1)
        free(semaphore);
}

void vn_semaphore_raise(struct vn_semaphore *semaphore, uint64_t value)
{
    uint64_t old = atomic_load_explicit(&semaphore->value, memory_order_relaxed);
    while (old < value &&
           !atomic_compare_exchange_weak_explicit(&semaphore->value, &old, value,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

static uint64_t semaphore_value(const struct vn_semaphore *semaphore)
{
    return atomic_load_explicit(&semaphore->value, memory_order_acquire);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice device,
                                                       const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkSemaphore *out)
{
    const VkSemaphoreTypeCreateInfo *type =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
    VkResult result = vn_vkCreateSemaphore(device, info, allocator, out);
    if (result == VK_SUCCESS && type && type->semaphoreType == VK_SEMAPHORE_TYPE_TIMELINE) {
        struct vn_semaphore *semaphore = VN_OBJECT(vn_semaphore, *out);
        semaphore->timeline = true;
        semaphore->value = type->initialValue;
    }
    return result;
}

struct counter_look {
    struct vn_semaphore *semaphore;
    struct vn_device *device;
    uint64_t before;
};

static bool counter_has_moved(void *user)
{
    const struct counter_look *look = user;
    return semaphore_value(look->semaphore) != look->before ||
           vn_device_status(look->device) != VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_semaphore_counter_value(VkDevice handle,
                                                                  VkSemaphore semaphore,
                                                                  uint64_t *value)
{
    struct counter_look look = {VN_OBJECT(vn_semaphore, semaphore), VN_OBJECT(vn_device, handle),
                                looks.value};
    vn_link_poll(vn_device_link(look.device));
    if (looks.semaphore != look.semaphore || counter_has_moved(&look))
        looks.count = 0;
    else
        rest_from_looking(look.device, counter_has_moved, &look);
    VkResult status = vn_device_status(look.device);
    if (status != VK_SUCCESS)
        return status;
    *value = semaphore_value(look.semaphore);
    looks.semaphore = look.semaphore;
    looks.value = *value;
    return VK_SUCCESS;
}

struct semaphore_wait {
    const VkSemaphoreWaitInfo *info;
    struct vn_device *device;
};

static bool semaphores_are_decided(void *user)
{
    struct semaphore_wait *wait = user;
    const VkSemaphoreWaitInfo *info = wait->info;
    uint32_t done = 0;
    for (uint32_t i = 0; i < info->semaphoreCount; i++)
        done += semaphore_value(VN_OBJECT(vn_semaphore, info->pSemaphores[i])) >= info->pValues[i];
    bool reached =
        info->flags & VK_SEMAPHORE_WAIT_ANY_BIT ? done > 0 : done == info->semaphoreCount;
    return reached || vn_device_status(wait->device) != VK_SUCCESS;
}

static void count_waiters(const VkSemaphoreWaitInfo *info, uint32_t by)
{
    for (uint32_t i = 0; i < info->semaphoreCount; i++)
        atomic_fetch_add_explicit(&VN_OBJECT(vn_semaphore, info->pSemaphores[i])->waiters, by,
                                  memory_order_seq_cst);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice handle,
                                                      const VkSemaphoreWaitInfo *info,
                                                      uint64_t timeout)
{
    struct vn_device *device = VN_OBJECT(vn_device, handle);
    struct semaphore_wait wait = {info, device};
    count_waiters(info, 1);
    uint64_t start = hw_now_ns();
    VkResult result = vn_link_wait(vn_device_link(device), semaphores_are_decided, &wait, timeout);
    vn_trace_wait(hw_now_ns() - start);
    count_waiters(info, UINT32_MAX);
    VkResult status = vn_device_status(device);
    return status == VK_SUCCESS ? result : status;
}

/* Sends one command behind what the program wrote into mapped memory, which work that waits for
 * this signal may read.  `answered`: an answer comes, and wakes whoever waits here. */
static VkResult send_signal(struct vn_device *device, void (*put)(struct wire_enc *e, const void *),
                            const void *args, bool answered)
{
    struct vn_link *link = vn_device_link(device);
    struct wire_enc *e = vn_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    VkResult result = vn_memory_put_deltas(device, NULL, e);
    if (result != VK_SUCCESS) {
        vn_link_cancel(link);
        return result;
    }
    put(e, args);
    if (!answered && !vn_link_client(link)->sync)
        return vn_link_send(link);
    struct vn_decoder reply;
    result = vn_link_call(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    VkResult answer = (VkResult)wire_get_u32(&reply.in);
    return vn_link_finish(link, &reply) == VK_SUCCESS ? answer : VK_ERROR_DEVICE_LOST;
}

struct semaphore_signal {
    VkDevice device;
    const VkSemaphoreSignalInfo *info;
};

static void put_semaphore_signal(struct wire_enc *e, const void *args)
{
    const struct semaphore_signal *s = args;
    vn_enc_cmd_vkSignalSemaphore(e, s->device, s->info);
}

static VKAPI_ATTR VkResult VKAPI_CALL signal_semaphore(VkDevice handle,
                                                       const VkSemaphoreSignalInfo *info)
{
    struct vn_device *device = VN_OBJECT(vn_device, handle);
    struct vn_semaphore *semaphore = VN_OBJECT(vn_semaphore, info->semaphore);
    VkResult status = vn_device_status(device);
    if (status != VK_SUCCESS)
        return status;
    /* Raised before waiters are counted, and they count themselves before they look: one of the
     * two sees the other. */
    vn_semaphore_raise(semaphore, info->value);
    bool waited = atomic_load_explicit(&semaphore->waiters, memory_order_seq_cst) > 0;
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

static void put_reset_event(struct wire_enc *e, const void *args)
{
    const struct event_args *a = args;
    vn_enc_cmd_vkResetEvent(e, a->device, a->event);
}

static VKAPI_ATTR VkResult VKAPI_CALL set_event(VkDevice device, VkEvent event)
{
    struct event_args args = {device, event};
    return send_signal(VN_OBJECT(vn_device, device), put_set_event, &args, false);
}

static VKAPI_ATTR VkResult VKAPI_CALL reset_event(VkDevice device, VkEvent event)
{
    struct event_args args = {device, event};
    return send_signal(VN_OBJECT(vn_device, device), put_reset_event, &args, false);
}

/* A set event tells the program that what a device wrote before it can be read. */
static VKAPI_ATTR VkResult VKAPI_CALL get_event_status(VkDevice handle, VkEvent event)
{
    struct vn_device *device = VN_OBJECT(vn_device, handle);
    VkResult status = vn_device_status(device);
    if (status != VK_SUCCESS)
        return status;
    VkResult result = vn_vkGetEventStatus(handle, event);
    if (result == VK_EVENT_SET && vn_device_is_busy(device)) {
        VkResult read = vn_device_read_back(device);
        if (read != VK_SUCCESS)
            return read;
    }
    return result;
}

const struct vn_entry vn_entries_sync[] = {
    VN_ENTRY(vkCreateFence, create_fence),
    VN_ENTRY(vkDestroyFence, destroy_fence),
    VN_ENTRY(vkResetFences, reset_fences),
    VN_ENTRY(vkGetFenceStatus, get_fence_status),
    VN_ENTRY(vkWaitForFences, wait_for_fences),
    VN_ENTRY(vkCreateSemaphore, create_semaphore),
    VN_ENTRY(vkGetSemaphoreCounterValue, get_semaphore_counter_value),
    VN_ENTRY(vkWaitSemaphores, wait_semaphores),
    VN_ENTRY(vkSignalSemaphore, signal_semaphore),
    VN_ENTRY(vkSetEvent, set_event),
    VN_ENTRY(vkResetEvent, reset_event),
    VN_ENTRY(vkGetEventStatus, get_event_status),
    {NULL, NULL},
};
