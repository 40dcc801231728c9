/* venus/common/counts.h - what a device's connection has carried, for programs that measure it.
 *
 * Hawser's driver answers vkGetDeviceProcAddr(device, VN_COUNTS_NAME) with a vn_counts_fn, which no
 * other driver has.
 *
 * Threads: any.  Lifetime: values. */
#ifndef HAWSER_VENUS_COMMON_COUNTS_H
#define HAWSER_VENUS_COMMON_COUNTS_H

#include <stdint.h>

#include <vulkan/vulkan_core.h>

#define VN_COUNTS_NAME "hawserGetCounts"

struct vn_counts {
    uint64_t exchanges; /* times that a call of the program's waited for the server */
    uint64_t messages_sent, messages_received;
    uint64_t writes, reads; /* of the transport */
    uint64_t bytes_sent, bytes_received;
};

typedef void(VKAPI_PTR *vn_counts_fn)(VkDevice device, struct vn_counts *out);

#endif
