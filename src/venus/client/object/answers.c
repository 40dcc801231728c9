/* Questions that have one answer for the life of a device, and are asked once. */
#include "venus/client/device/device.h"
#include "venus/client/memory/memory.h"
#include "venus/client/object/local.h"
#include "venus/client/object/memo.h"
#include "vn_client.gen.h"

static bool find(VkDevice device, const struct wire_enc *key, void *out, size_t len)
{
    return !wire_enc_error(key) && vnc_memo_find(&VNC_OBJECT(vnc_device, device)->requirements,
                                                 wire_enc_data(key), wire_enc_len(key), out, len);
}

/* Nothing is known from a lost server. */
static void keep(VkDevice handle, const struct wire_enc *key, const void *answer, size_t len)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    if (!wire_enc_error(key) && vnc_device_status(device) == VK_SUCCESS)
        vnc_memo_add(&device->requirements, wire_enc_data(key), wire_enc_len(key), answer, len);
}

/* Images that are created alike are laid out alike: vkGetDeviceImageSubresourceLayout has nothing
 * else to go by. */
static void begin_layout_key(struct wire_enc *key, const struct wire_enc *created,
                             const VkImageSubresource *part)
{
    wire_enc_init(key, VNC_MEMO_KEY_BYTES);
    wire_put_u32(key, VN_CMD_vkGetImageSubresourceLayout);
    wire_put_u32(key, part->aspectMask);
    wire_put_u32(key, part->mipLevel);
    wire_put_u32(key, part->arrayLayer);
    wire_put_bytes(key, wire_enc_data(created), wire_enc_len(created));
}

static bool is_key(const struct wire_enc *created)
{
    return !wire_enc_error(created) && wire_enc_len(created) > 0;
}

bool vnc_layout_find(VkDevice device, const struct wire_enc *created,
                     const VkImageSubresource *part, VkSubresourceLayout *out)
{
    if (!is_key(created))
        return false;
    struct wire_enc key;
    begin_layout_key(&key, created, part);
    bool found = find(device, &key, out, sizeof(*out));
    wire_enc_fini(&key);
    return found;
}

void vnc_layout_keep(VkDevice device, const struct wire_enc *created,
                     const VkImageSubresource *part, const VkSubresourceLayout *layout)
{
    if (!is_key(created))
        return;
    struct wire_enc key;
    begin_layout_key(&key, created, part);
    keep(device, &key, layout, sizeof(*layout));
    wire_enc_fini(&key);
}

static VKAPI_ATTR void VKAPI_CALL get_image_subresource_layout(VkDevice device, VkImage image,
                                                               const VkImageSubresource *part,
                                                               VkSubresourceLayout *out)
{
    const struct wire_enc *created = &VNC_OBJECT(vnc_resource, image)->created;
    if (vnc_layout_find(device, created, part, out))
        return;
    vn_vkGetImageSubresourceLayout(device, image, part, out);
    vnc_layout_keep(device, created, part, out);
}

#ifdef VK_KHR_maintenance5

static VKAPI_ATTR void VKAPI_CALL get_rendering_area_granularity(VkDevice device,
                                                                 const VkRenderingAreaInfoKHR *info,
                                                                 VkExtent2D *out)
{
    if (info->pNext) {
        vn_vkGetRenderingAreaGranularityKHR(device, info, out);
        return;
    }
    struct wire_enc key;
    wire_enc_init(&key, VNC_MEMO_KEY_BYTES);
    wire_put_u32(&key, VN_CMD_vkGetRenderingAreaGranularityKHR);
    wire_put_u32(&key, info->viewMask);
    for (uint32_t i = 0; i < info->colorAttachmentCount && info->pColorAttachmentFormats; i++)
        wire_put_u32(&key, info->pColorAttachmentFormats[i]);
    wire_put_u32(&key, info->depthAttachmentFormat);
    wire_put_u32(&key, info->stencilAttachmentFormat);
    if (!find(device, &key, out, sizeof(*out))) {
        vn_vkGetRenderingAreaGranularityKHR(device, info, out);
        keep(device, &key, out, sizeof(*out));
    }
    wire_enc_fini(&key);
}

#endif

const struct vnc_entry vnc_entries_answers[] = {
    VNC_ENTRY(vkGetImageSubresourceLayout, get_image_subresource_layout),
#ifdef VK_KHR_maintenance5
    VNC_ENTRY(vkGetRenderingAreaGranularityKHR, get_rendering_area_granularity),
#endif
    {NULL, NULL},
};
