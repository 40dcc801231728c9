/* base/driver_counts.h - what the connection of Hawser's Vulkan driver has carried.
 *
 * Hawser's driver answers vkGetDeviceProcAddr(device, HW_DRIVER_COUNTS_NAME) with a
 * hw_driver_counts_fn; other drivers answer NULL.  A program that measures the driver reads the
 * counts through it.
 *
 * Threads: any.  Lifetime: values. */
#ifndef HAWSER_BASE_DRIVER_COUNTS_H
#define HAWSER_BASE_DRIVER_COUNTS_H

#include <stdint.h>

#define HW_DRIVER_COUNTS_NAME "hawserGetCounts"

struct hw_driver_counts {
    uint64_t exchanges; /* times that a call of the program waited for the server */
    uint64_t messages_sent, messages_received;
    uint64_t writes, reads; /* of the transport */
    uint64_t bytes_sent, bytes_received;
};

/* device: a VkDevice. */
typedef void hw_driver_counts_fn(void *device, struct hw_driver_counts *out);

#endif
