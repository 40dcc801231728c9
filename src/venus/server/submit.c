/* Our own signal in batches; see submit.h. */
#include "venus/server/submit.h"

#include "venus/common/chain.h"

#include <stdbool.h>
#include <string.h>

/* Decoded chains are ours to write to. */
static void *find_in_chain(const void *chain, VkStructureType type)
{
    return (void *)(uintptr_t)vn_chain_find(chain, type);
}

/* A copy, or an empty one where there is none. */
static void *copy_infos(struct hw_arena *arena, const void *infos, uint32_t count, size_t size)
{
    char *copy = hw_arena_calloc(arena, count ? count : 1, size);
    if (copy && count)
        memcpy(copy, infos, count * size);
    return copy;
}

/* A copy behind one more element, which is zero. */
static void *one_before(struct hw_arena *arena, const void *array, uint32_t count, size_t size)
{
    char *copy = hw_arena_calloc(arena, (size_t)count + 1, size);
    if (copy && array && count)
        memcpy(copy + size, array, count * size);
    return copy;
}

static VkSemaphore *add_semaphore(struct hw_arena *arena, const VkSemaphore *semaphores,
                                  uint32_t count, VkSemaphore ours)
{
    VkSemaphore *copy = one_before(arena, semaphores, count, sizeof(*copy));
    if (copy)
        copy[0] = ours;
    return copy;
}

/* A value for each of `needed` semaphores, from the one at `first` on: those of binary ones are
 * ignored, so zeros fill up what the client did not give. */
static uint64_t *values_for(struct hw_arena *arena, const uint64_t *values, uint32_t given,
                            uint32_t first, uint32_t needed)
{
    uint64_t *copy = hw_arena_calloc(arena, (size_t)needed + 1, sizeof(*copy));
    uint32_t room = needed - first;
    if (copy && values && given)
        memcpy(copy + first, values, (given < room ? given : room) * sizeof(*copy));
    return copy;
}

/* The chain with values for all semaphores, the first signal's being ours; NULL when out of memory.
 */
static const void *with_values(struct hw_arena *arena, const void *chain, uint32_t waits,
                               uint32_t signals, uint64_t value)
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
    uint64_t *wait =
        values_for(arena, info->pWaitSemaphoreValues, info->waitSemaphoreValueCount, 0, waits);
    uint64_t *signal = values_for(arena, info->pSignalSemaphoreValues,
                                  info->signalSemaphoreValueCount, 1, signals);
    if (!wait || !signal)
        return NULL;
    signal[0] = value;
    info->waitSemaphoreValueCount = waits;
    info->pWaitSemaphoreValues = wait;
    info->signalSemaphoreValueCount = signals;
    info->pSignalSemaphoreValues = signal;
    return result;
}

/* Device groups name a device for each semaphore; ours is signalled by the first. */
static bool with_device_index(struct hw_arena *arena, const void *chain)
{
    VkDeviceGroupSubmitInfo *group =
        find_in_chain(chain, VK_STRUCTURE_TYPE_DEVICE_GROUP_SUBMIT_INFO);
    if (!group || group->signalSemaphoreCount == 0)
        return true;
    uint32_t *indices = one_before(arena, group->pSignalSemaphoreDeviceIndices,
                                   group->signalSemaphoreCount, sizeof(*indices));
    if (!indices)
        return false;
    group->pSignalSemaphoreDeviceIndices = indices;
    group->signalSemaphoreCount++;
    return true;
}

static bool complete(struct hw_arena *arena, VkSubmitInfo *info, const struct vn_signal *signal,
                     uint64_t value)
{
    VkSemaphore *semaphores = add_semaphore(arena, info->pSignalSemaphores,
                                            info->signalSemaphoreCount, signal->semaphore);
    if (!semaphores || !with_device_index(arena, info->pNext))
        return false;
    info->pSignalSemaphores = semaphores;
    info->signalSemaphoreCount++;
    info->pNext = with_values(arena, info->pNext, info->waitSemaphoreCount,
                              info->signalSemaphoreCount, value);
    return info->pNext != NULL;
}

VkSubmitInfo *vn_submit_infos(struct hw_arena *arena, const VkSubmitInfo *infos, uint32_t count,
                              const struct vn_signal *signal)
{
    VkSubmitInfo *copy = copy_infos(arena, infos, count, sizeof(*copy));
    if (copy && count == 0)
        copy[0].sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    for (uint32_t i = 0; copy && i < (count ? count : 1); i++) {
        if (signal->values[i] && !complete(arena, &copy[i], signal, signal->values[i]))
            return NULL;
    }
    return copy;
}

VkSubmitInfo2 *vn_submit_infos2(struct hw_arena *arena, const VkSubmitInfo2 *infos, uint32_t count,
                                const struct vn_signal *signal)
{
    VkSubmitInfo2 *copy = copy_infos(arena, infos, count, sizeof(*copy));
    if (copy && count == 0)
        copy[0].sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2;
    for (uint32_t i = 0; copy && i < (count ? count : 1); i++) {
        VkSubmitInfo2 *info = &copy[i];
        if (!signal->values[i])
            continue;
        VkSemaphoreSubmitInfo *signals = one_before(
            arena, info->pSignalSemaphoreInfos, info->signalSemaphoreInfoCount, sizeof(*signals));
        if (!signals)
            return NULL;
        signals[0] = (VkSemaphoreSubmitInfo){.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                             .semaphore = signal->semaphore,
                                             .value = signal->values[i],
                                             .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
        info->pSignalSemaphoreInfos = signals;
        info->signalSemaphoreInfoCount++;
    }
    return copy;
}

VkBindSparseInfo *vn_submit_sparse(struct hw_arena *arena, const VkBindSparseInfo *infos,
                                   uint32_t count, const struct vn_signal *signal)
{
    VkBindSparseInfo *copy = copy_infos(arena, infos, count, sizeof(*copy));
    if (copy && count == 0)
        copy[0].sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO;
    for (uint32_t i = 0; copy && i < (count ? count : 1); i++) {
        VkBindSparseInfo *info = &copy[i];
        if (!signal->values[i])
            continue;
        info->pSignalSemaphores = add_semaphore(arena, info->pSignalSemaphores,
                                                info->signalSemaphoreCount, signal->semaphore);
        if (!info->pSignalSemaphores)
            return NULL;
        info->signalSemaphoreCount++;
        info->pNext = with_values(arena, info->pNext, info->waitSemaphoreCount,
                                  info->signalSemaphoreCount, signal->values[i]);
        if (!info->pNext)
            return NULL;
    }
    return copy;
}
