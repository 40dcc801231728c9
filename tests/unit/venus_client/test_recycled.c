/* Which allocations take over memory that was freed, how much is kept, and when it is let go. */
#include "rig.h"

#include "venus/client/memory/recycled.h"
#include "venus/client/object/objects.h"
#include "vn_client.gen.h"

enum { BYTES = 4096, HEAP = 16 * BYTES * VNC_RECYCLED_PART };

static struct rig *rig_in_use;
static unsigned asked, freed;
static bool refuses; /* until something is freed */

VkResult __wrap_vn_vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                    const VkAllocationCallbacks *allocator, VkDeviceMemory *out);
void __wrap_vn_vkFreeMemory(VkDevice device, VkDeviceMemory memory,
                            const VkAllocationCallbacks *allocator);

VkResult __wrap_vn_vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                    const VkAllocationCallbacks *allocator, VkDeviceMemory *out)
{
    (void)info, (void)allocator;
    asked++;
    if (refuses)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    struct vnc_memory *memory = vnc_object_create(rig_in_use->link, VK_OBJECT_TYPE_DEVICE_MEMORY,
                                                  VNC_OBJECT(vn_object, device));
    *out = VNC_HANDLE(VkDeviceMemory, memory);
    return VK_SUCCESS;
}

void __wrap_vn_vkFreeMemory(VkDevice device, VkDeviceMemory memory,
                            const VkAllocationCallbacks *allocator)
{
    (void)device, (void)allocator;
    freed++;
    refuses = false;
    vnc_object_destroy(VNC_OBJECT(vn_object, memory));
}

static int start(void **state)
{
    int rc = rig_start(state);
    rig_in_use = *state;
    struct vnc_memory_types *types = &rig_in_use->physical.types;
    types->offered.memoryTypeCount = 2;
    types->offered.memoryHeapCount = 1;
    types->offered.memoryHeaps[0].size = HEAP;
    asked = freed = 0;
    refuses = false;
    return rc;
}

static int end(void **state)
{
    vnc_recycled_free(rig_in_use->device);
    return rig_end(state);
}

static VkResult allocate(VkDeviceSize size, uint32_t type, const void *next, VkDeviceMemory *out)
{
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = next,
                                 .allocationSize = size,
                                 .memoryTypeIndex = type};
    PFN_vkAllocateMemory call =
        (PFN_vkAllocateMemory)rig_entry(vnc_entries_memory, "vkAllocateMemory");
    return call(VNC_HANDLE(VkDevice, rig_in_use->device), &info, NULL, out);
}

static void release(VkDeviceMemory memory)
{
    PFN_vkFreeMemory call = (PFN_vkFreeMemory)rig_entry(vnc_entries_memory, "vkFreeMemory");
    call(VNC_HANDLE(VkDevice, rig_in_use->device), memory, NULL);
}

/* How often the server was asked for it. */
static unsigned cost(VkDeviceSize size, uint32_t type, const void *next)
{
    VkDeviceMemory memory;
    unsigned before = asked;
    assert_int_equal(allocate(size, type, next, &memory), VK_SUCCESS);
    assert_int_equal(VNC_OBJECT(vnc_memory, memory)->size, size);
    release(memory);
    return asked - before;
}

static void the_same_again_is_not_asked_for(void **state)
{
    (void)state;
    VkMemoryAllocateFlagsInfo address = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                         .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    for (unsigned turn = 0; turn < 3; turn++) {
        assert_int_equal(cost(BYTES, 0, NULL), turn == 0);
        assert_int_equal(cost(BYTES, 1, NULL), turn == 0);
        assert_int_equal(cost(2 * BYTES, 0, NULL), turn == 0);
        assert_int_equal(cost(BYTES, 0, &address), turn == 0);
    }
    assert_int_equal(freed, 0);
}

static void what_asks_for_more_is_asked_for(void **state)
{
    (void)state;
    VkMemoryAllocateFlagsInfo mask = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                      .flags = VK_MEMORY_ALLOCATE_DEVICE_MASK_BIT};
    VkMemoryDedicatedAllocateInfo own = {.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO,
                                         .buffer = (VkBuffer)(uintptr_t)1};
    VkExportMemoryAllocateInfo shared = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                         .handleTypes = 1};
    VkMemoryOpaqueCaptureAddressAllocateInfo other = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_OPAQUE_CAPTURE_ADDRESS_ALLOCATE_INFO};
    const void *const chains[] = {&mask, &own, &shared, &other};
    assert_int_equal(cost(BYTES, 0, NULL), 1);
    for (unsigned i = 0; i < 2 * ARRAY_LEN(chains); i++)
        assert_int_equal(cost(BYTES, 0, chains[i / 2]), 1);
    assert_int_equal(freed, 2 * ARRAY_LEN(chains));
}

#ifdef VK_EXT_pageable_device_local_memory
static void what_was_given_a_priority_is_not_kept(void **state)
{
    (void)state;
    VkDeviceMemory memory;
    PFN_vkSetDeviceMemoryPriorityEXT prioritise = (PFN_vkSetDeviceMemoryPriorityEXT)rig_entry(
        vnc_entries_memory, "vkSetDeviceMemoryPriorityEXT");
    assert_int_equal(allocate(BYTES, 0, NULL, &memory), VK_SUCCESS);
    prioritise(VNC_HANDLE(VkDevice, rig_in_use->device), memory, 1);
    release(memory);
    assert_int_equal(freed, 1);
}
#endif

enum { USED = 3 * BYTES };

static uint64_t used(void)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {.heapUsage = {USED}};
    vnc_recycled_leave_out(&rig_in_use->physical, &budget);
    return budget.heapUsage[0];
}

/* The program has freed it, though the driver has not. */
static void what_is_kept_is_not_used(void **state)
{
    (void)state;
    VkDeviceMemory memory;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(allocate(BYTES, 0, NULL, &memory), VK_SUCCESS);
        assert_int_equal(used(), USED);
        release(memory);
        assert_int_equal(used(), USED - BYTES);
    }
    vnc_recycled_free(rig_in_use->device);
    assert_int_equal(used(), USED);
    assert_int_equal(cost(16 * BYTES, 0, NULL), 1);
    assert_int_equal(used(), 0); /* an old answer may be less */
}

static void a_part_of_the_heap_is_kept(void **state)
{
    (void)state;
    VkDeviceMemory memories[20], large;
    for (unsigned i = 0; i < ARRAY_LEN(memories); i++)
        assert_int_equal(allocate(BYTES, 0, NULL, &memories[i]), VK_SUCCESS);
    assert_int_equal(allocate(17 * BYTES, 0, NULL, &large), VK_SUCCESS);
    release(large);
    assert_int_equal(freed, 1);
    for (unsigned i = 0; i < ARRAY_LEN(memories); i++)
        release(memories[i]);
    assert_int_equal(freed, 1 + 4);
}

static void all_is_let_go_when_memory_is_short(void **state)
{
    (void)state;
    VkDeviceMemory memory;
    assert_int_equal(cost(BYTES, 0, NULL), 1);
    assert_int_equal(cost(2 * BYTES, 0, NULL), 1);
    refuses = true;
    assert_int_equal(allocate(3 * BYTES, 0, NULL, &memory), VK_SUCCESS);
    assert_int_equal(freed, 2);
    refuses = true; /* nothing is kept now that could be let go */
    assert_int_equal(allocate(BYTES, 0, NULL, &(VkDeviceMemory){0}), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    release(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_same_again_is_not_asked_for, start, end),
        cmocka_unit_test_setup_teardown(what_asks_for_more_is_asked_for, start, end),
#ifdef VK_EXT_pageable_device_local_memory
        cmocka_unit_test_setup_teardown(what_was_given_a_priority_is_not_kept, start, end),
#endif
        cmocka_unit_test_setup_teardown(what_is_kept_is_not_used, start, end),
        cmocka_unit_test_setup_teardown(a_part_of_the_heap_is_kept, start, end),
        cmocka_unit_test_setup_teardown(all_is_let_go_when_memory_is_short, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
