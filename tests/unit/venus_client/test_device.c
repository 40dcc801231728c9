/* What a device leaves at the server when its creation fails half way. */
#include "rig.h"

#include <errno.h>

#include "vn_client.gen.h"

static int told, told_before_memory_is_out, destroyed;

void __wrap_vn_enc_cmd_vkGetDeviceQueue(struct wire_enc *e, VkDevice device, uint32_t family,
                                        uint32_t index, VkQueue *queue);
void __wrap_vn_enc_cmd_vkDestroyDevice(struct wire_enc *e, VkDevice device,
                                       const VkAllocationCallbacks *allocator);

void __wrap_vn_enc_cmd_vkGetDeviceQueue(struct wire_enc *e, VkDevice device, uint32_t family,
                                        uint32_t index, VkQueue *queue)
{
    (void)device, (void)family, (void)index, (void)queue;
    if (told++ == told_before_memory_is_out)
        wire_enc_fail(e, -ENOMEM);
}

void __wrap_vn_enc_cmd_vkDestroyDevice(struct wire_enc *e, VkDevice device,
                                       const VkAllocationCallbacks *allocator)
{
    (void)e, (void)device, (void)allocator;
    destroyed++;
}

static VkResult create(struct rig *rig, VkDevice *out)
{
    const float priorities[2] = {1, 1};
    const VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                            .queueCount = 2,
                                            .pQueuePriorities = priorities};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queues};
    static const uint8_t success_and_made[5] = {0, 0, 0, 0, 1};
    memcpy(rig->server.answer, success_and_made, sizeof(success_and_made));
    rig->server.answer_len = sizeof(success_and_made);
    told = destroyed = 0;
    return ((PFN_vkCreateDevice)rig_entry(vnc_entries_device, "vkCreateDevice"))(
        VNC_HANDLE(VkPhysicalDevice, &rig->physical), &info, NULL, out);
}

static void a_device_whose_queues_are_not_known_is_destroyed(void **state)
{
    struct rig *rig = *state;
    for (told_before_memory_is_out = 0; told_before_memory_is_out < 2;
         told_before_memory_is_out++) {
        VkDevice device = VK_NULL_HANDLE;
        assert_int_equal(create(rig, &device), VK_ERROR_OUT_OF_HOST_MEMORY);
        assert_null(device);
        assert_int_equal(destroyed, 1);
    }
    VkDevice device;
    assert_int_equal(create(rig, &device), VK_SUCCESS);
    assert_int_equal(destroyed, 0);
    ((PFN_vkDestroyDevice)rig_entry(vnc_entries_device, "vkDestroyDevice"))(device, NULL);
    assert_int_equal(destroyed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_device_whose_queues_are_not_known_is_destroyed, rig_start,
                                        rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
