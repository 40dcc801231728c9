/* Whether the server is asked when memory is mapped.  It clears memory that no work could have
 * written, and sends what other memory holds: the program must not write before that has come. */
#include "rig.h"

#include <string.h>

#include "venus/client/object/objects.h"
#include "venus/common/protocol.h"
#include "vn_client.gen.h"

enum { BYTES = 4096 };

static struct rig *rig_in_use;
static bool submits_meanwhile;

VkResult __wrap_vn_vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                    const VkAllocationCallbacks *allocator, VkDeviceMemory *out);

/* The server has made the allocation.  Another thread submits before this one looks at the answer.
 */
VkResult __wrap_vn_vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                    const VkAllocationCallbacks *allocator, VkDeviceMemory *out)
{
    (void)info;
    (void)allocator;
    struct vnc_memory *memory = vnc_object_create(rig_in_use->link, VK_OBJECT_TYPE_DEVICE_MEMORY,
                                                  VNC_OBJECT(vn_object, device));
    memory->device = rig_in_use->device;
    *out = VNC_HANDLE(VkDeviceMemory, memory);
    if (submits_meanwhile)
        rig_submit(rig_in_use, 0, NULL, NULL, NULL, NULL);
    return VK_SUCCESS;
}

static VkDeviceMemory allocate(struct rig *rig, bool meanwhile)
{
    VkDeviceMemory memory;
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = BYTES};
    PFN_vkAllocateMemory call =
        (PFN_vkAllocateMemory)rig_entry(vnc_entries_memory, "vkAllocateMemory");
    struct vnc_memory_types *types = &rig->physical.types;
    types->offered.memoryTypeCount = 1;
    types->offered.memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                                  VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
                                                  VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    rig_in_use = rig;
    submits_meanwhile = meanwhile;
    assert_int_equal(call(VNC_HANDLE(VkDevice, rig->device), &info, NULL, &memory), VK_SUCCESS);
    return memory;
}

static VkResult map(struct rig *rig, VkDeviceMemory memory)
{
    void *data;
    PFN_vkMapMemory call = (PFN_vkMapMemory)rig_entry(vnc_entries_memory, "vkMapMemory");
    return call(VNC_HANDLE(VkDevice, rig->device), memory, 0, VK_WHOLE_SIZE, 0, &data);
}

static void release(struct rig *rig, VkDeviceMemory memory)
{
    PFN_vkFreeMemory call = (PFN_vkFreeMemory)rig_entry(vnc_entries_memory, "vkFreeMemory");
    call(VNC_HANDLE(VkDevice, rig->device), memory, NULL);
}

/* The rig fails every call, so a map that asks fails too. */
static void expect_asked(struct rig *rig, VkDeviceMemory memory)
{
    assert_int_equal(map(rig, memory), VK_ERROR_DEVICE_LOST);
    pthread_mutex_lock(&rig->server.lock);
    assert_true(rig->server.asked_len >= sizeof(uint32_t));
    assert_int_equal(wire_load32(rig->server.asked), VN_OP_MAP);
    pthread_mutex_unlock(&rig->server.lock);
}

static void of_fresh_memory_nobody_is_asked(void **state)
{
    struct rig *rig = *state;
    VkDeviceMemory memory = allocate(rig, false);
    assert_int_equal(map(rig, memory), VK_SUCCESS);
    release(rig, memory);
}

static void work_behind_the_allocation_counts(void **state)
{
    struct rig *rig = *state;
    VkDeviceMemory memory = allocate(rig, false);
    rig_submit(rig, 0, NULL, NULL, NULL, NULL);
    expect_asked(rig, memory);
    release(rig, memory);
}

static void work_that_overtakes_the_answer_counts_too(void **state)
{
    struct rig *rig = *state;
    VkDeviceMemory memory = allocate(rig, true);
    expect_asked(rig, memory);
    release(rig, memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(of_fresh_memory_nobody_is_asked, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(work_behind_the_allocation_counts, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(work_that_overtakes_the_answer_counts_too, rig_start,
                                        rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
