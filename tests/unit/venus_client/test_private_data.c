/* What a program stores with objects lasts as long as they do. */
#include "rig.h"

#include "venus/client/object/local.h"
#include "venus/client/object/objects.h"

#define PRIVATE_DATA(name) ((PFN_##name)rig_entry(vnc_entries_private_data, #name))

enum { FRAMES = 100, EACH = 8 };

static VkPrivateDataSlot slot_of(const struct rig *rig)
{
    VkPrivateDataSlotCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PRIVATE_DATA_SLOT_CREATE_INFO};
    VkPrivateDataSlot slot;
    assert_int_equal(PRIVATE_DATA(vkCreatePrivateDataSlot)(VNC_HANDLE(VkDevice, rig->device), &info,
                                                           NULL, &slot),
                     VK_SUCCESS);
    return slot;
}

static void slot_end(const struct rig *rig, VkPrivateDataSlot slot)
{
    PRIVATE_DATA(vkDestroyPrivateDataSlot)(VNC_HANDLE(VkDevice, rig->device), slot, NULL);
}

static struct vn_object *event_of(struct rig *rig)
{
    return vnc_object_create(rig->link, VK_OBJECT_TYPE_EVENT, &rig->device->object);
}

static void set(const struct rig *rig, VkPrivateDataSlot slot, const struct vn_object *object,
                uint64_t data)
{
    assert_int_equal(PRIVATE_DATA(vkSetPrivateData)(VNC_HANDLE(VkDevice, rig->device),
                                                    VK_OBJECT_TYPE_EVENT,
                                                    (uint64_t)(uintptr_t)object, slot, data),
                     VK_SUCCESS);
}

static uint64_t get(const struct rig *rig, VkPrivateDataSlot slot, const struct vn_object *object)
{
    uint64_t data = 1;
    PRIVATE_DATA(vkGetPrivateData)
    (VNC_HANDLE(VkDevice, rig->device), VK_OBJECT_TYPE_EVENT, (uint64_t)(uintptr_t)object, slot,
     &data);
    return data;
}

static void it_is_found_until_it_is_zero(void **state)
{
    struct rig *rig = *state;
    VkPrivateDataSlot first = slot_of(rig), second = slot_of(rig);
    struct vn_object *event = event_of(rig);
    assert_int_equal(get(rig, first, event), 0);
    set(rig, first, event, UINT64_MAX);
    set(rig, second, event, 7);
    set(rig, second, event, 8);
    assert_true(get(rig, first, event) == UINT64_MAX);
    assert_int_equal(get(rig, second, event), 8);
    set(rig, first, event, 0);
    assert_int_equal(get(rig, first, event), 0);
    assert_int_equal(vnc_private_data_words(first), 0);
    slot_end(rig, first);
    assert_int_equal(get(rig, second, event), 8);
    vnc_object_destroy(event);
    slot_end(rig, second);
}

static void it_ends_with_its_object(void **state)
{
    struct rig *rig = *state;
    VkPrivateDataSlot slot = slot_of(rig), other = slot_of(rig);
    struct vn_object *lasting = event_of(rig);
    set(rig, slot, lasting, 1);
    for (int frame = 0; frame < FRAMES; frame++) {
        struct vn_object *objects[EACH];
        for (int i = 0; i < EACH; i++) {
            objects[i] = event_of(rig);
            set(rig, slot, objects[i], 2);
            set(rig, other, objects[i], 3);
        }
        for (int i = 0; i < EACH; i++)
            vnc_object_destroy(objects[i]);
    }
    assert_int_equal(vnc_private_data_words(slot), 1);
    assert_int_equal(vnc_private_data_words(other), 0);
    assert_int_equal(get(rig, slot, lasting), 1);
    vnc_object_destroy(lasting);
    slot_end(rig, other);
    slot_end(rig, slot);
}

struct user {
    struct rig *rig;
    VkPrivateDataSlot slot;
};

static void *use(void *arg)
{
    const struct user *user = arg;
    for (int i = 0; i < FRAMES; i++) {
        VkPrivateDataSlot own = slot_of(user->rig);
        struct vn_object *event = event_of(user->rig);
        set(user->rig, user->slot, event, 4);
        set(user->rig, own, event, 5);
        assert_int_equal(get(user->rig, user->slot, event), 4);
        vnc_object_destroy(event);
        assert_int_equal(vnc_private_data_words(own), 0);
        slot_end(user->rig, own);
    }
    return NULL;
}

/* A slot may be used by several threads, and slots come and go; the sanitizers judge. */
static void threads_share_a_slot(void **state)
{
    struct user user = {*state, slot_of(*state)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use, &user), 0);
    (void)use(&user);
    pthread_join(thread, NULL);
    assert_int_equal(vnc_private_data_words(user.slot), 0);
    slot_end(user.rig, user.slot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_found_until_it_is_zero, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(it_ends_with_its_object, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(threads_share_a_slot, rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
