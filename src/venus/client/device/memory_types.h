/* venus/client/device/memory_types.h - the memory types that programs see, laid over the driver's.
 *
 * Mapped memory is kept twice, so memory that is both DEVICE_LOCAL and HOST_VISIBLE is offered as
 * device-local only, unless the user asks for it: programs would put their weights there.  A type
 * that is HOST_VISIBLE and HOST_COHERENT is always there, as Vulkan promises; where the driver has
 * only device-local ones, we add one with a heap of its own.  The driver's types keep their
 * indices.
 *
 * Trust: the driver's figures were bounded when they came.
 * Threads: any; a value.  Lifetime: a value. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_MEMORY_TYPES_H
#define HAWSER_VENUS_CLIENT_DEVICE_MEMORY_TYPES_H

#include <stdbool.h>
#include <stdint.h>
#include <vulkan/vulkan_core.h>

struct vnc_memory_types {
    VkPhysicalDeviceMemoryProperties offered;
    uint32_t driver_type[VK_MAX_MEMORY_TYPES]; /* behind each offered type */
    uint32_t heap_of[VK_MAX_MEMORY_HEAPS];     /* the driver's heap behind each offered heap */
};

/* visible_device_memory: offer what the driver has, as it is. */
void vnc_memory_types_init(struct vnc_memory_types *types,
                           const VkPhysicalDeviceMemoryProperties *driver,
                           bool visible_device_memory);

/* Whether the server's CPU caches what is behind an offered type. */
bool vnc_memory_types_is_cached(const struct vnc_memory_types *types, uint32_t type);

/* memoryTypeBits of the driver to ours. */
uint32_t vnc_memory_types_translate(const struct vnc_memory_types *types, uint32_t driver_bits);

/* The offered types that the host cannot map. */
uint32_t vnc_memory_types_unmappable(const struct vnc_memory_types *types);

/* Budgets of the driver's heaps to ours. */
void vnc_memory_types_budget(const struct vnc_memory_types *types,
                             const VkPhysicalDeviceMemoryBudgetPropertiesEXT *driver,
                             VkPhysicalDeviceMemoryBudgetPropertiesEXT *offered);

#endif
