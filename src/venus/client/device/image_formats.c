/* Image format queries; see image_formats.h. */
#include "venus/client/device/image_formats.h"

#include "venus/client/device/instance.h"
#include "venus/client/memory/external.h"
#include "vn_client.gen.h"

#include <stdlib.h>

enum { ANSWER_MAX = 252 }; /* an answer with every structure of 1.3 takes some 200 bytes */

/* What the memo keeps: answers of one length, since it compares lengths. */
struct remembered {
    uint32_t len;
    uint8_t bytes[ANSWER_MAX];
};

/* One question.  The caller encodes it into `request`, starts, ends, decodes `reply` and closes. */
struct question {
    struct vnc_physical_device *device;
    struct wire_enc request;
    struct vnc_call *call; /* NULL: not started, or ended */
    struct vn_decoder reply;
    struct hw_arena arena;
    struct remembered answer;
    bool is_known;  /* the reply is the memo's */
    bool is_called; /* the reply is the server's */
};

static void question_open(struct question *q, VkPhysicalDevice device)
{
    q->device = VNC_OBJECT(vnc_physical_device, device);
    q->call = NULL;
    q->is_known = q->is_called = false;
    wire_enc_init(&q->request, WIRE_MESSAGE_MAX);
    hw_arena_init(&q->arena, VN_ARENA_MAX);
}

static void remember(struct question *q)
{
    struct wire_dec whole = q->reply.in;
    size_t len = wire_dec_left(&whole);
    q->answer.len = 0;
    if (len > ANSWER_MAX)
        return;
    q->answer = (struct remembered){.len = (uint32_t)len};
    wire_get_copy(&whole, q->answer.bytes, len);
}

static bool question_is_known(struct question *q)
{
    q->is_known = !wire_enc_error(&q->request) &&
                  vnc_memo_find(&q->device->queries, wire_enc_data(&q->request),
                                wire_enc_len(&q->request), &q->answer, sizeof(q->answer));
    if (q->is_known) {
        vn_decoder_init(&q->reply, &q->arena, NULL, NULL);
        vn_decoder_feed(&q->reply, q->answer.bytes, q->answer.len);
    }
    return q->is_known;
}

/* Sends it, unless its answer is known. */
static void question_start(struct question *q)
{
    struct wire_enc *e =
        q->is_known || wire_enc_error(&q->request) ? NULL : vnc_link_begin(q->device->link);
    if (!e)
        return;
    wire_put_bytes(e, wire_enc_data(&q->request), wire_enc_len(&q->request));
    q->call = vnc_link_call_start(q->device->link);
}

static VkResult question_end(struct question *q)
{
    if (q->is_known)
        return VK_SUCCESS;
    if (!q->call)
        return vnc_link_is_lost(q->device->link) ? VK_ERROR_DEVICE_LOST
                                                 : VK_ERROR_OUT_OF_HOST_MEMORY;
    VkResult result = vnc_link_call_end(q->call, &q->reply);
    q->call = NULL;
    q->is_called = result == VK_SUCCESS;
    if (q->is_called)
        remember(q);
    return result;
}

static VkResult question_ask(struct question *q)
{
    if (!question_is_known(q))
        question_start(q);
    return question_end(q);
}

/* After decoding, or with the whole reply skipped. */
static VkResult question_close(struct question *q)
{
    VkResult result = VK_SUCCESS;
    if (q->is_called)
        result = vnc_link_finish(q->device->link, &q->reply);
    if (q->is_called && result == VK_SUCCESS && q->answer.len)
        vnc_memo_add(&q->device->queries, wire_enc_data(&q->request), wire_enc_len(&q->request),
                     &q->answer, sizeof(q->answer));
    if (q->is_known && vn_decoder_end(&q->reply)) { /* it was skipped when it came */
        vnc_link_lose(q->device->link, "its answer cannot be read");
        result = VK_ERROR_DEVICE_LOST;
    }
    wire_enc_fini(&q->request);
    hw_arena_fini(&q->arena);
    return result;
}

/* ---- images ---- */

static void image_open(struct question *q, VkPhysicalDevice device, VkFormat format,
                       const VkPhysicalDeviceImageFormatInfo2 *info, VkImageFormatProperties2 *out)
{
    VkPhysicalDeviceImageFormatInfo2 about = *info;
    about.format = format;
    question_open(q, device);
    vn_enc_cmd_vkGetPhysicalDeviceImageFormatProperties2(&q->request, device, &about, out);
}

/* Whether the same was asked before of another format.  Then the program goes through formats. */
static bool goes_through(VkPhysicalDevice device, const VkPhysicalDeviceImageFormatInfo2 *info,
                         VkImageFormatProperties2 *out)
{
    struct question of_none;
    image_open(&of_none, device, VK_FORMAT_UNDEFINED, info, out);
    struct vnc_memo *memo = &of_none.device->queries;
    const uint8_t *key = wire_enc_data(&of_none.request);
    size_t len = wire_enc_len(&of_none.request);
    bool asked = true, found = wire_enc_error(&of_none.request) ||
                               vnc_memo_find(memo, key, len, &asked, sizeof(asked));
    if (!found)
        vnc_memo_add(memo, key, len, &asked, sizeof(asked));
    (void)question_close(&of_none);
    return found && vnc_memo_has_room(memo);
}

struct ahead {
    uint32_t count;
    struct question questions[];
};

/* Asks the same of the other formats of Vulkan 1.0, without waiting; NULL when out of memory.  A
 * validation layer at the server may not know later ones. */
static struct ahead *ahead_start(VkPhysicalDevice device,
                                 const VkPhysicalDeviceImageFormatInfo2 *info,
                                 VkImageFormatProperties2 *out)
{
    const struct vnc_snapshot *snapshot = VNC_OBJECT(vnc_physical_device, device)->snapshot;
    struct ahead *ahead =
        malloc(sizeof(*ahead) + snapshot->format_count * sizeof(ahead->questions[0]));
    if (!ahead)
        return NULL;
    ahead->count = 0;
    for (uint32_t i = 0; i < snapshot->format_count; i++) {
        VkFormat format = snapshot->formats[i].format;
        if (format == info->format || format > VK_FORMAT_ASTC_12x12_SRGB_BLOCK)
            continue;
        struct question *q = &ahead->questions[ahead->count++];
        image_open(q, device, format, info, out);
        if (!question_is_known(q))
            question_start(q);
    }
    return ahead;
}

static void ahead_end(struct ahead *ahead)
{
    for (uint32_t i = 0; ahead && i < ahead->count; i++) {
        struct question *q = &ahead->questions[i];
        if (q->call && question_end(q) == VK_SUCCESS)
            (void)wire_get_bytes(&q->reply.in, wire_dec_left(&q->reply.in));
        q->is_known = false; /* nobody decodes it */
        (void)question_close(q);
    }
    free(ahead);
}

static VkResult ask_image(VkPhysicalDevice device, const VkPhysicalDeviceImageFormatInfo2 *info,
                          VkImageFormatProperties2 *out)
{
    struct question q;
    image_open(&q, device, info->format, info, out);
    struct ahead *ahead = NULL;
    if (!question_is_known(&q)) {
        if (goes_through(device, info, out))
            ahead = ahead_start(device, info, out);
        question_start(&q);
    }
    VkResult result = question_end(&q); /* behind the others */
    ahead_end(ahead);
    if (result == VK_SUCCESS)
        result =
            vn_dec_reply_vkGetPhysicalDeviceImageFormatProperties2(&q.reply, device, info, out);
    VkResult closed = question_close(&q);
    if (result == VK_ERROR_FORMAT_NOT_SUPPORTED)
        out->imageFormatProperties = (VkImageFormatProperties){0};
    return closed == VK_SUCCESS ? result : closed;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_image(VkPhysicalDevice device, VkFormat format,
                                                VkImageType type, VkImageTiling tiling,
                                                VkImageUsageFlags usage, VkImageCreateFlags flags,
                                                VkImageFormatProperties *out)
{
    VkPhysicalDeviceImageFormatInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_IMAGE_FORMAT_INFO_2,
        .format = format,
        .type = type,
        .tiling = tiling,
        .usage = usage,
        .flags = flags,
    };
    VkImageFormatProperties2 properties = {.sType = VK_STRUCTURE_TYPE_IMAGE_FORMAT_PROPERTIES_2};
    VkResult result = ask_image(device, &info, &properties);
    *out = properties.imageFormatProperties;
    return result;
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
    VkExternalImageFormatProperties *external =
        (void *)vn_chain_find(out->pNext, VK_STRUCTURE_TYPE_EXTERNAL_IMAGE_FORMAT_PROPERTIES);
    if (external)
        external->externalMemoryProperties = (VkExternalMemoryProperties){0};
    if (asks_for_unknown_handle(device, info)) {
        out->imageFormatProperties = (VkImageFormatProperties){0};
        return VK_ERROR_FORMAT_NOT_SUPPORTED;
    }
    VkResult result = ask_image(device, info, out);
    if (external)
        vnc_external_offer(&external->externalMemoryProperties);
    return result;
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
