/* What recordings under way pay for objects that are destroyed meanwhile. */
#include "rig.h"

#include "venus/client/object/objects.h"
#include "vn_client.gen.h"

enum {
    PART = 64 << 10, /* what one vkCmdUpdateBuffer takes */
    PARTS = 4,
    RECORDING = PARTS * PART,
    FEW = 4,   /* searches that any recording is worth */
    MANY = 16, /* and more than one of this size is */
};

struct ending {
    struct rig *rig;
    struct rig_copy copy;
};

/* A recording that is open, of which an idle server would get what there is. */
static void start(struct ending *t, struct rig *rig)
{
    t->rig = rig;
    rig_copy_make(rig, &t->copy, PART);
    rig_submit(rig, 0, NULL, rig->timeline, NULL, NULL);
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, t->copy.commands);
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &info), VK_SUCCESS);
    static uint32_t words[PART / sizeof(uint32_t)];
    uint32_t word = 1;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        words[i] = word = word * 1664525 + 1013904223; /* which nobody can pack */
    for (int i = 0; i < PARTS; i++)
        vn_vkCmdUpdateBuffer(commands, VNC_HANDLE(VkBuffer, t->copy.to), 0, PART, words);
}

static void end(struct ending *t)
{
    rig_report(t->rig, 0, 1);
    rig_copy_free(t->rig, &t->copy);
}

/* Bytes that leave when so many objects are destroyed of which the recording knows nothing. */
static uint64_t bytes_of_destroying(struct ending *t, int count)
{
    VkDevice device = VNC_HANDLE(VkDevice, t->rig->device);
    uint64_t before = rig_sent(t->rig).bytes_sent;
    for (int i = 0; i < count; i++) {
        struct vn_object *event =
            vnc_object_create(t->rig->link, VK_OBJECT_TYPE_EVENT, &t->rig->device->object);
        vn_vkDestroyEvent(device, VNC_HANDLE(VkEvent, event), NULL);
    }
    assert_int_equal(vnc_link_flush(t->rig->link), VK_SUCCESS);
    return rig_sent(t->rig).bytes_sent - before;
}

static void a_few_are_looked_for(void **state)
{
    struct ending t;
    start(&t, *state);
    assert_true(bytes_of_destroying(&t, FEW) < PART);
    end(&t);
}

/* The server gets what is recorded, after which there is nothing to search. */
static void many_are_not(void **state)
{
    struct ending t;
    start(&t, *state);
    assert_in_range(bytes_of_destroying(&t, MANY), RECORDING, RECORDING + PART);
    assert_true(bytes_of_destroying(&t, MANY) < PART);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_few_are_looked_for, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(many_are_not, rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
