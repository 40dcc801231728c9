/* Our own signal in batches; see submit.h. */
#include "venus/server/submit/submit.h"

#include "venus/common/chain.h"

#include <stdbool.h>
#include <string.h>

/* Decoded chains are ours to write to. */
static void *find_in_chain(const void *chain, VkStructureType type)
{
    return (void *)(uintptr_t)vn_chain_find(chain, type);
}

/* An element for each of `count`, and for ours around them: zeros fill up what the client did not
 * give.  (Values of binary semaphores are ignored, so there may be fewer.) */
static void *fit(struct hw_arena *arena, const void *array, uint32_t given, uint32_t count,
                 size_t size, uint32_t lead)
{
    char *copy = hw_arena_calloc(arena, (size_t)lead + count + 1, size);
    if (copy && array && given)
        memcpy(copy + lead * size, array, (given < count ? given : count) * size);
    return copy;
}

/* A copy with `lead` elements before it and one behind, all zero. */
static void *surround(struct hw_arena *arena, const void *array, uint32_t count, size_t size,
                      uint32_t lead)
{
    return fit(arena, array, count, count, size, lead);
}

/* How many signals of ours come before the client's. */
static uint32_t lead_of(const struct vns_signal *signal, uint32_t count)
{
    return signal->before && count;
}

static VkSemaphore *add_semaphores(struct hw_arena *arena, const VkSemaphore *semaphores,
                                   uint32_t count, const struct vns_signal *signal)
{
    uint32_t lead = lead_of(signal, count);
    VkSemaphore *copy = surround(arena, semaphores, count, sizeof(*copy), lead);
    if (copy) {
        copy[0] = lead ? signal->before : copy[0];
        copy[lead + count] = signal->semaphore;
    }
    return copy;
}

/* The chain with values for all semaphores, of which the client has `signals` to signal; NULL when
 * out of memory. */
static const void *with_values(struct hw_arena *arena, const void *chain, uint32_t waits,
                               uint32_t signals, uint32_t lead, uint64_t value)
{
    VkTimelineSemaphoreSubmitInfo *info =
        find_in_chain(chain, VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
    const void *result = chain;
    if (!info) {
        info = hw_arena_calloc(arena, 1, sizeof(*info));
        if (!info)
            return NULL;
        info->sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
        info->pNext = chain;
        result = info;
    }
    uint64_t *wait = fit(arena, info->pWaitSemaphoreValues, info->waitSemaphoreValueCount, waits,
                         sizeof(*wait), 0);
    uint64_t *signal = fit(arena, info->pSignalSemaphoreValues, info->signalSemaphoreValueCount,
                           signals, sizeof(*signal), lead);
    if (!wait || !signal)
        return NULL;
    signal[0] = lead ? value : signal[0];
    signal[lead + signals] = value;
    info->waitSemaphoreValueCount = waits;
    info->pWaitSemaphoreValues = wait;
    info->signalSemaphoreValueCount = lead + signals + 1;
    info->pSignalSemaphoreValues = signal;
    return result;
}

/* Device groups name a device for each semaphore, and devices for each command buffer, of a batch
 * as the client sent it.  Ours are signalled by the first device. */
static bool fit_group(struct hw_arena *arena, const VkSubmitInfo *info, uint32_t lead,
                      uint32_t behind)
{
    VkDeviceGroupSubmitInfo *group =
        find_in_chain(info->pNext, VK_STRUCTURE_TYPE_DEVICE_GROUP_SUBMIT_INFO);
    if (!group)
        return true;
    group->pWaitSemaphoreDeviceIndices =
        fit(arena, group->pWaitSemaphoreDeviceIndices, group->waitSemaphoreCount,
            info->waitSemaphoreCount, sizeof(uint32_t), 0);
    group->pCommandBufferDeviceMasks =
        fit(arena, group->pCommandBufferDeviceMasks, group->commandBufferCount,
            info->commandBufferCount, sizeof(uint32_t), 0);
    group->pSignalSemaphoreDeviceIndices =
        fit(arena, group->pSignalSemaphoreDeviceIndices, group->signalSemaphoreCount,
            info->signalSemaphoreCount, sizeof(uint32_t), lead);
    group->waitSemaphoreCount = info->waitSemaphoreCount;
    group->commandBufferCount = info->commandBufferCount;
    group->signalSemaphoreCount = lead + info->signalSemaphoreCount + behind;
    return group->pWaitSemaphoreDeviceIndices && group->pCommandBufferDeviceMasks &&
           group->pSignalSemaphoreDeviceIndices;
}

static bool complete(struct hw_arena *arena, VkSubmitInfo *info, const struct vns_signal *signal,
                     uint64_t value)
{
    uint32_t count = info->signalSemaphoreCount, lead = lead_of(signal, count);
    VkSemaphore *semaphores = add_semaphores(arena, info->pSignalSemaphores, count, signal);
    if (!semaphores || !fit_group(arena, info, lead, 1))
        return false;
    info->pSignalSemaphores = semaphores;
    info->signalSemaphoreCount = lead + count + 1;
    info->pNext = with_values(arena, info->pNext, info->waitSemaphoreCount, count, lead, value);
    return info->pNext != NULL;
}

VkSubmitInfo *vns_submit_infos(struct hw_arena *arena, const VkSubmitInfo *infos, uint32_t count,
                               const struct vns_signal *signal)
{
    VkSubmitInfo *copy = surround(arena, infos, count, sizeof(*copy), 0);
    if (copy && count == 0)
        copy[0].sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    for (uint32_t i = 0; copy && i < (count ? count : 1); i++) {
        bool done = signal->values[i] ? complete(arena, &copy[i], signal, signal->values[i])
                                      : fit_group(arena, &copy[i], 0, 0);
        if (!done)
            return NULL;
    }
    return copy;
}

VkSubmitInfo2 *vns_submit_infos2(struct hw_arena *arena, const VkSubmitInfo2 *infos, uint32_t count,
                                 const struct vns_signal *signal)
{
    VkSubmitInfo2 *copy = surround(arena, infos, count, sizeof(*copy), 0);
    if (copy && count == 0)
        copy[0].sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2;
    for (uint32_t i = 0; copy && i < (count ? count : 1); i++) {
        VkSubmitInfo2 *info = &copy[i];
        uint32_t had = info->signalSemaphoreInfoCount, lead = lead_of(signal, had);
        if (!signal->values[i])
            continue;
        VkSemaphoreSubmitInfo *signals =
            surround(arena, info->pSignalSemaphoreInfos, had, sizeof(*signals), lead);
        if (!signals)
            return NULL;
        VkSemaphoreSubmitInfo ours = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                      .semaphore = signal->before,
                                      .value = signal->values[i],
                                      .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
        signals[0] = lead ? ours : signals[0];
        ours.semaphore = signal->semaphore;
        signals[lead + had] = ours;
        info->pSignalSemaphoreInfos = signals;
        info->signalSemaphoreInfoCount = lead + had + 1;
    }
    return copy;
}

VkBindSparseInfo *vns_submit_sparse(struct hw_arena *arena, const VkBindSparseInfo *infos,
                                    uint32_t count, const struct vns_signal *signal)
{
    VkBindSparseInfo *copy = surround(arena, infos, count, sizeof(*copy), 0);
    if (copy && count == 0)
        copy[0].sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO;
    for (uint32_t i = 0; copy && i < (count ? count : 1); i++) {
        VkBindSparseInfo *info = &copy[i];
        uint32_t had = info->signalSemaphoreCount, lead = lead_of(signal, had);
        if (!signal->values[i])
            continue;
        info->pSignalSemaphores = add_semaphores(arena, info->pSignalSemaphores, had, signal);
        if (!info->pSignalSemaphores)
            return NULL;
        info->signalSemaphoreCount = lead + had + 1;
        info->pNext =
            with_values(arena, info->pNext, info->waitSemaphoreCount, had, lead, signal->values[i]);
        if (!info->pNext)
            return NULL;
    }
    return copy;
}

VkResult vns_submit_own(PFN_vkQueueSubmit submit, VkQueue queue, const struct vns_own_batch *batch)
{
    const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .waitSemaphoreValueCount = batch->wait != NULL,
                                            .pWaitSemaphoreValues = &batch->value,
                                            .signalSemaphoreValueCount = batch->signal != NULL,
                                            .pSignalSemaphoreValues = &batch->value};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .waitSemaphoreCount = batch->wait != NULL,
                         .pWaitSemaphores = &batch->wait,
                         .pWaitDstStageMask = &all,
                         .commandBufferCount = batch->commands != NULL,
                         .pCommandBuffers = &batch->commands,
                         .signalSemaphoreCount = batch->signal != NULL,
                         .pSignalSemaphores = &batch->signal};
    return submit(queue, 1, &info, VK_NULL_HANDLE);
}
