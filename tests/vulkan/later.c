/* later.c - differential programs: extensions that are younger than Vulkan 1.4.  Those that the
 * registry of Debian 13 does not have are tried where the headers of the build know them. */
#include "vkt.h"

#include <string.h>

enum { WORDS = 256, BYTES = WORDS * 4, GROUPS = WORDS / 64 };

/* Fills `features` from the device; the chain is then what the device is opened with. */
static void ask(void *features)
{
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = features};
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
}

static struct vkt_buffer addressed(VkDeviceSize size, VkBufferUsageFlags usage)
{
    return vkt_buffer(size, usage | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT, VKT_COHERENT);
}

static VkDeviceAddress address_of(const struct vkt_buffer *buffer)
{
    VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                      .buffer = buffer->handle};
    return vkGetBufferDeviceAddress(vkt.device, &info);
}

/* ---- VK_EXT_device_generated_commands ---- */

struct sequence {
    uint32_t add;
    VkDispatchIndirectCommand groups;
};

/* A word that is pushed, and a dispatch. */
static VkIndirectCommandsLayoutEXT sequence_layout(VkPipelineLayout layout)
{
    VkIndirectCommandsPushConstantTokenEXT push = {
        .updateRange = {.stageFlags = VK_SHADER_STAGE_ALL, .size = 4}};
    const VkIndirectCommandsLayoutTokenEXT tokens[] = {
        {.sType = VK_STRUCTURE_TYPE_INDIRECT_COMMANDS_LAYOUT_TOKEN_EXT,
         .type = VK_INDIRECT_COMMANDS_TOKEN_TYPE_PUSH_CONSTANT_EXT,
         .data.pPushConstant = &push,
         .offset = offsetof(struct sequence, add)},
        {.sType = VK_STRUCTURE_TYPE_INDIRECT_COMMANDS_LAYOUT_TOKEN_EXT,
         .type = VK_INDIRECT_COMMANDS_TOKEN_TYPE_DISPATCH_EXT,
         .offset = offsetof(struct sequence, groups)}};
    VkIndirectCommandsLayoutCreateInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_INDIRECT_COMMANDS_LAYOUT_CREATE_INFO_EXT,
        .shaderStages = VK_SHADER_STAGE_COMPUTE_BIT,
        .indirectStride = sizeof(struct sequence),
        .pipelineLayout = layout,
        .tokenCount = VKT_COUNT(tokens),
        .pTokens = tokens};
    VkIndirectCommandsLayoutEXT made;
    VKT(VKT_PROC(vkCreateIndirectCommandsLayoutEXT)(vkt.device, &info, NULL, &made));
    return made;
}

static VkDeviceSize preprocess_size(VkPipeline pipeline, VkIndirectCommandsLayoutEXT layout,
                                    uint32_t count)
{
    VkGeneratedCommandsPipelineInfoEXT of = {
        .sType = VK_STRUCTURE_TYPE_GENERATED_COMMANDS_PIPELINE_INFO_EXT, .pipeline = pipeline};
    VkGeneratedCommandsMemoryRequirementsInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_GENERATED_COMMANDS_MEMORY_REQUIREMENTS_INFO_EXT,
        .pNext = &of,
        .indirectCommandsLayout = layout,
        .maxSequenceCount = count};
    VkMemoryRequirements2 needs = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
    VKT_PROC(vkGetGeneratedCommandsMemoryRequirementsEXT)(vkt.device, &info, &needs);
    return needs.memoryRequirements.size;
}

static VkPipeline indirect_pipeline(VkPipelineLayout layout)
{
    VkPipelineCreateFlags2CreateInfo flags = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CREATE_FLAGS_2_CREATE_INFO,
        .flags = VK_PIPELINE_CREATE_2_INDIRECT_BINDABLE_BIT_EXT};
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .pNext = &flags,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = vkt_shader("step.comp"),
                  .pName = "main"},
        .layout = layout};
    VkPipeline pipeline;
    VKT(vkCreateComputePipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline));
    VKT_KEEP(PIPELINE, pipeline);
    return pipeline;
}

/* The host writes what is executed; a shader pushes on. */
static void generated_commands(void)
{
    enum { SEQUENCES = 3 };
    VkPhysicalDeviceMaintenance5Features five = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_5_FEATURES};
    VkPhysicalDeviceDeviceGeneratedCommandsFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DEVICE_GENERATED_COMMANDS_FEATURES_EXT,
        .pNext = &five};
    ask(&features);
    VKT_NEED(features.deviceGeneratedCommands && five.maintenance5);
    VKT_OPEN_WITH(&features, VK_EXT_DEVICE_GENERATED_COMMANDS_EXTENSION_NAME,
                  VK_KHR_MAINTENANCE_5_EXTENSION_NAME);
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, &out);
    VkPipeline pipeline = indirect_pipeline(kernel.layout);
    VkIndirectCommandsLayoutEXT layout = sequence_layout(kernel.layout);
    struct vkt_buffer sequences =
        addressed(SEQUENCES * sizeof(struct sequence), VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT);
    VkDeviceSize room = preprocess_size(pipeline, layout, SEQUENCES);
    struct vkt_buffer scratch = addressed(room ? room : 4, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    const struct sequence all[SEQUENCES] = {{5, {GROUPS, 1, 1}}, {9, {1, 1, 1}}, {2, {2, 1, 1}}};
    for (uint32_t round = 0; round < 2; round++) {
        memcpy(sequences.map, all, sizeof(all));
        ((struct sequence *)sequences.map)->add += round;
        VkGeneratedCommandsPipelineInfoEXT of = {
            .sType = VK_STRUCTURE_TYPE_GENERATED_COMMANDS_PIPELINE_INFO_EXT, .pipeline = pipeline};
        VkGeneratedCommandsInfoEXT info = {.sType = VK_STRUCTURE_TYPE_GENERATED_COMMANDS_INFO_EXT,
                                           .pNext = &of,
                                           .shaderStages = VK_SHADER_STAGE_COMPUTE_BIT,
                                           .indirectCommandsLayout = layout,
                                           .indirectAddress = address_of(&sequences),
                                           .indirectAddressSize = sequences.size,
                                           .preprocessAddress = room ? address_of(&scratch) : 0,
                                           .preprocessSize = room,
                                           .maxSequenceCount = SEQUENCES};
        VkCommandBuffer command = vkt_begin();
        vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
        vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                                &kernel.set, 0, NULL);
        VKT_PROC(vkCmdExecuteGeneratedCommandsEXT)(command, VK_FALSE, &info);
        vkt_barrier(command);
        vkt_finish(command);
        vkt_out_buffer("out", &out);
    }
    VKT_PROC(vkDestroyIndirectCommandsLayoutEXT)(vkt.device, layout, NULL);
}

/* ---- VK_EXT_zero_initialize_device_memory ---- */

#ifdef VK_EXT_zero_initialize_device_memory
/* Memory that was somebody's a moment ago. */
static void zeroed_memory(void)
{
    VkPhysicalDeviceZeroInitializeDeviceMemoryFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ZERO_INITIALIZE_DEVICE_MEMORY_FEATURES_EXT};
    ask(&features);
    VKT_NEED(features.zeroInitializeDeviceMemory);
    VKT_OPEN_WITH(&features, VK_EXT_ZERO_INITIALIZE_DEVICE_MEMORY_EXTENSION_NAME);
    VkMemoryAllocateFlagsInfo zeros = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                       .flags = VK_MEMORY_ALLOCATE_ZERO_INITIALIZE_BIT_EXT};
    struct vkt_buffer copy = vkt_buffer(BYTES, 0, VKT_COHERENT);
    for (uint32_t round = 0; round < 2; round++) {
        struct vkt_buffer from = {
            .handle = vkt_buffer_only(BYTES, VK_BUFFER_USAGE_TRANSFER_SRC_BIT), .size = BYTES};
        VkMemoryRequirements needs;
        vkGetBufferMemoryRequirements(vkt.device, from.handle, &needs);
        VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .pNext = round ? &zeros : NULL,
                                     .allocationSize = needs.size,
                                     .memoryTypeIndex =
                                         vkt_memory_type(needs.memoryTypeBits, VKT_COHERENT)};
        VKT(vkAllocateMemory(vkt.device, &info, NULL, &from.memory));
        VKT(vkBindBufferMemory(vkt.device, from.handle, from.memory, 0));
        VKT(vkMapMemory(vkt.device, from.memory, 0, VK_WHOLE_SIZE, 0, &from.map));
        if (round == 0)
            vkt_pattern(from.map, BYTES, 3);
        vkt_pattern(copy.map, BYTES, 4);
        VkCommandBuffer command = vkt_begin();
        vkt_copy(command, &from, &copy);
        vkt_finish(command);
        vkt_out_buffer("the device reads", &copy);
        vkt_out("the host reads", from.map, BYTES);
        vkFreeMemory(vkt.device, from.memory, NULL);
    }
}
#endif

/* ---- VK_KHR_device_address_commands ---- */

#ifdef VK_KHR_device_address_commands
static VkDeviceAddressRangeKHR range(const struct vkt_buffer *buffer, VkDeviceSize at,
                                     VkDeviceSize size)
{
    return (VkDeviceAddressRangeKHR){address_of(buffer) + at, size};
}

static void open_addresses(void)
{
    static VkPhysicalDeviceDeviceAddressCommandsFeaturesKHR features;
    features = (VkPhysicalDeviceDeviceAddressCommandsFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DEVICE_ADDRESS_COMMANDS_FEATURES_KHR};
    ask(&features);
    VKT_NEED(features.deviceAddressCommands);
    VKT_OPEN_WITH(&features, VK_KHR_DEVICE_ADDRESS_COMMANDS_EXTENSION_NAME);
}

/* All before it, to all behind it, for one range. */
static void range_barrier(VkCommandBuffer command, VkDeviceAddressRangeKHR of)
{
    VkMemoryRangeBarrierKHR barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_RANGE_BARRIER_KHR,
        .srcStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
        .srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT,
        .dstStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_2_HOST_BIT,
        .dstAccessMask = VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT,
        .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .addressRange = of};
    VkMemoryRangeBarriersInfoKHR barriers = {.sType =
                                                 VK_STRUCTURE_TYPE_MEMORY_RANGE_BARRIERS_INFO_KHR,
                                             .memoryRangeBarrierCount = 1,
                                             .pMemoryRangeBarriers = &barrier};
    VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO, .pNext = &barriers};
    vkCmdPipelineBarrier2(command, &info);
}

/* What the host wrote is copied, what is copied the host reads, and nothing names a buffer. */
static void address_copies(void)
{
    open_addresses();
    struct vkt_buffer from = addressed(BYTES, 0), to = addressed(BYTES, 0);
    for (uint32_t round = 0; round < 2; round++) {
        vkt_pattern(from.map, BYTES, 7 + round);
        const VkDeviceAddressRangeKHR all = range(&to, 0, BYTES), small = range(&to, 64, 16);
        const VkDeviceMemoryCopyKHR copies[] = {{.sType = VK_STRUCTURE_TYPE_DEVICE_MEMORY_COPY_KHR,
                                                 .srcRange = range(&from, 0, 256),
                                                 .dstRange = range(&to, 512, 256)},
                                                {.sType = VK_STRUCTURE_TYPE_DEVICE_MEMORY_COPY_KHR,
                                                 .srcRange = range(&from, 900, 4),
                                                 .dstRange = range(&to, 0, 4)}};
        VkCopyDeviceMemoryInfoKHR copy = {.sType = VK_STRUCTURE_TYPE_COPY_DEVICE_MEMORY_INFO_KHR,
                                          .regionCount = VKT_COUNT(copies),
                                          .pRegions = copies};
        VkCommandBuffer command = vkt_begin();
        VKT_PROC(vkCmdFillMemoryKHR)(command, &all, 0, 0x01020304 + round);
        range_barrier(command, all);
        VKT_PROC(vkCmdUpdateMemoryKHR)(command, &small, 0, 16, (const char *)from.map + 32);
        VKT_PROC(vkCmdCopyMemoryKHR)(command, &copy);
        range_barrier(command, all);
        vkt_finish(command);
        vkt_out_buffer("to", &to);
    }
}

static void address_dispatch(void)
{
    open_addresses();
    struct vkt_buffer groups = addressed(64, VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT);
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, &out);
    for (uint32_t i = 1; i <= GROUPS; i++) {
        *(VkDispatchIndirectCommand *)groups.map = (VkDispatchIndirectCommand){i, 1, 1};
        VkDispatchIndirect2InfoKHR info = {
            .sType = VK_STRUCTURE_TYPE_DISPATCH_INDIRECT_2_INFO_KHR,
            .addressRange = range(&groups, 0, sizeof(VkDispatchIndirectCommand))};
        VkCommandBuffer command = vkt_begin();
        vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
        vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                                &kernel.set, 0, NULL);
        vkCmdPushConstants(command, kernel.layout, VK_SHADER_STAGE_ALL, 0, 4, &i);
        VKT_PROC(vkCmdDispatchIndirect2KHR)(command, &info);
        vkt_barrier(command);
        vkt_finish(command);
        vkt_out_buffer("out", &out);
    }
}
#endif

/* ---- VK_KHR_copy_memory_indirect ---- */

#ifdef VK_KHR_copy_memory_indirect
static void copies_from_memory(void)
{
    enum { COPIES = 3 };
    VkPhysicalDeviceCopyMemoryIndirectFeaturesKHR features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COPY_MEMORY_INDIRECT_FEATURES_KHR};
    ask(&features);
    VKT_NEED(features.indirectMemoryCopy && vkt.f12.bufferDeviceAddress);
    VKT_OPEN_WITH(&features, VK_KHR_COPY_MEMORY_INDIRECT_EXTENSION_NAME);
    struct vkt_buffer from = addressed(BYTES, 0), to = addressed(BYTES, 0);
    struct vkt_buffer list = addressed(256, VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT);
    for (uint32_t round = 0; round < 2; round++) {
        vkt_pattern(from.map, BYTES, 17 + round);
        VkCopyMemoryIndirectCommandKHR *copies = list.map;
        for (uint32_t i = 0; i < COPIES; i++) {
            copies[i] = (VkCopyMemoryIndirectCommandKHR){address_of(&from) + (i + round) * 64,
                                                         address_of(&to) + i * 256, 64 << i};
        }
        VkCopyMemoryIndirectInfoKHR info = {
            .sType = VK_STRUCTURE_TYPE_COPY_MEMORY_INDIRECT_INFO_KHR,
            .copyCount = COPIES,
            .copyAddressRange = {address_of(&list), COPIES * sizeof(copies[0]), sizeof(copies[0])}};
        VkCommandBuffer command = vkt_begin();
        VKT_PROC(vkCmdCopyMemoryIndirectKHR)(command, &info);
        vkt_barrier(command);
        vkt_finish(command);
        vkt_out_buffer("to", &to);
    }
}
#endif

/* ---- VK_KHR_maintenance9 ---- */

#ifdef VK_KHR_maintenance9
static void open_maintenance9(void)
{
    static VkPhysicalDeviceMaintenance9FeaturesKHR features;
    features = (VkPhysicalDeviceMaintenance9FeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_9_FEATURES_KHR};
    ask(&features);
    VKT_NEED(features.maintenance9);
    VKT_OPEN_WITH(&features, VK_KHR_MAINTENANCE_9_EXTENSION_NAME);
}

static void out_queries(const char *name, VkQueryPool pool)
{
    uint64_t found[4][2];
    memset(found, 0xcd, sizeof(found));
    VkResult result =
        vkGetQueryPoolResults(vkt.device, pool, 0, 4, sizeof(found), found, sizeof(found[0]),
                              VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
    vkt_out_result(name, result);
    for (uint32_t i = 0; i < 4; i++) {
        vkt_out_u64("there", found[i][1]);
        if (found[i][1] != 0)
            vkt_out_u64("samples", found[i][0]);
    }
}

/* Nobody resets the pool: it begins so. */
static void queries_begin_reset(void)
{
    open_maintenance9();
    VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                  .flags = VK_QUERY_POOL_CREATE_RESET_BIT_KHR,
                                  .queryType = VK_QUERY_TYPE_OCCLUSION,
                                  .queryCount = 4};
    VkQueryPool pool;
    VKT(vkCreateQueryPool(vkt.device, &info, NULL, &pool));
    VKT_KEEP(QUERY_POOL, pool);
    out_queries("before", pool);
    VkCommandBuffer command = vkt_begin();
    vkCmdBeginQuery(command, pool, 2, 0);
    vkCmdEndQuery(command, pool, 2);
    vkt_finish(command);
    out_queries("after", pool);
}

/* The event says what it waited for, and the wait does not repeat it. */
static void asymmetric_event(void)
{
    open_maintenance9();
    VkEventCreateInfo info = {.sType = VK_STRUCTURE_TYPE_EVENT_CREATE_INFO,
                              .flags = VK_EVENT_CREATE_DEVICE_ONLY_BIT};
    VkEvent event;
    VKT(vkCreateEvent(vkt.device, &info, NULL, &event));
    VKT_KEEP(EVENT, event);
    VkMemoryBarrier2 set = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                            .srcStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
    VkMemoryBarrier2 wait = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                             .srcStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
                             .srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT,
                             .dstStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
                             .dstAccessMask = VK_ACCESS_2_MEMORY_READ_BIT};
    VkDependencyInfo of = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                           .dependencyFlags = VK_DEPENDENCY_ASYMMETRIC_EVENT_BIT_KHR,
                           .memoryBarrierCount = 1,
                           .pMemoryBarriers = &set};
    struct vkt_buffer from = vkt_buffer(BYTES, 0, VKT_DEVICE),
                      to = vkt_buffer(BYTES, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, from.handle, 0, BYTES, 0x51525354);
    vkCmdSetEvent2(command, event, &of);
    of.pMemoryBarriers = &wait;
    vkCmdWaitEvents2(command, 1, &event, &of);
    vkt_copy(command, &from, &to);
    vkt_finish(command);
    vkt_out_buffer("to", &to);
}
#endif

#define YOUNGER "the layer may be older than the extension"

static const struct vkt_case cases[] = {
    {"generated_commands", generated_commands, YOUNGER},
#ifdef VK_EXT_zero_initialize_device_memory
    {"zeroed_memory", zeroed_memory, YOUNGER},
#endif
#ifdef VK_KHR_device_address_commands
    {"address_copies", address_copies, YOUNGER},
    {"address_dispatch", address_dispatch, YOUNGER},
#endif
#ifdef VK_KHR_copy_memory_indirect
    {"copies_from_memory", copies_from_memory, YOUNGER},
#endif
#ifdef VK_KHR_maintenance9
    {"queries_begin_reset", queries_begin_reset, YOUNGER},
    {"asymmetric_event", asymmetric_event, YOUNGER},
#endif
};

VKT_MAIN(cases)
