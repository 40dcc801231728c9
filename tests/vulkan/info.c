/* info.c - differential programs: what a program may ask about devices, formats and commands. */
#include "vkt_image.h"

#include <stdio.h>
#include <string.h>

enum { EXTENSIONS_MAX = 512 }; /* drivers report fewer than 300 */

/* Structures are asked for in one chain and printed from behind their heads to the last member, not
 * the padding: a chain that is replaced rather than filled, or filled in the wrong order, shows. */
#define OUT_TAIL(name, structure, last)                                                            \
    vkt_out((name), (const char *)&(structure) + sizeof(VkBaseOutStructure),                       \
            (size_t)((const char *)&(structure).last - (const char *)&(structure)) +               \
                sizeof((structure).last) - sizeof(VkBaseOutStructure))

static void features_chain(void)
{
    VkPhysicalDeviceShaderDrawParametersFeatures draw = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_DRAW_PARAMETERS_FEATURES};
    VkPhysicalDevice16BitStorageFeatures small = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES, .pNext = &draw};
    VkPhysicalDeviceMultiviewFeatures views = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MULTIVIEW_FEATURES, .pNext = &small};
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES, .pNext = &views};
    VkPhysicalDeviceDescriptorIndexingFeatures indexing = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DESCRIPTOR_INDEXING_FEATURES,
        .pNext = &timeline};
    VkPhysicalDeviceSynchronization2Features sync = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SYNCHRONIZATION_2_FEATURES, .pNext = &indexing};
    VkPhysicalDeviceMaintenance4Features four = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES, .pNext = &sync};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &four};
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    vkt_out("core", &all.features, sizeof(all.features));
    OUT_TAIL("maintenance4", four, maintenance4);
    OUT_TAIL("synchronization2", sync, synchronization2);
    OUT_TAIL("indexing", indexing, runtimeDescriptorArray);
    OUT_TAIL("timeline", timeline, timelineSemaphore);
    OUT_TAIL("multiview", views, multiviewTessellationShader);
    OUT_TAIL("16 bit", small, storageInputOutput16);
    OUT_TAIL("draw parameters", draw, shaderDrawParameters);
    VKT_EXPECT(all.pNext == &four && four.pNext == &sync && small.pNext == &draw);
}

static void limits(void)
{
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
    VkPhysicalDeviceMaintenance3Properties three = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, .pNext = &subgroup};
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, .pNext = &three};
    VkPhysicalDeviceFloatControlsProperties floats = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES, .pNext = &driver};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &floats};
    vkGetPhysicalDeviceProperties2(vkt.physical, &all);
    printf("device %s, driver %s, %s\n", all.properties.deviceName, driver.driverName,
           driver.driverInfo);
    vkt_out_u64("vendor", all.properties.vendorID);
    vkt_out_u64("device", all.properties.deviceID);
    vkt_out_u64("driver", all.properties.driverVersion);
    vkt_out_u64("type", all.properties.deviceType);
    vkt_out("cache", all.properties.pipelineCacheUUID, VK_UUID_SIZE);
    const VkPhysicalDeviceLimits *have = &all.properties.limits;
    vkt_out_u64("push", have->maxPushConstantsSize);
    vkt_out_u64("atom", have->nonCoherentAtomSize);
    vkt_out_u64("map alignment", have->minMemoryMapAlignment);
    vkt_out_u64("granularity", have->bufferImageGranularity);
    vkt_out("groups", have->maxComputeWorkGroupCount, sizeof(have->maxComputeWorkGroupCount));
    vkt_out("points", have->pointSizeRange, sizeof(have->pointSizeRange));
    OUT_TAIL("floats", floats, shaderRoundingModeRTZFloat64);
    vkt_out_u64("subgroup", subgroup.subgroupSize);
    vkt_out_u64("set", three.maxPerSetDescriptors);
}

static void format_properties(void)
{
    VkFormatProperties list[VK_FORMAT_ASTC_12x12_SRGB_BLOCK + 1];
    memset(list, 0, sizeof(list));
    for (int format = 0; format <= VK_FORMAT_ASTC_12x12_SRGB_BLOCK; format++)
        vkGetPhysicalDeviceFormatProperties(vkt.physical, (VkFormat)format, &list[format]);
    vkt_out("core formats", list, sizeof(list));
    VkFormatProperties3 third = {.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_3};
    VkFormatProperties2 second = {.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_2, .pNext = &third};
    vkGetPhysicalDeviceFormatProperties2(vkt.physical, VK_FORMAT_R8G8B8A8_UNORM, &second);
    vkt_out("rgba8", &second.formatProperties, sizeof(second.formatProperties));
    OUT_TAIL("rgba8 flags2", third, bufferFeatures);
}

static void image_format_properties(void)
{
    const VkFormat formats[] = {VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_R32_SFLOAT,
                                VK_FORMAT_D32_SFLOAT, VK_FORMAT_BC1_RGB_UNORM_BLOCK,
                                VK_FORMAT_ASTC_4x4_UNORM_BLOCK};
    const VkImageType types[] = {VK_IMAGE_TYPE_1D, VK_IMAGE_TYPE_2D, VK_IMAGE_TYPE_3D};
    for (size_t f = 0; f < VKT_COUNT(formats); f++)
        for (size_t t = 0; t < VKT_COUNT(types); t++) {
            VkPhysicalDeviceImageFormatInfo2 about = {
                .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_IMAGE_FORMAT_INFO_2,
                .format = formats[f],
                .type = types[t],
                .usage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT,
            };
            VkImageFormatProperties2 found = {.sType = VK_STRUCTURE_TYPE_IMAGE_FORMAT_PROPERTIES_2};
            VkResult result =
                vkGetPhysicalDeviceImageFormatProperties2(vkt.physical, &about, &found);
            vkt_out_result("result", result);
            const VkImageFormatProperties *have = &found.imageFormatProperties;
            if (result != VK_SUCCESS)
                continue;
            vkt_out("extent", &have->maxExtent, sizeof(have->maxExtent));
            vkt_out_u64("levels", have->maxMipLevels);
            vkt_out_u64("layers", have->maxArrayLayers);
            vkt_out_u64("samples", have->sampleCounts);
        }
}

static void queue_families(void)
{
    VkQueueFamilyProperties2 list[32];
    for (size_t i = 0; i < VKT_COUNT(list); i++)
        list[i] = (VkQueueFamilyProperties2){.sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2};
    uint32_t count = 0, one = 1;
    vkGetPhysicalDeviceQueueFamilyProperties2(vkt.physical, &count, NULL);
    vkt_out_u64("count", count);
    VKT_EXPECT(count >= 1 && count <= VKT_COUNT(list));
    vkGetPhysicalDeviceQueueFamilyProperties2(vkt.physical, &count, list);
    for (uint32_t i = 0; i < count; i++) {
        VkQueueFamilyProperties *family = &list[i].queueFamilyProperties;
        /* Video decode and encode, and optical flow: not offered across a network. */
        const VkQueueFlags absent = 0x60 | 0x100;
        family->queueFlags &= ~absent;
        vkt_out("family", family, sizeof(*family));
    }
    vkGetPhysicalDeviceQueueFamilyProperties2(vkt.physical, &one, list);
    vkt_out_u64("asked for one", one);
}

static void incomplete(void)
{
    uint32_t count = 0;
    VKT(vkEnumerateDeviceExtensionProperties(vkt.physical, NULL, &count, NULL));
    VKT_EXPECT(count > 1);
    VkExtensionProperties one;
    uint32_t asked = 1;
    vkt_out_result("extensions",
                   vkEnumerateDeviceExtensionProperties(vkt.physical, NULL, &asked, &one));
    vkt_out_u64("asked", asked);
    VkPhysicalDevice none;
    uint32_t zero = 0;
    vkt_out_result("devices", vkEnumeratePhysicalDevices(vkt.instance, &zero, &none));
    vkt_out_u64("zero", zero);
    vkt_out_result("unknown layer", vkEnumerateDeviceExtensionProperties(
                                        vkt.physical, "VK_LAYER_vkt_none", &asked, NULL));
}

static const struct {
    const char *provider, *command; /* a version or a device extension; "": it has no command */
} registry[] = {
#include "commands.inc"
};

/* Extensions that the device offers, each once, without those that exclude another. */
static size_t offered_extensions(const char **names, size_t most)
{
    size_t count = 0;
    for (size_t i = 0; i < VKT_COUNT(registry); i++) {
        const char *name = registry[i].provider;
        if (!strncmp(name, "VK_VERSION", 10) || (count && !strcmp(names[count - 1], name)) ||
            !strcmp(name, VK_EXT_BUFFER_DEVICE_ADDRESS_EXTENSION_NAME) || !vkt_has_extension(name))
            continue;
        VKT_EXPECT(count < most);
        names[count++] = name;
    }
    names[count] = NULL;
    return count;
}

static bool is_enabled(const char *provider, const char *const *extensions)
{
    for (size_t i = 0; extensions[i]; i++)
        if (!strcmp(extensions[i], provider))
            return true;
    return !strncmp(provider, "VK_VERSION", 10);
}

/* An advertised version or extension with a hole in it is a call of address 0. */
static void every_command(void)
{
    static const char *extensions[EXTENSIONS_MAX + 1];
    offered_extensions(extensions, EXTENSIONS_MAX);
    vkt_open_with(NULL, extensions);
    uint32_t missing = 0;
    for (size_t i = 0; i < VKT_COUNT(registry); i++) {
        if (!registry[i].command[0] || !is_enabled(registry[i].provider, extensions))
            continue;
        if (!vkGetDeviceProcAddr(vkt.device, registry[i].command)) {
            fprintf(stderr, "%s of %s has no address\n", registry[i].command, registry[i].provider);
            missing++;
        }
    }
    VKT_EXPECT(missing == 0);
    vkt_out_u64("missing", missing);
}

static void commands_absent(void)
{
    vkt_open();
    /* Of extensions that were not enabled, and of none. */
    const char *const absent[] = {"vkCmdPushDescriptorSetKHR", "vkCmdDrawMeshTasksEXT", "vkNone"};
    for (size_t i = 0; i < VKT_COUNT(absent); i++)
        vkt_out_u64(absent[i], vkGetDeviceProcAddr(vkt.device, absent[i]) != NULL);
}

static void external_consistent(void)
{
    /* What can be shared differs by where the device is; that answers agree with each other does
     * not: a handle type that cannot be made is not compatible with anything. */
    VkPhysicalDeviceExternalBufferInfo about = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
        .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
    };
    VkExternalBufferProperties found = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    vkGetPhysicalDeviceExternalBufferProperties(vkt.physical, &about, &found);
    const VkExternalMemoryProperties *memory = &found.externalMemoryProperties;
    const VkExternalMemoryFeatureFlags usable =
        VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT | VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;
    bool offered = memory->externalMemoryFeatures & usable;
    VKT_EXPECT(!offered || (memory->compatibleHandleTypes & about.handleType));
    VkPhysicalDeviceExternalFenceInfo fence = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_FENCE_INFO,
        .handleType = VK_EXTERNAL_FENCE_HANDLE_TYPE_OPAQUE_FD_BIT,
    };
    VkExternalFenceProperties fences = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_FENCE_PROPERTIES};
    vkGetPhysicalDeviceExternalFenceProperties(vkt.physical, &fence, &fences);
    VKT_EXPECT(!fences.externalFenceFeatures || (fences.compatibleHandleTypes & fence.handleType));
    vkt_out_u64("consistent", 1);
}

/* Of VK_KHR_maintenance7, which the system's headers may not have.  Programs give room for one and
 * take what is left of it for the driver's name. */
static void layered_apis(void)
{
    struct {
        VkStructureType type;
        void *next;
        uint32_t count;
        void *apis;
    } list = {.type = (VkStructureType)1000562002, .count = 77};
    VKT_NEED(vkt_has_extension("VK_KHR_maintenance7"));
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &list};
    vkGetPhysicalDeviceProperties2(vkt.physical, &all);
    vkt_out_u64("layered", list.count);
}

static void device_groups(void)
{
    uint32_t count = 0;
    VKT(vkEnumeratePhysicalDeviceGroups(vkt.instance, &count, NULL));
    vkt_out_u64("groups", count);
    VKT_EXPECT(count >= 1 && count <= 16);
    VkPhysicalDeviceGroupProperties list[16];
    for (uint32_t i = 0; i < count; i++)
        list[i] = (VkPhysicalDeviceGroupProperties){
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_GROUP_PROPERTIES};
    VKT(vkEnumeratePhysicalDeviceGroups(vkt.instance, &count, list));
    for (uint32_t i = 0; i < count; i++)
        vkt_out_u64("devices", list[i].physicalDeviceCount);
}

/* A program that goes through all formats waits for a few answers, not for one a format. */
static void image_formats_in_turn(void)
{
    vkt_open();
    const VkImageUsageFlags usages[] = {VK_IMAGE_USAGE_SAMPLED_BIT, VK_IMAGE_USAGE_STORAGE_BIT};
    uint64_t exchanges = vkt_exchanges();
    for (VkFormat f = VK_FORMAT_R4G4_UNORM_PACK8; f <= VK_FORMAT_ASTC_12x12_SRGB_BLOCK; f++) {
        for (uint32_t i = 0; i < VKT_COUNT(usages); i++) {
            VkImageFormatProperties found;
            VkResult result = vkGetPhysicalDeviceImageFormatProperties(
                vkt.physical, f, VK_IMAGE_TYPE_2D, VK_IMAGE_TILING_OPTIMAL, usages[i], 0, &found);
            vkt_out_result("format", result);
            vkt_out_u64("width", found.maxExtent.width);
            vkt_out_u64("levels", found.maxMipLevels);
            vkt_out_u64("samples", found.sampleCounts);
        }
    }
    VKT_EXPECT(vkt_exchanges() - exchanges <= 2 * VKT_COUNT(usages));
}

static void buffer_requirements(void)
{
    vkt_open();
    const VkBufferUsageFlags usages[] = {VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
                                         VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT};
    for (uint32_t i = 0; i < 2 * VKT_COUNT(usages); i++) {
        VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .flags = i % 2 ? VK_BUFFER_CREATE_SPARSE_BINDING_BIT : 0,
                                   .size = 1000 + i,
                                   .usage = usages[i / 2]};
        VkDeviceBufferMemoryRequirements planned = {
            .sType = VK_STRUCTURE_TYPE_DEVICE_BUFFER_MEMORY_REQUIREMENTS, .pCreateInfo = &info};
        VkMemoryDedicatedRequirements dedicated = {
            .sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_REQUIREMENTS};
        VkMemoryRequirements2 needs = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2,
                                       .pNext = &dedicated};
        vkGetDeviceBufferMemoryRequirements(vkt.device, &planned, &needs);
        uint64_t exchanges = vkt_exchanges();
        vkGetDeviceBufferMemoryRequirements(vkt.device, &planned, &needs);
        VKT_EXPECT(vkt_exchanges() == exchanges);
        vkt_out_u64("size", needs.memoryRequirements.size);
        vkt_out_u64("alignment", needs.memoryRequirements.alignment);
        vkt_out_u64("dedicated", dedicated.requiresDedicatedAllocation);
    }
}

static void image_requirements(void)
{
    vkt_open();
    VkImageCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {100, 50, 1},
        .mipLevels = 7,
        .arrayLayers = 3,
        .samples = VK_SAMPLE_COUNT_1_BIT,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT,
    };
    VkDeviceImageMemoryRequirements planned = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_IMAGE_MEMORY_REQUIREMENTS,
        .pCreateInfo = &info,
    };
    VkMemoryRequirements2 needs = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
    vkGetDeviceImageMemoryRequirements(vkt.device, &planned, &needs);
    uint64_t exchanges = vkt_exchanges();
    vkGetDeviceImageMemoryRequirements(vkt.device, &planned, &needs);
    VKT_EXPECT(vkt_exchanges() == exchanges); /* it was asked before */
    vkt_out_u64("planned size", needs.memoryRequirements.size);
    vkt_out_u64("planned alignment", needs.memoryRequirements.alignment);
    VkImage image;
    VKT(vkCreateImage(vkt.device, &info, NULL, &image));
    VKT_KEEP(IMAGE, image);
    VkImageMemoryRequirementsInfo2 about = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_REQUIREMENTS_INFO_2,
        .image = image,
    };
    vkGetImageMemoryRequirements2(vkt.device, &about, &needs);
    vkt_out_u64("size", needs.memoryRequirements.size);
}

/* With samplers and without, of two lengths, and with room for the variable count or without. */
static void layout_support(void)
{
    vkt_open();
    VkSamplerCreateInfo nearest = {.sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO};
    VkSampler sampler;
    VKT(vkCreateSampler(vkt.device, &nearest, NULL, &sampler));
    VKT_KEEP(SAMPLER, sampler);
    const VkDescriptorSetLayoutBinding bindings[] = {
        {0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1000, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
        {1, VK_DESCRIPTOR_TYPE_SAMPLER, 1, VK_SHADER_STAGE_COMPUTE_BIT, &sampler},
    };
    const VkDescriptorBindingFlags flags[] = {VK_DESCRIPTOR_BINDING_VARIABLE_DESCRIPTOR_COUNT_BIT};
    VkDescriptorSetLayoutBindingFlagsCreateInfo chosen = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_BINDING_FLAGS_CREATE_INFO,
        .bindingCount = 1,
        .pBindingFlags = flags,
    };
    for (uint32_t i = 0; i < 6; i++) {
        bool variable = i / 2 == 2 && vkt.f12.descriptorBindingVariableDescriptorCount;
        VkDescriptorSetLayoutCreateInfo info = {
            .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
            .pNext = variable ? &chosen : NULL,
            .bindingCount = i / 2 == 1 ? 2 : 1,
            .pBindings = bindings,
        };
        VkDescriptorSetVariableDescriptorCountLayoutSupport most = {
            .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_VARIABLE_DESCRIPTOR_COUNT_LAYOUT_SUPPORT,
        };
        VkDescriptorSetLayoutSupport support = {
            .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_SUPPORT,
            .pNext = i % 2 ? &most : NULL,
        };
        vkGetDescriptorSetLayoutSupport(vkt.device, &info, &support);
        vkt_out_u64("supported", support.supported);
        vkt_out_u64("variable", most.maxVariableDescriptorCount);
        most.maxVariableDescriptorCount = 0;
        support.supported = VK_FALSE;
        uint64_t exchanges = vkt_exchanges();
        vkGetDescriptorSetLayoutSupport(vkt.device, &info, &support);
        VKT_EXPECT(vkt_exchanges() == exchanges); /* it was asked before */
        vkt_out_u64("supported again", support.supported);
        vkt_out_u64("variable again", most.maxVariableDescriptorCount);
    }
}

static const struct vkt_case cases[] = {
    {"features_chain", features_chain, NULL},
    {"limits", limits, NULL},
    {"format_properties", format_properties, NULL},
    {"image_format_properties", image_format_properties, NULL},
    {"image_formats_in_turn", image_formats_in_turn, NULL},
    {"queue_families", queue_families, NULL},
    {"incomplete", incomplete, NULL},
    {"every_command", every_command, "the layer may be older than the registry, and hide commands"},
    {"commands_absent", commands_absent, NULL},
    {"external_consistent", external_consistent, NULL},
    {"layered_apis", layered_apis, "the layer may be older than the extension"},
    {"device_groups", device_groups, NULL},
    {"image_requirements", image_requirements, NULL},
    {"layout_support", layout_support, NULL},
    {"buffer_requirements", buffer_requirements, NULL},
};

VKT_MAIN(cases)
