/* Query results: asked for at the server, which never waits; see queue.h. */
#include "venus/client/object/query.h"

#include "base/clock.h"
#include "venus/client/submit/queue.h"
#include "vn_client.gen.h"

/* Between two questions when nothing was heard of meanwhile. */
static const uint64_t ask_again_first_ns = 100 * HW_US;
static const uint64_t ask_again_most_ns = 10 * HW_MS;

struct news {
    struct vnc_device *device;
    uint64_t done; /* batches, when the question was asked */
};

static uint64_t batches_done(struct vnc_device *device)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < device->queue_count; i++)
        done += atomic_load_explicit(&device->queues[i]->done, memory_order_relaxed);
    return done;
}

static bool has_news(void *user)
{
    struct news *news = user;
    return batches_done(news->device) != news->done;
}

static VkResult ask(VkDevice device, VkQueryPool pool, uint32_t first, uint32_t count, size_t size,
                    void *data, VkDeviceSize stride, VkQueryResultFlags flags)
{
    struct vnc_link *link = vnc_link_of(device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    vn_enc_cmd_vkGetQueryPoolResults(e, device, pool, first, count, size, data, stride, flags);
    struct vn_decoder reply;
    VkResult result = vnc_link_call(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    result = vn_dec_reply_vkGetQueryPoolResults(&reply, device, pool, first, count, size, data,
                                                stride, flags);
    return vnc_link_finish(link, &reply) == VK_SUCCESS ? result : VK_ERROR_DEVICE_LOST;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_query_pool_results(VkDevice handle, VkQueryPool pool,
                                                             uint32_t first, uint32_t count,
                                                             size_t size, void *data,
                                                             VkDeviceSize stride,
                                                             VkQueryResultFlags flags)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    bool waits = flags & VK_QUERY_RESULT_WAIT_BIT;
    /* Who waits gets final results: a driver that was asked for partial ones need not say that they
     * are not ready. */
    VkQueryResultFlags once =
        waits
            ? flags & ~(VkQueryResultFlags)(VK_QUERY_RESULT_WAIT_BIT | VK_QUERY_RESULT_PARTIAL_BIT)
            : flags;
    uint64_t pause = ask_again_first_ns;
    for (;;) {
        VkResult status = vnc_device_status(device);
        if (status != VK_SUCCESS)
            return status;
        struct news news = {device, batches_done(device)};
        VkResult result = ask(handle, pool, first, count, size, data, stride, once);
        if (result != VK_NOT_READY || !waits)
            return result;
        if (vnc_link_wait(vnc_device_link(device), has_news, &news, pause) == VK_ERROR_DEVICE_LOST)
            return VK_ERROR_DEVICE_LOST;
        pause = pause * 2 < ask_again_most_ns ? pause * 2 : ask_again_most_ns;
    }
}

const struct vnc_entry vnc_entries_query[] = {
    VNC_ENTRY(vkGetQueryPoolResults, get_query_pool_results),
    {NULL, NULL},
};
