/* The snapshot of a driver that knows some structures and not others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "venus/common/physical.h"
#include "venus/server/session/snapshot.h"

static uint32_t device_version = VK_API_VERSION_1_3;
static uint32_t queries_with_chains;

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice device,
                                                 VkPhysicalDeviceProperties *out)
{
    (void)device;
    memset(out, 0, sizeof(*out));
    out->apiVersion = device_version;
    strcpy(out->deviceName, "one");
}

static VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice device,
                                                  VkPhysicalDeviceProperties2 *out)
{
    queries_with_chains++;
    get_properties(device, &out->properties);
    for (VkBaseOutStructure *node = out->pNext; node; node = node->pNext) {
        if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES)
            ((VkPhysicalDeviceMaintenance3Properties *)(void *)node)->maxPerSetDescriptors = 77;
    }
}

static VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice device,
                                               VkPhysicalDeviceFeatures *out)
{
    (void)device;
    memset(out, 0, sizeof(*out));
    out->shaderInt64 = VK_TRUE;
}

/* Knows two structures, and one of them has no feature at all. */
static VKAPI_ATTR void VKAPI_CALL get_features2(VkPhysicalDevice device,
                                                VkPhysicalDeviceFeatures2 *out)
{
    get_features(device, &out->features);
    for (VkBaseOutStructure *node = out->pNext; node; node = node->pNext) {
        if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES)
            ((VkPhysicalDevice16BitStorageFeatures *)(void *)node)->storagePushConstant16 = VK_TRUE;
        if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CLOCK_FEATURES_KHR)
            ((VkPhysicalDeviceShaderClockFeaturesKHR *)(void *)node)->shaderDeviceClock = VK_FALSE;
    }
}

static VKAPI_ATTR void VKAPI_CALL get_memory(VkPhysicalDevice device,
                                             VkPhysicalDeviceMemoryProperties *out)
{
    (void)device;
    memset(out, 0, sizeof(*out));
    out->memoryTypeCount = 1;
    out->memoryHeapCount = 1;
}

static VKAPI_ATTR void VKAPI_CALL get_memory2(VkPhysicalDevice device,
                                              VkPhysicalDeviceMemoryProperties2 *out)
{
    assert_null(out->pNext); /* the budget is not asked for */
    get_memory(device, &out->memoryProperties);
}

static VKAPI_ATTR void VKAPI_CALL get_families(VkPhysicalDevice device, uint32_t *count,
                                               VkQueueFamilyProperties *out)
{
    (void)device;
    *count = out && *count < 2 ? *count : 2;
    for (uint32_t i = 0; out && i < *count; i++)
        out[i] = (VkQueueFamilyProperties){.queueCount = i + 1};
}

static VKAPI_ATTR void VKAPI_CALL get_families2(VkPhysicalDevice device, uint32_t *count,
                                                VkQueueFamilyProperties2 *out)
{
    (void)device;
    *count = out && *count < 2 ? *count : 2;
    for (uint32_t i = 0; out && i < *count; i++)
        out[i].queueFamilyProperties = (VkQueueFamilyProperties){.queueCount = i + 1};
}

static VKAPI_ATTR void VKAPI_CALL get_format(VkPhysicalDevice device, VkFormat format,
                                             VkFormatProperties *out)
{
    (void)device;
    assert_true(format != VK_FORMAT_A4R4G4B4_UNORM_PACK16 || device_version >= VK_API_VERSION_1_3);
    assert_true(format != VK_FORMAT_PVRTC1_2BPP_UNORM_BLOCK_IMG);
    *out = (VkFormatProperties){.bufferFeatures = (VkFormatFeatureFlags)format};
}

static VKAPI_ATTR void VKAPI_CALL get_format2(VkPhysicalDevice device, VkFormat format,
                                              VkFormatProperties2 *out)
{
    get_format(device, format, &out->formatProperties);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_extensions(VkPhysicalDevice device, const char *layer,
                                                     uint32_t *count, VkExtensionProperties *out)
{
    (void)device, (void)layer;
    assert_true(*count >= 4);
    *count = 4;
    out[0] = (VkExtensionProperties){.extensionName = "VK_NO_such_extension"};
    out[1] = (VkExtensionProperties){.extensionName = "VK_KHR_swapchain"};
    out[2] = (VkExtensionProperties){.extensionName = "VK_KHR_16bit_storage", .specVersion = 3};
    out[3] = (VkExtensionProperties){.extensionName = "VK_KHR_external_memory_win32"};
    return VK_SUCCESS;
}

static const struct vn_driver driver = {
    .vkGetPhysicalDeviceProperties = get_properties,
    .vkGetPhysicalDeviceProperties2 = get_properties2,
    .vkGetPhysicalDeviceFeatures = get_features,
    .vkGetPhysicalDeviceFeatures2 = get_features2,
    .vkGetPhysicalDeviceMemoryProperties = get_memory,
    .vkGetPhysicalDeviceMemoryProperties2 = get_memory2,
    .vkGetPhysicalDeviceQueueFamilyProperties = get_families,
    .vkGetPhysicalDeviceQueueFamilyProperties2 = get_families2,
    .vkGetPhysicalDeviceFormatProperties = get_format,
    .vkGetPhysicalDeviceFormatProperties2 = get_format2,
    .vkEnumerateDeviceExtensionProperties = get_extensions,
};

struct reader {
    struct wire_enc e;
    struct hw_arena arena;
    struct wire_dec in;
};

static void take(struct reader *r)
{
    VkPhysicalDevice device = (VkPhysicalDevice)0x1000;
    wire_enc_init(&r->e, WIRE_MESSAGE_MAX);
    hw_arena_init(&r->arena, 1 << 20);
    assert_int_equal(vns_snapshot_encode(&driver, VK_API_VERSION_1_3, &device, 1, &r->e), 0);
    wire_dec_init(&r->in, wire_enc_data(&r->e), wire_enc_len(&r->e));
    assert_int_equal(wire_get_u32(&r->in), VK_API_VERSION_1_3);
    assert_int_equal(wire_get_u32(&r->in), 1);
}

static void drop(struct reader *r)
{
    wire_enc_fini(&r->e);
    hw_arena_fini(&r->arena);
}

/* A decoder over the next blob. */
static struct vn_decoder blob(struct reader *r)
{
    struct vn_decoder d;
    vn_decoder_init(&d, &r->arena, NULL, NULL);
    d.in = wire_dec_sub(&r->in, wire_get_u32(&r->in));
    return d;
}

static void skip_blobs(struct reader *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        (void)blob(r);
}

static void test_what_the_driver_fills_is_told(void **state)
{
    struct reader r;
    (void)state;
    take(&r);
    VkPhysicalDeviceMaintenance3Properties limits = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &limits};
    struct vn_decoder d = blob(&r);
    vn_dec_out_VkPhysicalDeviceProperties2(&d, &properties);
    assert_int_equal(vn_decoder_end(&d), 0);
    assert_string_equal(properties.properties.deviceName, "one");
    assert_int_equal(limits.maxPerSetDescriptors, 77);
    assert_int_equal(d.unknown_stypes, 0); /* nothing else was sent */
    drop(&r);
}

static void test_a_structure_without_any_feature_is_known_all_the_same(void **state)
{
    struct reader r;
    (void)state;
    take(&r);
    skip_blobs(&r, 1);
    VkPhysicalDevice8BitStorageFeatures unknown = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES,
        .storagePushConstant8 = 42};
    VkPhysicalDeviceShaderClockFeaturesKHR clock = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CLOCK_FEATURES_KHR,
        .pNext = &unknown,
        .shaderDeviceClock = 42};
    VkPhysicalDevice16BitStorageFeatures half = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES, .pNext = &clock};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &half};
    struct vn_decoder d = blob(&r);
    vn_dec_out_VkPhysicalDeviceFeatures2(&d, &features);
    assert_int_equal(vn_decoder_end(&d), 0);
    assert_int_equal(features.features.shaderInt64, VK_TRUE);
    assert_int_equal(half.storagePushConstant16, VK_TRUE);
    assert_int_equal(clock.shaderDeviceClock, VK_FALSE);
    assert_int_equal(unknown.storagePushConstant8, 42); /* as the program left it */
    drop(&r);
}

static void test_families_formats_and_extensions_follow(void **state)
{
    struct reader r;
    char name[64];
    (void)state;
    take(&r);
    skip_blobs(&r, 3);
    assert_int_equal(wire_get_u32(&r.in), 2);
    for (uint32_t i = 0; i < 2; i++) {
        VkQueueFamilyProperties2 family = {.sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2};
        struct vn_decoder d = blob(&r);
        vn_dec_out_VkQueueFamilyProperties2(&d, &family);
        assert_int_equal(vn_decoder_end(&d), 0);
        assert_int_equal(family.queueFamilyProperties.queueCount, i + 1);
    }
    uint32_t formats = wire_get_u32(&r.in);
    assert_true(formats > 200);
    for (uint32_t i = 0; i < formats; i++) {
        VkFormatProperties2 format = {.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_2};
        uint32_t value = wire_get_u32(&r.in);
        struct vn_decoder d = blob(&r);
        vn_dec_out_VkFormatProperties2(&d, &format);
        assert_int_equal(vn_decoder_end(&d), 0);
        assert_int_equal(format.formatProperties.bufferFeatures, value);
    }
    assert_int_equal(wire_get_u32(&r.in), 1); /* the one that this server carries */
    wire_get_str_copy(&r.in, name, sizeof(name));
    assert_string_equal(name, "VK_KHR_16bit_storage");
    assert_int_equal(wire_get_u32(&r.in), 3);
    assert_int_equal(wire_dec_end(&r.in), 0);
    drop(&r);
}

static void test_a_version_that_the_server_does_not_know_is_lowered(void **state)
{
    struct reader r;
    (void)state;
    device_version = VK_MAKE_API_VERSION(0, 1, 99, 0);
    take(&r);
    VkPhysicalDeviceProperties2 properties = {.sType =
                                                  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    struct vn_decoder d = blob(&r);
    vn_dec_out_VkPhysicalDeviceProperties2(&d, &properties);
    assert_int_equal(properties.properties.apiVersion, VK_HEADER_VERSION_COMPLETE);
    drop(&r);
    device_version = VK_API_VERSION_1_3;
}

static void test_an_old_device_is_asked_in_its_own_words(void **state)
{
    struct reader r;
    (void)state;
    device_version = VK_API_VERSION_1_0;
    queries_with_chains = 0;
    take(&r);
    assert_int_equal(queries_with_chains, 0);
    drop(&r);
    device_version = VK_API_VERSION_1_3;
}

static void test_a_driver_without_a_query_is_refused(void **state)
{
    struct vn_driver less = driver;
    struct wire_enc e;
    VkPhysicalDevice device = (VkPhysicalDevice)0x1000;
    (void)state;
    less.vkGetPhysicalDeviceFeatures2 = NULL;
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    assert_int_equal(vns_snapshot_encode(&less, VK_API_VERSION_1_3, &device, 1, &e), -ENOSYS);
    wire_enc_fini(&e);
}

static void test_features_that_cannot_be_kept_are_masked(void **state)
{
    VkPhysicalDeviceVulkan12Features twelve = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .bufferDeviceAddress = VK_TRUE,
        .bufferDeviceAddressCaptureReplay = VK_TRUE};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &twelve,
                                          .features.shaderInt64 = VK_TRUE};
    (void)state;
    vn_mask_features(&features);
    assert_int_equal(twelve.bufferDeviceAddress, VK_TRUE);
    assert_int_equal(twelve.bufferDeviceAddressCaptureReplay, VK_FALSE);
    assert_int_equal(features.features.shaderInt64, VK_TRUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_driver_fills_is_told),
        cmocka_unit_test(test_a_structure_without_any_feature_is_known_all_the_same),
        cmocka_unit_test(test_families_formats_and_extensions_follow),
        cmocka_unit_test(test_a_version_that_the_server_does_not_know_is_lowered),
        cmocka_unit_test(test_an_old_device_is_asked_in_its_own_words),
        cmocka_unit_test(test_a_driver_without_a_query_is_refused),
        cmocka_unit_test(test_features_that_cannot_be_kept_are_masked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
