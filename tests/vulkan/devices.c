/* devices.c - differential programs: instances, devices, names, labels, private data. */
#include "vkt.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static VkDevice second_device(VkPhysicalDevice physical)
{
    const float priority = 0.5f;
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = vkt.family,
        .queueCount = 1,
        .pQueuePriorities = &priority,
    };
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
    };
    VkDevice device;
    VKT(vkCreateDevice(physical, &info, NULL, &device));
    return device;
}

static void two_devices(void)
{
    vkt_open();
    struct vkt_buffer first = vkt_buffer(1024, 0, VKT_COHERENT);
    VkDevice other = second_device(vkt.physical);
    VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkFence fence;
    VKT(vkCreateFence(other, &info, NULL, &fence));
    VkQueue queue;
    vkGetDeviceQueue(other, vkt.family, 0, &queue);
    VKT(vkQueueSubmit(queue, 0, NULL, fence));
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, first.handle, 0, 1024, 0xaaaa5555);
    vkt_finish(command);
    vkt_out_result("other", vkWaitForFences(other, 1, &fence, VK_TRUE, VKT_WAIT_NS));
    vkDestroyFence(other, fence, NULL);
    vkDestroyDevice(other, NULL);
    vkt_out_buffer("first", &first);
}

static void made_and_destroyed(void)
{
    vkt_open();
    for (int i = 0; i < 10; i++) {
        VkDevice device = second_device(vkt.physical);
        VKT(vkDeviceWaitIdle(device));
        vkDestroyDevice(device, NULL);
    }
    vkt_out_u64("devices", 10);
}

/* libavutil maps the GPU's memory or gives up: it is offered the types that the driver has. */
static void engine(void)
{
    VkApplicationInfo app = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pEngineName = "libavutil",
        .apiVersion = VK_API_VERSION_1_1,
    };
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pApplicationInfo = &app,
    };
    VkInstance instance;
    VKT(vkCreateInstance(&info, NULL, &instance));
    VkPhysicalDevice device;
    uint32_t count = 1;
    VkResult result = vkEnumeratePhysicalDevices(instance, &count, &device);
    VKT_EXPECT(result == VK_SUCCESS || result == VK_INCOMPLETE);
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(device, &memory);
    vkt_out("types", memory.memoryTypes, memory.memoryTypeCount * sizeof(memory.memoryTypes[0]));
    vkDestroyInstance(instance, NULL);
}

static void two_instances(void)
{
    vkt_open();
    VkApplicationInfo app = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .apiVersion = VK_API_VERSION_1_1,
    };
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pApplicationInfo = &app,
    };
    VkInstance instance;
    VKT(vkCreateInstance(&info, NULL, &instance));
    VkPhysicalDevice devices[16];
    uint32_t count = 16;
    VKT(vkEnumeratePhysicalDevices(instance, &count, devices));
    vkt_out_u64("devices", count);
    VkPhysicalDeviceProperties props;
    vkGetPhysicalDeviceProperties(devices[0], &props);
    VkDevice device = second_device(devices[0]);
    vkDestroyDevice(device, NULL);
    vkDestroyInstance(instance, NULL);
    struct vkt_buffer after = vkt_buffer(1024, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, after.handle, 0, 1024, 0x12344321);
    vkt_finish(command);
    vkt_out_buffer("after", &after);
}

static void queues_twice(void)
{
    vkt_open();
    VkQueue again;
    vkGetDeviceQueue(vkt.device, vkt.family, 0, &again);
    VkDeviceQueueInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_INFO_2,
        .queueFamilyIndex = vkt.family,
    };
    VkQueue third;
    vkGetDeviceQueue2(vkt.device, &info, &third);
    vkt_out_u64("same", again == vkt.queue);
    vkt_out_u64("same2", third == vkt.queue);
}

/* --- the program's own allocator -------------------------------------------------------------- */

static void *VKAPI_PTR take(void *user, size_t size, size_t alignment,
                            VkSystemAllocationScope scope)
{
    (void)user, (void)scope;
    void *memory = NULL;
    size_t least = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    return posix_memalign(&memory, least, size) ? NULL : memory;
}

static void VKAPI_PTR give(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void *VKAPI_PTR retake(void *user, void *memory, size_t size, size_t alignment,
                              VkSystemAllocationScope scope)
{
    void *larger = size ? take(user, size, alignment, scope) : NULL;
    if (larger && memory) {
        size_t old = malloc_usable_size(memory);
        memcpy(larger, memory, old < size ? old : size);
    }
    if (larger || !size)
        give(user, memory);
    return larger;
}

/* Its functions are called in this process or not at all, and what they gave comes back to them. */
static void own_allocator(void)
{
    vkt_open();
    const VkAllocationCallbacks allocator = {
        .pfnAllocation = take, .pfnReallocation = retake, .pfnFree = give};
    VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkFence fence;
    VKT(vkCreateFence(vkt.device, &info, &allocator, &fence));
    VKT(vkQueueSubmit(vkt.queue, 0, NULL, fence));
    vkt_wait(fence);
    vkt_out_result("fence", vkGetFenceStatus(vkt.device, fence));
    vkDestroyFence(vkt.device, fence, &allocator);
    VkBufferCreateInfo buffer_info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = 100,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    };
    VkBuffer buffer;
    VKT(vkCreateBuffer(vkt.device, &buffer_info, &allocator, &buffer));
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
    vkt_out_u64("size", needs.size);
    vkDestroyBuffer(vkt.device, buffer, &allocator);
}

static void private_data(void)
{
    VKT_NEED(vkt.f13.privateData);
    vkt_open();
    VkPrivateDataSlotCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PRIVATE_DATA_SLOT_CREATE_INFO};
    VkPrivateDataSlot slots[2];
    for (int i = 0; i < 2; i++) {
        VKT(vkCreatePrivateDataSlot(vkt.device, &info, NULL, &slots[i]));
        VKT_KEEP(PRIVATE_DATA_SLOT, slots[i]);
    }
    VkFence fence = vkt_fence(false);
    VkSemaphore semaphore = vkt_semaphore();
    VKT(vkSetPrivateData(vkt.device, VK_OBJECT_TYPE_FENCE, (uint64_t)fence, slots[0], 1234567));
    VKT(vkSetPrivateData(vkt.device, VK_OBJECT_TYPE_SEMAPHORE, (uint64_t)semaphore, slots[0], 99));
    VKT(vkSetPrivateData(vkt.device, VK_OBJECT_TYPE_FENCE, (uint64_t)fence, slots[1], UINT64_MAX));
    uint64_t value;
    vkGetPrivateData(vkt.device, VK_OBJECT_TYPE_FENCE, (uint64_t)fence, slots[0], &value);
    vkt_out_u64("fence", value);
    vkGetPrivateData(vkt.device, VK_OBJECT_TYPE_SEMAPHORE, (uint64_t)semaphore, slots[0], &value);
    vkt_out_u64("semaphore", value);
    vkGetPrivateData(vkt.device, VK_OBJECT_TYPE_FENCE, (uint64_t)fence, slots[1], &value);
    vkt_out_u64("other slot", value);
    vkGetPrivateData(vkt.device, VK_OBJECT_TYPE_SEMAPHORE, (uint64_t)semaphore, slots[1], &value);
    vkt_out_u64("never set", value);
}

static void names_and_labels(void)
{
    VKT_NEED(vkt.debug_utils);
    vkt_open();
    PFN_vkSetDebugUtilsObjectNameEXT name = VKT_PROC(vkSetDebugUtilsObjectNameEXT);
    PFN_vkSetDebugUtilsObjectTagEXT tag = VKT_PROC(vkSetDebugUtilsObjectTagEXT);
    PFN_vkCmdBeginDebugUtilsLabelEXT begin = VKT_PROC(vkCmdBeginDebugUtilsLabelEXT);
    PFN_vkCmdEndDebugUtilsLabelEXT end = VKT_PROC(vkCmdEndDebugUtilsLabelEXT);
    PFN_vkCmdInsertDebugUtilsLabelEXT insert = VKT_PROC(vkCmdInsertDebugUtilsLabelEXT);
    PFN_vkQueueBeginDebugUtilsLabelEXT queue_begin = VKT_PROC(vkQueueBeginDebugUtilsLabelEXT);
    PFN_vkQueueEndDebugUtilsLabelEXT queue_end = VKT_PROC(vkQueueEndDebugUtilsLabelEXT);
    struct vkt_buffer buffer = vkt_buffer(1024, 0, VKT_COHERENT);
    VkDebugUtilsObjectNameInfoEXT named = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT,
        .objectType = VK_OBJECT_TYPE_BUFFER,
        .objectHandle = (uint64_t)buffer.handle,
        .pObjectName = "a buffer of two words: \xc3\xbc and 1",
    };
    VKT(name(vkt.device, &named));
    static char long_text[(64 << 10) + 2]; /* no limit is in the specification */
    memset(long_text, 'x', sizeof(long_text) - 1);
    named.pObjectName = long_text;
    VKT(name(vkt.device, &named));
    named.pObjectName = NULL; /* takes the name away */
    VKT(name(vkt.device, &named));
    VkDebugUtilsObjectTagInfoEXT tagged = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_TAG_INFO_EXT,
        .objectType = VK_OBJECT_TYPE_BUFFER,
        .objectHandle = (uint64_t)buffer.handle,
        .tagName = 7,
        .tagSize = 4,
        .pTag = "tag",
    };
    VKT(tag(vkt.device, &tagged));
    const VkDebugUtilsLabelEXT label = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT,
        .pLabelName = "label",
        .color = {1, 0, 0, 1},
    };
    queue_begin(vkt.queue, &label);
    VkCommandBuffer command = vkt_begin();
    begin(command, &label);
    vkCmdFillBuffer(command, buffer.handle, 0, 1024, 0xabcdef01);
    insert(command, &label);
    const VkDebugUtilsLabelEXT long_label = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT,
        .pLabelName = long_text,
    };
    insert(command, &long_label);
    end(command);
    vkt_finish(command);
    queue_end(vkt.queue);
    vkt_out_buffer("buffer", &buffer);
}

static const char message_id[] = "vkt";

struct heard {
    uint32_t count;
    char text[64];
};

static VkBool32 VKAPI_PTR hear(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                               VkDebugUtilsMessageTypeFlagsEXT types,
                               const VkDebugUtilsMessengerCallbackDataEXT *data, void *user)
{
    (void)severity, (void)types;
    struct heard *heard = user;
    if (data->pMessageIdName && !strcmp(data->pMessageIdName, message_id)) { /* not the layer's */
        heard->count++;
        strncpy(heard->text, data->pMessage, sizeof(heard->text) - 1);
    }
    return VK_FALSE;
}

static void messenger(void)
{
    VKT_NEED(vkt.debug_utils);
    vkt_open();
    PFN_vkCreateDebugUtilsMessengerEXT create = VKT_PROC(vkCreateDebugUtilsMessengerEXT);
    PFN_vkDestroyDebugUtilsMessengerEXT destroy = VKT_PROC(vkDestroyDebugUtilsMessengerEXT);
    PFN_vkSubmitDebugUtilsMessageEXT submit = VKT_PROC(vkSubmitDebugUtilsMessageEXT);
    struct heard heard = {0};
    VkDebugUtilsMessengerCreateInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT,
        .pfnUserCallback = hear,
        .pUserData = &heard,
    };
    VkDebugUtilsMessengerEXT made;
    VKT(create(vkt.instance, &info, NULL, &made));
    VkDebugUtilsMessengerCallbackDataEXT data = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CALLBACK_DATA_EXT,
        .pMessageIdName = message_id,
        .pMessage = "a message of the program's own",
    };
    submit(vkt.instance, VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
           VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT, &data);
    submit(vkt.instance, VK_DEBUG_UTILS_MESSAGE_SEVERITY_INFO_BIT_EXT, /* not asked for */
           VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT, &data);
    destroy(vkt.instance, made, NULL);
    vkt_out_u64("heard", heard.count);
    vkt_out("text", heard.text, sizeof(heard.text));
}

static const struct vkt_case cases[] = {
    {"two_devices", two_devices, NULL},
    {"made_and_destroyed", made_and_destroyed, NULL},
    {"engine", engine, NULL},
    {"two_instances", two_instances, NULL},
    {"queues_twice", queues_twice, NULL},
    {"own_allocator", own_allocator, NULL},
    {"private_data", private_data, NULL},
    {"names_and_labels", names_and_labels, NULL},
    {"messenger", messenger, NULL},
};

VKT_MAIN(cases)
