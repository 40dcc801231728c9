/* What a client is told of buffers, by drivers with rules of their own. */
#include "unit.h"

#include <stdlib.h>

#include "base/attr.h"
#include "duet.h"
#include "venus/common/protocol.h"
#include "venus/server/session/state.h"
#include "wire/le.h"

enum { DEVICE = 7, GRAIN = 16, TYPES = 5 };

/* ---- the driver: a buffer's handle is its size ---- */

static VkDeviceSize dedicated_from, refused_from;

static VKAPI_ATTR VkResult VKAPI_CALL create(VkDevice device, const VkBufferCreateInfo *info,
                                             const VkAllocationCallbacks *allocator, VkBuffer *out)
{
    (void)device, (void)allocator;
    *out = (VkBuffer)(uintptr_t)info->size; // NOLINT(performance-no-int-to-ptr)
    return info->size < refused_from ? VK_SUCCESS : VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL destroy(VkDevice device, VkBuffer buffer,
                                          const VkAllocationCallbacks *allocator)
{
    (void)device, (void)buffer, (void)allocator;
}

static VKAPI_ATTR void VKAPI_CALL requirements(VkDevice device,
                                               const VkBufferMemoryRequirementsInfo2 *info,
                                               VkMemoryRequirements2 *out)
{
    VkMemoryDedicatedRequirements *dedicated = out->pNext;
    VkDeviceSize size = (uintptr_t)info->buffer;
    (void)device;
    out->memoryRequirements =
        (VkMemoryRequirements){(size + GRAIN - 1) & ~(VkDeviceSize)(GRAIN - 1), GRAIN, TYPES};
    dedicated->prefersDedicatedAllocation = size >= dedicated_from;
}

/* ---- a session ---- */

/* The largest size that a client is told of; 0: it is told nothing. */
static VkDeviceSize largest_told(void)
{
    static struct duet duet;
    struct vns_device device = {.id = DEVICE,
                                .driver = {.vkCreateBuffer = create,
                                           .vkDestroyBuffer = destroy,
                                           .vkGetBufferMemoryRequirements2 = requirements}};
    struct vns_session *session = calloc(1, sizeof(*session));
    assert_non_null(session);
    duet_start(&duet, 1 << 20, 0);
    vns_channel_fini(&duet.channel); /* the session has its own */
    assert_int_equal(vns_channel_init(&session->channel, duet.ep, NULL, NULL), 0);
    session->command.device = &device;
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .size = 1000,
                                     .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    const uint8_t end = 0;
    vns_facts_of_buffer(session, &info);
    vns_facts_of_buffer(session, &info); /* known: tried once */
    assert_int_equal(vns_channel_send(&session->channel, VN_PUSH_MESSAGE, &end, sizeof(end)), 0);
    size_t told = 0;
    for (size_t i = 1; told == 0; i++) {
        duet_wait(&duet, i);
        told = duet.pushes[i - 1].method == VN_PUSH_MESSAGE ? i : 0;
    }
    const uint8_t *push = duet.pushes[0].head;
    VkDeviceSize largest = 0;
    if (told > 1) {
        assert_int_equal(told, 2);
        assert_int_equal(duet.pushes[0].method, VN_PUSH_REGULAR);
        assert_int_equal(wire_load64(push), DEVICE);
        assert_int_equal(wire_load32(push + 8), info.usage);
        assert_int_equal(wire_load32(push + 12), TYPES);
        assert_int_equal(wire_load64(push + 16), GRAIN);
        assert_int_equal(wire_load64(push + 24), GRAIN);
        largest = wire_load64(push + 32);
    }
    vns_channel_fini(&session->channel);
    assert_int_equal(vns_channel_init(&duet.channel, duet.ep, NULL, NULL), 0);
    free(session);
    duet_end(&duet);
    return largest;
}

static void a_rule_holds_as_far_as_it_was_seen_to(void **state)
{
    (void)state;
    static const struct {
        VkDeviceSize dedicated_from, refused_from, least, below;
    } drivers[] = {
        {UINT64_MAX, UINT64_MAX, 1 << 30, (1 << 30) + 1},
        {64 << 20, UINT64_MAX, 32 << 20, 64 << 20}, /* NVIDIA's */
        {UINT64_MAX, 1 << 28, 32 << 20, 1 << 28},
        {0, UINT64_MAX, 0, 1},
        {UINT64_MAX, 0, 0, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(drivers); i++) {
        dedicated_from = drivers[i].dedicated_from;
        refused_from = drivers[i].refused_from;
        VkDeviceSize largest = largest_told();
        assert_in_range(largest, drivers[i].least, drivers[i].below - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rule_holds_as_far_as_it_was_seen_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
