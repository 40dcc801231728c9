/* VK_EXT_device_fault: why a device was lost, as far as the client was told; see device.h. */
#include "venus/client/device/device.h"
#include "venus/client/submit/queue.h"
#include "venus/common/commands.h"

#include <stdatomic.h>
#include <stdio.h>

static bool describe_failed_command(const struct vnc_device *device, char *out, size_t room)
{
    uint32_t command;
    VkResult result;
    if (!vnc_pushes_find_failure(device->pushes, device->object.id, &command, &result))
        return false;
    const char *name = vn_command_name(command);
    snprintf(out, room, "%s failed at the server with VkResult %d", name ? name : "a command",
             (int)result);
    return true;
}

static bool describe_failed_queue(const struct vnc_device *device, char *out, size_t room)
{
    for (uint32_t i = 0; i < device->queue_count; i++) {
        const struct vnc_queue *queue = device->queues[i];
        int32_t result = atomic_load_explicit(&queue->result, memory_order_relaxed);
        if (!result)
            continue;
        snprintf(out, room, "work on queue %u of family %u ended with VkResult %d", queue->index,
                 queue->family, (int)result);
        return true;
    }
    return false;
}

static void describe(const struct vnc_device *device, char *out, size_t room)
{
    const struct vnc_link *link = vnc_device_link(device);
    const char *why = vnc_link_why_lost(link);
    if (why)
        snprintf(out, room, "the GPU at %s is lost: %s", vnc_link_address(link), why);
    else if (!describe_failed_command(device, out, room) &&
             !describe_failed_queue(device, out, room))
        snprintf(out, room, "no fault is known");
}

/* There are no addresses and no data of the vendor: those stay in the server's machine. */
static VKAPI_ATTR VkResult VKAPI_CALL get_fault_info(VkDevice device,
                                                     VkDeviceFaultCountsEXT *counts,
                                                     VkDeviceFaultInfoEXT *info)
{
    counts->addressInfoCount = 0;
    counts->vendorInfoCount = 0;
    counts->vendorBinarySize = 0;
    if (info)
        describe(VNC_OBJECT(vnc_device, device), info->description, sizeof(info->description));
    return VK_SUCCESS;
}

const struct vnc_entry vnc_entries_fault[] = {
    VNC_ENTRY(vkGetDeviceFaultInfoEXT, get_fault_info),
    {NULL, NULL},
};
