/* Render passes: which subpasses have which attachments decides what pipelines read. */
#include "venus/client/device/device.h"
#include "venus/client/object/local.h"
#include "venus/client/object/objects.h"
#include "venus/common/rules.h"
#include "vn_client.gen.h"

#include <stdlib.h>

static struct vn_render_pass_facts *facts_new(uint32_t count)
{
    struct vn_render_pass_facts *facts =
        calloc(1, sizeof(*facts) + count * sizeof(facts->subpasses[0]));
    if (facts)
        facts->count = count;
    return facts;
}

/* Without facts every pipeline is taken to read all of its states, which garbage would not
 * survive: better no render pass. */
static VkResult keep_facts(VkDevice device, VkRenderPass *pass, struct vn_render_pass_facts *facts,
                           const VkAllocationCallbacks *allocator)
{
    if (facts) {
        VNC_OBJECT(vn_object, *pass)->facts = facts;
        return VK_SUCCESS;
    }
    vn_vkDestroyRenderPass(device, *pass, allocator);
    *pass = VK_NULL_HANDLE;
    return VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_render_pass(VkDevice device,
                                                         const VkRenderPassCreateInfo *info,
                                                         const VkAllocationCallbacks *allocator,
                                                         VkRenderPass *out)
{
    VkResult result = vn_vkCreateRenderPass(device, info, allocator, out);
    if (result != VK_SUCCESS)
        return result;
    struct vn_render_pass_facts *facts = facts_new(info->subpassCount);
    for (uint32_t i = 0; facts && i < info->subpassCount; i++) {
        const VkSubpassDescription *s = &info->pSubpasses[i];
        for (uint32_t j = 0; j < s->colorAttachmentCount; j++)
            facts->subpasses[i].color |= s->pColorAttachments[j].attachment != VK_ATTACHMENT_UNUSED;
        facts->subpasses[i].depth_stencil =
            s->pDepthStencilAttachment &&
            s->pDepthStencilAttachment->attachment != VK_ATTACHMENT_UNUSED;
    }
    return keep_facts(device, out, facts, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_render_pass2(VkDevice device,
                                                          const VkRenderPassCreateInfo2 *info,
                                                          const VkAllocationCallbacks *allocator,
                                                          VkRenderPass *out)
{
    VkResult result = vn_vkCreateRenderPass2(device, info, allocator, out);
    if (result != VK_SUCCESS)
        return result;
    struct vn_render_pass_facts *facts = facts_new(info->subpassCount);
    for (uint32_t i = 0; facts && i < info->subpassCount; i++) {
        const VkSubpassDescription2 *s = &info->pSubpasses[i];
        for (uint32_t j = 0; j < s->colorAttachmentCount; j++)
            facts->subpasses[i].color |= s->pColorAttachments[j].attachment != VK_ATTACHMENT_UNUSED;
        facts->subpasses[i].depth_stencil =
            s->pDepthStencilAttachment &&
            s->pDepthStencilAttachment->attachment != VK_ATTACHMENT_UNUSED;
    }
    return keep_facts(device, out, facts, allocator);
}

/* A render pass has one for its life, and its id is never another's. */
static VKAPI_ATTR void VKAPI_CALL get_render_area_granularity(VkDevice device, VkRenderPass pass,
                                                              VkExtent2D *out)
{
    struct vnc_memo *memo = &VNC_OBJECT(vnc_device, device)->requirements;
    const uint64_t key[] = {VN_CMD_vkGetRenderAreaGranularity, VNC_OBJECT(vn_object, pass)->id};
    if (vnc_memo_find(memo, key, sizeof(key), out, sizeof(*out)))
        return;
    *out = (VkExtent2D){1, 1};
    vn_vkGetRenderAreaGranularity(device, pass, out);
    if (vnc_device_status(VNC_OBJECT(vnc_device, device)) == VK_SUCCESS)
        vnc_memo_add(memo, key, sizeof(key), out, sizeof(*out));
}

const struct vnc_entry vnc_entries_render_pass[] = {
    VNC_ENTRY(vkGetRenderAreaGranularity, get_render_area_granularity),
    VNC_ENTRY(vkCreateRenderPass, create_render_pass),
    VNC_ENTRY(vkCreateRenderPass2, create_render_pass2),
    {NULL, NULL},
};
