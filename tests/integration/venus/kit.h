/* tests/integration/venus/kit.h - what the programs share that a test runs on a remote GPU and then
 * gets into trouble: devices, buffers, work, and talk with the test.
 *
 * A program says lines on stdout and reads lines from stdin, so that both sides know where the
 * other is without waiting for time.  What must hold is checked with VKT and VKT_EXPECT (vkt.h),
 * which end the process.
 *
 * Trust: none needed.  Threads: any, each with a struct gpu of its own.
 * Lifetime: open/close; close also works on a device that is lost. */
#ifndef HAWSER_TESTS_INTEGRATION_VENUS_KIT_H
#define HAWSER_TESTS_INTEGRATION_VENUS_KIT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../vulkan/vkt.h"

enum {
    KIT_DEVICES_MAX = 16, /* of an instance; two servers with a device each are usual here */
    KIT_WORDS = 4096,     /* of a struct gpu's buffer: several pages */
    KIT_BYTES = KIT_WORDS * 4,
};

/* ---- talk ---- */

/* One line to the test. */
void kit_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Waits for the line that the test says; fails when it says another, or has gone. */
void kit_await(const char *line);

struct kit_case {
    const char *name;
    void (*run)(void);
};

/* PROGRAM CASE runs the case; status 0, or 1 with a line on stderr. */
int kit_main(int argc, char **argv, const struct kit_case *cases, size_t count);
#define KIT_MAIN(cases)                                                                            \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return kit_main(argc, argv, cases, VKT_COUNT(cases));                                      \
    }

/* ---- instances and devices ---- */

VkInstance kit_instance(void);
/* How many there are, 0 also where the loader says that there is none. */
uint32_t kit_devices(VkInstance instance, VkPhysicalDevice out[KIT_DEVICES_MAX]);

struct buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    uint32_t *map; /* coherent */
    VkDeviceSize size;
};

struct gpu {
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    VkCommandPool pool;
    VkFence fence;
    struct buffer out; /* KIT_BYTES, for kit_work */
    VkCommandBuffer commands;
};

void kit_open(struct gpu *gpu, VkPhysicalDevice physical);
void kit_close(struct gpu *gpu);
/* An instance and its first device; closes both. */
VkInstance kit_open_first(struct gpu *gpu);
void kit_close_all(struct gpu *gpu, VkInstance instance);
/* As kit_open, but a device that cannot be made is told, with gpu untouched. */
VkResult kit_try_device(VkPhysicalDevice physical, VkDevice *out);

uint32_t kit_coherent_type(VkPhysicalDevice physical);
void kit_buffer_open(const struct gpu *gpu, struct buffer *buffer, VkDeviceSize size);
void kit_buffer_close(const struct gpu *gpu, struct buffer *buffer);

VkCommandBuffer kit_command(const struct gpu *gpu);
VkSemaphore kit_timeline(const struct gpu *gpu);

/* ---- work ---- */

/* Records that the buffer is filled with the value. */
VkResult kit_record_fill(VkCommandBuffer commands, const struct buffer *buffer, uint32_t value);
VkResult kit_submit(const struct gpu *gpu, VkCommandBuffer commands, VkFence fence);
/* Submits what cannot begin before the timeline reaches a value; signals value + 1 after it. */
VkResult kit_submit_after(const struct gpu *gpu, VkSemaphore timeline, uint64_t value,
                          VkFence fence);
/* Fills gpu->out on the device, waits, and looks at every word. */
VkResult kit_work(struct gpu *gpu, uint32_t value);
/* The same for work that must succeed. */
void kit_must_work(struct gpu *gpu, uint32_t value);

/* Opens an instance and its first device, works, and closes both. */
void kit_check_new_instance(uint32_t value);

#endif
