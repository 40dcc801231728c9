/* Private data: a word of the program's for an object, in a slot. */
#include "venus/client/locks.h"
#include "venus/client/object/local.h"
#include "venus/client/object/objects.h"
#include "venus/common/keymap.h"

#include <pthread.h>
#include <stdlib.h>

struct slot {
    struct vn_object object;
    pthread_mutex_t lock;
    struct vn_keymap words; /* struct word, by the object's id */
    struct word *first;
};

struct word {
    struct word *next;
    uint64_t value;
};

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
    vnc_lock_init(&slot->lock);
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
    while (slot->first) {
        struct word *next = slot->first->next;
        free(slot->first);
        slot->first = next;
    }
    vn_keymap_fini(&slot->words);
    vnc_lock_fini(&slot->lock);
    free(slot);
}

static struct word *word_new(struct slot *slot, uint64_t handle)
{
    struct word *word = calloc(1, sizeof(*word));
    if (!word || vn_keymap_put(&slot->words, handle, word)) {
        free(word);
        return NULL;
    }
    word->next = slot->first;
    slot->first = word;
    return word;
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
    pthread_mutex_lock(&slot->lock);
    struct word *word = vn_keymap_get(&slot->words, key);
    if (!word)
        word = word_new(slot, key);
    if (word)
        word->value = data;
    pthread_mutex_unlock(&slot->lock);
    return word ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL get_data(VkDevice device, VkObjectType type, uint64_t handle,
                                           VkPrivateDataSlot slot_handle, uint64_t *data)
{
    (void)device;
    struct slot *slot = VNC_OBJECT(slot, slot_handle);
    pthread_mutex_lock(&slot->lock);
    const struct word *word = vn_keymap_get(&slot->words, key_of(type, handle));
    *data = word ? word->value : 0;
    pthread_mutex_unlock(&slot->lock);
}

const struct vnc_entry vnc_entries_private_data[] = {
    VNC_ENTRY(vkCreatePrivateDataSlot, create_slot),
    VNC_ENTRY(vkDestroyPrivateDataSlot, destroy_slot),
    VNC_ENTRY(vkSetPrivateData, set_data),
    VNC_ENTRY(vkGetPrivateData, get_data),
    {NULL, NULL},
};
