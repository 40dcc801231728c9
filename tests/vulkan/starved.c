/* starved.c - a small program whose driver runs out of memory at each allocation in turn.
 *
 * The driver is a part of this program, linked so that its allocations, mappings and threads come
 * by here.  Each round runs the same Vulkan program once more and lets the next allocation fail.
 * Calls may answer that memory is out or that the device is lost; what succeeds must be right, the
 * process must live, and a sanitizer build must find no leak. */
#include "starving.h"
#include "vkt.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    WORDS = 1024,
    BYTES = WORDS * 4,
    STEP = 3,
    SAMPLE = 7,        /* of the allocations at which memory goes for good, each so many-th */
    ROUNDS_MAX = 5000, /* far more than the program allocates: a count that grows has no end */
    COUNTED = 1 << 30, /* allocations that none reaches */
    SESSION_ROUNDS = 40,
};

/* ---- memory that runs out ---- */

static struct starving ours = {.left = -1}, *control = &ours; /* of this process, or its session */

static bool fails(void)
{
    return starving_next(&ours);
}

#define WRAP(type, name, parameters, arguments, otherwise)                                         \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        if (fails())                                                                               \
            return otherwise;                                                                      \
        return __real_##name arguments;                                                            \
    }
WRAP(void *, malloc, (size_t n), (n), (errno = ENOMEM, NULL))
WRAP(void *, calloc, (size_t n, size_t size), (n, size), (errno = ENOMEM, NULL))
WRAP(void *, realloc, (void *p, size_t n), (p, n), (errno = ENOMEM, NULL))
WRAP(char *, strdup, (const char *s), (s), (errno = ENOMEM, NULL))
/* What mmap is where files may be large, everywhere in Hawser. */
WRAP(void *, mmap64, (void *addr, size_t len, int prot, int flags, int fd, off64_t off),
     (addr, len, prot, flags, fd, off), (errno = ENOMEM, MAP_FAILED))
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
     (thread, attr, run, arg), EAGAIN)

/* ---- the driver ---- */

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
                                                                   const char *name);

#define COMMANDS(X)                                                                                \
    X(vkDestroyInstance)                                                                           \
    X(vkEnumeratePhysicalDevices)                                                                  \
    X(vkGetPhysicalDeviceMemoryProperties)                                                         \
    X(vkCreateDevice)                                                                              \
    X(vkDestroyDevice)                                                                             \
    X(vkGetDeviceQueue)                                                                            \
    X(vkCreateBuffer)                                                                              \
    X(vkDestroyBuffer)                                                                             \
    X(vkGetBufferMemoryRequirements)                                                               \
    X(vkAllocateMemory)                                                                            \
    X(vkFreeMemory)                                                                                \
    X(vkBindBufferMemory)                                                                          \
    X(vkMapMemory)                                                                                 \
    X(vkUnmapMemory)                                                                               \
    X(vkCreateShaderModule)                                                                        \
    X(vkDestroyShaderModule)                                                                       \
    X(vkCreateDescriptorSetLayout)                                                                 \
    X(vkDestroyDescriptorSetLayout)                                                                \
    X(vkCreatePipelineLayout)                                                                      \
    X(vkDestroyPipelineLayout)                                                                     \
    X(vkCreateComputePipelines)                                                                    \
    X(vkDestroyPipeline)                                                                           \
    X(vkCreateDescriptorPool)                                                                      \
    X(vkDestroyDescriptorPool)                                                                     \
    X(vkAllocateDescriptorSets)                                                                    \
    X(vkUpdateDescriptorSets)                                                                      \
    X(vkCreateCommandPool)                                                                         \
    X(vkDestroyCommandPool)                                                                        \
    X(vkAllocateCommandBuffers)                                                                    \
    X(vkBeginCommandBuffer)                                                                        \
    X(vkEndCommandBuffer)                                                                          \
    X(vkCmdBindPipeline)                                                                           \
    X(vkCmdBindDescriptorSets)                                                                     \
    X(vkCmdPushConstants)                                                                          \
    X(vkCmdDispatch)                                                                               \
    X(vkCmdPipelineBarrier)                                                                        \
    X(vkCmdCopyBuffer)                                                                             \
    X(vkCreateFence)                                                                               \
    X(vkDestroyFence)                                                                              \
    X(vkQueueSubmit)                                                                               \
    X(vkWaitForFences)

static struct {
#define X(name) PFN_##name name;
    COMMANDS(X)
#undef X
} vk;

static bool load(VkInstance instance)
{
#define X(name)                                                                                    \
    vk.name = (PFN_##name)vk_icdGetInstanceProcAddr(instance, #name);                              \
    VKT_EXPECT(vk.name);
    COMMANDS(X)
#undef X
    return true;
}

/* ---- the program ---- */

static struct scene {
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    VkBuffer buffers[2]; /* written by the shader; a copy of it */
    VkDeviceMemory memory;
    uint32_t *words;
    VkShaderModule shader;
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    VkPipeline pipeline;
    VkDescriptorPool descriptors;
    VkDescriptorSet set;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkFence fence;
} s;

static bool lost; /* the device, as a call has said */

static uint32_t code[4096];
static size_t code_bytes;

static void read_shader(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
    VKT_EXPECT(n > 0);
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/shaders/fill.comp.spv");
    FILE *file = fopen(path, "rb");
    VKT_EXPECT(file);
    code_bytes = fread(code, 1, sizeof(code), file);
    fclose(file);
    VKT_EXPECT(code_bytes > 0 && code_bytes < sizeof(code));
}

/* Whether to go on. */
static bool ok(VkResult result, const char *call)
{
    if (result == VK_SUCCESS)
        return true;
    if (!control->failed ||
        (result != VK_ERROR_OUT_OF_HOST_MEMORY && result != VK_ERROR_DEVICE_LOST &&
         result != VK_ERROR_OUT_OF_DEVICE_MEMORY))
        vkt_fail("%s: VkResult %d", call, result);
    lost |= result == VK_ERROR_DEVICE_LOST;
    fprintf(stderr, "%s: %d\n", call, result);
    return false;
}
#define OK(call) ok((call), #call)

/* A server that could not be asked for lack of memory has no device. */
static bool open_instance(void)
{
    PFN_vkCreateInstance create =
        (PFN_vkCreateInstance)vk_icdGetInstanceProcAddr(NULL, "vkCreateInstance");
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    uint32_t count = 1;
    if (!OK(create(&info, NULL, &s.instance)) || !load(s.instance) ||
        !OK(vk.vkEnumeratePhysicalDevices(s.instance, &count, &s.physical)))
        return false;
    VKT_EXPECT(count == 1 || control->failed);
    return count == 1;
}

static bool open_device(void)
{
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue};
    if (!OK(vk.vkCreateDevice(s.physical, &info, NULL, &s.device)))
        return false;
    vk.vkGetDeviceQueue(s.device, 0, 0, &s.queue);
    return true;
}

static uint32_t coherent_type(uint32_t allowed)
{
    VkPhysicalDeviceMemoryProperties properties;
    const VkMemoryPropertyFlags wanted =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    vk.vkGetPhysicalDeviceMemoryProperties(s.physical, &properties);
    for (uint32_t i = 0; i < properties.memoryTypeCount; i++) {
        if ((allowed >> i & 1) && (properties.memoryTypes[i].propertyFlags & wanted) == wanted)
            return i;
    }
    vkt_fail("no coherent memory");
}

static bool make_buffers(void)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = BYTES,
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryRequirements requirements = {0};
    for (int i = 0; i < 2; i++) {
        if (!OK(vk.vkCreateBuffer(s.device, &info, NULL, &s.buffers[i])))
            return false;
        vk.vkGetBufferMemoryRequirements(s.device, s.buffers[i], &requirements);
    }
    if (requirements.memoryTypeBits == 0)
        return lost = true, false; /* they could not be asked for: what returns nothing loses all */
    VkDeviceSize each =
        (BYTES + requirements.alignment - 1) / requirements.alignment * requirements.alignment;
    VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .allocationSize = 2 * each,
                                   .memoryTypeIndex = coherent_type(requirements.memoryTypeBits)};
    if (!OK(vk.vkAllocateMemory(s.device, &memory, NULL, &s.memory)) ||
        !OK(vk.vkBindBufferMemory(s.device, s.buffers[0], s.memory, 0)) ||
        !OK(vk.vkBindBufferMemory(s.device, s.buffers[1], s.memory, each)))
        return false;
    void *map;
    VkResult result = vk.vkMapMemory(s.device, s.memory, 0, VK_WHOLE_SIZE, 0, &map);
    if (result == VK_ERROR_MEMORY_MAP_FAILED || !ok(result, "vkMapMemory"))
        return false;
    s.words = (uint32_t *)((char *)map + each);
    memset(map, 0xff, 2 * each);
    return true;
}

static bool make_pipeline(void)
{
    VkShaderModuleCreateInfo module = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                       .codeSize = code_bytes,
                                       .pCode = code};
    VkDescriptorSetLayoutBinding binding = {.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                            .descriptorCount = 1,
                                            .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    VkDescriptorSetLayoutCreateInfo sets = {.sType =
                                                VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                            .bindingCount = 1,
                                            .pBindings = &binding};
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 8};
    if (!OK(vk.vkCreateShaderModule(s.device, &module, NULL, &s.shader)) ||
        !OK(vk.vkCreateDescriptorSetLayout(s.device, &sets, NULL, &s.set_layout)))
        return false;
    VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .setLayoutCount = 1,
                                         .pSetLayouts = &s.set_layout,
                                         .pushConstantRangeCount = 1,
                                         .pPushConstantRanges = &range};
    if (!OK(vk.vkCreatePipelineLayout(s.device, &layout, NULL, &s.layout)))
        return false;
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = s.shader,
                  .pName = "main"},
        .layout = s.layout};
    return OK(vk.vkCreateComputePipelines(s.device, VK_NULL_HANDLE, 1, &info, NULL, &s.pipeline));
}

static bool make_set(void)
{
    VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1};
    VkDescriptorPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                       .maxSets = 1,
                                       .poolSizeCount = 1,
                                       .pPoolSizes = &size};
    if (!OK(vk.vkCreateDescriptorPool(s.device, &pool, NULL, &s.descriptors)))
        return false;
    VkDescriptorSetAllocateInfo set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                       .descriptorPool = s.descriptors,
                                       .descriptorSetCount = 1,
                                       .pSetLayouts = &s.set_layout};
    if (!OK(vk.vkAllocateDescriptorSets(s.device, &set, &s.set)))
        return false;
    VkDescriptorBufferInfo buffer = {s.buffers[0], 0, BYTES};
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .dstSet = s.set,
                                  .descriptorCount = 1,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                  .pBufferInfo = &buffer};
    vk.vkUpdateDescriptorSets(s.device, 1, &write, 0, NULL);
    return true;
}

static void barrier(void)
{
    VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                           .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
                           .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_HOST_READ_BIT};
    vk.vkCmdPipelineBarrier(s.commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                            VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                            &all, 0, NULL, 0, NULL);
}

static bool record(uint32_t base)
{
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    if (!OK(vk.vkCreateCommandPool(s.device, &pool, NULL, &s.pool)))
        return false;
    VkCommandBufferAllocateInfo buffer = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                          .commandPool = s.pool,
                                          .commandBufferCount = 1};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    if (!OK(vk.vkAllocateCommandBuffers(s.device, &buffer, &s.commands)) ||
        !OK(vk.vkBeginCommandBuffer(s.commands, &begin)))
        return false;
    const uint32_t constants[] = {base, STEP};
    const VkBufferCopy all = {.size = BYTES};
    vk.vkCmdBindPipeline(s.commands, VK_PIPELINE_BIND_POINT_COMPUTE, s.pipeline);
    vk.vkCmdBindDescriptorSets(s.commands, VK_PIPELINE_BIND_POINT_COMPUTE, s.layout, 0, 1, &s.set,
                               0, NULL);
    vk.vkCmdPushConstants(s.commands, s.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(constants),
                          constants);
    vk.vkCmdDispatch(s.commands, WORDS / 64, 1, 1);
    barrier();
    vk.vkCmdCopyBuffer(s.commands, s.buffers[0], s.buffers[1], 1, &all);
    barrier();
    return OK(vk.vkEndCommandBuffer(s.commands));
}

static bool submit(void)
{
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &s.commands};
    return OK(vk.vkCreateFence(s.device, &fence, NULL, &s.fence)) &&
           OK(vk.vkQueueSubmit(s.queue, 1, &info, s.fence)) &&
           OK(vk.vkWaitForFences(s.device, 1, &s.fence, VK_TRUE, VKT_WAIT_NS));
}

static void close_work(void)
{
    vk.vkDestroyFence(s.device, s.fence, NULL);
    vk.vkDestroyCommandPool(s.device, s.pool, NULL);
    vk.vkDestroyDescriptorPool(s.device, s.descriptors, NULL);
    vk.vkDestroyPipeline(s.device, s.pipeline, NULL);
    vk.vkDestroyPipelineLayout(s.device, s.layout, NULL);
    vk.vkDestroyDescriptorSetLayout(s.device, s.set_layout, NULL);
    vk.vkDestroyShaderModule(s.device, s.shader, NULL);
    vk.vkDestroyBuffer(s.device, s.buffers[0], NULL);
    vk.vkDestroyBuffer(s.device, s.buffers[1], NULL);
    if (s.words)
        vk.vkUnmapMemory(s.device, s.memory);
    vk.vkFreeMemory(s.device, s.memory, NULL);
    memset(&s.buffers, 0, sizeof(s) - offsetof(struct scene, buffers));
}

static void close_device(void)
{
    if (s.device)
        vk.vkDestroyDevice(s.device, NULL);
    if (s.instance)
        vk.vkDestroyInstance(s.instance, NULL);
    memset(&s, 0, sizeof(s));
}

/* What succeeds as a whole must be right. */
static void work(uint32_t base)
{
    bool done = make_buffers() && make_pipeline() && make_set() && record(base) && submit();
    for (uint32_t i = 0; done && i < WORDS; i++) {
        if (s.words[i] != base + i * STEP)
            vkt_fail("word %u is %u, not %u", i, s.words[i], base + i * STEP);
    }
    VKT_EXPECT(done || control->failed);
    close_work();
}

/* ---- rounds ---- */

/* Leaves nothing, whatever failed. */
static void open_and_close(uint32_t base)
{
    (void)base;
    VKT_EXPECT((open_instance() && open_device()) || control->failed);
    close_device();
}

/* On the device of the last round, unless that was lost, or may be: by a destruction that could not
 * be sent when memory had gone for good. */
static void work_on_device(uint32_t base)
{
    work(base);
    if (lost || control->for_good)
        close_device();
}

static void open_unless_there(void)
{
    lost = false;
    if (!s.device)
        VKT_EXPECT(open_instance() && open_device());
}

static void everything(uint32_t base)
{
    if (open_instance() && open_device())
        work(base);
    VKT_EXPECT(s.device || control->failed);
    close_device();
}

/* Whether the allocation was reached. */
static bool starve_once(const char *what, void (*round)(uint32_t base), long n)
{
    VKT_EXPECT(n < ROUNDS_MAX);
    atomic_store(&control->failed, false);
    if (round == work_on_device)
        open_unless_there();
    fprintf(stderr, "%s: allocation %ld%s\n", what, n,
            control->for_good ? " and all after it" : "");
    atomic_store(&control->left, n);
    round((uint32_t)n);
    atomic_store(&control->left, -1);
    return control->failed;
}

static void starve(const char *what, void (*round)(uint32_t base), unsigned step)
{
    for (long n = 0; starve_once(what, round, n); n += step)
        ;
    close_device();
}

static void driver_starves(void)
{
    starve("device", open_and_close, 1);
    starve("work", work_on_device, 1);
    ours.for_good = true;
    starve("device", open_and_close, SAMPLE);
    starve("work", work_on_device, SAMPLE);
}

/* The library in the session fails for us.  Its threads do not always allocate in the same order,
 * so a sample says as much as all. */
static void session_starves(void)
{
    const char *path = getenv(STARVING_FILE);
    int fd = path ? open(path, O_RDWR) : -1;
    if (fd < 0)
        vkt_skip("no library that lets sessions fail");
    void *map = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    VKT_EXPECT(map != MAP_FAILED);
    control = map;
    atomic_store(&control->left, COUNTED);
    everything(1);
    long count = COUNTED - atomic_load(&control->left);
    atomic_store(&control->left, -1);
    fprintf(stderr, "%ld allocations\n", count);
    VKT_EXPECT(count > SESSION_ROUNDS && count < ROUNDS_MAX);
    for (long i = 0; i < SESSION_ROUNDS; i++) {
        control->for_good = i % 4 == 3;
        (void)starve_once("session", everything, i * count / SESSION_ROUNDS);
    }
    control->failed = false;
    everything(2);
}

/* As vkt_main, which would open a device of its own. */
int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        puts("driver\nsession");
        return 0;
    }
    read_shader();
    setenv("VENUS_LOG_LEVEL", "NONE", 1); /* it warns each time */
    if (argc == 2 && strcmp(argv[1], "session") == 0)
        session_starves();
    else
        driver_starves();
    return 0;
}
