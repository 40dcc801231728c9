/* Images that a program creates to share the memory of a swapchain's image; see wsi.h. */
#include "venus/client/memory/memory.h"
#include "venus/client/present/swapchain.h"
#include "venus/client/present/wsi.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What memory.h has under the names that this file replaces. */
static PFN_vkVoidFunction replaced(const char *name)
{
    const struct vnc_entry *entry = vnc_entries_resource;
    while (entry->name && strcmp(entry->name, name) != 0)
        entry++;
    assert(entry->name);
    return entry->function;
}

#define REPLACED(command) ((PFN_##command)replaced(#command))

/* Created as the swapchain's own, so that both read the memory alike. */
static VKAPI_ATTR VkResult VKAPI_CALL create_image(VkDevice device, const VkImageCreateInfo *info,
                                                   const VkAllocationCallbacks *allocator,
                                                   VkImage *out)
{
    VkImageCreateInfo alias = *info;
    const VkImageSwapchainCreateInfoKHR *chained =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_IMAGE_SWAPCHAIN_CREATE_INFO_KHR);
    if (chained && chained->swapchain)
        vnc_swapchain_image_info(&alias);
    return REPLACED(vkCreateImage)(device, &alias, allocator, out);
}

static const VkBindImageMemorySwapchainInfoKHR *of_swapchain(const VkBindImageMemoryInfo *info)
{
    const VkBindImageMemorySwapchainInfoKHR *chained =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_BIND_IMAGE_MEMORY_SWAPCHAIN_INFO_KHR);
    return chained && chained->swapchain ? chained : NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_image_memory2(VkDevice device, uint32_t count,
                                                         const VkBindImageMemoryInfo *infos)
{
    VkBindImageMemoryInfo *bound = calloc(count ? count : 1, sizeof(*bound));
    if (!bound)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const VkBindImageMemorySwapchainInfoKHR *chained = of_swapchain(&infos[i]);
        bound[i] = infos[i];
        if (chained) {
            bound[i].memory = vnc_swapchain_memory(chained->swapchain, chained->imageIndex);
            bound[i].memoryOffset = 0;
        }
    }
    VkResult result = REPLACED(vkBindImageMemory2)(device, count, bound);
    free(bound);
    return result;
}

const struct vnc_entry vnc_entries_wsi_alias[] = {
    VNC_ENTRY(vkCreateImage, create_image),
    VNC_ENTRY(vkBindImageMemory2, bind_image_memory2),
    {NULL, NULL},
};
