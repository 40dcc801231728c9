/* Private data: a word of the program's for an object, in a slot. */
#include "venus/client/locks.h"
#include "venus/client/object/local.h"
#include "venus/client/object/objects.h"
#include "venus/common/keymap.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A word is the value in place of a pointer; 0, which every object has at first, is not kept. */
static_assert(sizeof(void *) == sizeof(uint64_t), "a word fits a pointer");

struct slot {
    struct vn_object object;
    struct slot *next, **at;
    struct vn_keymap words; /* by the object's id */
};

/* Of all devices: an object that ends looks through them. */
static pthread_mutex_t slots_lock; /* guards the list and what slots hold; taken last */
static struct slot *slots;
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;
/* Relaxed: an object that has a word got it after the slot was made, and ends after that. */
static _Atomic uint32_t slot_count;

static void make_slots_lock(void)
{
    vnc_lock_init(&slots_lock);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_slot(VkDevice device,
                                                  const VkPrivateDataSlotCreateInfo *info,
                                                  const VkAllocationCallbacks *allocator,
                                                  VkPrivateDataSlot *out)
{
    (void)info;
    (void)allocator;
    struct slot *slot = calloc(1, sizeof(*slot));
    if (!slot)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    slot->object.client = vn_client_of(device);
    slot->object.id = vnc_link_ids(vnc_link_of(device), 1);
    slot->object.type = VK_OBJECT_TYPE_PRIVATE_DATA_SLOT;
    pthread_once(&slots_once, make_slots_lock);
    pthread_mutex_lock(&slots_lock);
    slot->next = slots;
    slot->at = &slots;
    if (slots)
        slots->at = &slot->next;
    slots = slot;
    atomic_fetch_add_explicit(&slot_count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&slots_lock);
    *out = VNC_HANDLE(VkPrivateDataSlot, slot);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_slot(VkDevice device, VkPrivateDataSlot handle,
                                               const VkAllocationCallbacks *allocator)
{
    (void)device;
    (void)allocator;
    struct slot *slot = VNC_OBJECT(slot, handle);
    if (!slot)
        return;
    pthread_mutex_lock(&slots_lock);
    *slot->at = slot->next;
    if (slot->next)
        slot->next->at = slot->at;
    atomic_fetch_sub_explicit(&slot_count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&slots_lock);
    vn_keymap_fini(&slot->words);
    free(slot);
}

void vnc_private_data_forget(const struct vn_object *object)
{
    if (atomic_load_explicit(&slot_count, memory_order_relaxed) == 0 ||
        vnc_link_is_foreign(vnc_link_of(object)))
        return;
    pthread_mutex_lock(&slots_lock);
    for (struct slot *slot = slots; slot; slot = slot->next) {
        if (slot->object.client == object->client) /* others have ids of their own */
            (void)vn_keymap_take(&slot->words, object->id);
    }
    pthread_mutex_unlock(&slots_lock);
}

size_t vnc_private_data_words(VkPrivateDataSlot handle)
{
    pthread_mutex_lock(&slots_lock);
    size_t count = vn_keymap_count(&VNC_OBJECT(slot, handle)->words);
    pthread_mutex_unlock(&slots_lock);
    return count;
}

/* Handles are reused once an object is gone, ids are not. */
static uint64_t key_of(VkObjectType type, uint64_t handle)
{
    (void)type;
    return vn_id((const void *)(uintptr_t)handle);
}

static VKAPI_ATTR VkResult VKAPI_CALL set_data(VkDevice device, VkObjectType type, uint64_t handle,
                                               VkPrivateDataSlot slot_handle, uint64_t data)
{
    (void)device;
    struct slot *slot = VNC_OBJECT(slot, slot_handle);
    uint64_t key = key_of(type, handle);
    int rc = 0;
    pthread_mutex_lock(&slots_lock);
    if (data)
        rc = vn_keymap_put(&slot->words, key, (void *)(uintptr_t)data);
    else
        (void)vn_keymap_take(&slot->words, key);
    pthread_mutex_unlock(&slots_lock);
    return rc == 0 ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL get_data(VkDevice device, VkObjectType type, uint64_t handle,
                                           VkPrivateDataSlot slot_handle, uint64_t *data)
{
    (void)device;
    const struct slot *slot = VNC_OBJECT(slot, slot_handle);
    pthread_mutex_lock(&slots_lock);
    *data = (uintptr_t)vn_keymap_get(&slot->words, key_of(type, handle));
    pthread_mutex_unlock(&slots_lock);
}

const struct vnc_entry vnc_entries_private_data[] = {
    VNC_ENTRY(vkCreatePrivateDataSlot, create_slot),
    VNC_ENTRY(vkDestroyPrivateDataSlot, destroy_slot),
    VNC_ENTRY(vkSetPrivateData, set_data),
    VNC_ENTRY(vkGetPrivateData, get_data),
    {NULL, NULL},
};
