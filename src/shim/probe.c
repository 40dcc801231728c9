/* shim/probe.c - hawser-vkprobe: does a Vulkan driver really compute?
 *
 * Runs two small shaders on each device (integers; half to single precision and back), compares
 * every result and prints one JSON object a line and device.  A broken driver may well kill this
 * process, which is why it is one: find-vulkan runs it as a child and reads the exit status.
 *
 * Exit: 0 at least one device computes; 1 there are devices but none does; 2 wrong usage;
 * 77 no device of the wanted kind. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vulkan/vulkan.h>

enum {
    WORDS = 1 << 15,      /* two halves a word: every half-precision value once */
    OUT_PER_WORD = 3,     /* as the shader writes them */
    GROUP = 64,           /* the shader's local size */
    DEVICES_MAX = 16,     /* more GPUs than a machine holds */
    FAMILIES_MAX = 32,    /* drivers report fewer than ten */
    EXIT_NO_DEVICE = 77,  /* Meson's and automake's "skipped" */
    TIMEOUT_SECONDS = 30, /* a software driver needs well under one */
};

static const uint32_t spirv_int[] =
#include "probe_int.spv.inc"
    ;
static const uint32_t spirv_f16[] =
#include "probe_f16.spv.inc"
    ;

struct buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    uint32_t *words;
};

struct context {
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    struct buffer in, out;
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout pipeline_layout;
    VkDescriptorPool pool;
    VkDescriptorSet set;
    VkCommandPool commands;
    VkCommandBuffer command;
    VkFence fence;
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        VkResult try_result = (call);                                                              \
        if (try_result != VK_SUCCESS) {                                                            \
            fprintf(stderr, "probe: %s: VkResult %d\n", #call, (int)try_result);                   \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static bool find_family(VkPhysicalDevice physical, uint32_t *family_out)
{
    VkQueueFamilyProperties families[FAMILIES_MAX];
    uint32_t count = FAMILIES_MAX;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) {
            *family_out = i;
            return true;
        }
    }
    fprintf(stderr, "probe: no compute queue\n");
    return false;
}

static bool open_device(struct context *ctx)
{
    if (!find_family(ctx->physical, &ctx->family))
        return false;
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = ctx->family,
        .queueCount = 1,
        .pQueuePriorities = &(float){1.0f},
    };
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
    };
    TRY(vkCreateDevice(ctx->physical, &info, NULL, &ctx->device));
    vkGetDeviceQueue(ctx->device, ctx->family, 0, &ctx->queue);
    return true;
}

static bool find_memory(VkPhysicalDevice physical, uint32_t allowed, uint32_t *type_out)
{
    const VkMemoryPropertyFlags wanted =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(physical, &memory);
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
        if ((allowed & (1u << i)) && (memory.memoryTypes[i].propertyFlags & wanted) == wanted) {
            *type_out = i;
            return true;
        }
    }
    fprintf(stderr, "probe: no host-visible coherent memory\n");
    return false;
}

static bool make_buffer(struct context *ctx, size_t words, struct buffer *buf)
{
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = words * sizeof(uint32_t),
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    };
    TRY(vkCreateBuffer(ctx->device, &info, NULL, &buf->handle));
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(ctx->device, buf->handle, &needs);
    VkMemoryAllocateInfo alloc = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .allocationSize = needs.size,
    };
    if (!find_memory(ctx->physical, needs.memoryTypeBits, &alloc.memoryTypeIndex))
        return false;
    TRY(vkAllocateMemory(ctx->device, &alloc, NULL, &buf->memory));
    TRY(vkBindBufferMemory(ctx->device, buf->handle, buf->memory, 0));
    TRY(vkMapMemory(ctx->device, buf->memory, 0, VK_WHOLE_SIZE, 0, (void **)&buf->words));
    return true;
}

static bool make_layouts(struct context *ctx)
{
    const VkDescriptorSetLayoutBinding bindings[] = {
        {0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
        {1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
    };
    VkDescriptorSetLayoutCreateInfo set = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = 2,
        .pBindings = bindings,
    };
    TRY(vkCreateDescriptorSetLayout(ctx->device, &set, NULL, &ctx->set_layout));
    VkPipelineLayoutCreateInfo pipeline = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .setLayoutCount = 1,
        .pSetLayouts = &ctx->set_layout,
    };
    TRY(vkCreatePipelineLayout(ctx->device, &pipeline, NULL, &ctx->pipeline_layout));
    return true;
}

static bool make_descriptors(struct context *ctx)
{
    VkDescriptorPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .maxSets = 1,
        .poolSizeCount = 1,
        .pPoolSizes = &(VkDescriptorPoolSize){VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 2},
    };
    TRY(vkCreateDescriptorPool(ctx->device, &pool, NULL, &ctx->pool));
    VkDescriptorSetAllocateInfo alloc = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = ctx->pool,
        .descriptorSetCount = 1,
        .pSetLayouts = &ctx->set_layout,
    };
    TRY(vkAllocateDescriptorSets(ctx->device, &alloc, &ctx->set));
    const VkDescriptorBufferInfo buffers[] = {
        {ctx->in.handle, 0, VK_WHOLE_SIZE},
        {ctx->out.handle, 0, VK_WHOLE_SIZE},
    };
    VkWriteDescriptorSet write = {
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
        .dstSet = ctx->set,
        .descriptorCount = 2, /* consecutive bindings of one type */
        .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
        .pBufferInfo = buffers,
    };
    vkUpdateDescriptorSets(ctx->device, 1, &write, 0, NULL);
    return true;
}

static bool make_commands(struct context *ctx)
{
    VkCommandPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = ctx->family,
    };
    TRY(vkCreateCommandPool(ctx->device, &pool, NULL, &ctx->commands));
    VkCommandBufferAllocateInfo alloc = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = ctx->commands,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1,
    };
    TRY(vkAllocateCommandBuffers(ctx->device, &alloc, &ctx->command));
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    TRY(vkCreateFence(ctx->device, &fence, NULL, &ctx->fence));
    return true;
}

static bool context_init(struct context *ctx, VkPhysicalDevice physical)
{
    *ctx = (struct context){.physical = physical};
    return open_device(ctx) && make_buffer(ctx, WORDS, &ctx->in) &&
           make_buffer(ctx, (size_t)WORDS * OUT_PER_WORD, &ctx->out) && make_layouts(ctx) &&
           make_descriptors(ctx) && make_commands(ctx);
}

/* Safe after a context_init that failed half way: Vulkan ignores null handles. */
static void context_fini(struct context *ctx)
{
    if (!ctx->device)
        return;
    vkDestroyFence(ctx->device, ctx->fence, NULL);
    vkDestroyCommandPool(ctx->device, ctx->commands, NULL);
    vkDestroyDescriptorPool(ctx->device, ctx->pool, NULL);
    vkDestroyPipelineLayout(ctx->device, ctx->pipeline_layout, NULL);
    vkDestroyDescriptorSetLayout(ctx->device, ctx->set_layout, NULL);
    vkDestroyBuffer(ctx->device, ctx->in.handle, NULL);
    vkDestroyBuffer(ctx->device, ctx->out.handle, NULL);
    vkFreeMemory(ctx->device, ctx->in.memory, NULL);
    vkFreeMemory(ctx->device, ctx->out.memory, NULL);
    vkDestroyDevice(ctx->device, NULL);
}

static bool make_pipeline(struct context *ctx, const uint32_t *spirv, size_t bytes,
                          VkPipeline *pipeline_out)
{
    VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = bytes,
        .pCode = spirv,
    };
    VkShaderModule module;
    TRY(vkCreateShaderModule(ctx->device, &module_info, NULL, &module));
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage =
            {
                .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = module,
                .pName = "main",
            },
        .layout = ctx->pipeline_layout,
    };
    VkResult result =
        vkCreateComputePipelines(ctx->device, VK_NULL_HANDLE, 1, &info, NULL, pipeline_out);
    vkDestroyShaderModule(ctx->device, module, NULL);
    TRY(result);
    return true;
}

static bool record(struct context *ctx, VkPipeline pipeline)
{
    VkCommandBufferBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
    };
    TRY(vkBeginCommandBuffer(ctx->command, &begin));
    vkCmdBindPipeline(ctx->command, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    vkCmdBindDescriptorSets(ctx->command, VK_PIPELINE_BIND_POINT_COMPUTE, ctx->pipeline_layout, 0,
                            1, &ctx->set, 0, NULL);
    vkCmdDispatch(ctx->command, WORDS / GROUP, 1, 1);
    VkMemoryBarrier to_host = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_HOST_READ_BIT,
    };
    vkCmdPipelineBarrier(ctx->command, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                         VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, NULL, 0, NULL);
    TRY(vkEndCommandBuffer(ctx->command));
    return true;
}

static bool submit_and_wait(struct context *ctx)
{
    VkSubmitInfo submit = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1,
        .pCommandBuffers = &ctx->command,
    };
    TRY(vkResetFences(ctx->device, 1, &ctx->fence));
    TRY(vkQueueSubmit(ctx->queue, 1, &submit, ctx->fence));
    TRY(vkWaitForFences(ctx->device, 1, &ctx->fence, VK_TRUE,
                        (uint64_t)TIMEOUT_SECONDS * 1000000000u));
    return true;
}

static bool run_shader(struct context *ctx, const uint32_t *spirv, size_t bytes)
{
    memset(ctx->out.words, 0xA5, (size_t)WORDS * OUT_PER_WORD * sizeof(uint32_t));
    VkPipeline pipeline;
    if (!make_pipeline(ctx, spirv, bytes, &pipeline))
        return false;
    bool ok = record(ctx, pipeline) && submit_and_wait(ctx);
    vkDestroyPipeline(ctx->device, pipeline, NULL);
    return ok;
}

static bool mismatch(const char *what, uint32_t input, uint32_t got, uint32_t expected)
{
    fprintf(stderr, "probe: %s of 0x%08x is 0x%08x, should be 0x%08x\n", what, input, got,
            expected);
    return false;
}

static bool check_int(struct context *ctx)
{
    fprintf(stderr, "probe: integer shader\n");
    for (uint32_t i = 0; i < WORDS; i++)
        ctx->in.words[i] = i * 40503u + 0x80000001u;
    if (!run_shader(ctx, spirv_int, sizeof(spirv_int)))
        return false;
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t word = ctx->in.words[i];
        const uint32_t *got = ctx->out.words + (size_t)i * OUT_PER_WORD;
        if (got[0] != word * 2654435761u)
            return mismatch("product", word, got[0], word * 2654435761u);
        if (got[1] != (word ^ (word >> 7)))
            return mismatch("xor", word, got[1], word ^ (word >> 7));
        if (got[2] != word + i)
            return mismatch("sum", word, got[2], word + i);
    }
    return true;
}

static bool half_is_nan(uint32_t half)
{
    return (half & 0x7fffu) > 0x7c00u;
}

/* A zero exponent: zero, or a denormal that Vulkan lets a device flush to zero. */
static bool half_is_tiny(uint32_t half)
{
    return (half & 0x7c00u) == 0;
}

/* Bits of the float equal to a half that is neither NaN nor denormal. */
static uint32_t half_to_float_bits(uint32_t half)
{
    uint32_t sign = (half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0)
        return sign;
    if (exponent == 0x1f)
        return sign | 0x7f800000u;
    return sign | ((exponent + 112) << 23) | (fraction << 13);
}

static bool check_half(uint32_t half, uint32_t widened, uint32_t narrowed)
{
    if (half_is_nan(half) || half_is_tiny(half))
        return true;
    if (widened != half_to_float_bits(half))
        return mismatch("half to float", half, widened, half_to_float_bits(half));
    if (narrowed != half)
        return mismatch("half to float and back", half, narrowed, half);
    return true;
}

static bool check_f16(struct context *ctx)
{
    fprintf(stderr, "probe: half-precision shader\n");
    for (uint32_t i = 0; i < WORDS; i++)
        ctx->in.words[i] = (2 * i) | ((2 * i + 1) << 16);
    if (!run_shader(ctx, spirv_f16, sizeof(spirv_f16)))
        return false;
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t word = ctx->in.words[i];
        const uint32_t *got = ctx->out.words + (size_t)i * OUT_PER_WORD;
        if (!check_half(word & 0xffffu, got[0], got[2] & 0xffffu) ||
            !check_half(word >> 16, got[1], got[2] >> 16))
            return false;
    }
    return true;
}

static const char *type_name(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return "integrated";
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return "discrete";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return "virtual";
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return "cpu";
    default:
        return "other";
    }
}

static void print_json_string(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_device(VkPhysicalDevice physical, bool int_ok, bool f16_ok)
{
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES,
    };
    VkPhysicalDeviceProperties2 props = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
        .pNext = &driver, /* left zero by devices older than 1.2 */
    };
    vkGetPhysicalDeviceProperties2(physical, &props);
    uint32_t api = props.properties.apiVersion;
    printf("{\"device\": ");
    print_json_string(props.properties.deviceName);
    printf(", \"type\": \"%s\", \"driver\": ", type_name(props.properties.deviceType));
    print_json_string(driver.driverName);
    printf(", \"driver_info\": ");
    print_json_string(driver.driverInfo);
    printf(", \"api\": \"%u.%u.%u\", \"int\": %s, \"f16\": %s}\n", VK_API_VERSION_MAJOR(api),
           VK_API_VERSION_MINOR(api), VK_API_VERSION_PATCH(api), int_ok ? "true" : "false",
           f16_ok ? "true" : "false");
    fflush(stdout);
}

static bool probe_device(VkPhysicalDevice physical)
{
    struct context ctx;
    bool int_ok = false, f16_ok = false;
    if (context_init(&ctx, physical)) {
        int_ok = check_int(&ctx);
        f16_ok = check_f16(&ctx);
    }
    context_fini(&ctx);
    print_device(physical, int_ok, f16_ok);
    return int_ok && f16_ok;
}

enum wanted { WANT_ALL, WANT_GPU, WANT_CPU };

static bool is_wanted(VkPhysicalDevice physical, enum wanted wanted)
{
    VkPhysicalDeviceProperties props;
    vkGetPhysicalDeviceProperties(physical, &props);
    bool cpu = props.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    return props.apiVersion >= VK_API_VERSION_1_1 &&
           (wanted == WANT_ALL || cpu == (wanted == WANT_CPU));
}

static int probe_all(VkInstance instance, enum wanted wanted)
{
    VkPhysicalDevice devices[DEVICES_MAX];
    uint32_t count = DEVICES_MAX;
    VkResult result = vkEnumeratePhysicalDevices(instance, &count, devices);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        count = 0;
    unsigned tried = 0, worked = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_wanted(devices[i], wanted))
            continue;
        tried++;
        worked += probe_device(devices[i]);
    }
    if (tried == 0) {
        fprintf(stderr, "probe: no device of the wanted kind\n");
        return EXIT_NO_DEVICE;
    }
    return worked > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static bool parse_wanted(int argc, char **argv, enum wanted *wanted_out)
{
    if (argc == 1)
        *wanted_out = WANT_ALL;
    else if (argc == 2 && !strcmp(argv[1], "--gpu"))
        *wanted_out = WANT_GPU;
    else if (argc == 2 && !strcmp(argv[1], "--cpu"))
        *wanted_out = WANT_CPU;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    enum wanted wanted;
    if (!parse_wanted(argc, argv, &wanted)) {
        fprintf(stderr, "usage: hawser-vkprobe [--gpu | --cpu]\n");
        return 2;
    }
    VkApplicationInfo app = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pApplicationName = "hawser-vkprobe",
        .apiVersion = VK_API_VERSION_1_1,
    };
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pApplicationInfo = &app,
    };
    VkInstance instance;
    VkResult result = vkCreateInstance(&info, NULL, &instance);
    if (result != VK_SUCCESS) {
        fprintf(stderr, "probe: vkCreateInstance: VkResult %d, no usable driver\n", (int)result);
        return EXIT_NO_DEVICE;
    }
    int status = probe_all(instance, wanted);
    vkDestroyInstance(instance, NULL);
    return status;
}
