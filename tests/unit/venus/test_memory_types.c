/* The memory types of typical drivers, as programs see them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "venus/client/device/memory_types.h"

enum {
    LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    VISIBLE = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
    COHERENT = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    LAZY = VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT,
    SECRET = VK_MEMORY_PROPERTY_PROTECTED_BIT,
};

static const VkDeviceSize GIB = 1 << 30;

static const VkPhysicalDeviceMemoryProperties lavapipe = {
    .memoryTypeCount = 1,
    .memoryTypes = {{LOCAL | VISIBLE | COHERENT | CACHED, 0}},
    .memoryHeapCount = 1,
    .memoryHeaps = {{8ull << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
};

static const VkPhysicalDeviceMemoryProperties nvidia = {
    .memoryTypeCount = 5,
    .memoryTypes = {{0, 1},
                    {LOCAL, 0},
                    {VISIBLE | COHERENT, 1},
                    {VISIBLE | COHERENT | CACHED, 1},
                    {LOCAL | VISIBLE | COHERENT, 2}},
    .memoryHeapCount = 3,
    .memoryHeaps = {{80ull << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                    {64ull << 30, 0},
                    {256 << 20, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
};

static const VkPhysicalDeviceMemoryProperties integrated = {
    .memoryTypeCount = 4,
    .memoryTypes = {{LOCAL, 0},
                    {LOCAL | VISIBLE | COHERENT, 0},
                    {LOCAL | VISIBLE | COHERENT | CACHED, 0},
                    {LOCAL | LAZY, 0}},
    .memoryHeapCount = 1,
    .memoryHeaps = {{16ull << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
};

static const VkPhysicalDeviceMemoryProperties amd = {
    .memoryTypeCount = 5,
    .memoryTypes = {{LOCAL, 0},
                    {VISIBLE | COHERENT, 1},
                    {LOCAL | VISIBLE | COHERENT, 2},
                    {VISIBLE | COHERENT | CACHED, 1},
                    {LOCAL | SECRET, 0}},
    .memoryHeapCount = 3,
    .memoryHeaps = {{16ull << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                    {32ull << 30, 0},
                    {256 << 20, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
};

/* What holds for every driver. */
static void require_rules(const struct vnc_memory_types *t,
                          const VkPhysicalDeviceMemoryProperties *driver)
{
    const VkPhysicalDeviceMemoryProperties *offered = &t->offered;
    int coherent = 0, local = 0;
    for (uint32_t i = 0; i < offered->memoryTypeCount; i++) {
        const VkMemoryType *type = &offered->memoryTypes[i];
        const VkMemoryType *behind = &driver->memoryTypes[t->driver_type[i]];
        assert_true(t->driver_type[i] < driver->memoryTypeCount);
        assert_true(type->heapIndex < offered->memoryHeapCount);
        /* Nothing is promised that the driver does not have. */
        assert_int_equal(type->propertyFlags & ~behind->propertyFlags, 0);
        assert_int_equal(t->heap_of[type->heapIndex], behind->heapIndex);
        /* Uncached memory of the host's may have cached memory behind it. */
        if (i < driver->memoryTypeCount && t->driver_type[i] != i) {
            assert_int_equal(driver->memoryTypes[i].propertyFlags, VISIBLE | COHERENT);
            assert_int_equal(behind->propertyFlags, VISIBLE | COHERENT | CACHED);
        }
        coherent += (type->propertyFlags & (VISIBLE | COHERENT)) == (VISIBLE | COHERENT);
        local += (type->propertyFlags & LOCAL) != 0;
    }
    assert_true(coherent > 0 && local > 0);
}

static void test_a_driver_with_one_type_gets_a_second(void **state)
{
    struct vnc_memory_types t;
    (void)state;
    vnc_memory_types_init(&t, &lavapipe, false);
    require_rules(&t, &lavapipe);
    assert_int_equal(t.offered.memoryTypeCount, 2);
    assert_int_equal(t.offered.memoryTypes[0].propertyFlags, LOCAL);
    assert_int_equal(t.offered.memoryTypes[1].propertyFlags, VISIBLE | COHERENT | CACHED);
    assert_int_equal(t.offered.memoryHeapCount, 2);
    assert_int_equal(t.offered.memoryHeaps[1].flags, 0);
    assert_true(t.offered.memoryHeaps[1].size == 8 * GIB);
    assert_int_equal(vnc_memory_types_translate(&t, 1), 3);
    assert_int_equal(vnc_memory_types_translate(&t, 0), 0);
}

static void test_host_memory_of_a_driver_is_offered_as_it_is(void **state)
{
    struct vnc_memory_types t;
    (void)state;
    vnc_memory_types_init(&t, &nvidia, false);
    require_rules(&t, &nvidia);
    assert_int_equal(t.offered.memoryTypeCount, nvidia.memoryTypeCount);
    assert_int_equal(t.offered.memoryTypes[3].propertyFlags, VISIBLE | COHERENT | CACHED);
    assert_int_equal(t.offered.memoryTypes[4].propertyFlags, LOCAL);
    assert_int_equal(t.offered.memoryTypes[2].propertyFlags, VISIBLE | COHERENT);
    assert_int_equal(t.driver_type[2], 3);
    assert_int_equal(vnc_memory_types_translate(&t, 0x1b), 0x1f);
    assert_int_equal(vnc_memory_types_translate(&t, 0x13), 0x13);
    vnc_memory_types_init(&t, &amd, false);
    require_rules(&t, &amd);
    assert_int_equal(t.offered.memoryTypes[2].propertyFlags, LOCAL);
    assert_int_equal(t.offered.memoryTypes[4].propertyFlags, LOCAL | SECRET);
}

static void test_an_integrated_gpu_keeps_lazy_memory(void **state)
{
    struct vnc_memory_types t;
    (void)state;
    vnc_memory_types_init(&t, &integrated, false);
    require_rules(&t, &integrated);
    assert_int_equal(t.offered.memoryTypeCount, 5);
    assert_int_equal(t.offered.memoryTypes[3].propertyFlags, LOCAL | LAZY);
    assert_int_equal(t.offered.memoryTypes[4].propertyFlags, VISIBLE | COHERENT);
    assert_int_equal(t.driver_type[4], 1);
    assert_int_equal(vnc_memory_types_translate(&t, 1u << 1), 1u << 1 | 1u << 4);
}

static void test_all_is_as_the_driver_has_it_when_asked(void **state)
{
    struct vnc_memory_types t;
    (void)state;
    vnc_memory_types_init(&t, &integrated, true);
    assert_memory_equal(&t.offered, &integrated, sizeof(integrated));
    assert_int_equal(vnc_memory_types_translate(&t, 0xf), 0xf);
}

static void test_without_room_for_a_type_the_drivers_own_stays_visible(void **state)
{
    struct vnc_memory_types t;
    VkPhysicalDeviceMemoryProperties full = integrated;
    (void)state;
    full.memoryTypeCount = VK_MAX_MEMORY_TYPES;
    for (uint32_t i = 4; i < VK_MAX_MEMORY_TYPES; i++)
        full.memoryTypes[i] = (VkMemoryType){LOCAL, 0};
    vnc_memory_types_init(&t, &full, false);
    require_rules(&t, &full);
    assert_int_equal(t.offered.memoryTypes[1].propertyFlags, LOCAL | VISIBLE | COHERENT);
}

/* Pages of what the server's CPU does not cache are fetched. */
static void test_what_is_cached_is_known_behind_each_type(void **state)
{
    struct vnc_memory_types t;
    (void)state;
    vnc_memory_types_init(&t, &nvidia, true);
    assert_true(vnc_memory_types_is_cached(&t, 2)); /* backed by 3 */
    assert_true(vnc_memory_types_is_cached(&t, 3));
    assert_false(vnc_memory_types_is_cached(&t, 4));
    vnc_memory_types_init(&t, &lavapipe, true);
    assert_true(vnc_memory_types_is_cached(&t, 0));
    vnc_memory_types_init(&t, &lavapipe, false);
    assert_true(vnc_memory_types_is_cached(&t, 1)); /* the one that was added */
    vnc_memory_types_init(&t, &integrated, false);
    assert_false(vnc_memory_types_is_cached(&t, 4)); /* the driver's first that is coherent */
}

static void test_budgets_follow_the_heaps(void **state)
{
    struct vnc_memory_types t;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT driver = {.heapBudget = {7}, .heapUsage = {3}};
    VkPhysicalDeviceMemoryBudgetPropertiesEXT offered = {.heapBudget = {1, 1, 1}};
    (void)state;
    vnc_memory_types_init(&t, &lavapipe, false);
    vnc_memory_types_budget(&t, &driver, &offered);
    assert_int_equal(offered.heapBudget[0], 7);
    assert_int_equal(offered.heapBudget[1], 7);
    assert_int_equal(offered.heapUsage[1], 3);
    assert_int_equal(offered.heapBudget[2], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_driver_with_one_type_gets_a_second),
        cmocka_unit_test(test_host_memory_of_a_driver_is_offered_as_it_is),
        cmocka_unit_test(test_an_integrated_gpu_keeps_lazy_memory),
        cmocka_unit_test(test_all_is_as_the_driver_has_it_when_asked),
        cmocka_unit_test(test_without_room_for_a_type_the_drivers_own_stays_visible),
        cmocka_unit_test(test_what_is_cached_is_known_behind_each_type),
        cmocka_unit_test(test_budgets_follow_the_heaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
