/* Memory types laid over the driver's; see memory_types.h. */
#include "venus/client/device/memory_types.h"

#include <assert.h>
#include <string.h>

enum {
    COHERENT = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    HOST = COHERENT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    BOTH = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
};

/* The first type that has all the flags, or -1. */
static int find(const VkPhysicalDeviceMemoryProperties *from, VkMemoryPropertyFlags flags)
{
    for (uint32_t i = 0; i < from->memoryTypeCount; i++) {
        if ((from->memoryTypes[i].propertyFlags & flags) == flags)
            return (int)i;
    }
    return -1;
}

static void hide_device_memory(struct vnc_memory_types *types)
{
    for (uint32_t i = 0; i < types->offered.memoryTypeCount; i++) {
        VkMemoryType *type = &types->offered.memoryTypes[i];
        if ((type->propertyFlags & BOTH) == BOTH)
            type->propertyFlags &= ~(VkMemoryPropertyFlags)HOST;
    }
}

/* A type and a heap for the host, backed by the driver's type `behind`. */
static void append(struct vnc_memory_types *types, const VkMemoryType *behind, uint32_t index)
{
    VkPhysicalDeviceMemoryProperties *offered = &types->offered;
    uint32_t type = offered->memoryTypeCount++, heap = offered->memoryHeapCount++;
    offered->memoryTypes[type] =
        (VkMemoryType){.propertyFlags = behind->propertyFlags &
                                        ~(VkMemoryPropertyFlags)VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                       .heapIndex = heap};
    offered->memoryHeaps[heap] = offered->memoryHeaps[behind->heapIndex];
    offered->memoryHeaps[heap].flags &= ~(VkMemoryHeapFlags)VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
    types->driver_type[type] = index;
    types->heap_of[heap] = behind->heapIndex;
}

/* The server reads host memory to compare it, and reading what is not cached costs a hundred times
 * more; to the program it is a shadow either way.  So an uncached type of the host's is backed by
 * the cached one of the same heap. */
static void prefer_cached(struct vnc_memory_types *types,
                          const VkPhysicalDeviceMemoryProperties *driver)
{
    for (uint32_t i = 0; i < driver->memoryTypeCount; i++) {
        const VkMemoryType *type = &driver->memoryTypes[i];
        if (type->propertyFlags != COHERENT)
            continue;
        for (uint32_t j = 0; j < driver->memoryTypeCount; j++) {
            if (driver->memoryTypes[j].propertyFlags == HOST &&
                driver->memoryTypes[j].heapIndex == type->heapIndex)
                types->driver_type[i] = j;
        }
    }
}

void vnc_memory_types_init(struct vnc_memory_types *types,
                           const VkPhysicalDeviceMemoryProperties *driver,
                           bool visible_device_memory)
{
    assert(driver->memoryTypeCount <= VK_MAX_MEMORY_TYPES);
    assert(driver->memoryHeapCount <= VK_MAX_MEMORY_HEAPS);
    types->offered = *driver;
    for (uint32_t i = 0; i < VK_MAX_MEMORY_TYPES; i++)
        types->driver_type[i] = i;
    for (uint32_t i = 0; i < VK_MAX_MEMORY_HEAPS; i++)
        types->heap_of[i] = i;
    prefer_cached(types, driver);
    if (visible_device_memory)
        return;
    hide_device_memory(types);
    int behind = find(driver, COHERENT);
    if (find(&types->offered, COHERENT) >= 0 || behind < 0)
        return;
    if (driver->memoryTypeCount < VK_MAX_MEMORY_TYPES &&
        driver->memoryHeapCount < VK_MAX_MEMORY_HEAPS)
        append(types, &driver->memoryTypes[behind], (uint32_t)behind);
    else
        types->offered.memoryTypes[behind] = driver->memoryTypes[behind];
}

/* What is hidden of a type that is offered as device-local only is seen at the one added for it. */
bool vnc_memory_types_is_cached(const struct vnc_memory_types *types, uint32_t type)
{
    const VkMemoryType *all = types->offered.memoryTypes;
    return (all[type].propertyFlags | all[types->driver_type[type]].propertyFlags) &
           VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
}

uint32_t vnc_memory_types_translate(const struct vnc_memory_types *types, uint32_t driver_bits)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < types->offered.memoryTypeCount; i++) {
        if (driver_bits & (1u << types->driver_type[i]))
            bits |= 1u << i;
    }
    return bits;
}

uint32_t vnc_memory_types_unmappable(const struct vnc_memory_types *types)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < types->offered.memoryTypeCount; i++) {
        if (!(types->offered.memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT))
            bits |= 1u << i;
    }
    return bits;
}

void vnc_memory_types_budget(const struct vnc_memory_types *types,
                             const VkPhysicalDeviceMemoryBudgetPropertiesEXT *driver,
                             VkPhysicalDeviceMemoryBudgetPropertiesEXT *offered)
{
    memset(offered->heapBudget, 0, sizeof(offered->heapBudget));
    memset(offered->heapUsage, 0, sizeof(offered->heapUsage));
    for (uint32_t i = 0; i < types->offered.memoryHeapCount; i++) {
        offered->heapBudget[i] = driver->heapBudget[types->heap_of[i]];
        offered->heapUsage[i] = driver->heapUsage[types->heap_of[i]];
    }
}
