/* What is known of buffers and images without an exchange. */
#include "rig.h"

#include "venus/client/object/objects.h"
#include "vn_client.gen.h"

#define RESOURCE_COMMAND(name) ((PFN_##name)rig_entry(vnc_entries_resource, #name))

static struct vnc_resource *buffer_new(struct rig *rig, const void *chain,
                                       VkBufferCreateFlags flags, VkSharingMode sharing)
{
    const uint32_t families[] = {0, 1};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .pNext = chain,
                               .flags = flags,
                               .size = 1000,
                               .usage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
                               .sharingMode = sharing,
                               .queueFamilyIndexCount = 2,
                               .pQueueFamilyIndices = families};
    VkBuffer buffer;
    assert_int_equal(
        RESOURCE_COMMAND(vkCreateBuffer)(VNC_HANDLE(VkDevice, rig->device), &info, NULL, &buffer),
        VK_SUCCESS);
    return VNC_OBJECT(vnc_resource, buffer);
}

/* Bound at 256 of memory at 0x10000; whether the server is asked for its address. */
static bool asks_for_address(struct rig *rig, struct vnc_resource *buffer)
{
    VkDevice device = VNC_HANDLE(VkDevice, rig->device);
    struct vnc_memory *memory =
        vnc_object_create(rig->link, VK_OBJECT_TYPE_DEVICE_MEMORY, &rig->device->object);
    memory->device = rig->device;
    memory->size = 4096;
    memory->address = 0x10000;
    VkBuffer handle = VNC_HANDLE(VkBuffer, buffer);
    assert_int_equal(RESOURCE_COMMAND(vkBindBufferMemory)(device, handle,
                                                          VNC_HANDLE(VkDeviceMemory, memory), 256),
                     VK_SUCCESS);
    VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                      .buffer = handle};
    VkDeviceAddress address = RESOURCE_COMMAND(vkGetBufferDeviceAddress)(device, &info);
    assert_int_equal(address, rig_was_asked(rig) ? 0 : 0x10100); /* the rig answers nothing */
    vnc_object_destroy(&buffer->object);
    vnc_object_destroy(&memory->object);
    return rig_was_asked(rig);
}

static void a_shared_buffer_has_the_address_of_its_memory(void **state)
{
    struct rig *rig = *state;
    struct vnc_resource *buffer = buffer_new(rig, NULL, 0, VK_SHARING_MODE_CONCURRENT);
    assert_false(asks_for_address(rig, buffer));
}

static void an_address_that_the_program_chooses_is_asked_for(void **state)
{
    struct rig *rig = *state;
    VkBufferOpaqueCaptureAddressCreateInfo chosen = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_OPAQUE_CAPTURE_ADDRESS_CREATE_INFO};
    struct vnc_resource *buffer =
        buffer_new(rig, &chosen, VK_BUFFER_CREATE_DEVICE_ADDRESS_CAPTURE_REPLAY_BIT,
                   VK_SHARING_MODE_EXCLUSIVE);
    assert_true(asks_for_address(rig, buffer));
}

/* Those of devices that are gone take no room from it. */
static void what_the_latest_device_tells_is_known(void **state)
{
    struct rig *rig = *state;
    struct vnc_regular kind = {.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT}, found;
    for (uint64_t device = 1; device <= 1000; device++) {
        kind.grain = device;
        vnc_pushes_add_regular(rig->pushes, device, &kind);
        assert_true(vnc_pushes_find_regular(rig->pushes, device, kind.usage, &found));
        assert_int_equal(found.grain, device);
    }
}

static void what_is_larger_than_the_server_told_is_asked_for(void **state)
{
    struct rig *rig = *state;
    const struct vnc_regular kind = {.usage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
                                     .alignment = 64,
                                     .grain = 128,
                                     .size = 1000};
    vnc_pushes_add_regular(rig->pushes, rig->device->object.id, &kind);
    for (VkDeviceSize larger = 0; larger < 2; larger++) {
        struct vnc_resource *buffer = buffer_new(rig, NULL, 0, VK_SHARING_MODE_EXCLUSIVE);
        VkMemoryRequirements needs;
        buffer->size = kind.size + larger;
        RESOURCE_COMMAND(vkGetBufferMemoryRequirements)
        (VNC_HANDLE(VkDevice, rig->device), VNC_HANDLE(VkBuffer, buffer), &needs);
        assert_int_equal(rig_was_asked(rig), larger);
        vnc_object_destroy(&buffer->object);
    }
}

#ifdef VK_KHR_maintenance5
static void a_chained_usage_is_a_usage(void **state)
{
    struct rig *rig = *state;
    const VkBufferUsageFlags2CreateInfoKHR usage = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_USAGE_FLAGS_2_CREATE_INFO_KHR,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
    const struct vnc_regular kind = {
        .usage = (uint32_t)usage.usage, .alignment = 64, .grain = 128, .size = 4096};
    vnc_pushes_add_regular(rig->pushes, rig->device->object.id, &kind);
    struct vnc_resource *buffer = buffer_new(rig, &usage, 0, VK_SHARING_MODE_EXCLUSIVE);
    VkMemoryRequirements needs;
    RESOURCE_COMMAND(vkGetBufferMemoryRequirements)
    (VNC_HANDLE(VkDevice, rig->device), VNC_HANDLE(VkBuffer, buffer), &needs);
    assert_int_equal(needs.size, 1024);
    assert_int_equal(needs.alignment, 64);
    assert_false(asks_for_address(rig, buffer));
}
#endif

#ifdef VK_EXT_host_image_copy
enum { PARTS = 20, PARTS_UNDER_WAY = 8 }; /* as host_copy.c has it */

/* A copy of so many parts of 256 KiB; how many the server is asked for before it answers. */
static uint32_t parts_asked_for(struct rig *rig, VkResult answer)
{
    PFN_vkCopyImageToMemoryEXT copy =
        (PFN_vkCopyImageToMemoryEXT)rig_entry(vnc_entries_host_copy, "vkCopyImageToMemoryEXT");
    struct vnc_resource *image =
        vnc_object_create(rig->link, VK_OBJECT_TYPE_IMAGE, &rig->device->object);
    image->shape = (struct vnc_image_shape){VK_FORMAT_R8G8B8A8_UNORM, {256, 256 * PARTS, 1}, 1};
    const VkImageToMemoryCopyEXT all = {.sType = VK_STRUCTURE_TYPE_IMAGE_TO_MEMORY_COPY_EXT,
                                        .imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                                        .imageExtent = image->shape.extent};
    const VkCopyImageToMemoryInfoEXT info = {.sType =
                                                 VK_STRUCTURE_TYPE_COPY_IMAGE_TO_MEMORY_INFO_EXT,
                                             .srcImage = VNC_HANDLE(VkImage, image),
                                             .regionCount = 1,
                                             .pRegions = &all};
    pthread_mutex_lock(&rig->server.lock);
    wire_store32(rig->server.answer, (uint32_t)answer); /* and no bytes */
    rig->server.answer_len = 4;
    rig->server.hold = PARTS_UNDER_WAY;
    pthread_mutex_unlock(&rig->server.lock);
    assert_int_equal(copy(VNC_HANDLE(VkDevice, rig->device), &info), answer);
    pthread_mutex_lock(&rig->server.lock);
    uint32_t most = rig->server.held_most;
    pthread_mutex_unlock(&rig->server.lock);
    vnc_object_destroy(&image->object);
    return most;
}

static void parts_of_an_image_are_asked_for_together(void **state)
{
    assert_int_equal(parts_asked_for(*state, VK_SUCCESS), PARTS_UNDER_WAY);
}

static void a_part_that_fails_is_the_last(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(parts_asked_for(rig, VK_ERROR_OUT_OF_DEVICE_MEMORY), PARTS_UNDER_WAY);
    assert_true(rig_sent(rig).messages_sent < PARTS);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_shared_buffer_has_the_address_of_its_memory, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(an_address_that_the_program_chooses_is_asked_for, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(what_the_latest_device_tells_is_known, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_is_larger_than_the_server_told_is_asked_for, rig_start,
                                        rig_end),
#ifdef VK_KHR_maintenance5
        cmocka_unit_test_setup_teardown(a_chained_usage_is_a_usage, rig_start, rig_end),
#endif
#ifdef VK_EXT_host_image_copy
        cmocka_unit_test_setup_teardown(parts_of_an_image_are_asked_for_together, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_part_that_fails_is_the_last, rig_start, rig_end),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
