/* limits.c - programs that want more than a server gives to one client. */
#include <stdlib.h>

#include "kit.h"

enum {
    MEMORY_MIB = 64,           /* the test's --max-memory */
    OBJECTS = 4096,            /* more than the test's --max-objects */
    SUBMISSIONS_MAX = 1 << 20, /* far past any limit on pending work */
};

static VkResult allocate(const struct gpu *gpu, uint32_t mib, VkDeviceMemory *out)
{
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = (VkDeviceSize)mib << 20,
                                 .memoryTypeIndex = kit_coherent_type(gpu->physical)};
    return vkAllocateMemory(gpu->device, &info, NULL, out);
}

/* What was asked for in vain costs nothing; what is freed can be had again. */
static void memory(void)
{
    struct gpu gpu;
    VkDeviceMemory half, whole;
    VkInstance instance = kit_open_first(&gpu);
    VKT(allocate(&gpu, MEMORY_MIB / 2, &half));
    VKT_EXPECT(allocate(&gpu, MEMORY_MIB, &whole) == VK_ERROR_OUT_OF_DEVICE_MEMORY);
    VKT_EXPECT(allocate(&gpu, MEMORY_MIB, &whole) == VK_ERROR_OUT_OF_DEVICE_MEMORY);
    kit_must_work(&gpu, 1);
    vkFreeMemory(gpu.device, half, NULL);
    VKT(allocate(&gpu, MEMORY_MIB - 1, &whole));
    vkFreeMemory(gpu.device, whole, NULL);
    kit_must_work(&gpu, 2);
    kit_close_all(&gpu, instance);
}

static void objects(void)
{
    static VkBuffer buffers[OBJECTS];
    struct gpu gpu;
    uint32_t count = 0;
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = 64,
                               .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkInstance instance = kit_open_first(&gpu);
    while (count < OBJECTS &&
           vkCreateBuffer(gpu.device, &info, NULL, &buffers[count]) == VK_SUCCESS)
        count++;
    VKT_EXPECT(kit_work(&gpu, 1) == VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(vkDeviceWaitIdle(gpu.device) == VK_ERROR_DEVICE_LOST);
    while (count > 0)
        vkDestroyBuffer(gpu.device, buffers[--count], NULL);
    kit_close_all(&gpu, instance);
}

static void flood(void)
{
    struct gpu gpu;
    VkResult result = VK_SUCCESS;
    VkInstance instance = kit_open_first(&gpu);
    VkSemaphore never = kit_timeline(&gpu);
    VKT(kit_record_fill(gpu.commands, &gpu.out, 1));
    VKT(kit_submit_after(&gpu, never, 1, VK_NULL_HANDLE));
    for (uint32_t i = 0; i < SUBMISSIONS_MAX && result == VK_SUCCESS; i++)
        result = kit_submit(&gpu, gpu.commands, VK_NULL_HANDLE);
    VKT_EXPECT(result == VK_ERROR_DEVICE_LOST);
    kit_say("ended");
    vkDestroySemaphore(gpu.device, never, NULL);
    kit_close_all(&gpu, instance);
}

static const struct kit_case cases[] = {
    {"memory", memory},
    {"objects", objects},
    {"flood", flood},
};

KIT_MAIN(cases)
