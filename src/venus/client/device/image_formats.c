/* Image format queries; see image_formats.h. */
#include "venus/client/device/image_formats.h"

#include "venus/client/device/instance.h"
#include "venus/client/memory/external.h"
#include "vn_client.gen.h"

enum { ANSWER_MAX = 1020 }; /* an answer with every structure of 1.3 takes some 200 bytes */

/* What the memo keeps: answers of one length, since it compares lengths. */
struct remembered {
    uint32_t len;
    uint8_t bytes[ANSWER_MAX];
};

/* One question.  The caller encodes it into `request`, asks, decodes `reply` and closes. */
struct question {
    struct vnc_physical_device *device;
    struct wire_enc request;
    struct vn_decoder reply;
    struct hw_arena arena;
    struct remembered answer;
    bool is_called; /* else the reply is the memo's */
};

static void question_open(struct question *q, VkPhysicalDevice device)
{
    q->device = VNC_OBJECT(vnc_physical_device, device);
    q->is_called = false;
    wire_enc_init(&q->request, WIRE_MESSAGE_MAX);
    hw_arena_init(&q->arena, VN_ARENA_MAX);
}

static void remember(struct question *q)
{
    struct wire_dec whole = q->reply.in;
    size_t len = wire_dec_left(&whole);
    if (len > ANSWER_MAX)
        return;
    q->answer = (struct remembered){.len = (uint32_t)len};
    wire_get_copy(&whole, q->answer.bytes, len);
}

static VkResult question_ask(struct question *q)
{
    if (wire_enc_error(&q->request))
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    if (vnc_memo_find(&q->device->queries, wire_enc_data(&q->request), wire_enc_len(&q->request),
                      &q->answer, sizeof(q->answer))) {
        vn_decoder_init(&q->reply, &q->arena, NULL, NULL);
        vn_decoder_feed(&q->reply, q->answer.bytes, q->answer.len);
        return VK_SUCCESS;
    }
    struct wire_enc *e = vnc_link_begin(q->device->link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    wire_put_bytes(e, wire_enc_data(&q->request), wire_enc_len(&q->request));
    VkResult result = vnc_link_call(q->device->link, &q->reply);
    q->is_called = result == VK_SUCCESS;
    q->answer.len = 0;
    if (q->is_called)
        remember(q);
    return result;
}

/* After decoding; the answer is kept only when it was well formed. */
static VkResult question_close(struct question *q)
{
    VkResult result = VK_SUCCESS;
    if (q->is_called)
        result = vnc_link_finish(q->device->link, &q->reply);
    if (q->is_called && result == VK_SUCCESS && q->answer.len)
        vnc_memo_add(&q->device->queries, wire_enc_data(&q->request), wire_enc_len(&q->request),
                     &q->answer, sizeof(q->answer));
    wire_enc_fini(&q->request);
    hw_arena_fini(&q->arena);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_image(VkPhysicalDevice device, VkFormat format,
                                                VkImageType type, VkImageTiling tiling,
                                                VkImageUsageFlags usage, VkImageCreateFlags flags,
                                                VkImageFormatProperties *out)
{
    struct question q;
    question_open(&q, device);
    vn_enc_cmd_vkGetPhysicalDeviceImageFormatProperties(&q.request, device, format, type, tiling,
                                                        usage, flags, out);
    VkResult result = question_ask(&q);
    if (result == VK_SUCCESS)
        result = vn_dec_reply_vkGetPhysicalDeviceImageFormatProperties(
            &q.reply, device, format, type, tiling, usage, flags, out);
    VkResult closed = question_close(&q);
    if (result == VK_ERROR_FORMAT_NOT_SUPPORTED)
        *out = (VkImageFormatProperties){0};
    return closed == VK_SUCCESS ? result : closed;
}

/* 0 asks as if the structure were not there. */
static bool asks_for_unknown_handle(VkPhysicalDevice device,
                                    const VkPhysicalDeviceImageFormatInfo2 *info)
{
    const VkPhysicalDeviceExternalImageFormatInfo *external =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_IMAGE_FORMAT_INFO);
    return external && external->handleType &&
           !vnc_external_has(VNC_OBJECT(vnc_physical_device, device), external->handleType);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_image2(VkPhysicalDevice device,
                                                 const VkPhysicalDeviceImageFormatInfo2 *info,
                                                 VkImageFormatProperties2 *out)
{
    struct question q;
    VkExternalImageFormatProperties *external =
        (void *)vn_chain_find(out->pNext, VK_STRUCTURE_TYPE_EXTERNAL_IMAGE_FORMAT_PROPERTIES);
    if (external)
        external->externalMemoryProperties = (VkExternalMemoryProperties){0};
    if (asks_for_unknown_handle(device, info)) {
        out->imageFormatProperties = (VkImageFormatProperties){0};
        return VK_ERROR_FORMAT_NOT_SUPPORTED;
    }
    question_open(&q, device);
    vn_enc_cmd_vkGetPhysicalDeviceImageFormatProperties2(&q.request, device, info, out);
    VkResult result = question_ask(&q);
    if (result == VK_SUCCESS)
        result =
            vn_dec_reply_vkGetPhysicalDeviceImageFormatProperties2(&q.reply, device, info, out);
    if (external)
        vnc_external_offer(&external->externalMemoryProperties);
    VkResult closed = question_close(&q);
    if (result == VK_ERROR_FORMAT_NOT_SUPPORTED)
        out->imageFormatProperties = (VkImageFormatProperties){0};
    return closed == VK_SUCCESS ? result : closed;
}

static VKAPI_ATTR void VKAPI_CALL get_sparse(VkPhysicalDevice device, VkFormat format,
                                             VkImageType type, VkSampleCountFlagBits samples,
                                             VkImageUsageFlags usage, VkImageTiling tiling,
                                             uint32_t *count, VkSparseImageFormatProperties *out)
{
    struct question q;
    question_open(&q, device);
    vn_enc_cmd_vkGetPhysicalDeviceSparseImageFormatProperties(&q.request, device, format, type,
                                                              samples, usage, tiling, count, out);
    if (question_ask(&q) == VK_SUCCESS)
        vn_dec_reply_vkGetPhysicalDeviceSparseImageFormatProperties(
            &q.reply, device, format, type, samples, usage, tiling, count, out);
    else
        *count = 0;
    (void)question_close(&q);
}

static VKAPI_ATTR void VKAPI_CALL get_sparse2(VkPhysicalDevice device,
                                              const VkPhysicalDeviceSparseImageFormatInfo2 *info,
                                              uint32_t *count, VkSparseImageFormatProperties2 *out)
{
    struct question q;
    question_open(&q, device);
    vn_enc_cmd_vkGetPhysicalDeviceSparseImageFormatProperties2(&q.request, device, info, count,
                                                               out);
    if (question_ask(&q) == VK_SUCCESS)
        vn_dec_reply_vkGetPhysicalDeviceSparseImageFormatProperties2(&q.reply, device, info, count,
                                                                     out);
    else
        *count = 0;
    (void)question_close(&q);
}

const struct vnc_entry vnc_entries_image_formats[] = {
    VNC_ENTRY(vkGetPhysicalDeviceImageFormatProperties, get_image),
    VNC_ENTRY(vkGetPhysicalDeviceImageFormatProperties2, get_image2),
    VNC_ENTRY(vkGetPhysicalDeviceSparseImageFormatProperties, get_sparse),
    VNC_ENTRY(vkGetPhysicalDeviceSparseImageFormatProperties2, get_sparse2),
    {NULL, NULL},
};
