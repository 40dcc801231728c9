/* rays.c - differential programs: acceleration structures, ray queries, ray tracing pipelines. */
#include "vkt.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 16,
    RAYS = WIDTH * WIDTH,
    TRIANGLES = 8,
    INSTANCES = 3,
    SCRATCH_BYTES = 1 << 20, /* the largest of these structures needs a tenth */
    SCRATCH_ALIGNMENT = 256, /* of all drivers */
    RECORD_BYTES = 64,       /* of a shader's record, aligned for all drivers */
};

/* A triangle of the mesh covers a part of four rows, at a depth of its own. */
struct scene {
    struct vkt_buffer corners, instances, scratch;
    struct vkt_buffer memory[4]; /* of structures */
    VkAccelerationStructureKHR made[4];
    uint32_t count;
};

static VkDeviceAddress address_of(const struct vkt_buffer *buffer)
{
    VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                      .buffer = buffer->handle};
    return vkGetBufferDeviceAddress(vkt.device, &info);
}

static void open_with(const char *extension)
{
    static VkPhysicalDeviceRayQueryFeaturesKHR queries;
    static VkPhysicalDeviceRayTracingPipelineFeaturesKHR pipelines;
    static VkPhysicalDeviceAccelerationStructureFeaturesKHR structures;
    bool by_query = !strcmp(extension, VK_KHR_RAY_QUERY_EXTENSION_NAME);
    queries = (VkPhysicalDeviceRayQueryFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_RAY_QUERY_FEATURES_KHR};
    pipelines = (VkPhysicalDeviceRayTracingPipelineFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_RAY_TRACING_PIPELINE_FEATURES_KHR};
    structures = (VkPhysicalDeviceAccelerationStructureFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ACCELERATION_STRUCTURE_FEATURES_KHR,
        .pNext = by_query ? (void *)&queries : (void *)&pipelines};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &structures};
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    VKT_NEED(vkt.f12.bufferDeviceAddress && structures.accelerationStructure);
    VKT_NEED(by_query ? queries.rayQuery : pipelines.rayTracingPipeline);
    VKT_OPEN_WITH(&structures, extension, VK_KHR_ACCELERATION_STRUCTURE_EXTENSION_NAME,
                  VK_KHR_DEFERRED_HOST_OPERATIONS_EXTENSION_NAME);
}

/* ---- structures ---- */

static struct vkt_buffer input(VkDeviceSize size)
{
    return vkt_buffer(size,
                      VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                          VK_BUFFER_USAGE_ACCELERATION_STRUCTURE_BUILD_INPUT_READ_ONLY_BIT_KHR,
                      VKT_COHERENT);
}

static void put_corners(struct scene *scene, float width)
{
    float *at = scene->corners.map;
    for (uint32_t i = 0; i < TRIANGLES; i++) {
        const float y = (float)(2 * i), z = (float)(1 + i);
        const float corners[9] = {0, y, z, width, y, z, 0, y + 4, z};
        memcpy(at + (size_t)i * 9, corners, sizeof(corners));
    }
}

/* Each beside the last, and deeper. */
static void put_instances(struct scene *scene, VkDeviceAddress mesh, float step)
{
    VkAccelerationStructureInstanceKHR *at = scene->instances.map;
    for (uint32_t i = 0; i < INSTANCES; i++) {
        at[i] =
            (VkAccelerationStructureInstanceKHR){.transform.matrix = {{1, 0, 0, step * (float)i},
                                                                      {0, 1, 0, 0},
                                                                      {0, 0, 1, 10.0f * (float)i}},
                                                 .instanceCustomIndex = 5 + i,
                                                 .mask = 0xff,
                                                 .accelerationStructureReference = mesh};
    }
}

static VkAccelerationStructureGeometryKHR mesh_of(const struct scene *scene)
{
    return (VkAccelerationStructureGeometryKHR){
        .sType = VK_STRUCTURE_TYPE_ACCELERATION_STRUCTURE_GEOMETRY_KHR,
        .geometryType = VK_GEOMETRY_TYPE_TRIANGLES_KHR,
        .flags = VK_GEOMETRY_OPAQUE_BIT_KHR,
        .geometry.triangles = {
            .sType = VK_STRUCTURE_TYPE_ACCELERATION_STRUCTURE_GEOMETRY_TRIANGLES_DATA_KHR,
            .vertexFormat = VK_FORMAT_R32G32B32_SFLOAT,
            .vertexData.deviceAddress = address_of(&scene->corners),
            .vertexStride = 12,
            .maxVertex = 3 * TRIANGLES - 1,
            .indexType = VK_INDEX_TYPE_NONE_KHR}};
}

static VkAccelerationStructureGeometryKHR instances_of(const struct scene *scene)
{
    return (VkAccelerationStructureGeometryKHR){
        .sType = VK_STRUCTURE_TYPE_ACCELERATION_STRUCTURE_GEOMETRY_KHR,
        .geometryType = VK_GEOMETRY_TYPE_INSTANCES_KHR,
        .flags = VK_GEOMETRY_OPAQUE_BIT_KHR,
        .geometry.instances = {
            .sType = VK_STRUCTURE_TYPE_ACCELERATION_STRUCTURE_GEOMETRY_INSTANCES_DATA_KHR,
            .data.deviceAddress = address_of(&scene->instances)}};
}

static VkAccelerationStructureKHR structure(struct scene *scene,
                                            VkAccelerationStructureTypeKHR type, VkDeviceSize size)
{
    VKT_EXPECT(scene->count < VKT_COUNT(scene->made));
    struct vkt_buffer *memory = &scene->memory[scene->count];
    *memory = vkt_buffer(size,
                         VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                             VK_BUFFER_USAGE_ACCELERATION_STRUCTURE_STORAGE_BIT_KHR,
                         VKT_DEVICE);
    VkAccelerationStructureCreateInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_ACCELERATION_STRUCTURE_CREATE_INFO_KHR,
        .buffer = memory->handle,
        .size = size,
        .type = type};
    VkAccelerationStructureKHR *made = &scene->made[scene->count++];
    VKT(VKT_PROC(vkCreateAccelerationStructureKHR)(vkt.device, &info, NULL, made));
    return *made;
}

/* Builds what is made, or updates it. */
static void build(struct scene *scene, VkAccelerationStructureTypeKHR type,
                  VkAccelerationStructureGeometryKHR geometry, uint32_t count, bool update,
                  VkAccelerationStructureKHR *made)
{
    VkAccelerationStructureBuildGeometryInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_ACCELERATION_STRUCTURE_BUILD_GEOMETRY_INFO_KHR,
        .type = type,
        .flags = VK_BUILD_ACCELERATION_STRUCTURE_ALLOW_UPDATE_BIT_KHR |
                 VK_BUILD_ACCELERATION_STRUCTURE_ALLOW_COMPACTION_BIT_KHR,
        .mode = update ? VK_BUILD_ACCELERATION_STRUCTURE_MODE_UPDATE_KHR
                       : VK_BUILD_ACCELERATION_STRUCTURE_MODE_BUILD_KHR,
        .geometryCount = 1,
        .pGeometries = &geometry};
    if (!update) {
        VkAccelerationStructureBuildSizesInfoKHR sizes = {
            .sType = VK_STRUCTURE_TYPE_ACCELERATION_STRUCTURE_BUILD_SIZES_INFO_KHR};
        VKT_PROC(vkGetAccelerationStructureBuildSizesKHR)
        (vkt.device, VK_ACCELERATION_STRUCTURE_BUILD_TYPE_DEVICE_KHR, &info, &count, &sizes);
        vkt_out_u64("size", sizes.accelerationStructureSize);
        VKT_EXPECT(sizes.buildScratchSize <= SCRATCH_BYTES - SCRATCH_ALIGNMENT);
        *made = structure(scene, type, sizes.accelerationStructureSize);
    }
    info.srcAccelerationStructure = update ? *made : VK_NULL_HANDLE;
    info.dstAccelerationStructure = *made;
    info.scratchData.deviceAddress = (address_of(&scene->scratch) + SCRATCH_ALIGNMENT - 1) &
                                     ~(VkDeviceAddress)(SCRATCH_ALIGNMENT - 1);
    const VkAccelerationStructureBuildRangeInfoKHR range = {.primitiveCount = count};
    const VkAccelerationStructureBuildRangeInfoKHR *ranges = &range;
    VkCommandBuffer command = vkt_begin();
    VKT_PROC(vkCmdBuildAccelerationStructuresKHR)(command, 1, &info, &ranges);
    vkt_barrier(command);
    vkt_finish(command);
}

static VkDeviceAddress reference_to(VkAccelerationStructureKHR made)
{
    VkAccelerationStructureDeviceAddressInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_ACCELERATION_STRUCTURE_DEVICE_ADDRESS_INFO_KHR,
        .accelerationStructure = made};
    return VKT_PROC(vkGetAccelerationStructureDeviceAddressKHR)(vkt.device, &info);
}

/* The mesh, and instances of it: made[0] and made[1]. */
static struct scene scene(void)
{
    struct scene made = {.corners = input(TRIANGLES * 9 * sizeof(float)),
                         .instances = input(INSTANCES * sizeof(VkAccelerationStructureInstanceKHR)),
                         .scratch = vkt_buffer(SCRATCH_BYTES,
                                               VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                                   VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
                                               VKT_DEVICE)};
    VkAccelerationStructureKHR mesh, all;
    put_corners(&made, 6);
    build(&made, VK_ACCELERATION_STRUCTURE_TYPE_BOTTOM_LEVEL_KHR, mesh_of(&made), TRIANGLES, false,
          &mesh);
    put_instances(&made, reference_to(mesh), 4);
    build(&made, VK_ACCELERATION_STRUCTURE_TYPE_TOP_LEVEL_KHR, instances_of(&made), INSTANCES,
          false, &all);
    return made;
}

static void scene_end(struct scene *scene)
{
    VKT(vkDeviceWaitIdle(vkt.device));
    while (scene->count > 0)
        VKT_PROC(vkDestroyAccelerationStructureKHR)(vkt.device, scene->made[--scene->count], NULL);
}

static void bind_scene(VkDescriptorSet set, VkAccelerationStructureKHR all)
{
    VkWriteDescriptorSetAccelerationStructureKHR which = {
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET_ACCELERATION_STRUCTURE_KHR,
        .accelerationStructureCount = 1,
        .pAccelerationStructures = &all};
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .pNext = &which,
                                  .dstSet = set,
                                  .descriptorCount = 1,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_ACCELERATION_STRUCTURE_KHR};
    vkUpdateDescriptorSets(vkt.device, 1, &write, 0, NULL);
}

/* ---- queries ---- */

static void look(const char *name, const struct vkt_kernel *kernel, const struct vkt_buffer *out,
                 VkAccelerationStructureKHR all)
{
    bind_scene(kernel->set, all);
    vkt_kernel_run(kernel, &(const uint32_t){WIDTH}, RAYS / 64);
    vkt_out_buffer(name, out);
}

static void ray_query(void)
{
    open_with(VK_KHR_RAY_QUERY_EXTENSION_NAME);
    struct scene rays = scene();
    struct vkt_buffer out = vkt_storage(RAYS * 4, NULL);
    struct vkt_kernel kernel = vkt_kernel("rays.comp", "rs", 4);
    vkt_kernel_bind(&kernel, 1, &out);
    look("built", &kernel, &out, rays.made[1]);
    /* The host rewrites what lies in mapped memory, and only addresses lead there. */
    put_instances(&rays, reference_to(rays.made[0]), 5);
    build(&rays, VK_ACCELERATION_STRUCTURE_TYPE_TOP_LEVEL_KHR, instances_of(&rays), INSTANCES, true,
          &rays.made[1]);
    look("moved", &kernel, &out, rays.made[1]);
    put_corners(&rays, 3);
    build(&rays, VK_ACCELERATION_STRUCTURE_TYPE_BOTTOM_LEVEL_KHR, mesh_of(&rays), TRIANGLES, true,
          &rays.made[0]);
    build(&rays, VK_ACCELERATION_STRUCTURE_TYPE_TOP_LEVEL_KHR, instances_of(&rays), INSTANCES, true,
          &rays.made[1]);
    look("narrower", &kernel, &out, rays.made[1]);
    scene_end(&rays);
}

/* A copy as small as the driver can make it, whose size the host asks for. */
static void compacted(void)
{
    open_with(VK_KHR_RAY_QUERY_EXTENSION_NAME);
    struct scene rays = scene();
    VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                  .queryType =
                                      VK_QUERY_TYPE_ACCELERATION_STRUCTURE_COMPACTED_SIZE_KHR,
                                  .queryCount = 2};
    VkQueryPool pool;
    VKT(vkCreateQueryPool(vkt.device, &info, NULL, &pool));
    VKT_KEEP(QUERY_POOL, pool);
    VkCommandBuffer command = vkt_begin();
    vkCmdResetQueryPool(command, pool, 0, 2);
    VKT_PROC(vkCmdWriteAccelerationStructuresPropertiesKHR)
    (command, 2, rays.made, info.queryType, pool, 0);
    vkt_finish(command);
    uint64_t sizes[2];
    VKT(vkGetQueryPoolResults(vkt.device, pool, 0, 2, sizeof(sizes), sizes, 8,
                              VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    vkt_out("sizes", sizes, sizeof(sizes));
    VkCopyAccelerationStructureInfoKHR copy = {
        .sType = VK_STRUCTURE_TYPE_COPY_ACCELERATION_STRUCTURE_INFO_KHR,
        .src = rays.made[1],
        .dst = structure(&rays, VK_ACCELERATION_STRUCTURE_TYPE_TOP_LEVEL_KHR, sizes[1]),
        .mode = VK_COPY_ACCELERATION_STRUCTURE_MODE_COMPACT_KHR};
    command = vkt_begin();
    VKT_PROC(vkCmdCopyAccelerationStructureKHR)(command, &copy);
    vkt_barrier(command);
    vkt_finish(command);
    struct vkt_buffer out = vkt_storage(RAYS * 4, NULL);
    struct vkt_kernel kernel = vkt_kernel("rays.comp", "rs", 4);
    vkt_kernel_bind(&kernel, 1, &out);
    look("copy", &kernel, &out, copy.dst);
    scene_end(&rays);
}

/* ---- pipelines ---- */

static VkPipeline trace_pipeline(VkPipelineLayout layout)
{
    static const VkShaderStageFlagBits stages[] = {VK_SHADER_STAGE_RAYGEN_BIT_KHR,
                                                   VK_SHADER_STAGE_MISS_BIT_KHR,
                                                   VK_SHADER_STAGE_CLOSEST_HIT_BIT_KHR};
    static const char *const names[] = {"rays.rgen", "rays.rmiss", "rays.rchit"};
    VkPipelineShaderStageCreateInfo shaders[3];
    VkRayTracingShaderGroupCreateInfoKHR groups[3];
    for (uint32_t i = 0; i < VKT_COUNT(stages); i++) {
        bool hit = stages[i] == VK_SHADER_STAGE_CLOSEST_HIT_BIT_KHR;
        shaders[i] = (VkPipelineShaderStageCreateInfo){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
            .stage = stages[i],
            .module = vkt_shader(names[i]),
            .pName = "main"};
        groups[i] = (VkRayTracingShaderGroupCreateInfoKHR){
            .sType = VK_STRUCTURE_TYPE_RAY_TRACING_SHADER_GROUP_CREATE_INFO_KHR,
            .type = hit ? VK_RAY_TRACING_SHADER_GROUP_TYPE_TRIANGLES_HIT_GROUP_KHR
                        : VK_RAY_TRACING_SHADER_GROUP_TYPE_GENERAL_KHR,
            .generalShader = hit ? VK_SHADER_UNUSED_KHR : i,
            .closestHitShader = hit ? i : VK_SHADER_UNUSED_KHR,
            .anyHitShader = VK_SHADER_UNUSED_KHR,
            .intersectionShader = VK_SHADER_UNUSED_KHR};
    }
    VkRayTracingPipelineCreateInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_RAY_TRACING_PIPELINE_CREATE_INFO_KHR,
        .stageCount = 3,
        .pStages = shaders,
        .groupCount = 3,
        .pGroups = groups,
        .maxPipelineRayRecursionDepth = 1,
        .layout = layout};
    VkPipeline pipeline;
    VKT(VKT_PROC(vkCreateRayTracingPipelinesKHR)(vkt.device, VK_NULL_HANDLE, VK_NULL_HANDLE, 1,
                                                 &info, NULL, &pipeline));
    VKT_KEEP(PIPELINE, pipeline);
    return pipeline;
}

/* A record for each shader, in mapped memory. */
static struct vkt_buffer records(VkPipeline pipeline)
{
    VkPhysicalDeviceRayTracingPipelinePropertiesKHR props = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_RAY_TRACING_PIPELINE_PROPERTIES_KHR};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &props};
    vkGetPhysicalDeviceProperties2(vkt.physical, &all);
    unsigned char handles[3 * RECORD_BYTES];
    const size_t one = props.shaderGroupHandleSize;
    VKT_EXPECT(one <= RECORD_BYTES);
    VKT(VKT_PROC(vkGetRayTracingShaderGroupHandlesKHR)(vkt.device, pipeline, 0, 3, 3 * one,
                                                       handles));
    struct vkt_buffer table = vkt_buffer(3 * RECORD_BYTES,
                                         VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                             VK_BUFFER_USAGE_SHADER_BINDING_TABLE_BIT_KHR,
                                         VKT_COHERENT);
    for (size_t i = 0; i < 3; i++)
        memcpy((unsigned char *)table.map + i * RECORD_BYTES, handles + i * one, one);
    return table;
}

static void ray_pipeline(void)
{
    open_with(VK_KHR_RAY_TRACING_PIPELINE_EXTENSION_NAME);
    struct scene rays = scene();
    struct vkt_buffer out = vkt_storage(RAYS * 4, NULL);
    VkDescriptorSetLayout set_layout = vkt_set_layout("rs", 0);
    VkDescriptorSet set = vkt_set(set_layout, "rs");
    VkPipelineLayout layout = vkt_layout(set_layout, 4);
    VkPipeline pipeline = trace_pipeline(layout);
    struct vkt_buffer table = records(pipeline);
    vkt_write_buffer(set, 1, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    bind_scene(set, rays.made[1]);
    VkStridedDeviceAddressRegionKHR regions[4] = {{0}};
    for (uint32_t i = 0; i < 3; i++)
        regions[i] = (VkStridedDeviceAddressRegionKHR){address_of(&table) + i * RECORD_BYTES,
                                                       RECORD_BYTES, RECORD_BYTES};
    VkCommandBuffer command = vkt_begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_RAY_TRACING_KHR, pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_RAY_TRACING_KHR, layout, 0, 1, &set, 0,
                            NULL);
    vkCmdPushConstants(command, layout, VK_SHADER_STAGE_ALL, 0, 4, &(const uint32_t){WIDTH});
    VKT_PROC(vkCmdTraceRaysKHR)
    (command, &regions[0], &regions[1], &regions[2], &regions[3], RAYS, 1, 1);
    vkt_barrier(command);
    vkt_finish(command);
    vkt_out_buffer("traced", &out);
    scene_end(&rays);
}

static const struct vkt_case cases[] = {
    {"ray_query", ray_query, NULL},
    {"compacted", compacted, NULL},
    {"ray_pipeline", ray_pipeline, NULL},
};

VKT_MAIN(cases)
