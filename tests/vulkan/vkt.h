/* vkt.h - what the Vulkan differential programs share: a device, buffers, images, kernels, output.
 *
 * A program holds cases of one subject; a process runs one of them, or several in turn (vkt_main).
 * A case says what it found on stdout, in lines that depend on nothing but the driver: no address,
 * time, memory type or extension list, since those are where a remote GPU may rightly differ.
 *
 * Trust: none needed.  Threads: vkt_fail, vkt_check and vkt_expect from any; all else from the
 * thread that runs the case.  Lifetime: everything made or kept here is destroyed after the case,
 * last made first.  Errors end the process: "fail: ..." on stderr, status 1; a missing feature is
 * "skip: ..." on stdout, status 77. */
#ifndef HAWSER_TESTS_VULKAN_VKT_H
#define HAWSER_TESTS_VULKAN_VKT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <vulkan/vulkan.h>

enum {
    VKT_QUEUES_MAX = 8,             /* enough for a second queue and each kind of family */
    VKT_KEPT_MAX = 8192,            /* objects of one case; the largest makes a thousand */
    VKT_BINDINGS_MAX = 8,           /* of a kernel; the largest has four */
    VKT_WAIT_SECONDS = 200,         /* a hang fails with a name; the slowest case takes two */
    VKT_SHADER_BYTES_MAX = 1 << 20, /* SPIR-V of one shader; the largest has 4 KiB */
};

#define VKT_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define VKT_WAIT_NS (VKT_WAIT_SECONDS * UINT64_C(1000000000))

/* --- cases ------------------------------------------------------------------------------------ */

struct vkt_case {
    const char *name;
    void (*run)(void);
    const char *invalid; /* NULL, or why the validation layer must not see the case */
};

/* PROGRAM --list prints "name" or "name<space>reason" lines; PROGRAM NAME runs that case.  Several
 * names are run with one instance: "== NAME" stands before what each says, and one that is skipped
 * ends only itself. */
int vkt_main(int argc, char **argv, const struct vkt_case *cases, size_t count);
#define VKT_MAIN(cases)                                                                            \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return vkt_main(argc, argv, cases, VKT_COUNT(cases));                                      \
    }

void vkt_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void vkt_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void vkt_check(VkResult result, const char *call);
void vkt_expect(bool holds, const char *what);

/* The call must succeed. */
#define VKT(call) vkt_check((call), #call)
/* The condition must hold: what the specification promises of the results, driver or no driver. */
#define VKT_EXPECT(condition) vkt_expect((condition), #condition)
/* The case is skipped unless the device offers it. */
#define VKT_NEED(condition)                                                                        \
    do {                                                                                           \
        if (!(condition))                                                                          \
            vkt_skip("no %s", #condition);                                                         \
    } while (0)

/* --- output ----------------------------------------------------------------------------------- */

/* "NAME LENGTH XXH64 FIRST-32-BYTES" in hex. */
void vkt_out(const char *name, const void *bytes, size_t length);
void vkt_out_u64(const char *name, uint64_t value);
void vkt_out_result(const char *name, VkResult result);

/* --- device ----------------------------------------------------------------------------------- */

struct vkt_queue {
    VkQueue handle;
    uint32_t family;
    VkQueueFlags flags;
};

/* The instance and the physical device (VKT_DEVICE, an index; 0) are there before the case runs;
 * the rest after vkt_open. */
struct vkt {
    VkInstance instance;
    VkPhysicalDevice physical;
    VkPhysicalDeviceProperties props;
    VkPhysicalDeviceMemoryProperties memory;
    VkPhysicalDeviceFeatures f10;
    VkPhysicalDeviceVulkan11Features f11;
    VkPhysicalDeviceVulkan12Features f12;
    VkPhysicalDeviceVulkan13Features f13;
    bool debug_utils;
    VkDevice device;
    VkQueue queue; /* graphics and compute */
    uint32_t family;
    uint32_t queue_count;
    struct vkt_queue queues[VKT_QUEUES_MAX];
    VkCommandPool pool;
};
extern struct vkt vkt;

/* A device with every core feature it offers.  features: NULL or a chain for the extensions, which
 * end with NULL; the case is skipped where one is missing. */
void vkt_open(void);
void vkt_open_with(void *features, const char *const *extensions);
#define VKT_OPEN_WITH(features, ...)                                                               \
    vkt_open_with((features), (const char *const[]){__VA_ARGS__, NULL})
bool vkt_has_extension(const char *name);
/* How often the program has waited for a server; 0 natively. */
uint64_t vkt_exchanges(void);
/* The command, or a failed case. */
PFN_vkVoidFunction vkt_proc(const char *name);
#define VKT_PROC(name) ((PFN_##name)vkt_proc(#name))

/* Destroys the object, a child of vkt.device, after the case. */
void vkt_keep(VkObjectType type, uint64_t handle);
#define VKT_KEEP(type, handle) vkt_keep(VK_OBJECT_TYPE_##type, (uint64_t)(handle))

/* --- memory and buffers ----------------------------------------------------------------------- */

enum vkt_memory {
    VKT_COHERENT, /* host-visible, host-coherent */
    VKT_CACHED,   /* host-visible and not coherent where there is such a type, else coherent */
    VKT_DEVICE,   /* device-local; never mapped here */
};

uint32_t vkt_memory_type(uint32_t allowed, enum vkt_memory kind);
VkDeviceMemory vkt_allocate(VkMemoryRequirements needs, enum vkt_memory kind, const void *next);

struct vkt_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    VkDeviceSize size;
    void *map; /* NULL for VKT_DEVICE */
};

/* Usage gains TRANSFER_SRC and TRANSFER_DST; mapped memory is zeroed and flushed. */
struct vkt_buffer vkt_buffer(VkDeviceSize size, VkBufferUsageFlags usage, enum vkt_memory kind);
/* A storage buffer in coherent memory that holds bytes (NULL: zeros). */
struct vkt_buffer vkt_storage(VkDeviceSize size, const void *bytes);
VkBuffer vkt_buffer_only(VkDeviceSize size, VkBufferUsageFlags usage);
void vkt_flush(const struct vkt_buffer *buffer);
void vkt_invalidate(const struct vkt_buffer *buffer);
/* vkt_out of the contents, through a staging copy where it is not mapped. */
void vkt_out_buffer(const char *name, const struct vkt_buffer *buffer);
/* words[i] = a simple hash of seed and i. */
void vkt_pattern(void *words, size_t bytes, uint32_t seed);

/* --- commands --------------------------------------------------------------------------------- */

VkCommandPool vkt_command_pool(uint32_t family, VkCommandPoolCreateFlags flags);
VkCommandBuffer vkt_command(VkCommandPool pool, VkCommandBufferLevel level);
/* A one-time command buffer of vkt.pool, recording. */
VkCommandBuffer vkt_begin(void);
/* Ends, submits, waits and frees what vkt_begin gave. */
void vkt_finish(VkCommandBuffer command);
void vkt_record(VkCommandBuffer command, VkCommandBufferUsageFlags flags);
void vkt_submit(VkCommandBuffer command, VkFence fence);
void vkt_wait(VkFence fence);
VkFence vkt_fence(bool signaled);
VkSemaphore vkt_semaphore(void);
VkSemaphore vkt_timeline(uint64_t value);
/* All before, host and device, is visible to all after. */
void vkt_barrier(VkCommandBuffer command);
void vkt_copy(VkCommandBuffer command, const struct vkt_buffer *from, const struct vkt_buffer *to);

/* --- shaders, descriptors, kernels ------------------------------------------------------------ */

/* From shaders/NAME.spv beside the program; the code is the caller's to free. */
VkShaderModuleCreateInfo vkt_code(const char *name);
VkShaderModule vkt_shader(const char *name);

/* Bindings as letters: s storage buffer, S dynamic; u uniform buffer, U dynamic; t uniform texel
 * buffer, T storage; i storage image, c combined image sampler, d sampled image, p sampler,
 * a input attachment, r what rays are traced in. */
VkDescriptorType vkt_type(char letter);
VkDescriptorSetLayout vkt_set_layout(const char *types, VkDescriptorSetLayoutCreateFlags flags);
/* A set with a pool of its own. */
VkDescriptorSet vkt_set(VkDescriptorSetLayout layout, const char *types);
VkPipelineLayout vkt_layout(VkDescriptorSetLayout set_layout, uint32_t push_bytes);
void vkt_write_buffer(VkDescriptorSet set, uint32_t binding, VkDescriptorType type, VkBuffer buffer,
                      VkDeviceSize offset, VkDeviceSize range);
void vkt_write_image(VkDescriptorSet set, uint32_t binding, VkDescriptorType type,
                     VkSampler sampler, VkImageView view, VkImageLayout layout);
void vkt_write_texel(VkDescriptorSet set, uint32_t binding, VkDescriptorType type,
                     VkBufferView view);

struct vkt_kernel {
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    VkPipeline pipeline;
    VkDescriptorSet set; /* VK_NULL_HANDLE without types */
    uint32_t push_bytes;
};

struct vkt_kernel vkt_kernel(const char *shader, const char *types, uint32_t push_bytes);
VkPipeline vkt_compute_pipeline(const char *shader, VkPipelineLayout layout,
                                const VkSpecializationInfo *constants);
/* A whole storage buffer. */
void vkt_kernel_bind(const struct vkt_kernel *kernel, uint32_t binding,
                     const struct vkt_buffer *buffer);
/* Binds all, pushes kernel->push_bytes of push, dispatches groups, then vkt_barrier. */
void vkt_kernel_record(VkCommandBuffer command, const struct vkt_kernel *kernel, const void *push,
                       uint32_t groups);
void vkt_kernel_run(const struct vkt_kernel *kernel, const void *push, uint32_t groups);

#endif
